"""What is the Redis store's own: connections that died, replicas, scripts that were flushed, tenants, keys."""

import signal
import socket
import time
from collections import Counter
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import replace
from typing import Any

import pytest
import redis

from duecourse.errors import Part, PartlyAdded, StoreFull, StoreUnavailable
from duecourse.ledger.connect import connect
from duecourse.ledger.keys import FIXED, keys_of, ledger_key, made_key, makers_key, shards_key
from duecourse.ledger.many_tasks import PagePosition, TaskFilter
from duecourse.ledger.operation_types import MAX_ADD, MAX_CLAIM, KeyedRequest, Move, Reply, Settled
from duecourse.ledger.operations.ledger import Ledger
from duecourse.ledger.queue import Rate
from duecourse.ledger.script_calls import Request
from duecourse.ledger.sharding import Sharding
from duecourse.ledger.task import Ending, NewTask, OnDuplicate, Shard, Status
from tests.support.ledger import LATER_MS, LEASE_MS, SHARD, add, claim, ending, lease_of, new, settle, stored_task
from tests.support.proxies import LossyProxy, load_scripts
from tests.support.redis_server import SERVERS, RedisServer, need
from tests.support.wait import until

pytestmark = pytest.mark.slow

VERBS: dict[str, Callable[[Ledger], object]] = {
    "add": lambda ledger: ledger.add([new("b")]),
    "claim": lambda ledger: ledger.claim(SHARD, 1, lease_ms=LEASE_MS),
    "cancel": lambda ledger: ledger.cancel("default", ["a"]),
    "get": lambda ledger: ledger.get("default", "a"),
    "stats": lambda ledger: ledger.stats(SHARD),
}


@pytest.fixture
def ledger(redis_client: redis.Redis) -> Ledger:
    return Ledger(redis_client)


@pytest.mark.parametrize("verb", VERBS)
def test_a_connection_that_the_server_closed_while_idle_is_replaced_and_no_command_fails(
    redis_server: RedisServer, ledger: Ledger, verb: str
) -> None:
    add(ledger)
    with redis_server.client() as other:
        assert other.client_kill_filter(_type="normal", skipme=True) == 1
    VERBS[verb](ledger)


@pytest.mark.parametrize("verb", VERBS)
def test_a_connection_that_died_unseen_in_a_long_pause_is_not_trusted(proxy: LossyProxy, verb: str) -> None:
    with connect(proxy.url) as client:
        ledger = Ledger(client)
        add(ledger)
        proxy.drop_silently()
        ledger._scripts._used_at -= 60
        began = time.monotonic()
        VERBS[verb](ledger)
    assert time.monotonic() - began < 1


def test_scripts_that_were_flushed_are_loaded_again(ledger: Ledger, redis_client: redis.Redis) -> None:
    task_id = "a"
    for step in (lambda: add(ledger, task_id), lambda: settle(ledger, claim(ledger)[0], Ending.DONE)):
        redis_client.script_flush()
        step()
    assert stored_task(ledger).status is Status.DONE


@pytest.mark.parametrize("version", SERVERS)
def test_a_server_that_hangs_is_told_in_bounded_time(version: str) -> None:
    with RedisServer(need(version)) as server, connect(server.url) as client:
        ledger = Ledger(client)
        add(ledger)
        assert server._process
        server._process.send_signal(signal.SIGSTOP)
        began = time.monotonic()
        with pytest.raises(StoreUnavailable):
            claim(ledger)
        server._process.send_signal(signal.SIGCONT)
        assert time.monotonic() - began < 5
        until(client.ping)
        assert stored_task(ledger).run <= 1


@pytest.mark.parametrize("verb", ["add", "claim", "cancel"])
def test_a_replica_takes_no_writes_and_says_that_it_is_away(
    redis_client: redis.Redis, ledger: Ledger, verb: str
) -> None:
    add(ledger)
    redis_client.replicaof("127.0.0.1", "1")
    try:
        with pytest.raises(StoreUnavailable):
            VERBS[verb](ledger)
    finally:
        redis_client.replicaof("NO", "ONE")
    VERBS[verb](ledger)


