"""Time that is moved by hand: from bell to bell of a ledger, and from schedule to schedule of a stack."""

from datetime import UTC, datetime

import pytest

from duecourse.ledger.embedded.ledger import AGAIN_MS, BellSimulator, EmbeddedLedger, TravelClock
from duecourse.ledger.task import Shard
from duecourse_local.harness.aws.schedule_expressions import parse_cadence
from duecourse_local.harness.aws.schedules import Timetable
from duecourse_local.harness.template import Schedule
from tests.support.clock import START
from tests.support.ledger import SHARD, claim, new

DAY_MS = 86_400_000


@pytest.fixture
def clock() -> TravelClock:
    return TravelClock(START)


@pytest.fixture
def ledger(clock: TravelClock) -> EmbeddedLedger:
    return EmbeddedLedger(clock)


def test_a_clock_is_never_set_back(clock: TravelClock) -> None:
    clock.move(START + 5)
    with pytest.raises(ValueError, match="only moves forward"):
        clock.move(START + 4)
    assert clock.now() == START + 5


def test_a_journey_stops_at_each_bell_and_then_at_its_end(clock: TravelClock, ledger: EmbeddedLedger) -> None:
    ledger.add([new("before", delay_ms=1_000)])
    journey = BellSimulator(ledger, clock)
    ledger.add([new("after", delay_ms=60_000, queue="other")])
    assert (journey.next(START + DAY_MS), clock.now()) == ([SHARD], START + 1_000)
    assert [task.id for task in claim(ledger)] == ["before"]
    assert (journey.next(START + 59_999), clock.now()) == ([SHARD], START + 31_000)  # the lease of `before` lapses
    assert (journey.next(START + DAY_MS), clock.now()) == ([SHARD], START + 31_000 + AGAIN_MS)
    journey.close()


def test_what_is_due_at_once_is_served_at_once(clock: TravelClock, ledger: EmbeddedLedger) -> None:
    journey = BellSimulator(ledger, clock)
    ledger.add([new("a")])
    assert ledger.bell_at(SHARD) == START + 1
    assert (journey.next(START), clock.now()) == ([SHARD], START)
    assert len(claim(ledger)) == 1
    assert (journey.next(START), clock.now()) == ([], START)


def test_a_bell_that_nobody_serves_rings_each_second(clock: TravelClock, ledger: EmbeddedLedger) -> None:
    ledger.add([new("a", delay_ms=500)])
    journey, rang = BellSimulator(ledger, clock), list[int]()
    while journey.next(START + 3_000):
        rang.append(clock.now() - START)
    assert rang == [500, 1_500, 2_500]
    assert clock.now() == START + 3_000


def test_a_journey_that_is_closed_hears_no_more(clock: TravelClock, ledger: EmbeddedLedger) -> None:
    journey = BellSimulator(ledger, clock)
    journey.close()
    ledger.add([new("a", delay_ms=500)])
    assert journey.next(START + 3_000) == list[Shard]()


def test_a_schedule_is_kept_at_its_times_and_once_an_hour_at_most() -> None:
    start = datetime(2026, 3, 28, 22, 15, 30, tzinfo=UTC).timestamp()
    every = [
        (name, Schedule(name, cadence, scheduler=True, input=f'"{name}"'), cadence)
        for name, text in (("minutely", "rate(1 minute)"), ("daily", "cron(30 0 * * ? *)"))
        for cadence in [parse_cadence(text, "UTC")]
    ]
    timetable, seen = Timetable(every, start), list[tuple[str, str]]()
    while timetable.next_ms <= (start + 3 * 3_600) * 1000:
        at = datetime.fromtimestamp(timetable.next_ms / 1000, UTC)
        seen += [(f"{at:%H:%M}", text.decode()) for _, text in timetable.pop()]
    assert seen == [("22:16", '"minutely"'), ("23:16", '"minutely"'), ("00:16", '"minutely"'), ("00:30", '"daily"')]
