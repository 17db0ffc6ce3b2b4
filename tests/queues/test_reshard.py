"""A queue's number of shards, changed: what is refused before, and that nothing is lost or doubled, killed or not."""

import os
import signal
import subprocess
import sys
from collections import Counter
from collections.abc import Callable
from typing import Any

import pytest
import redis

from duecourse.errors import StoreMisused, StoreUnavailable
from duecourse.ledger.connect import Client, connect
from duecourse.ledger.keys import keys_of
from duecourse.ledger.layout import VERSION
from duecourse.ledger.maintenance import BATCH, Reshard, Scan
from duecourse.ledger.many_tasks import TaskFilter
from duecourse.ledger.operation_types import Move
from duecourse.ledger.operations.ledger import Ledger
from duecourse.ledger.queue_history import HistorySpan, history_of
from duecourse.ledger.script_calls import Scripts
from duecourse.ledger.script_codec import MAX_PIECE_BYTES
from duecourse.ledger.sharding import Sharding
from duecourse.ledger.task import Ending, NewTask, RetryPolicy, Shard, Status, Task, is_notification
from tests.support import redis_ledger
from tests.support.clock import HandClock
from tests.support.crashes import Crash, CrashingReshard, crashing_reshards
from tests.support.ledger import LATER_MS, LEASE_MS, ending, new
from tests.support.matrix import MATRIX, in_turn
from tests.support.redis_cluster import ClusterServers
from tests.support.redis_server import REDIS, RedisServer, need
from tests.support.source import LAYER, ROOT

pytestmark = pytest.mark.slow

USES: dict[str, Callable[[Ledger], object]] = {
    "add": lambda ledger: ledger.add([new("x")]),
    "get": lambda ledger: ledger.get("default", "t-0"),
    "group": lambda ledger: ledger.group("default", "g"),
    "page": lambda ledger: ledger.page("default", TaskFilter(), None, 9),
    "claim": lambda ledger: ledger.claim(Shard(), 1, lease_ms=LEASE_MS),
    "take": lambda ledger: ledger.take("default", "t-0", lease_ms=LEASE_MS),
    "configure": lambda ledger: ledger.configure("default", {"paused": True}),
    "held back": lambda ledger: ledger.throttle(Shard()),
    "move": lambda ledger: ledger.move("default", [Move("t-0")]),
    "stats": lambda ledger: ledger.stats(Shard()),
    "sweep": lambda ledger: ledger.sweep(Shard(), retention_ms=1),
}


def ledger_of(client: Client, count: int) -> Ledger:
    return Ledger(client, sharding=Sharding({"default": count}))


def every(count: int) -> list[Shard]:
    return Sharding({"default": count}).every("default")


def _ended(n: int) -> NewTask:
    payload = '"' + 3_000 * "x" + '"' if n % 4 else "1"
    return new(f"x-{n}", notify="audit", group="" if n % 2 else f"e-{n}", payload=payload)


def filled(ledger: Ledger, count: int, many: int = 60) -> dict[str, Task]:
    """Tasks of all states but leased, some in groups, of several tenants, and what tells of their ends."""
    ledger.add([_ended(n) for n in range(30)])
    for shard in every(count):
        tasks = ledger.claim(shard, 100, lease_ms=LEASE_MS).tasks
        ends = [
            ending(t, (Ending.DONE, Ending.DROP, Ending.AGAIN)[n % 3], delay_ms=LATER_MS) for n, t in enumerate(tasks)
        ]
        ledger.settle(shard, ends)
    for n in range(many):
        ledger.add([new(f"t-{n}", delay_ms=LATER_MS, group=f"g-{n % 5}" if n % 2 else "")])
    ledger.add([new("t-0", tenant="other", delay_ms=LATER_MS), new("t-1", tenant="other", payload='"x"')])
    return standing(ledger, many)