def test_after_a_replicas_refusal_the_address_is_asked_anew(redis_client: redis.Redis, ledger: Ledger) -> None:
    add(ledger)
    connection = redis_client.client_id()
    redis_client.replicaof("127.0.0.1", "1")
    try:
        with pytest.raises(StoreUnavailable):
            claim(ledger)
        assert redis_client.client_id() != connection
    finally:
        redis_client.replicaof("NO", "ONE")


def test_a_server_that_is_busy_with_anothers_script_is_away_for_a_while(
    redis_server: RedisServer, redis_client: redis.Redis, ledger: Ledger
) -> None:
    redis_client.config_set("lua-time-limit", 1)
    with redis_server.client() as other, ThreadPoolExecutor(1) as pool:
        busy = pool.submit(other.eval, "while true do end", 0)
        until(lambda: is_busy(redis_client))
        try:
            with pytest.raises(StoreUnavailable):
                add(ledger)
        finally:
            redis_client.script_kill()
        with pytest.raises(redis.ResponseError):
            busy.result()
    add(ledger)


def is_busy(client: redis.Redis) -> bool:
    try:
        return not client.ping()
    except redis.ResponseError:
        return True


@pytest.mark.parametrize("version", SERVERS)
def test_an_add_may_wait_for_replicas_and_says_so_where_they_do_not_have_it(
    version: str, replicas_do_not_come: Callable[[], None]
) -> None:
    binary, port = need(version), free_port()
    with (
        RedisServer(binary, "--port", str(port), "--repl-diskless-sync-delay", "0") as primary,
        connect(primary.url) as client,
    ):
        careful = Ledger(client, wait=1)
        with RedisServer(binary, "--replicaof", "127.0.0.1", str(port)) as replica, replica.client() as copy:
            until(lambda: copy.info("replication")["master_link_status"] == "up")
            careful.add([new("a")])
            assert copy.hexists(keys_of("duecourse", SHARD).tasks, "-/a")
            client.script_flush()
            careful.add([new("b")])
        replicas_do_not_come()
        with pytest.raises(StoreUnavailable, match="0 of 1 replicas"):
            careful.add([new("c")])
        assert stored_task(careful, "c").status is Status.SCHEDULED
        assert [task.id for task in claim(careful)] == ["a", "b", "c"], "a claim that is lost is a run again"


@pytest.mark.parametrize("size", [1, 2, MAX_ADD])
def test_an_add_registers_a_queue_again_that_a_failover_made_unknown(redis_server: RedisServer, size: int) -> None:
    with connect(redis_server.url) as client:
        Ledger(client).add([new("before")])
        client.delete(shards_key("duecourse"))
        Ledger(client).add([new(f"t-{n}") for n in range(size)])
        assert client.smembers(shards_key("duecourse")) == {b"default/0/1"}


def test_a_process_looks_the_record_up_again_once_it_has_trusted_it_for_long(redis_client: redis.Redis) -> None:
    ledger = Ledger(redis_client)
    ledger.add([new("a")])
    redis_client.delete(shards_key("duecourse"))
    ledger.add([new("b")])
    assert redis_client.smembers(shards_key("duecourse")) == set(), "a look-up for each add would cost as much again"
    ledger._registry._see(SHARD, for_s=0)
    ledger.add([new("c")])
    assert redis_client.smembers(shards_key("duecourse")) == {b"default/0/1"}


@pytest.mark.parametrize("shards", [1, 4])
def test_a_batch_that_fills_the_store_says_which_of_it_were_added(redis_server: RedisServer, shards: int) -> None:
    tasks = [new(f"t-{n}", payload=f'"{"x" * 2_000}"', delay_ms=LATER_MS) for n in range(MAX_ADD)]
    with connect(redis_server.url) as client, redis_server.client() as server:
        ledger = Ledger(client, sharding=Sharding({"default": shards}))
        parts = overfilled(server, ledger, tasks)
        assert [part.id for part in parts] == [task.id for task in tasks]
        assert [part.added for part in parts] == [ledger.get("default", task.id) is not None for task in tasks]
        assert {added.reply for added in ledger.add(tasks)} == {Reply.CREATED, Reply.KEPT}


