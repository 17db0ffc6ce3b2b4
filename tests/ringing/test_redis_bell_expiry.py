"""What Redis does with a key that has a TTL, measured once and relied on since; each rule has a test."""

import re
import signal
import time
from collections import Counter
from collections.abc import Callable, Iterator
from importlib.resources import files
from pathlib import Path

import pytest
import redis

from duecourse.errors import StoreFull, StoreMisused
from duecourse.ledger.connect import connect
from duecourse.ledger.many_tasks import TaskFilter
from duecourse.ledger.operation_types import Delivery, Settled
from duecourse.ledger.operations.ledger import Ledger
from duecourse.ledger.task import Ending, RetryPolicy, Shard, Status
from tests.support import redis_ledger
from tests.support.clock import HandClock
from tests.support.ledger import LEASE_MS, SHARD, add, claim, claim_one, ending, lease_of, new, settle
from tests.support.redis_server import EVERY, RedisServer, need
from tests.support.wait import until

REDIS_SERVERS = EVERY
BELL = "duecourse:{default/0}:bell"
SCRIPTS = list(Path(str(files("duecourse.ledger") / "lua")).rglob("*.lua"))
FORBIDDEN = {"SETEX", "PSETEX", "GETEX", "EX", "PX", "EXAT", "PERSIST", "RESTORE", "EXISTS", "TTL", "PTTL"}
DEADMAN_MS = 1_000


@pytest.fixture
def ledger(redis_client: redis.Redis) -> Ledger:
    """A ledger on the server's own time."""
    return Ledger(redis_client)


@pytest.fixture
def events(redis_server: RedisServer) -> Iterator[Callable[[], list[str]]]:
    """What the server tells about the bell's key from now on, as `set`, `expired`, ..., in order."""
    with redis_server.client(decode_responses=True) as client, client.pubsub() as pubsub:
        client.config_set("notify-keyspace-events", "KA")
        pubsub.subscribe(f"__keyspace@0__:{BELL}")
        until(lambda: pubsub.get_message(timeout=1))
        heard: list[str] = []

        def drain() -> list[str]:
            while message := pubsub.get_message(timeout=0.02):
                heard.append(message["data"])
            return heard

        yield drain


NOW_IN_LUA = "local function now() local t = redis.call('TIME') return t[1] * 1000 + math.floor(t[2] / 1000) end "


def goes_at(client: redis.Redis) -> int:
    """The instant at which the bell's key goes."""
    before, left, after = client.eval(NOW_IN_LUA + "return {now(), redis.call('PTTL', KEYS[1]), now()}", 1, BELL)  # type: ignore[misc]
    return before + left if before == after else goes_at(client)


@pytest.fixture
def no_cycle(redis_server: RedisServer) -> Iterator[None]:
    """No cycle of the server's own: a key past its time goes only when it is touched."""
    with redis_server.client() as client:
        client.execute_command("DEBUG", "SET-ACTIVE-EXPIRE", "0")
        yield
        client.execute_command("DEBUG", "SET-ACTIVE-EXPIRE", "1")


@pytest.mark.parametrize("script", SCRIPTS, ids=lambda path: path.name)
def test_no_script_sets_a_time_to_live_but_by_set_pxat(script: Path) -> None:
    code = "\n".join(line.partition("--")[0] for line in script.read_text().splitlines())
    words = re.findall(r"'([A-Z]+)'", code)
    assert not [word for word in words if "EXPIRE" in word or word in FORBIDDEN]
    assert words.count("PXAT") == (1 if script.name == "bell.lua" else 0)


def test_the_bell_is_the_one_key_with_a_time_to_live(ledger: Ledger, redis_client: redis.Redis) -> None:
    ledger.add([new("a", group="g"), new("b", tenant="t"), new("c", delay_ms=60_000), new("d"), new("e")])
    ledger.add([new(queue="other", delay_ms=60_000)])
    done, again, drop, *_ = ledger.claim(SHARD, 5, lease_ms=LEASE_MS).tasks
    how = [ending(done, Ending.DONE), ending(again, Ending.AGAIN, delay_ms=9_000), ending(drop, Ending.DROP)]
    ledger.settle(SHARD, how)
    ledger.cancel("default", ["c"])
    ledger.configure("other", {"paused": True})
    ledger.configure("other", {"paused": False})
    ledger.sweep(SHARD, retention_ms=0)
    keys = list(redis_client.scan_iter())
    with_ttl = sorted(key for key in keys if redis_client.pttl(key) != -1)
    assert with_ttl == [BELL.encode(), b"duecourse:{other/0}:bell"]
    assert all(key.startswith(b"duecourse:") for key in keys)


