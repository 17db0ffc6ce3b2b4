"""Each nominal time of a schedule has one occurrence, whatever is killed while it fires."""

import random
import signal
import threading
from collections.abc import Iterator
from contextlib import suppress

import pytest
import redis

from duecourse.errors import StoreUnavailable
from duecourse.ledger.connect import connect
from duecourse.ledger.operation_types import Fired
from duecourse.ledger.operations.ledger import Ledger
from duecourse.ledger.schedule import NEVER, Became, Every, Progress, Rule, backfill_id, occurrence_id
from duecourse.ledger.task import RetryPolicy
from duecourse.schedules.firing import Firer
from duecourse.schedules.verbs import Schedules
from tests.support.clock import START, HandClock
from tests.support.drainer import NAMESPACE, children, ran
from tests.support.firing import CALENDAR, working
from tests.support.ledger import SHARD
from tests.support.matrix import LENGTHY, in_turn
from tests.support.redis_ledger import check
from tests.support.redis_server import SERVERS, RedisServer, need
from tests.support.schedules import MINUTE, became, due, fire_due, kept, put, series
from tests.support.wait import until

LEASE_MS = 1_000
EVERY_MS = 200
PATIENT = RetryPolicy(max_attempts=100, backoff_ms=10, jitter=False)
"""Some are under way each time that a process is killed."""
NAMES = [f"s-{n}" for n in range(40)]


def fire_until(ledger: Ledger, begin: int, end: int) -> dict[str, list[int]]:
    """Add schedules of each 200 ms that end; answers the nominal times of each."""
    found = {}
    for place, id in enumerate(NAMES):
        rule = Rule(Every(EVERY_MS), begin + place, until=end)
        first = begin + place
        ledger.put_schedule(
            series(id, rule=rule, retry=PATIENT), Progress(nominal=first, next_at=first, zones=CALENDAR.version)
        )
        found[id] = [*range(first, end + 1, EVERY_MS)]
    return found


def assert_once_each(ledger: Ledger, wanted: dict[str, list[int]]) -> set[str]:
    """Fail unless each nominal time has one occurrence, which is done, and there are no others; answers their ids."""
    ids = {occurrence_id(id, nominal) for id, times in wanted.items() for nominal in times}
    assert {id for id in ids if ledger.get("default", id) is None} == set()
    assert ledger.stats(SHARD)[:4] == (0, 0, len(ids), 0)
    for id, times in wanted.items():
        progress = kept(ledger, id).progress
        assert (progress.fired, progress.missed, progress.skipped) == (len(times), 0, 0), id
        assert became(ledger, id) == [Became.DONE] * min(10, len(times))
    return ids


@pytest.mark.parametrize("kills", in_turn(4, 20))
@LENGTHY
def test_processes_that_are_killed_again_and_again_lose_and_double_no_occurrence(
    redis_server: RedisServer, redis_client: redis.Redis, kills: int
) -> None:
    ledger, draw = Ledger(redis_client, NAMESPACE), random.Random(kills)
    begin = ledger.now() + 1_000
    wanted = fire_until(ledger, begin, begin + kills * 1_000)
    for _ in range(kills):
        with children(redis_server.url, 2, lease_ms=LEASE_MS) as crowd:
            enough = len(ran(redis_client)) + draw.randrange(1, 400)
            for child in crowd:
                child.drain_on()
            until(lambda enough=enough: len(ran(redis_client)) >= enough or over(ledger), every=0.001)
            for child in crowd:
                child.process.kill()
    with children(redis_server.url, 2, lease_ms=LEASE_MS) as crowd:
        for child in crowd:
            child.drain_on()
        until(lambda: over(ledger), seconds=60, every=0.1)
    ids = assert_once_each(ledger, wanted)
    runs = ran(redis_client)
    assert set(runs.values()) == {1}, "a run was made twice"
    assert {name.rpartition(":")[0] for name in runs} == ids
    check(redis_client, namespace=NAMESPACE)


