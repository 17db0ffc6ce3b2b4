"""Many schedules through changes of the clocks, in travelled time: each fires at its oracle's times, once each."""

from collections.abc import Iterator

import pytest

from duecourse.base.times import parse_instant
from duecourse.ledger.operations.ledger import Ledger
from duecourse.ledger.sharding import Sharding
from tests.support.clock import HandClock
from tests.support.firing import Times, by_schedule, mixed, oracle_times, put_all, working
from tests.support.matrix import LENGTHY, in_turn
from tests.support.redis_server import REDIS
from tests.support.schedules import MINUTE
from tests.support.stores import STORES, opened

pytestmark = pytest.mark.slow

CHANGES = {"back": parse_instant("2026-10-25T01:00:00Z"), "forward": parse_instant("2026-03-29T01:00:00Z")}
"""Instants in which clocks of Europe change."""
EACH_MINUTE = ["* * * * *", MINUTE, "0-59 * * * *", "* 0-23 * * *", "*/1 * * * *"]
OFTEN: list[str | int] = [
    "*/10 * * * *",
    "30 * * * *",
    7 * MINUTE,
    "30 2 * * *",
    "15,45 1-3 * * SUN",
    "0 3 * * *",
    3_600_000,
    "59 1 L * *",
    "1-59/20 0,2 * OCT,MAR *",
    "5/15 * * * 0",
]
STEPS_MS = (20_000, 40_000)
"""The clock stands on a minute after both, and between two of them after the first."""


@pytest.fixture
def ledger(request: pytest.FixtureRequest, clock: HandClock) -> Iterator[Ledger]:
    """The ledger of the test's parameter, on the clock that moves by hand."""
    yield from opened(request.param, request, clock, Sharding())


def through(
    ledger: Ledger, clock: HandClock, asked: dict[str, Times], start: int, minutes: int
) -> dict[str, list[int]]:
    """Let the schedules fire for as long, with a drain each few seconds; answers the times of what ran."""
    clock.at = start
    put_all(ledger, asked, start)
    with working(ledger) as work:
        for step in range(2 * minutes + 1):
            work.drainer.drain([ledger.shard_of("default", "", "")], lambda: 600_000)
            if step < 2 * minutes:
                clock.advance(STEPS_MS[step % 2])
    assert set(work.ran.values()) == {1}
    return by_schedule(work.ran)


def expected(asked: dict[str, Times], start: int, minutes: int) -> dict[str, list[int]]:
    """What the oracle says."""
    found = {id: oracle_times(times, start, start + minutes * MINUTE) for id, times in asked.items()}
    return {id: times for id, times in found.items() if times}


@pytest.mark.parametrize("count", in_turn(500, 10_000))
@pytest.mark.parametrize("change", CHANGES)
@pytest.mark.parametrize("ledger", [f"redis-{REDIS[0]}"], indirect=True)
@LENGTHY
def test_schedules_of_every_minute_fire_at_their_oracles_times_through_a_change_of_the_clocks(
    ledger: Ledger, clock: HandClock, change: str, count: int
) -> None:
    asked, start = mixed(EACH_MINUTE, count), CHANGES[change] - 5 * MINUTE
    wanted = expected(asked, start, 10)
    assert through(ledger, clock, asked, start, 10) == wanted
    assert {len(times) for times in wanted.values()} >= ({11, 6} if change == "back" else {11})
    for id, times in list(asked.items())[:: count // 50]:
        kept = ledger.schedule("default", id)
        assert kept is not None
        progress = kept.progress
        assert (progress.fired, progress.missed, progress.skipped) == (len(wanted[id]), 0, 0)
        later = oracle_times(times, start, start + 24 * 60 * MINUTE)
        assert progress.next_at == next(at for at in later if at > clock.at)


@pytest.mark.parametrize("change", CHANGES)
@pytest.mark.parametrize("ledger", STORES, indirect=True)
@LENGTHY
def test_200_schedules_fire_at_their_oracles_times_for_three_hours_on_every_store(
    ledger: Ledger, clock: HandClock, change: str
) -> None:
    asked, start = mixed(OFTEN, 200), CHANGES[change] - 90 * MINUTE
    wanted = expected(asked, start, 180)
    assert len(wanted) > 120
    assert through(ledger, clock, asked, start, 180) == wanted
