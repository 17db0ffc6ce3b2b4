"""Newer time zones on every store: the times of schedules move with them once, and older zones move none back."""

from collections.abc import Iterator
from dataclasses import replace
from datetime import UTC, datetime, timedelta, timezone
from itertools import count
from typing import Any

import pytest

from duecourse.ledger.operations.ledger import Ledger
from duecourse.ledger.schedule import (
    AT_ADD,
    NEVER,
    Cron,
    Every,
    FormerTime,
    Progress,
    Repeat,
    RRule,
    Rule,
    Schedule,
    StoredSchedule,
)
from duecourse.schedules.calendar import Calendar
from duecourse.schedules.firing import Firer
from duecourse.schedules.tzdata_update import TzdataUpdater, recomputed
from duecourse.schedules.verbs import Schedules
from tests.support.call_count import within
from tests.support.clock import START, HandClock
from tests.support.schedules import fire_due

HOUR = 3_600_000
DAY = 24 * HOUR
MIDNIGHT = START - START % DAY
NINE_IN_VIENNA = MIDNIGHT + DAY + 8 * HOUR


class Zoned:
    """A calendar whose zone Vienna is so many hours ahead of UTC; `Cron` has an hour of each day, or `*` for every."""

    def __init__(self, version: str, hours: float = 1) -> None:
        self.version = version
        self._ahead = int(hours * HOUR)

    def check(self, rule: Rule) -> None:
        """Take every rule."""

    def first(self, rule: Rule, at: int) -> int | None:
        """The first time from `at` on."""
        return next(self.times(rule, at - 1), None)

    def times(self, rule: Rule, after: int) -> Iterator[int]:
        """An hour of each day in the zone, each hour, or elapsed time."""
        if isinstance(rule.repeat, Every):
            step, first = rule.repeat.every_ms, rule.starts_at
        else:
            hour = str(rule.repeat).split("'")[1].split()[1]
            step = HOUR if hour == "*" else DAY
            first = 0 if hour == "*" else int(hour) * HOUR - self._ahead
        start = max(0, (after - first) // step + 1)
        for at in (first + number * step for number in count(start)):
            if rule.until is not None and at > rule.until:
                return
            yield at

    def local(self, at: int, time_zone: str) -> str:
        """An instant in the zone."""
        del time_zone
        return (
            datetime.fromtimestamp(at / 1000, UTC).astimezone(timezone(timedelta(milliseconds=self._ahead))).isoformat()
        )


DAILY = Cron("0 9 * * *")
OLD, NEW, LATER = Zoned("2026f"), Zoned("2026g", 2), Zoned("2026h", 2)


def verbs(ledger: Ledger, calendar: Zoned) -> Schedules:
    return Schedules(ledger, calendar, lambda task: task)


def add(ledger: Ledger, id: str = "daily", repeat: Repeat = DAILY, **fields: Any) -> None:
    verbs(ledger, OLD).add(Schedule(id, "webhook", Rule(repeat, AT_ADD, "Europe/Vienna"), **fields))


def progress(ledger: Ledger, id: str = "daily") -> Progress:
    kept = ledger.schedule("default", id)
    assert kept
    return kept.progress


def renew(ledger: Ledger, calendar: Zoned) -> int:
    zones = TzdataUpdater(ledger, lambda: calendar)
    moved = zones.renew(lambda: 60_000)
    assert zones.are_known
    return moved


@pytest.fixture(autouse=True)
def at_noon(clock: HandClock) -> None:
    """The next nine o'clock is tomorrow's."""
    clock.at = MIDNIGHT + 12 * HOUR


def test_without_schedules_nothing_is_read_and_no_calendar_opened(ledger: Ledger) -> None:
    zones = TzdataUpdater(ledger, lambda: pytest.fail("it was opened"))
    assert zones.renew(lambda: 60_000) == 0
    assert zones.are_known


def test_a_time_moves_to_where_newer_zones_have_it_and_says_so(ledger: Ledger) -> None:
    add(ledger)
    assert progress(ledger).nominal == NINE_IN_VIENNA
    assert renew(ledger, NEW) == 1
    now = progress(ledger)
    assert now == Progress(
        1, NINE_IN_VIENNA - HOUR, NINE_IN_VIENNA - HOUR, zones="2026g", former=FormerTime("2026f", NINE_IN_VIENNA)
    )
    why = verbs(ledger, NEW).get("default", "daily").why
    assert why.endswith("Recomputed by time zones 2026g; by 2026f it was 2026-09-22T08:00:00.000Z.")
    assert renew(ledger, NEW) == 0


def test_a_time_that_is_later_by_newer_zones_doubles_none(ledger: Ledger) -> None:
    add(ledger)
    assert renew(ledger, Zoned("2026g", 0)) == 1
    assert progress(ledger).nominal == NINE_IN_VIENNA + HOUR


def test_older_zones_move_nothing_back(ledger: Ledger) -> None:
    add(ledger)
    renew(ledger, NEW)
    before = progress(ledger)
    assert renew(ledger, OLD) == 0
    assert progress(ledger) == before
    verbs(ledger, OLD).change("default", "daily", {"jitter_ms": 1})
    assert progress(ledger).nominal == before.nominal
    assert progress(ledger).zones == "2026g"


def test_a_time_that_stays_gets_the_version_and_says_nothing(ledger: Ledger) -> None:
    add(ledger, repeat=Cron("0 * * * *"))
    before = progress(ledger)
    assert renew(ledger, NEW) == 1
    assert progress(ledger) == replace(before, zones="2026g")
    assert "Recomputed" not in verbs(ledger, NEW).get("default", "daily").why


@pytest.mark.parametrize("hours", [-1, 1])
def test_a_time_of_each_second_of_the_day_is_moved_at_little_cost(hours: int) -> None:
    hours_of_day = ",".join(map(str, range(9, 17)))
    seconds = ",".join(map(str, range(60)))
    rule = Rule(RRule(f"FREQ=MINUTELY;BYHOUR={hours_of_day};BYSECOND={seconds}"), MIDNIGHT)
    last, first = MIDNIGHT + 17 * HOUR - 1_000, MIDNIGHT + DAY + 9 * HOUR
    now = last if hours < 0 else first  # and by older zones it was an hour after the last one, or before the first one
    before = Progress(nominal=now - hours * HOUR, next_at=now - hours * HOUR, zones="2000a")
    kept = StoredSchedule(Schedule("s", "webhook", rule), before, 0, 0)
    calendar = Calendar()
    next(calendar.times(rule, MIDNIGHT))  # its days are found once
    assert within(10_000, lambda: recomputed(kept, calendar)).nominal == now


def test_elapsed_time_knows_no_zone(ledger: Ledger) -> None:
    add(ledger, repeat=Every(HOUR))
    assert renew(ledger, NEW) == 0


def test_a_time_that_is_past_by_newer_zones_fires_at_once_and_the_next_comes_a_day_later(
    ledger: Ledger, clock: HandClock
) -> None:
    add(ledger)
    clock.at = NINE_IN_VIENNA - 30 * 60_000
    renew(ledger, NEW)
    assert fire_due(ledger, Firer(ledger, NEW).fire, ledger.shard_of("default", "", "daily"))
    now = progress(ledger)
    assert (now.fired, now.nominal, now.former) == (1, NINE_IN_VIENNA - HOUR + DAY, None)
    assert ledger.get("default", "daily@2026-09-22T07:00:00Z")


def test_a_due_time_is_left_to_fire_as_it_is(ledger: Ledger, clock: HandClock) -> None:
    add(ledger)
    clock.at = NINE_IN_VIENNA
    assert renew(ledger, NEW) == 0
    fire_due(ledger, Firer(ledger, NEW).fire, ledger.shard_of("default", "", "daily"))
    assert progress(ledger).nominal == NINE_IN_VIENNA + DAY - HOUR
    assert progress(ledger).zones == "2026g"


def test_a_paused_schedule_moves_and_stays_paused(ledger: Ledger) -> None:
    add(ledger)
    verbs(ledger, OLD).change("default", "daily", {"paused": True})
    assert renew(ledger, NEW) == 1
    assert (progress(ledger).nominal, progress(ledger).next_at) == (NINE_IN_VIENNA - HOUR, NEVER)
    verbs(ledger, NEW).change("default", "daily", {"paused": False})
    assert progress(ledger).next_at == NINE_IN_VIENNA - HOUR


def test_a_change_that_computes_nothing_keeps_the_version_of_the_zones(ledger: Ledger) -> None:
    add(ledger)
    verbs(ledger, NEW).change("default", "daily", {"jitter_ms": 1})
    assert progress(ledger).zones == "2026f"
    assert renew(ledger, NEW) == 1
    verbs(ledger, NEW).change("default", "daily", {"rule": {"repeat": Cron("0 10 * * *")}})
    assert (progress(ledger).zones, progress(ledger).former) == ("2026g", None)


def test_a_firing_that_was_read_before_is_stale(ledger: Ledger, clock: HandClock) -> None:
    add(ledger)
    kept = ledger.schedule("default", "daily")
    assert kept
    renew(ledger, NEW)
    clock.at = NINE_IN_VIENNA
    step = Firer(ledger, OLD).step(kept, clock.at)
    assert [str(one) for one in ledger.fire(ledger.shard_of("default", "", "daily"), [step])] == ["stale"]


def test_a_change_while_times_are_computed_stays(ledger: Ledger) -> None:
    class Changed:
        """The ledger, in which a caller changes the schedule before its new time is written."""

        def __getattr__(self, name: str) -> Any:
            if name == "put_schedule":
                verbs(ledger, OLD).change("default", "daily", {"rule": {"repeat": Cron("0 10 * * *")}})
            return getattr(ledger, name)

    add(ledger)
    changed: Any = Changed()
    assert TzdataUpdater(changed, lambda: NEW).renew(lambda: 60_000) == 1
    assert (progress(ledger).version, progress(ledger).nominal) == (2, NINE_IN_VIENNA + HOUR)


@pytest.mark.slow
def test_many_schedules_of_every_tenant_are_renewed_within_the_time_there_is(ledger: Ledger) -> None:
    for place in range(1_200):
        repeat = Cron("0 9 * * *") if place % 2 else Cron("0 10 * * *")
        add(ledger, f"s{place:04}", repeat, tenant=f"t{place % 3}")
    zones = TzdataUpdater(ledger, lambda: NEW)
    left = iter([100, 90, 60, 40, *[100_000] * 3_000])
    assert zones.renew(lambda: next(left)) == 3
    assert not zones.are_known
    assert zones.renew(lambda: next(left)) == 1_197
    assert zones.are_known
    assert renew(ledger, NEW) == 0
    assert renew(ledger, LATER) == 1_200


def test_the_schedules_of_each_shard_are_found(sharded: Ledger) -> None:
    for place in range(20):
        add(sharded, f"s{place}")
    assert len({sharded.shard_of("default", "", f"s{place}") for place in range(20)}) > 3
    assert renew(sharded, NEW) == 20