def standing(ledger: Ledger, many: int = 60) -> dict[str, Task]:
    ids = [
        *((f"x-{n}", "-") for n in range(30)),
        *((f"t-{n}", "-") for n in range(many)),
        ("t-0", "other"),
        ("t-1", "other"),
    ]
    found = {f"{tenant}/{id}": ledger.get("default", id, tenant) for id, tenant in ids}
    told = ledger.page("default", TaskFilter(kind="audit"), None, 100).tasks
    assert len({task.id for task in told if "~" in task.id}) >= 20
    return {sid: task for sid, task in found.items() if task} | {f"-/{task.id}": task for task in told}


def assert_whole(client: Client, before: dict[str, Task], count: int) -> None:
    """Every task is as it was, in its own shard and no other, and fences go on above all."""
    ledger = ledger_of(client, count)
    assert standing(ledger, sum(sid.startswith("-/t-") for sid in before)) == before
    assert ledger.shards() == every(count)
    fences = [redis_ledger.check(client, shard) for shard in every(count)]
    assert min(fences) >= max(max(task.generation, task.fence) for task in before.values())
    places = Counter[str]()
    for shard in every(count):
        sids = [sid.decode() for sid in client.hkeys(keys_of("duecourse", shard).tasks) if b"=" not in sid]
        places.update(sids)
        assert all(ledger.shard_of("default", before[sid].id, before[sid].group) == shard for sid in sids)
    assert places == Counter(before.keys())
    shards = tuple(f"duecourse:{{{shard}" for shard in every(count))
    strays = [key for k in client.scan_iter("duecourse:{*") if not (key := k.decode()).startswith(shards)]
    assert all(key.endswith((":meta", ":ledger")) for key in strays), "only what refuses those who still count on it"
    for task in before.values():
        if task.status is Status.SCHEDULED and task.group and not is_notification(task.id):
            assert task.id in [member.id for member in ledger.group("default", task.group)]


@pytest.mark.parametrize(("was", "to"), [(1, 8), (8, 1), (3, 5), (5, 3), (4, 4)])
def test_every_task_moves_to_its_own_shard_as_it_is(redis_client: redis.Redis, was: int, to: int) -> None:
    before = filled(ledger_of(redis_client, was), was)
    total = Reshard(redis_client, "duecourse", "default", to, lambda _: None).run(0)
    assert total == (len(before) if was != to else 0)
    if was == to:
        assert standing(ledger_of(redis_client, to)) == before
    else:
        assert_whole(redis_client, before, to)


@pytest.mark.parametrize("ids", [["t-1"], []], ids=["one task", "no task"])
def test_shards_that_never_had_a_task_are_of_the_newest_version_after_it_too(
    redis_client: redis.Redis, ids: list[str]
) -> None:
    ledger = ledger_of(redis_client, 3)
    ledger.configure("default", {"priority": 9})
    ledger.add([new(id) for id in ids])
    assert not redis_client.hexists(keys_of("duecourse", Shard()).meta, "fence")
    Reshard(redis_client, "duecourse", "default", 5, lambda _: None).run(0)
    metas = [keys_of("duecourse", shard).meta for shard in every(5)]
    assert {redis_client.hget(meta, "layout") for meta in metas} == {str(VERSION).encode()}


@pytest.mark.parametrize(("was", "to"), [(1, 8), (8, 1), (5, 3)])
def test_numbers_over_time_add_up_to_what_they_were(
    redis_client: redis.Redis, clock: HandClock, was: int, to: int
) -> None:
    ledger = Ledger(redis_client, sharding=Sharding({"default": was}), travel=clock)
    for minute in range(20):
        ledger.add([new(f"{minute}-{n}") for n in range(minute + 2)])
        for shard in every(was):
            tasks = ledger.claim(shard, 100, lease_ms=LEASE_MS).tasks
            ledger.settle(shard, [ending(task, Ending.DONE).with_lateness(task, minute) for task in tasks])
        clock.advance(60_000)
    spans: list[HistorySpan] = ["1h", "7d", "90d"]
    before = [history_of("default", span, ledger.history_of(every(was)), clock.now()) for span in spans]
    assert before[0].total.done == sum(range(2, 22))
    for shard in every(max(was, to)):  # its tool runs by the server's clock
        redis_client.hdel(keys_of("duecourse", shard).meta, "clock")
    Reshard(redis_client, "duecourse", "default", to, lambda _: None).run(0)
    ledger = Ledger(redis_client, sharding=Sharding({"default": to}), travel=clock)
    after = [history_of("default", span, ledger.history_of(every(to)), clock.now()) for span in spans]
    assert after == before
    for shard in every(was)[to:]:
        keys = keys_of("duecourse", shard)
        assert not redis_client.exists(keys.history)
        assert not redis_client.hexists(keys.meta, "numbers")