def test_the_key_goes_at_the_instant_it_says(ledger: Ledger, redis_client: redis.Redis) -> None:
    task = add(ledger, delay_ms=60_000)
    assert int(redis_client.get(BELL) or 0) == task.due_at == ledger.stats(SHARD).bell_at
    assert goes_at(redis_client) == task.due_at


def test_nothing_is_ever_hung_in_the_past(
    ledger: Ledger, redis_client: redis.Redis, events: Callable[[], list[str]]
) -> None:
    for due_at in (1, ledger.now() - 1, ledger.now()):
        ledger.add([new(str(due_at), due_at=due_at)])
        assert int(redis_client.get(BELL) or ledger.now() + 1) > 1
    until(lambda: events()[-1:] == ["expired"])
    assert set(events()) == {"set", "expire", "expired"}


def test_at_its_deadlines_own_millisecond_a_key_still_exists(redis_client: redis.Redis) -> None:
    # Everything happens within one script, whose view of a key's expiry is that of its beginning.
    script = NOW_IN_LUA + "return {now(), redis.call('PTTL', KEYS[1]), redis.call('EXISTS', KEYS[1])}"
    seen = set()
    for _ in range(200):
        at = int(time.time() * 1_000) + 3
        redis_client.set(BELL, at, pxat=at)
        while True:
            now, left, exists = redis_client.eval(script, 1, BELL)  # type: ignore[misc]
            if now == at and exists:
                assert left in (0, 1)
                seen.add("exists at its own millisecond")
            if now > at:
                break
        if seen:
            return
    pytest.fail("no look fell into the very millisecond")


def test_inside_a_script_nothing_expires_and_since_7_2_time_stands_still_too(redis_client: redis.Redis) -> None:
    script = f"""{NOW_IN_LUA}
      local at, looks = now() + 5, 0
      redis.call('SET', KEYS[1], 'x', 'PXAT', at)
      repeat looks = looks + 1 until now() > at + 5 or looks == 100000 -- more, on a busy machine, outlast the client
      return {{redis.call('EXISTS', KEYS[1]), now() - at}}
    """
    version = tuple(map(int, str(redis_client.info("server")["redis_version"]).split(".")))
    began = time.monotonic()
    exists, late = redis_client.eval(script, 1, BELL)  # type: ignore[misc]
    assert time.monotonic() - began > 0.01, "the key's time was over before the script was"
    assert late == -5 if version >= (7, 2) else late > 5
    assert exists == 1
    assert redis_client.exists(BELL) == 0


def test_where_nothing_is_to_come_the_bell_is_taken_down_without_a_ring(
    ledger: Ledger, redis_client: redis.Redis, events: Callable[[], list[str]]
) -> None:
    add(ledger, delay_ms=60_000)
    ledger.cancel(SHARD.queue, ["a"])
    assert redis_client.exists(BELL) == 0
    assert events() == ["set", "expire", "del"]


@pytest.mark.usefixtures("no_cycle")
def test_a_bell_hung_anew_after_its_time_rings_first(ledger: Ledger, events: Callable[[], list[str]]) -> None:
    bell_at = add(ledger, delay_ms=50).due_at  # to read the bell itself would let it ring
    until(lambda: ledger.now() > bell_at)
    assert events() == ["set", "expire"]
    assert ledger.claim(SHARD, 5, lease_ms=LEASE_MS).tasks
    assert events() == ["set", "expire", "expired", "set", "expire"]


def test_a_bell_that_is_still_there_past_its_time_is_left_to_ring(ledger: Ledger, redis_client: redis.Redis) -> None:
    add(ledger)
    past = ledger.now() - 1
    redis_client.set(BELL, past, px=60_000)  # as a script sees it that began in the bell's own millisecond
    add(ledger, "b", delay_ms=60_000)
    assert ledger.claim(SHARD, 1, lease_ms=LEASE_MS).tasks
    redis_client.set(BELL, past, px=60_000)
    add(ledger, "c")
    redis_client.set(BELL, past, px=60_000)
    ledger.sweep(SHARD, retention_ms=1_000)
    assert redis_client.get(BELL) == str(past).encode()