def overfilled(server: Any, ledger: Ledger, tasks: list[NewTask]) -> list[Part]:
    """What became of a batch that the server has memory for a part of, which is tried out."""
    try:
        for room in range(500_000, 9_000_000, 250_000):
            server.flushall()
            server.config_set("maxmemory", int(server.info("memory")["used_memory"]) + room)
            try:
                ledger.add(tasks)
            except PartlyAdded as error:
                return error.parts
            except StoreFull:
                assert all(ledger.stats(shard).scheduled == 0 for shard in ledger.shards()), "nothing was added"
            server.config_set("maxmemory", 0)
    finally:
        server.config_set("maxmemory", 0)
    raise AssertionError("it took all or nothing")


def test_whatever_a_caller_is_told_of_waits_for_replicas(
    redis_server: RedisServer, replicas_do_not_come: Callable[[], None]
) -> None:
    replicas_do_not_come()
    with connect(redis_server.url) as client:
        alone, careful = Ledger(client), Ledger(client, wait=1)
        alone.add([new(id, delay_ms=LATER_MS) for id in ("moved", "cancelled")])
        alone.add([new("dead"), new("done")])
        for task in claim(alone):
            settle(alone, task, Ending.DROP if task.id == "dead" else Ending.DONE)
        idempotency, sent = careful.idempotency(), KeyedRequest("-", "key", b"f" * 32)
        told: dict[str, Callable[[], object]] = {
            "move": lambda: careful.move("default", [Move("moved")]),
            "cancel": lambda: careful.cancel("default", ["cancelled"]),
            "replay": lambda: careful.replay("default", ["dead"]),
            "configure": lambda: careful.configure("default", {"paused": True}),
            "a queue's first setting": lambda: careful.configure("new", {"paused": True}),
            "begin": lambda: idempotency.begin(sent, b"o" * 8, 1_000),
            "end": lambda: idempotency.end(sent, b"o" * 8, b"answer"),
        }
        for verb, tell in told.items():
            with pytest.raises(StoreUnavailable, match="0 of 1 replicas"):
                tell()
            assert verb
        assert {stored_task(alone, id).status for id in ("moved", "dead")} == {Status.SCHEDULED}


@pytest.mark.parametrize("version", SERVERS)
def test_a_move_that_is_sent_again_waits_for_what_the_first_wrote(
    version: str, replicas_do_not_come: Callable[[], None]
) -> None:
    binary, port = need(version), free_port()
    with (
        RedisServer(binary, "--port", str(port), "--repl-diskless-sync-delay", "0") as server,
        RedisServer(binary, "--replicaof", "127.0.0.1", str(port)) as replica,
        LossyProxy(server.socket) as proxy,
        connect(proxy.url) as client,
        connect(server.url) as direct,
        replica.client() as copy,
        ExitStack() as ending,
    ):
        load_scripts(direct)
        Ledger(direct).add([new("a", delay_ms=LATER_MS)])
        until(lambda: copy.info("replication")["master_link_status"] == "up")
        careful = Ledger(client, wait=1)
        stored_task(careful)
        ending.callback(replica.process.send_signal, signal.SIGCONT)
        replica.process.send_signal(signal.SIGSTOP)  # it is there, and has what nobody wrote
        replicas_do_not_come()
        proxy.lose_next_reply()
        with pytest.raises(StoreUnavailable, match="0 of 1 replicas"):
            careful.move("default", [Move("a")])
        assert (proxy.lost, len(stored_task(careful).log)) == (1, 1)


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        return int(listener.getsockname()[1])


def test_small_tenants_are_not_kept_waiting_by_a_great_one(redis_client: redis.Redis, ledger: Ledger) -> None:
    for start in range(0, 5_000, 1_000):
        ledger.add([new(f"t-{n}", tenant="great") for n in range(start, start + 1_000)])
    for tenant in range(10):
        ledger.add([new(f"t-{n}", tenant=f"small-{tenant}") for n in range(10)])
    fresh = Ledger(redis_client)  # which has met none of them
    first, second = (Counter(task.tenant for task in claim(fresh, 200)) for _ in range(2))
    assert first == {**{f"small-{n}": 10 for n in range(10)}, "great": 100}
    assert second == {"great": 200}