def test_a_cluster_is_resharded_from_node_to_node(cluster: ClusterServers) -> None:
    with connect(cluster.url) as client:
        before = filled(ledger_of(client, 2), 2)
        Reshard(client, "duecourse", "default", 8, lambda _: None).run(0)
        assert_whole(client, before, 8)


def test_after_it_tasks_run_and_their_fences_only_grow(redis_client: redis.Redis) -> None:
    before = filled(ledger_of(redis_client, 2), 2)
    Reshard(redis_client, "duecourse", "default", 5, lambda _: None).run(0)
    ledger = ledger_of(redis_client, 5)
    ledger.move("default", [Move(f"t-{n}") for n in range(60)])
    ran = [task for shard in every(5) for task in ledger.claim(shard, 100, lease_ms=LEASE_MS).tasks]
    assert {task.id for task in ran} >= {f"t-{n}" for n in range(60)}
    highest = max(max(task.fence, task.generation) for task in before.values())
    assert all(task.fence > highest for task in ran)
    assert all(task.idempotency_key == before[f"{task.tenant}/{task.id}"].idempotency_key for task in ran)


@pytest.mark.parametrize(("was", "to"), in_turn((3, 5), (5, 2)))
def test_cut_off_at_any_step_and_run_again_nothing_is_lost_or_doubled(
    redis_client: redis.Redis, was: int, to: int
) -> None:
    steps = 0
    for cut_off in crashing_reshards(redis_client, to):
        redis_client.flushall()
        before = filled(ledger_of(redis_client, was), was, many=12)
        cut_off()
        assert_whole(redis_client, before, to)
        steps += 1
    assert steps > 40


def command(url: str, to: int, *more: str) -> subprocess.Popen[str]:
    words = [sys.executable, "-m", "local", "reshard", "default", str(to), "--store", url, *more]
    environment = {**os.environ, "PYTHONPATH": f"{LAYER}{os.pathsep}{ROOT}", "PYTHONUNBUFFERED": "1"}
    return subprocess.Popen(
        words, cwd=ROOT, env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    )


@MATRIX
def test_killed_in_the_middle_the_queue_stays_closed_until_the_command_is_run_again(cluster: ClusterServers) -> None:
    with connect(cluster.url) as client:
        before = filled(ledger_of(client, 1), 1, many=2_000)
        with command(cluster.url, 4) as killed:
            assert killed.stdout
            assert any("moved" in line for line in killed.stdout)
            killed.kill()
        for count in (1, 4):
            with pytest.raises((StoreUnavailable, StoreMisused)):
                ledger_of(client, count).add([new("x")])
        with command(cluster.url, 4) as again:
            said, _ = again.communicate()
        assert again.returncode == 0, said
        assert f"default has 4 shards now, {len(before)} tasks in them" in said
        assert_whole(client, before, 4)


def test_another_count_is_refused_at_the_first_use_and_both_are_named(redis_client: redis.Redis) -> None:
    ledger_of(redis_client, 3).add([new("a")])
    for use in USES.values():
        with pytest.raises(
            StoreMisused, match=r"default has 3 registered shards .* says 5: .*duecourse reshard default 5"
        ):
            use(ledger_of(redis_client, 5))
    ledger_of(redis_client, 5).add([NewTask("a", "work", queue="another")])