def test_a_claim_goes_by_time_and_not_by_the_bell(ledger: Ledger, redis_client: redis.Redis) -> None:
    add(ledger, "due")
    add(ledger, "later", delay_ms=60_000)
    redis_client.set(BELL, 1)
    assert [t.id for t in claim(ledger)] == ["due"]
    redis_client.delete(BELL)
    assert claim(ledger) == []
    assert redis_client.exists(BELL) == 1


@pytest.mark.parametrize("verb", ["claim", "sweep"])
def test_a_bell_that_went_without_a_sound_is_hung_by_the_next_look(
    ledger: Ledger, redis_client: redis.Redis, verb: str
) -> None:
    task = add(ledger, delay_ms=60_000)
    redis_client.delete(BELL)
    if verb == "claim":
        assert ledger.claim(SHARD, 5, lease_ms=LEASE_MS).bell_at == task.due_at
    else:
        assert ledger.sweep(SHARD, retention_ms=0).bell_at == task.due_at
    assert goes_at(redis_client) == task.due_at


def test_an_evicted_bell_is_hung_by_the_next_look_and_nothing_else_is_ever_evicted(
    ledger: Ledger, redis_client: redis.Redis
) -> None:
    task = add(ledger, delay_ms=60_000)
    redis_client.config_set("maxmemory-policy", "volatile-ttl")
    try:
        redis_client.config_set("maxmemory", 1)
        with pytest.raises(StoreFull):
            add(ledger, "b")
        assert redis_client.exists(BELL) == 0
        redis_client.config_set("maxmemory", 0)
        assert ledger.sweep(SHARD, retention_ms=0).bell_at == task.due_at
        assert ledger.stats(SHARD).scheduled == 1
    finally:
        redis_client.config_set("maxmemory", 0)
        redis_client.config_set("maxmemory-policy", "noeviction")


def test_out_of_memory_refuses_an_add_whole_while_claim_and_settle_go_on(
    ledger: Ledger, redis_client: redis.Redis
) -> None:
    ledger.add([new(f"t{n}") for n in range(4)])
    running = ledger.claim(SHARD, 1, lease_ms=LEASE_MS).tasks[0]
    before = ledger.stats(SHARD), redis_client.hlen("duecourse:{default/0}:tasks")
    redis_client.config_set("maxmemory", 1)
    try:
        with pytest.raises(StoreFull):
            ledger.add([new("b", group="g"), new("c", queue="elsewhere")])
        assert (ledger.stats(SHARD)._replace(now=0, bell_at=0), redis_client.hlen("duecourse:{default/0}:tasks")) == (
            before[0]._replace(now=0, bell_at=0),
            before[1],
        )
        assert ledger.group("default", "g") == []
        assert ledger.extend(SHARD, [lease_of(running)], 2 * LEASE_MS)[0] > running.lease_expires_at
        assert ledger.save(SHARD, lease_of(running), '{"page":2}')
        assert ledger.settle(SHARD, [ending(running, Ending.RETRY, delay_ms=60_000, detail="x" * 400)]) == [
            Settled.RETRIED
        ]
        tasks = ledger.claim(SHARD, 5, lease_ms=1).tasks
        assert len(tasks) == 3
        until(lambda: ledger.now() > tasks[0].lease_expires_at)
        again = ledger.claim(SHARD, 5, lease_ms=LEASE_MS).tasks
        assert [t.attempt for t in again] == [2, 2, 2]
        assert {settle(ledger, task, Ending.DONE) for task in again} == {Settled.DONE}
        assert ledger.stats(SHARD).done == 3
        assert ledger.sweep(SHARD, retention_ms=-1).pruned == 3
    finally:
        redis_client.config_set("maxmemory", 0)