def test_a_tenant_that_a_process_never_met_is_met_beside_a_great_one(redis_client: redis.Redis, ledger: Ledger) -> None:
    fresh = Ledger(redis_client)
    ledger.add([new(f"t-{n}") for n in range(500)])
    ledger.add([new("a", tenant="small")])
    assert [task.tenant for _ in range(3) for task in claim(fresh, 16)].count("small") == 1


def running(client: redis.Redis) -> list[bytes]:
    """The tenants whose leases the shard counts."""
    return [field for field in client.hkeys(keys_of("duecourse", SHARD).meta) if field.startswith(b"running:")]


def test_a_tenant_whose_tasks_have_all_ended_leaves_nothing_behind(redis_client: redis.Redis, ledger: Ledger) -> None:
    ledger.add([new("a", tenant=f"tenant-{n}", group="g") for n in range(20)])
    ledger.add([new("b", tenant=f"tenant-{n}") for n in range(20)])
    tasks = [task for _ in range(9) for task in claim(Ledger(redis_client), 100)]
    assert len(running(redis_client)) == 20
    ledger.settle(SHARD, [ending(task, Ending.DONE).with_lateness(task, 0) for task in tasks])
    ledger.sweep(SHARD, retention_ms=-1)
    assert sorted(key.decode() for key in redis_client.scan_iter()) == [
        "duecourse:shards",
        keys_of("duecourse", SHARD).meta,
        ledger_key("duecourse"),
    ]
    assert running(redis_client) == []


def test_a_claim_of_many_tenants_takes_no_more_bytes_than_asked_for(redis_client: redis.Redis, ledger: Ledger) -> None:
    for tenant in range(100):
        ledger.add([new("a", tenant=f"tenant-{tenant}", payload='"' + 10_000 * "x" + '"')])
    tasks = Ledger(redis_client).claim(SHARD, 100, lease_ms=LEASE_MS, max_bytes=100_000).tasks
    assert len(tasks) == 9


def test_a_claims_bytes_may_be_used_up_to_the_last(redis_client: redis.Redis, ledger: Ledger) -> None:
    ledger.add([new(f"t{n}") for n in range(4)])
    size = redis_client.hstrlen(keys_of("duecourse", SHARD).tasks, "-/t0")
    claims = [ledger.claim(SHARD, 4, lease_ms=LEASE_MS, max_bytes=2 * size - less).tasks for less in (1, 0)]
    assert list(map(len, claims)) == [1, 2]


def test_every_tenant_of_many_is_met_and_worked(redis_client: redis.Redis, ledger: Ledger) -> None:
    for tenant in range(300):
        ledger.add([new("a", tenant=f"tenant-{tenant:03}"), new("b", tenant=f"tenant-{tenant:03}")])
    fresh, done = Ledger(redis_client), Counter[str]()
    for _ in range(40):
        tasks = claim(fresh, 100)
        fresh.settle(SHARD, [ending(task, Ending.DONE) for task in tasks])
        done.update(task.tenant for task in tasks)
    assert (len(done), set(done.values())) == (300, {2})
    assert ledger.stats(SHARD)[:3] == (0, 0, 600)


def test_lapsed_leases_of_tenants_a_process_never_met_are_taken_back_by_it(
    redis_client: redis.Redis, ledger: Ledger
) -> None:
    ledger.add([new("a", tenant=f"tenant-{n}") for n in range(100)])
    first = claim(ledger, 100, lease_ms=1)
    assert len(first) == 100
    until(lambda: ledger.now() > max(task.lease_expires_at for task in first))
    fresh = Ledger(redis_client)
    again = [task for _ in range(5) for task in claim(fresh, 100)]
    assert sorted(task.tenant for task in again) == sorted(f"tenant-{n}" for n in range(100))
    assert {(task.run, task.attempt) for task in again} == {(2, 2)}