@pytest.mark.parametrize("use", ["add", "claim", "group", "move", "sweep"])
@pytest.mark.parametrize(("was", "to"), [(1, 4), (4, 1)])
def test_a_process_that_began_before_it_is_refused_and_changes_nothing(
    redis_client: redis.Redis, use: str, was: int, to: int
) -> None:
    old = ledger_of(redis_client, was)
    before = filled(old, was)
    Reshard(redis_client, "duecourse", "default", to, lambda _: None).run(0)
    tries = [lambda n=n: old.add([new(f"new-{n}")]) for n in range(9)] if use == "add" else [lambda: USES[use](old)]
    for one in tries:  # some of them are for shards that there are no more
        with pytest.raises(StoreMisused, match=f"default has {to} registered shards"):
            one()
    assert_whole(redis_client, before, to)


def test_of_two_counts_at_a_queues_beginning_the_first_add_decides(redis_client: redis.Redis) -> None:
    three, five = ledger_of(redis_client, 3), ledger_of(redis_client, 5)
    assert five.get("default", "a") is None, "it has looked, and nothing was registered"
    three.add([new(f"t-{n}") for n in range(20)])
    for n in range(9):
        with pytest.raises(StoreMisused, match="default has 3 registered shards"):
            five.add([new(f"t-{n}")])
    assert three.shards() == every(3)


def test_leases_are_waited_for_and_then_refused_with_the_queue_as_it_was(redis_client: redis.Redis) -> None:
    ledger = ledger_of(redis_client, 2)
    ledger.add([new("a"), new("b", delay_ms=LATER_MS)])
    home = ledger.shard_of("default", "a")
    (task,) = ledger.claim(home, 1, lease_ms=LEASE_MS).tasks
    said: list[str] = []
    with pytest.raises(StoreMisused, match=r"tasks of default still run, 1 of them: .* nothing is changed"):
        Reshard(redis_client, "duecourse", "default", 4, said.append).run(0.3)
    assert any("tasks that still run: 1" in line for line in said)
    assert not ledger.stats(home).settings.paused
    ledger.settle(home, [ending(task, Ending.AGAIN)])
    assert [t.id for t in ledger.claim(home, 1, lease_ms=50).tasks] == ["a"]  # a worker that died
    Reshard(redis_client, "duecourse", "default", 4, said.append).run(10)
    assert sorted(t.id for s in every(4) for t in ledger_of(redis_client, 4).claim(s, 9, lease_ms=LEASE_MS).tasks) == [
        "a"
    ]


def test_a_queue_that_was_paused_stays_paused(redis_client: redis.Redis) -> None:
    ledger = ledger_of(redis_client, 2)
    ledger.add([new("a")])
    ledger.configure("default", {"paused": True})
    Reshard(redis_client, "duecourse", "default", 4, lambda _: None).run(0)
    assert all(ledger_of(redis_client, 4).stats(shard).settings.paused for shard in every(4))


def test_ids_that_would_meet_are_named_and_nothing_moves(redis_client: redis.Redis) -> None:
    ledger = ledger_of(redis_client, 8)
    groups = [f"g-{n}" for n in range(2, 20)]
    other = next(g for g in groups if ledger.shard_of("default", "", g) != ledger.shard_of("default", "", "g-1"))
    ledger.add([new("same", group="g-1"), new("same", group=other)])
    with pytest.raises(StoreMisused, match=r"would meet in one shard: same; nothing is changed"):
        Reshard(redis_client, "duecourse", "default", 1, lambda _: None).run(0)
    assert [len(ledger.group("default", g)) for g in ("g-1", other)] == [1, 1]
    ledger.add([new("b")])


def test_a_change_that_was_cut_off_is_ended_before_another(redis_client: redis.Redis) -> None:
    filled(ledger_of(redis_client, 2), 2)
    with pytest.raises(Crash):
        CrashingReshard(redis_client, "duecourse", "default", 5, lambda _: None).cut_after(25).run(0)
    with pytest.raises(StoreMisused, match="from 2 to 5 shards was interrupted: run `duecourse reshard default 5`"):
        Reshard(redis_client, "duecourse", "default", 3, lambda _: None)