def test_out_of_memory_lets_a_queue_be_paused_and_forget_sooner(ledger: Ledger, redis_client: redis.Redis) -> None:
    settle(ledger, claim_one(ledger), Ending.DONE)
    redis_client.config_set("maxmemory", 1)
    try:
        ledger.configure("default", {"retention_ms": 0})
        assert ledger.sweep(SHARD, retention_ms=LEASE_MS).pruned == 1
        ledger.configure("default", {"paused": True, "max_running": 1})
        assert ledger.settings_of(["default"])[0].paused
    finally:
        redis_client.config_set("maxmemory", 0)


def test_out_of_memory_lets_a_function_begin_what_it_was_handed(ledger: Ledger, redis_client: redis.Redis) -> None:
    ledger.add([new("a", kind="report")])
    handed = {"report": Delivery("lambda:report", 100, LEASE_MS)}
    [task] = ledger.claim(SHARD, 1, lease_ms=LEASE_MS, deliveries=handed).tasks
    redis_client.config_set("maxmemory", 1)
    try:
        [begun] = ledger.begin(SHARD, [lease_of(task)], LEASE_MS, [bytes(8)])
    finally:
        redis_client.config_set("maxmemory", 0)
    assert begun.token


def test_out_of_memory_lets_an_empty_shard_be_swept(ledger: Ledger, redis_client: redis.Redis) -> None:
    add(ledger)
    ledger.cancel("default", ["a"])
    assert ledger.sweep(SHARD, retention_ms=-1).pruned == 1
    redis_client.hdel("duecourse:{default/0}:meta", "idle")
    redis_client.config_set("maxmemory", 1)
    try:
        assert ledger.sweep(SHARD, retention_ms=-1).pruned == 0
    finally:
        redis_client.config_set("maxmemory", 0)


@pytest.mark.parametrize("verb", ["claim", "settle", "sweep"])
def test_out_of_memory_lets_an_idle_step_hang_the_bell(ledger: Ledger, redis_client: redis.Redis, verb: str) -> None:
    task = add(ledger, delay_ms=60_000)
    redis_client.delete(BELL)
    redis_client.config_set("maxmemory", 1)
    try:
        if verb == "claim":
            assert ledger.claim(SHARD, 1, lease_ms=LEASE_MS).tasks == []
        elif verb == "settle":
            assert settle(ledger, task, Ending.DONE) == Settled.STALE
        else:
            ledger.sweep(SHARD, retention_ms=0)
        assert goes_at(redis_client) == task.due_at
    finally:
        redis_client.config_set("maxmemory", 0)


@pytest.mark.parametrize("version", EVERY)
def test_an_rdb_restart_drops_a_bell_without_an_event_and_the_next_look_hangs_it(version: str) -> None:
    with RedisServer(need(version), "--save", "3600 1") as server:
        with connect(server.url) as client:
            add(Ledger(client), delay_ms=30)
            client.save()
            gone_at = int(client.get(BELL) or 0)
        server.stop(signal.SIGKILL)
        until(lambda: time.time() * 1_000 > gone_at + 1)
        server.start()
        with connect(server.url) as client:
            ledger = Ledger(client)
            assert client.exists(BELL) == 0
            assert ledger.stats(SHARD).scheduled == 1
            swept = ledger.sweep(SHARD, retention_ms=0)
            assert swept.now < swept.bell_at <= swept.now + DEADMAN_MS
            assert [t.status for t in claim(ledger)] == [Status.LEASED]


@pytest.mark.parametrize("version", EVERY)
def test_an_aof_restart_keeps_every_acknowledged_task_and_lease(version: str) -> None:
    with RedisServer(need(version), "--appendonly", "yes", "--appendfsync", "always") as server:
        with connect(server.url) as client:
            ledger = Ledger(client)
            running = claim_one(ledger)
            add(ledger, "b", delay_ms=60_000)
        server.stop(signal.SIGKILL)
        server.start()
        with connect(server.url) as client:
            ledger = Ledger(client)
            stats = ledger.stats(SHARD)
            assert (stats.leased, stats.scheduled, stats.bell_at) == (1, 1, running.lease_expires_at)
            assert settle(ledger, running, Ending.DONE) == Settled.DONE
            assert add(ledger, "c").generation > running.fence


