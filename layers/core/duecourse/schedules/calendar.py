"""Nominal times of a schedule's rule: cron, recurrence rule or interval; and the problems of a rule."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from datetime import datetime
from functools import lru_cache
from itertools import count, dropwhile, islice, takewhile
from typing import TYPE_CHECKING, NamedTuple

from duecourse.base.times import DAY_MS, MAX_INSTANT
from duecourse.errors import FieldError, InvalidInput
from duecourse.ledger.schedule import MAX_EXDATES, MAX_RULE, MIN_EVERY_MS, Cron, Every, Fold, Gap, RRule, Rule
from duecourse.schedules import wall_time
from duecourse.schedules.cron import cron_times
from duecourse.schedules.rrule import parse, rrule_times

if TYPE_CHECKING:
    from zoneinfo import ZoneInfo

NEVER_FIRES = {Cron: "repeat.cron", RRule: "repeat.rrule", Every: "starts_at"}
"""Field to change where a rule of a kind never fires."""
LAST = MAX_INSTANT - 2 * DAY_MS
"""No time comes later: a wall clock ahead of UTC would be in the year 10000."""


class Calendar:
    """Times of rules, by the zones of the tzdata package."""

    @property
    def version(self) -> str:
        """Version of the zones, such as `2026f`; versions are in the order of their texts."""
        return wall_time.version()

    def check(self, rule: Rule) -> None:
        """Return if a rule has a time. Raises as `first`."""
        self.first(rule, rule.starts_at)

    def first(self, rule: Rule, at: int) -> int | None:
        """The first time of a rule from `at` on, not before its start; None where all its times are before that.

        Raises InvalidInput, which names every wrong field: `repeat.cron`, `repeat.rrule`, `repeat.every`,
        `repeat.exdates`, `time_zone`, `until`. One of these fields is wrong in a rule without any time.
        """
        problems = [*_wrong_texts(rule), *_wrong_zone(rule.time_zone)]
        if rule.until is not None and rule.until < rule.starts_at:
            problems.append(FieldError("until", "must not be before starts_at"))
        found = None if problems else next(self.times(rule, at - 1), None)
        if found is None and (problems := problems or list(self._without_times(rule))):
            raise InvalidInput(problems)
        return found

    def times(self, rule: Rule, after: int) -> Iterator[int]:
        """Nominal times of a rule later than `after` (epoch ms), ascending, each once, computed as they are asked for.

        `rule` has passed `check`, maybe with other time zones. There are no times in the last two days of the year
        9999.
        """
        low = max(after, rule.starts_at - 1)
        if low >= LAST:
            return iter(())
        last = LAST if rule.until is None else min(LAST, rule.until)
        return takewhile(lambda at: at <= last, _endless(rule, low))

    def local(self, at: int, time_zone: str) -> str:
        """An instant (epoch ms) as RFC 3339 in a time zone: `2026-11-26T09:00:00+01:00`."""
        second, ms = divmod(at, 1000)
        moment = datetime.fromtimestamp(second, wall_time.zone(time_zone))
        return moment.replace(microsecond=ms * 1000).isoformat(timespec="milliseconds") if ms else moment.isoformat()

    def _without_times(self, rule: Rule) -> Iterator[FieldError]:
        endless = replace(rule, until=None)
        first = next(self.times(endless, rule.starts_at - 1), None)
        if first is None:
            yield self._why_never(endless)
        elif rule.until is not None and rule.until < first:
            yield FieldError("until", f"must not be before the first time, {self.local(first, rule.time_zone)}")

    def _why_never(self, rule: Rule) -> FieldError:
        repeat = rule.repeat
        if isinstance(repeat, RRule) and repeat.exdates:
            whole = replace(rule, repeat=RRule(repeat.rule))
            if next(self.times(whole, rule.starts_at - 1), None) is not None:
                return FieldError("repeat.exdates", "leaves out every time of the rule: leave out fewer")
        field = NEVER_FIRES[type(repeat)]
        if rule.gap_used is Gap.SKIP and next(self.times(replace(rule, gap=Gap.SHIFT), rule.starts_at - 1), None):
            return FieldError(
                field, f"never fires: clocks of {rule.time_zone} leave out each of its times; use gap shift"
            )
        return FieldError(field, "never fires: change it so that a day and a time fit it after starts_at")


def _wrong_texts(rule: Rule) -> Iterator[FieldError]:
    repeat = rule.repeat
    if isinstance(repeat, Every):
        if repeat.every_ms < MIN_EVERY_MS:
            yield FieldError("repeat.every", "must be PT1S or longer")
        return
    field, text = ("repeat.cron", repeat.expression) if isinstance(repeat, Cron) else ("repeat.rrule", repeat.rule)
    if problem := _wrong_text(repeat, text):
        yield FieldError(field, problem)
    if isinstance(repeat, RRule) and len(repeat.exdates) > MAX_EXDATES:
        yield FieldError("repeat.exdates", f"must have at most {MAX_EXDATES:,} instants")


def _wrong_zone(name: str) -> list[FieldError]:
    try:
        wall_time.zone(name)
    except InvalidInput as error:
        return error.problems
    return []


def _endless(rule: Rule, low: int) -> Iterator[int]:
    """Times of a rule later than `low`, whatever its end."""
    repeat = rule.repeat
    if isinstance(repeat, Every):
        return _every(repeat, rule.starts_at, low)
    return _by_cron(rule, repeat, low) if isinstance(repeat, Cron) else _by_rule(rule, repeat, low)


def _wrong_text(repeat: Cron | RRule, text: str) -> str:
    """The problem of a text, or ""."""
    if len(text) > MAX_RULE:
        return f"must have at most {MAX_RULE:,} characters"
    try:
        cron_times(text) if isinstance(repeat, Cron) else parse(text)
    except ValueError as error:
        return str(error)
    return ""


def _every(repeat: Every, start: int, low: int) -> Iterator[int]:
    return count(start + max(0, (low - start) // repeat.every_ms + 1) * repeat.every_ms, repeat.every_ms)


def _by_cron(rule: Rule, repeat: Cron, low: int) -> Iterator[int]:
    zone = wall_time.zone(rule.time_zone)
    walls_from, start = cron_times(repeat.expression).walls, wall_time.earliest_wall(zone, low // 1000)
    found = (second * 1000 for second in wall_time.instants(walls_from, start, zone, rule.gap_used, rule.fold_used))
    return dropwhile(lambda at: at <= low, found)


def _by_rule(rule: Rule, repeat: RRule, low: int) -> Iterator[int]:
    """Times of a recurrence rule, whose clock begins at the schedule's start, to the millisecond."""
    second, phase = divmod(rule.starts_at, 1000)
    counted = _Counted(repeat.rule, second, wall_time.zone(rule.time_zone), rule.gap_used, rule.fold_used)
    left_out = frozenset(repeat.exdates)
    found = (second * 1000 + phase for second in counted.seconds((low - phase) // 1000))
    return (at for at in found if at > low and at not in left_out)


class _Counted(NamedTuple):
    """A recurrence rule, its start (epoch s), and the zone, gap and fold that make instants of its times."""

    text: str
    start: int
    zone: ZoneInfo
    gap: Gap
    fold: Fold

    def seconds(self, low: int) -> Iterator[int]:
        """Instants from shortly before `low` (epoch s) on, to the end by COUNT or UNTIL."""
        pattern = rrule_times(self.text, wall_time.wall(self.zone, self.start))
        found = wall_time.instants(
            pattern.walls, wall_time.earliest_wall(self.zone, low), self.zone, self.gap, self.fold
        )
        if pattern.until_at is not None:
            until_at = pattern.until_at
            return takewhile(lambda at: at <= until_at, found)
        if pattern.count is not None:
            uncounted = pattern.uncounted(2 if self.fold is Fold.BOTH else 1)
            return takewhile(lambda at: at < uncounted or at <= _last_counted(self), found)
        return found


@lru_cache(maxsize=4_096)
def _last_counted(rule: _Counted) -> int:
    """The last instant by COUNT (epoch s), counted once a process; the last of all where there are fewer.

    RFC 5545, 3.3.10: times that a clock leaves out are not counted. Times that a clock shows twice are, if both fire.
    """
    pattern = rrule_times(rule.text, wall_time.wall(rule.zone, rule.start))
    begin = wall_time.earliest_wall(rule.zone, rule.start - 1)
    found = wall_time.instants(pattern.walls, begin, rule.zone, rule.gap, rule.fold)
    return next(islice(dropwhile(lambda at: at < rule.start, found), (pattern.count or 1) - 1, None), LAST // 1000)