def test_of_two_at_once_the_later_one_goes_on(redis_client: redis.Redis) -> None:
    before = filled(ledger_of(redis_client, 2), 2)
    later: list[Reshard] = []

    def begin_another(line: str) -> None:
        if "moved" in line and not later:
            later.append(Reshard(redis_client, "duecourse", "default", 5, lambda _: None))
            later[0]._pause(0)
            later[0]._close()

    with pytest.raises(StoreMisused, match="another reshard of default has begun"):
        Reshard(redis_client, "duecourse", "default", 5, begin_another).run(0)
    later[0].run(0)
    assert_whole(redis_client, before, 5)


def test_no_task_is_dropped_before_the_replicas_have_it_where_it_moves_to(
    redis_client: redis.Redis, replicas_do_not_come: Callable[[], None]
) -> None:
    replicas_do_not_come()
    before = filled(ledger_of(redis_client, 1), 1)
    with pytest.raises(StoreUnavailable, match="0 of 1 replicas have the change"):
        Reshard(redis_client, "duecourse", "default", 3, lambda _: None, wait=1).run(0)
    kept = {sid.decode() for sid in redis_client.hkeys(keys_of("duecourse", Shard()).tasks)}
    assert {f"-/t-{n}" for n in range(1, 60)} <= kept
    Reshard(redis_client, "duecourse", "default", 3, lambda _: None).run(0)
    assert_whole(redis_client, before, 3)


def test_a_store_without_the_queue_has_nothing_to_move(redis_server: RedisServer) -> None:
    with command(redis_server.url, 4) as process:
        said, _ = process.communicate()
    assert process.returncode == 0
    assert "nothing was ever added to default" in said


def test_a_change_to_another_count_is_refused_though_it_began_before_the_one_that_is_under_way(
    redis_client: redis.Redis,
) -> None:
    """It knows nothing of the shards that are filled meanwhile: what is in them would be lost."""
    before = filled(ledger_of(redis_client, 2), 2)
    late = Reshard(redis_client, "duecourse", "default", 3, lambda _: None)
    with pytest.raises(Crash):
        CrashingReshard(redis_client, "duecourse", "default", 8, lambda _: None).cut_after(60).run(0)
    with pytest.raises(StoreMisused, match="run `duecourse reshard default 8` first"):
        late.run(0)
    Reshard(redis_client, "duecourse", "default", 8, lambda _: None).run(0)
    with pytest.raises(StoreMisused, match="has 8 shards"):
        late.run(0)
    assert_whole(redis_client, before, 8)


def test_a_change_cut_off_before_it_is_registered_is_not_forgotten_by_another(redis_client: redis.Redis) -> None:
    before = filled(ledger_of(redis_client, 2), 2)

    class Unrecorded(Reshard):
        def _register_all(self) -> None:
            raise Crash

    with pytest.raises(Crash):
        Unrecorded(redis_client, "duecourse", "default", 8, lambda _: None).run(0)
    Reshard(redis_client, "duecourse", "default", 3, lambda _: None).run(0)
    assert_whole(redis_client, before, 3)


def test_one_who_gives_up_waiting_for_leases_opens_the_queue_by_its_old_count(redis_client: redis.Redis) -> None:
    ledger = ledger_of(redis_client, 2)
    ledger.add([new("a"), new("b", delay_ms=LATER_MS)])
    home = ledger.shard_of("default", "a")
    ledger.claim(home, 1, lease_ms=LEASE_MS)

    def interrupt(_line: str) -> None:
        raise Crash

    with pytest.raises(Crash):
        Reshard(redis_client, "duecourse", "default", 4, interrupt).run(5)
    assert ledger.stats(home).settings.paused
    assert Reshard(redis_client, "duecourse", "default", 2, lambda _: None).run(0) == 0
    assert not any(ledger.stats(shard).settings.paused for shard in every(2))