def test_a_ledger_that_was_wiped_takes_tasks_again_and_is_found(ledger: Ledger, redis_client: redis.Redis) -> None:
    add(ledger)
    redis_client.flushall()
    assert ledger.shards() == []
    add(ledger)
    assert ledger.shards() == [SHARD]
    assert [task.id for task in claim(ledger)] == ["a"]


def everything(ledger: Ledger) -> None:
    """Every verb, in every state that leads it elsewhere."""
    policy = replace(new().retry, max_attempts=1)
    ledger.add([new(f"t-{n}", group="g", tenant=f"tenant-{n % 3}", notify="audit") for n in range(9)], echo=True)
    ledger.add(
        [new("later", delay_ms=60_000), new("a"), new("b"), new("once", retry=policy), new("late", deadline_ms=1)]
    )
    until(lambda: ledger.now() > stored_task(ledger, "late").deadline_at)
    tasks = {(task.tenant, task.id): task for _ in range(3) for task in claim(ledger, 100, lease_ms=30)}
    replacing = OnDuplicate.REPLACE
    ledger.add([new("a", on_duplicate=replacing, group="h"), new("later", on_duplicate=OnDuplicate.DEBOUNCE)])
    ledger.extend(SHARD, [lease_of(task) for task in tasks.values()], 30)
    ledger.save(SHARD, lease_of(tasks["-", "a"]), "1")
    endings = zip(list(tasks.values())[2:], [*Ending] * 3, strict=False)
    ledger.settle(SHARD, [ending(task, how, result="1" if how is Ending.DONE else "") for task, how in endings])
    until(lambda: ledger.now() > max(task.lease_expires_at for task in tasks.values()) + 30)
    ledger.sweep(SHARD, retention_ms=0)
    Ledger(ledger._client).sweep(SHARD, retention_ms=0)
    claim(Ledger(ledger._client), 2)
    ledger.move("default", [Move("later", delay_ms=1), Move("a", delay_ms=5, force=True), Move("once", revive=True)])
    ledger.cancel("default", ["later", "a", "b", "once"], force=True)
    ledger.replay("default", ["late", "b"])
    ledger.configure("default", {"paused": True, "rate": Rate(60, 1), "tenant_max_running": 1})
    ledger.configure("default", {"paused": False, "max_running": 60})
    ledger.add([new(f"t{n}") for n in range(3)])
    running, *_ = claim(ledger)
    ledger.add([new("taken", tenant="other", delay_ms=LATER_MS)])
    ledger.take("default", "taken", "other", lease_ms=30)
    ledger.settle(SHARD, [ending(running, Ending.DONE).with_lateness(running, 0)])
    ledger.configure("default", {"rate": None, "tenant_max_running": None})
    claim(ledger)
    ledger.group("default", "g", "tenant-1")
    ledger.page("default", TaskFilter(), PagePosition("due", 5, "x"), 9)
    ledger.page("default", TaskFilter(group="g"), None, 9, "tenant-1")
    ledger.stats(SHARD)
    ledger.throttle(SHARD)


def test_every_key_a_script_touches_is_declared_and_all_are_of_one_node(
    redis_server: RedisServer, ledger: Ledger, redis_client: redis.Redis
) -> None:
    prefix = "duecourse:{default/0}:"
    load_scripts(redis_client)
    ledger.add([new("before")])
    # A minute that is over, in which one run began 5 ms late: it is added to the lines.
    redis_client.hset(keys_of("duecourse", SHARD).meta, "numbers", b"\x01\xc8\x00\x00\0" + b"\0\x5e\0\1")
    with redis_server.client() as watcher, watcher.monitor() as monitor:
        everything(ledger)
        redis_client.echo("the end")
        commands: list[tuple[str, list[str]]] = []
        for seen in monitor.listen():
            words = seen["command"].split(" ")
            if words[0].upper() == "ECHO":
                break
            commands.append((seen["client_type"], words))
    declared, scripts, touched = set[str](), 0, set[str]()
    for source, words in commands:
        if source == "lua":
            key = None if words[0].upper() in {"TIME", "PUBLISH"} else words[1]
            assert key is None or key in declared, words
            touched |= {key} if key else set()
        elif words[0].upper().startswith("EVALSHA"):
            scripts += 1
            declared = set(words[3 : 3 + int(words[2])])
            # The record of shards; in its slot what is leaving, who made the queues, what tells of the whole ledger.
            beside = {"{duecourse:shards}:leaving", *(key("duecourse") for key in (makers_key, made_key, ledger_key))}
            of_record = declared <= {"duecourse:shards", *beside}
            assert of_record or all(key.startswith(prefix) for key in declared)
    assert scripts > 15
    assert touched >= {prefix + name for name in FIXED} | {"duecourse:shards"}
    assert {key.decode() for key in redis_client.scan_iter() if not key.decode().startswith(prefix)} == {
        "duecourse:shards",
        ledger_key("duecourse"),
    }