def test_an_override_of_the_clock_is_refused_where_the_clock_does_not_travel(
    ledger: Ledger, redis_client: redis.Redis
) -> None:
    add(ledger)
    traveller = Ledger(redis_client, travel=HandClock())
    traveller.claim(SHARD, 1, lease_ms=LEASE_MS)
    redis_client.hdel("duecourse:{default/0}:meta", "clock")
    with pytest.raises(StoreMisused):
        traveller.claim(SHARD, 1, lease_ms=LEASE_MS)


def test_no_bell_hangs_where_the_clock_travels(redis_client: redis.Redis, clock: HandClock) -> None:
    ledger = Ledger(redis_client, travel=clock)
    add(ledger, delay_ms=5)
    assert ledger.stats(SHARD).bell_at == clock.at + 5
    assert redis_client.exists(BELL) == 0


def test_a_changed_bell_is_told_on_the_shards_channel(ledger: Ledger, redis_server: RedisServer) -> None:
    with redis_server.client() as client, client.pubsub() as pubsub:
        pubsub.subscribe("duecourse:{default/0}:head")
        until(lambda: pubsub.get_message(timeout=1))
        first = add(ledger, delay_ms=60_000)
        add(ledger, "b", delay_ms=70_000)
        second = add(ledger, "c", delay_ms=50_000)
        told = [until(lambda: pubsub.get_message(timeout=1))["data"] for _ in range(2)]
        assert told == [str(first.due_at).encode(), str(second.due_at).encode()]
        assert pubsub.get_message(timeout=0.05) is None


def test_a_shard_is_registered_with_its_count_before_its_first_task(ledger: Ledger, redis_client: redis.Redis) -> None:
    add(ledger)
    assert redis_client.smembers("duecourse:shards") == {b"default/0/1"}
    assert ledger.shards() == [Shard()]
    redis_client.config_set("maxmemory", 1)
    try:
        with pytest.raises(StoreFull):
            ledger.add([new(queue="new")])
        assert redis_client.exists("duecourse:{new/0}:tasks") == 0
    finally:
        redis_client.config_set("maxmemory", 0)


def test_out_of_memory_an_end_is_told_of_all_the_same(redis_client: redis.Redis) -> None:
    ledger = Ledger(redis_client, deaths=True)
    once = {"retry": RetryPolicy(max_attempts=1), "notify": "audit"}
    ledger.add([new(id, due_at=n + 1, **once) for n, id in enumerate(("settled", "swept", "lapsed"))])
    settled, swept, lapsed = (ledger.claim(SHARD, 1, lease_ms=ms).tasks[0] for ms in (LEASE_MS, 600, 1))
    ledger.add([new("late", due_at=9, deadline_at=10)])
    redis_client.config_set("maxmemory", 1)
    try:
        assert ledger.settle(SHARD, [ending(settled, Ending.RETRY, detail="x")]) == [Settled.DEAD]
        until(lambda: ledger.now() > lapsed.lease_expires_at)
        ledger.claim(SHARD, 9, lease_ms=LEASE_MS)
        until(lambda: ledger.now() > swept.lease_expires_at)
        assert ledger.sweep(SHARD, retention_ms=LEASE_MS).died == 1
    finally:
        redis_client.config_set("maxmemory", 0)
    assert redis_ledger.check(redis_client) > 0
    page = ledger.page("default", TaskFilter(), None, 100)
    ended = Counter(task.id.partition("~")[0] for task in page.tasks if "~" in task.id)
    assert ended == {"settled": 2, "lapsed": 2, "swept": 2, "late": 1}


def test_out_of_memory_lets_a_claim_bar_tenants_that_run_all_they_may(
    ledger: Ledger, redis_client: redis.Redis
) -> None:
    ledger.configure("default", {"tenant_max_running": 1})
    ledger.add([new(f"{tenant}{n}", tenant=tenant) for tenant in "abcdefghijkl" for n in range(2)])
    ledger.claim(SHARD, 100, lease_ms=LEASE_MS)
    redis_client.zunionstore(
        "duecourse:{default/0}:ring", ["duecourse:{default/0}:ring", "duecourse:{default/0}:parked"]
    )
    redis_client.delete("duecourse:{default/0}:parked")
    redis_client.config_set("maxmemory", 1)
    try:
        assert ledger.claim(SHARD, 100, lease_ms=LEASE_MS).tasks == []
    finally:
        redis_client.config_set("maxmemory", 0)