@pytest.mark.parametrize("spoilt", [bytes([VERSION + 1]), b""], ids=["of another version", "empty"])
def test_a_record_that_cannot_be_read_is_named_and_nothing_moves(redis_client: redis.Redis, spoilt: bytes) -> None:
    ledger = ledger_of(redis_client, 1)
    ledger.add([new(f"t-{n}", delay_ms=LATER_MS) for n in range(9)])
    tasks = keys_of("duecourse", Shard()).tasks
    data: Any = redis_client.hget(tasks, "-/t-3")
    redis_client.hset(tasks, "-/t-3", spoilt + data[1:] if spoilt else b"")
    with pytest.raises(StoreMisused, match=r"the record of -/t-3 in default cannot be read: .*; nothing is changed"):
        Reshard(redis_client, "duecourse", "default", 4, lambda _: None).run(0)
    assert redis_client.hlen(tasks) == 9
    assert not ledger.stats(Shard()).settings.paused


def test_no_request_of_it_has_more_tasks_than_a_batch_however_a_hash_is_packed(redis_server: RedisServer) -> None:
    """A hash that Redis keeps as one list is scanned whole, whatever count is asked for."""
    sizes: list[int] = []

    class Weighed(Reshard):
        def _move(self, shard: Shard, items: Any) -> None:
            sizes.append(len(items))
            super()._move(shard, items)

    kind = "ziplist" if "hash-max-ziplist-entries" in info(redis_server) else "listpack"
    with connect(redis_server.url) as client:
        packed = {f"hash-max-{kind}-entries": 4_000, f"hash-max-{kind}-value": 4_000}
        before = {name: client.config_get(name)[name] for name in packed}
        for name, value in packed.items():
            client.config_set(name, value)
        ledger_of(client, 1).add([new(f"t-{n}", delay_ms=LATER_MS) for n in range(900)])
        Weighed(client, "duecourse", "default", 4, lambda _: None).run(0)
        for name, value in before.items():
            client.config_set(name, value)
    assert sum(sizes) > 600
    assert max(sizes) <= BATCH


def info(server: RedisServer) -> Any:
    """The server's settings."""
    with server.client(decode_responses=True) as client:
        return client.config_get("hash-max-*")


def test_a_task_that_dies_of_a_lapse_meanwhile_is_told_of(redis_client: redis.Redis) -> None:
    ledger = ledger_of(redis_client, 1)
    ledger.add([new("a", retry=RetryPolicy(max_attempts=1))])
    ledger.claim(Shard(), 1, lease_ms=1)
    Reshard(redis_client, "duecourse", "default", 3, lambda _: None, deaths=True).run(5)
    (told,) = ledger_of(redis_client, 3).page("default", TaskFilter(Status.SCHEDULED), None, 9).tasks
    assert told.kind == "task.dead"


def test_large_tasks_are_scanned_a_few_at_a_time(redis_client: redis.Redis) -> None:
    ledger_of(redis_client, 1).add([new(f"t{n}", payload=f'"{"x" * 200_000}"') for n in range(60)])
    batches = list(Scan(Scripts(redis_client, None), "duecourse", "default").batches(Shard()))
    assert {item.task.id for batch in batches for item in batch} == {f"t{n}" for n in range(60)}
    assert max(sum(len(item.data) for item in batch) for batch in batches) <= 2 * MAX_PIECE_BYTES


@pytest.mark.parametrize("binary", REDIS)
def test_tasks_that_a_scan_has_missed_since_its_server_was_started_again_move_too(binary: str) -> None:
    """A server that has started hashes anew: what a cursor has passed is not what was looked at before."""
    with (
        RedisServer(need(binary), "--appendonly", "yes", "--appendfsync", "always") as server,
        connect(server.url) as client,
    ):
        ledger_of(client, 3).add([new(f"t-{n}", delay_ms=LATER_MS) for n in range(900)])
        started: list[str] = []

        def start_again(line: str) -> None:
            if "moved" in line and not started:
                started.append(line)
                server.stop(signal.SIGKILL)
                server.start()

        Reshard(client, "duecourse", "default", 1, start_again).run(0)
        assert started
        assert ledger_of(client, 1).stats(Shard()).scheduled == 900
        assert not any(client.exists(keys_of("duecourse", shard).tasks) for shard in every(3)[1:])