@LENGTHY
def test_a_backfill_goes_on_with_the_next_time_however_often_its_process_is_killed(
    redis_server: RedisServer, redis_client: redis.Redis
) -> None:
    ledger = Ledger(redis_client, NAMESPACE)
    end = ledger.now() - 1_000
    since = end - 80 * EVERY_MS
    ledger.put_schedule(
        series("s", rule=Rule(Every(EVERY_MS), since), retry=PATIENT, paused=True),
        Progress(nominal=end + EVERY_MS, next_at=NEVER, zones=CALENDAR.version),
    )
    assert Schedules(ledger, CALENDAR, lambda task: task).backfill("default", "s", (since, end), None) == 80
    for enough in (1, 25, 50):
        with children(redis_server.url, 1, lease_ms=LEASE_MS) as (killed,):
            killed.drain_on()
            until(lambda enough=enough: len(ran(redis_client)) >= enough, every=0.001)
            killed.process.kill()
        assert ledger.schedule("default", backfill_id("s", since)), "it was killed in the midst"
    with children(redis_server.url, 1, lease_ms=LEASE_MS) as (last,):
        last.drain_on()
        until(lambda: ledger.stats(SHARD).done == 80)
    runs = ran(redis_client)
    assert set(runs.values()) == {1}, "a run was made twice"
    assert {name.rpartition(":")[0] for name in runs} == {
        occurrence_id("s", nominal) for nominal in range(since, end, EVERY_MS)
    }
    assert ledger.stats(SHARD)[:4] == (0, 0, 80, 0)
    assert ledger.schedule("default", backfill_id("s", since)) is None


def over(ledger: Ledger) -> bool:
    """True once no schedule has a time left, and nothing waits or runs."""
    stats = ledger.stats(SHARD)
    return not (stats.scheduled or stats.leased) and all(
        one.progress.nominal is None for one in ledger.schedules("default", "", len(NAMES)).schedules
    )


def test_two_drains_at_once_fire_each_time_once(redis_server: RedisServer, clock: HandClock) -> None:
    with connect(redis_server.url) as one, connect(redis_server.url) as other:
        ledgers = [Ledger(client, NAMESPACE, travel=clock) for client in (one, other)]
        wanted = fire_until(ledgers[0], START, START + 5_000)
        with working(ledgers[0]) as first, working(ledgers[1]) as second:
            while not over(ledgers[0]):
                both = [
                    threading.Thread(target=work.drainer.drain, args=([SHARD], lambda: 600_000))
                    for work in (first, second)
                ]
                for thread in both:
                    thread.start()
                for thread in both:
                    thread.join()
                clock.advance(EVERY_MS)
            ids = assert_once_each(ledgers[0], wanted)
            assert min(len(first.ran), len(second.ran)) > 0, "it was no contest"
            assert first.ran + second.ran == dict.fromkeys(ids, 1)


def test_a_step_that_was_computed_long_ago_adds_nothing(redis_client: redis.Redis, clock: HandClock) -> None:
    ledger = Ledger(redis_client, travel=clock)
    firer = Firer(ledger, CALENDAR)
    put(ledger)
    clock.advance(MINUTE)
    [old] = due(ledger)
    step = firer.step(old, clock.at)
    assert fire_due(ledger, firer.fire)
    after = kept(ledger)
    clock.advance(5 * MINUTE)
    assert ledger.fire(SHARD, [step]) == [Fired.STALE]
    assert kept(ledger) == after
    assert ledger.stats(SHARD).scheduled == 1
    assert fire_due(ledger, firer.fire)
    assert ledger.fire(SHARD, [step, firer.step(old, clock.at)]) == [Fired.STALE] * 2
    ledger.drop_schedule("default", "s")
    put(ledger, at=old.progress.next_at)
    assert ledger.fire(SHARD, [step]) == [Fired.STALE], "another one of its name"


@pytest.fixture(params=SERVERS)
def server(request: pytest.FixtureRequest) -> Iterator[RedisServer]:
    with RedisServer(need(request.param), "--appendonly", "yes", "--appendfsync", "always") as server:
        yield server


def test_a_redis_that_is_killed_and_started_again_has_each_occurrence_once(server: RedisServer) -> None:
    with connect(server.url) as client:
        ledger = Ledger(client, NAMESPACE)
        begin = ledger.now()
        wanted = fire_until(ledger, begin, begin + 5_000)
        with working(ledger, lease_ms=LEASE_MS) as work:
            stopped = threading.Event()

            def drain() -> None:
                while not stopped.is_set():
                    with suppress(StoreUnavailable):
                        work.drainer.drain([SHARD], lambda: 2_000 if server.runs else 0)

            thread = threading.Thread(target=drain)
            thread.start()
            try:
                for enough in (100, 400, 900):
                    until(lambda enough=enough: len(work.ran) >= enough)
                    server.stop(signal.SIGKILL)
                    server.start()
                until(lambda: over(ledger))
            finally:
                stopped.set()
                thread.join()
        ids = assert_once_each(ledger, wanted)
        assert work.ran.keys() == ids
        client.delete(f"{NAMESPACE}:{{default/0}}:bell")  # the one key with a time to live
        check(client, namespace=NAMESPACE)