def test_ids_of_several_tenants_and_queues_do_not_meet(ledger: Ledger) -> None:
    made = [NewTask("a", "work", tenant=tenant, queue=queue) for tenant in ("-", "x") for queue in ("default", "q")]
    assert {added.reply for added in ledger.add(made)} == {Reply.CREATED}
    ledger.cancel("q", ["a"], tenant="x")
    states = [ledger.get(task.queue, "a", task.tenant) for task in made]
    assert [task.status for task in states if task] == 3 * [Status.SCHEDULED] + [Status.CANCELLED]
    assert len(claim(ledger)) == 2
    assert [task.tenant for task in ledger.claim(Shard("q"), 9, lease_ms=LEASE_MS).tasks] == ["-"]


def test_no_request_has_more_arguments_than_a_managed_redis_takes(ledger: Ledger) -> None:
    """ElastiCache Serverless: 3,999."""
    sent: list[int] = []
    evaluate = ledger._scripts.evaluate

    def noted(name: str, request: Request, **how: Any) -> Any:
        sent.append(3 + len(request[1]))  # EVALSHA, the script, how many of them are keys
        return evaluate(name, request, **how)

    ledger._scripts.evaluate = noted  # type: ignore[method-assign]
    tasks = [new(f"t-{n}", tenant=f"tenant-{n}") for n in range(MAX_ADD - 1)]
    # An id that stands twice: else its pieces are smaller.
    assert [added.reply for added in ledger.add([*tasks, tasks[0]])] == [Reply.CREATED] * (MAX_ADD - 1) + [Reply.KEPT]
    claimed = [task for _ in range(20) for task in ledger.claim(SHARD, 50, lease_ms=LEASE_MS).tasks][:MAX_CLAIM]
    settled = ledger.settle(SHARD, [ending(task, Ending.DONE) for task in claimed])
    assert settled == [Settled.DONE] * MAX_CLAIM
    assert 3_000 < max(sent) < 4_000


def test_a_server_that_became_a_replica_is_connected_to_anew_for_the_address_may_lead_elsewhere(
    redis_server: RedisServer, ledger: Ledger
) -> None:
    add(ledger)
    with redis_server.client() as other:
        connected = len(other.client_list(_type="normal"))
        other.replicaof("127.0.0.1", "1")
        try:
            with pytest.raises(StoreUnavailable, match="read only"):
                ledger.add([new("b")])
            until(lambda: len(other.client_list(_type="normal")) == connected - 1)
        finally:
            other.replicaof("NO", "ONE")
    add(ledger, "b")


def test_a_claim_tells_of_tenants_that_the_next_one_then_need_not_ask_for_twice(
    ledger: Ledger, redis_client: redis.Redis
) -> None:
    assert claim(ledger) == []  # from here on the script is known
    ledger.add([new("t", tenant=f"tenant{n}") for n in range(400)])
    redis_client.config_resetstat()
    claims = [len(claim(ledger, 128)) for _ in range(4)]
    scripts = redis_client.info("commandstats")["cmdstat_evalsha"]["calls"]
    assert (claims, scripts) == ([128, 128, 128, 16], 6)
