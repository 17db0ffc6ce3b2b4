"""Which occurrences a due schedule makes, and what it goes on to: late, missed, limited, far behind."""

from collections.abc import Iterator
from dataclasses import replace
from itertools import count

import pytest

from duecourse.base.times import parse_instant
from duecourse.ledger.schedule import (
    NEVER,
    Became,
    Cron,
    Every,
    Missed,
    Occurrence,
    Progress,
    Rule,
    Schedule,
    StoredSchedule,
    occurrence_id,
)
from duecourse.schedules.calendar import Calendar
from duecourse.schedules.firing import AT_ONCE, COUNTED, PACE_MS, Firer

MINUTE = 60_000
HOUR = 60 * MINUTE
START = 1_790_000_000_000 - 1_790_000_000_000 % HOUR


class Steps:
    """A calendar of elapsed time alone."""

    version = "2026z"

    def check(self, rule: Rule) -> None:
        """Take every rule."""

    def times(self, rule: Rule, after: int) -> Iterator[int]:
        """Multiples of the rule's time."""
        assert isinstance(rule.repeat, Every)
        step = rule.repeat.every_ms
        first = max(0, (after - rule.starts_at) // step + 1)
        every = (rule.starts_at + number * step for number in count(first))
        for at in every:
            if rule.until is not None and at > rule.until:
                return
            yield at

    def local(self, at: int, time_zone: str) -> str:
        """An instant and the zone."""
        return f"{at} {time_zone}"


def kept(
    every_ms: int = HOUR, nominal: int = START, progress: Progress | None = None, **fields: object
) -> StoredSchedule:
    """A schedule whose next time is `nominal`."""
    schedule = Schedule("daily", "webhook", Rule(Every(every_ms), START), **fields)  # type: ignore[arg-type]
    return StoredSchedule(schedule, progress or Progress(nominal=nominal, next_at=schedule.fires_at(nominal)), 7, START)


def step(one: StoredSchedule, now: int) -> tuple[list[str], Progress]:
    """Ids of the tasks of a step, and the progress after it."""
    firing = Firer(ledger=None, calendar=Steps()).step(one, now)  # type: ignore[arg-type]
    return [task.id for task in firing.tasks], firing.progress


def ids(*nominals: int) -> list[str]:
    """Ids of the occurrences of these times."""
    return [occurrence_id("daily", nominal) for nominal in nominals]


def test_what_is_due_fires_once_and_the_next_time_comes() -> None:
    tasks, progress = step(kept(), START + 3)
    assert tasks == ids(START)
    assert (progress.nominal, progress.next_at, progress.fired) == (START + HOUR, START + HOUR, 1)
    assert progress.recent == (Occurrence(START, Became.LIVE),)
    assert progress.zones == "2026z"


def test_a_late_second_misses_nothing() -> None:
    tasks, progress = step(kept(every_ms=10_000), START + 35_000)
    assert tasks == ids(*(START + at for at in (0, 10_000, 20_000, 30_000)))
    assert progress.missed == 0


def test_peers_10_after_an_outage_the_latest_fires_late_and_says_how_many_it_stands_for() -> None:
    tasks, progress = step(kept(), START + 5 * HOUR + 30 * MINUTE)
    assert tasks == ids(START + 5 * HOUR)
    assert progress.recent == (Occurrence(START + 5 * HOUR, Became.LIVE, besides=5),)
    assert (progress.fired, progress.missed, progress.next_at) == (1, 5, START + 6 * HOUR)


def test_what_was_missed_is_part_of_one_that_is_on_time() -> None:
    tasks, progress = step(kept(), START + 2 * HOUR + 1_000)
    assert tasks == ids(START + 2 * HOUR)
    assert progress.recent == (Occurrence(START + 2 * HOUR, Became.LIVE, besides=2),)


def test_peers_10_all_that_was_missed_fires_within_its_time_and_at_a_pace() -> None:
    one = kept(every_ms=MINUTE, missed=Missed.ALL, catch_up_ms=HOUR)
    now = START + 3 * HOUR + 30_000
    tasks, progress = step(one, now)
    first = now - HOUR + 30_000
    assert tasks == ids(*(first + number * MINUTE for number in range(AT_ONCE)))
    assert progress.next_at == now + PACE_MS
    assert progress.nominal == first + AT_ONCE * MINUTE
    assert progress.missed == 121
    fired = len(tasks)
    while progress.next_at < START + 4 * HOUR and progress.next_at == now + PACE_MS:
        now = progress.next_at
        tasks, progress = step(one._replace(progress=progress), now)
        fired += len(tasks)
    assert fired == 60
    assert progress.next_at == START + 3 * HOUR + MINUTE


def test_what_was_missed_counts_where_none_of_it_fires() -> None:
    tasks, progress = step(kept(missed=Missed.NONE), START + 3 * HOUR + 30 * MINUTE)
    assert tasks == []
    assert progress.missed == 4
    assert [one.became for one in progress.recent] == [Became.MISSED] * 4
    assert progress.next_at == START + 4 * HOUR


def test_a_limit_ends_the_series() -> None:
    tasks, progress = step(kept(limit=3, progress=Progress(nominal=START, next_at=START, fired=2)), START + 1)
    assert tasks == ids(START)
    assert (progress.nominal, progress.next_at, progress.fired) == (None, NEVER, 3)


def test_a_limit_holds_in_what_is_made_up_for() -> None:
    one = kept(every_ms=MINUTE, missed=Missed.ALL, limit=4)
    tasks, progress = step(one, START + HOUR)
    assert len(tasks) == 4
    assert progress.next_at == NEVER


class Counting(Steps):
    """The same, which counts the times that are asked for; its rule may be a text, of which it knows no arithmetic."""

    seen = 0

    def times(self, rule: Rule, after: int) -> Iterator[int]:
        """Times by the rule, or each minute."""
        every = rule.repeat if isinstance(rule.repeat, Every) else Every(MINUTE)
        for at in super().times(replace(rule, repeat=every), after):
            self.seen += 1
            yield at


@pytest.mark.parametrize("jitter_ms", [0, 2 * HOUR])
@pytest.mark.parametrize("missed", Missed)
def test_a_year_behind_each_time_is_counted_and_few_are_gone_through(missed: Missed, jitter_ms: int) -> None:
    behind, calendar = 365 * 24 * 60, Counting()
    one = kept(every_ms=MINUTE, missed=missed, catch_up_ms=HOUR, jitter_ms=jitter_ms)
    now, tasks = START + behind * MINUTE + 30_000, []
    while one.progress.next_at <= now:
        firing = Firer(ledger=None, calendar=calendar).step(one, now)  # type: ignore[arg-type]
        one, tasks, now = one._replace(progress=firing.progress), [*tasks, *firing.tasks], now + PACE_MS
    assert calendar.seen < 2_000
    progress = one.progress
    assert progress.nominal is not None
    assert progress.fired + progress.missed == (progress.nominal - START) // MINUTE
    assert progress.fired == len(tasks)
    if not jitter_ms:
        assert len(tasks) == {Missed.LATEST: 1, Missed.NONE: 1, Missed.ALL: 60}[missed]
        assert progress.nominal == START + (behind + 1) * MINUTE
        assert progress.recent[-1].besides == (behind if missed is Missed.LATEST else 0)


@pytest.mark.parametrize("missed", [Missed.LATEST, Missed.NONE])
def test_a_year_behind_by_a_text_the_newest_is_found_and_at_least_a_thousand_are_counted(missed: Missed) -> None:
    behind, calendar = 365 * 24 * 60, Counting()
    one = kept(missed=missed)
    one = one._replace(schedule=replace(one.schedule, rule=Rule(Cron("* * * * *"), START)))
    firing = Firer(ledger=None, calendar=calendar).step(one, START + behind * MINUTE + 90_000)  # type: ignore[arg-type]
    assert [task.id for task in firing.tasks] == ids(START + (behind + 1) * MINUTE)
    assert firing.progress.nominal == START + (behind + 2) * MINUTE
    assert COUNTED <= firing.progress.missed < behind
    assert calendar.seen < 2_000


def test_the_newest_of_many_in_a_row_long_ago_is_found() -> None:
    begin, now = parse_instant("2026-01-01T00:00:00Z"), parse_instant("2026-12-01T00:00:00Z")
    one = StoredSchedule(
        Schedule("daily", "webhook", Rule(Cron("* * 1-7 1 *"), begin)), Progress(nominal=begin, next_at=begin), 7, begin
    )
    firing = Firer(ledger=None, calendar=Calendar()).step(one, now)  # type: ignore[arg-type]
    assert [task.id for task in firing.tasks] == ids(parse_instant("2026-01-07T23:59:00Z"))
    assert firing.progress.nominal == parse_instant("2027-01-01T00:00:00Z")


def test_one_that_was_missed_has_all_of_its_deadline() -> None:
    now = START + 5 * HOUR + 30 * MINUTE
    firing = Firer(ledger=None, calendar=Steps()).step(kept(deadline_ms=HOUR), now)  # type: ignore[arg-type]
    [task] = firing.tasks
    assert (task.due_at, task.deadline_ms) == (now, HOUR)
    on_time = Firer(ledger=None, calendar=Steps()).step(kept(deadline_ms=HOUR), START + 500).tasks[0]  # type: ignore[arg-type]
    assert on_time.due_at == START


@pytest.mark.parametrize("tenant", ["-", "acme"])
def test_jitter_is_the_same_everywhere_and_spread(tenant: str) -> None:
    nominals = [START + number * HOUR for number in range(500)]
    one = Schedule("daily", "webhook", Rule(Every(HOUR), START), tenant=tenant, jitter_ms=MINUTE)
    other = Schedule("hourly", "webhook", Rule(Every(HOUR), START), tenant=tenant, jitter_ms=MINUTE)
    drawn = [one.fires_at(nominal) - nominal for nominal in nominals]
    assert drawn == [one.fires_at(nominal) - nominal for nominal in nominals]
    assert drawn != [other.fires_at(nominal) - nominal for nominal in nominals]
    assert drawn != [replace(one, tenant="other").fires_at(nominal) - nominal for nominal in nominals]
    assert 0 <= min(drawn) < 5_000
    assert MINUTE - 5_000 < max(drawn) <= MINUTE
    assert 25_000 < sum(drawn) / len(drawn) < 35_000


def test_a_jittered_one_is_not_due_before_the_one_before_it() -> None:
    jittered = kept(1_000, jitter_ms=20_000)
    due = [task.due_at for task in Firer(ledger=None, calendar=Steps()).step(jittered, START + MINUTE).tasks]  # type: ignore[arg-type]
    assert len(due) == AT_ONCE
    assert due == sorted(due)
    own = [jittered.schedule.fires_at(START + number * 1_000) for number in range(AT_ONCE)]
    assert own != sorted(own)


def test_after_an_outage_none_is_missed_that_jitter_delays_yet() -> None:
    jittered = kept(1_000, jitter_ms=HOUR, progress=Progress(nominal=START, next_at=START))
    now = START + 5 * HOUR
    _, progress = step(jittered, now)
    nominals = [START + number * 1_000 for number in range(5 * 3_600)]
    due = jittered.schedule.fire_in_order(nominals, START)
    assert progress.missed == sum(at < now - MINUTE for at in due)


def test_a_jittered_one_keeps_its_nominal_time_as_its_id() -> None:
    one = kept(jitter_ms=MINUTE)
    tasks, progress = step(one, one.progress.next_at)
    assert tasks == ids(START)
    assert progress.next_at == one.schedule.fires_at(START + HOUR)
