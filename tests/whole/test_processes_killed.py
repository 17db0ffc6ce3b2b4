"""What holds when the processes that work tasks are many, are stopped, or are killed."""

import signal
from collections import Counter

import pytest
import redis

from duecourse.ledger.operations.ledger import Ledger
from duecourse.ledger.task import NewTask, RetryPolicy, Shard, Status
from tests.support.drainer import NAMESPACE, at_the_gate, children, ran
from tests.support.ledger import lease_of, stored_task
from tests.support.redis_server import RedisServer
from tests.support.wait import until

LEASE_MS = 1_000
WAITING = '{"wait":true}'


@pytest.fixture
def ledger(redis_client: redis.Redis) -> Ledger:
    return Ledger(redis_client, NAMESPACE)


def fill(ledger: Ledger, count: int, payload: str = "{}") -> list[str]:
    ids = [f"t-{n:04}" for n in range(count)]
    for start in range(0, count, 1_000):
        ledger.add([NewTask(id, "work", payload) for id in ids[start : start + 1_000]])
    return ids


def test_eight_processes_at_one_shard_run_each_of_5000_tasks_exactly_once(
    redis_server: RedisServer, redis_client: redis.Redis, ledger: Ledger
) -> None:
    with children(redis_server.url, 8, lease_ms=600_000) as crowd:
        ids = fill(ledger, 5_000)
        for child in crowd:
            child.drain()
        counts = [child.counts() for child in crowd]
    assert ran(redis_client) == {f"{id}:1": 1 for id in ids}
    assert sum(count["done"] for count in counts) == 5_000
    assert sum(count["claimed"] > 0 for count in counts) >= 2, "it was no contest"
    assert ledger.stats(Shard())[:4] == (0, 0, 5_000, 0)


def test_a_process_stopped_past_its_lease_settles_nothing_when_it_goes_on(
    redis_server: RedisServer, redis_client: redis.Redis, ledger: Ledger
) -> None:
    fill(ledger, 1, WAITING)
    with children(redis_server.url, 2, lease_ms=LEASE_MS) as (stopped, other):
        stopped.drain()
        until(lambda: ran(redis_client) == {"t-0000:1": 1})
        stopped.process.send_signal(signal.SIGSTOP)
        until(lambda: ledger.now() > stored_task(ledger, "t-0000").lease_expires_at)
        other.drain()
        until(lambda: ran(redis_client) == {"t-0000:1": 1, "t-0000:2": 1})
        redis_client.rpush("gate", "the stopped one's", "the other's")
        assert other.counts()["done"] == 1
        before = stored_task(ledger, "t-0000")
        stopped.process.send_signal(signal.SIGCONT)
        assert stopped.counts()["stale"] == 1
    task = stored_task(ledger, "t-0000")
    assert task == before
    assert [(run.run, run.outcome) for run in task.history] == [(1, "lapsed"), (2, "done")]


def test_a_late_settle_is_refused_though_nobody_has_finished_the_second_run(
    redis_server: RedisServer, redis_client: redis.Redis, ledger: Ledger
) -> None:
    fill(ledger, 1, WAITING)
    with children(redis_server.url, 2, lease_ms=LEASE_MS) as (stopped, other):
        stopped.drain()
        until(lambda: at_the_gate(redis_client) == 1)
        stopped.process.send_signal(signal.SIGSTOP)
        until(lambda: ledger.now() > stored_task(ledger, "t-0000").lease_expires_at)
        other.drain()
        until(lambda: at_the_gate(redis_client) == 2)
        ledger.extend(Shard(), [lease_of(stored_task(ledger, "t-0000"))], 60_000)
        redis_client.rpush("gate", "the stopped one's, which waited first")
        stopped.process.send_signal(signal.SIGCONT)
        assert stopped.counts()["stale"] == 1
        assert stored_task(ledger, "t-0000").status is Status.LEASED
        redis_client.rpush("gate", "the other's")
        assert other.counts()["done"] == 1


def test_what_a_killed_process_held_runs_a_second_time_after_its_lease_and_nothing_else_does(
    redis_server: RedisServer, redis_client: redis.Redis, ledger: Ledger
) -> None:
    with children(redis_server.url, 2, lease_ms=LEASE_MS) as (killed, other):
        ids = fill(ledger, 40, WAITING)
        killed.drain()
        until(lambda: len(ran(redis_client)) == 4)
        killed.process.kill()
        held = {name.removesuffix(":1") for name in ran(redis_client)}
        ends = {id: stored_task(ledger, id).lease_expires_at for id in held}
        redis_client.rpush("gate", *range(200))
        drained = Counter[str]()

        def all_done() -> bool:
            other.drain()
            drained.update(other.counts())
            return drained["done"] == 40

        until(all_done)
    assert drained["done"] == 40
    again = {name.removesuffix(":2") for name in ran(redis_client) if name.endswith(":2")}
    assert again == held
    assert {name for name in ran(redis_client) if name.endswith(":1")} == {f"{id}:1" for id in ids}
    assert all(stored_task(ledger, id).history[-1].claimed_at >= ends[id] for id in held)
    assert {stored_task(ledger, id).attempt for id in held} == {2}
    assert {stored_task(ledger, id).attempt for id in set(ids) - held} == {1}


def test_no_end_goes_untold_however_often_the_processes_are_killed(
    redis_server: RedisServer, redis_client: redis.Redis, ledger: Ledger
) -> None:
    ids = [f"t-{n:04}" for n in range(1_500)]
    once = RetryPolicy(max_attempts=1)
    held, others = ids[:2], ids[2:]
    ledger.add([NewTask(id, "work", '{"wait":true}', retry=once, notify="told") for id in held])
    ledger.add([NewTask(id, "work", retry=once, notify="told") for id in others[:998]])
    ledger.add([NewTask(id, "work", retry=once, notify="told") for id in others[998:]])
    for enough in (100, 400, 700):
        with children(redis_server.url, 1, lease_ms=LEASE_MS) as (killed,):
            killed.drain()
            until(lambda enough=enough: len(ran(redis_client)) >= enough)
            killed.process.kill()
            killed.process.wait()
    with children(redis_server.url, 1, lease_ms=LEASE_MS) as (last,):

        def drained() -> bool:
            last.drain()
            last.counts()
            stats = ledger.stats(Shard())
            return stats.scheduled == stats.leased == 0

        until(drained, every=0.05)
    dead = {id for id in ids if stored_task(ledger, id).status is Status.DEAD}
    assert dead.issuperset(held), "they were under way when it was killed"
    told = Counter((name.partition("~")[0], name.partition(":")[0][-1]) for name in ran(redis_client) if "~" in name)
    assert told.keys() == {(id, "n") for id in ids} | {(id, "d") for id in dead}
    assert {stored_task(ledger, id).status for id in set(ids) - dead} == {Status.DONE}
