"""Periods of a recurrence rule, each with its units that fit: days, hours or minutes.

Periods are numbered, so that the one of any time is found by arithmetic.
"""

from collections.abc import Iterator, Sequence
from itertools import groupby

from duecourse.adapters.calendar.clock import DAY_S, HOUR_S, MINUTE_S
from duecourse.adapters.calendar.days import (
    CYCLE_DAYS,
    CYCLE_YEARS,
    LAST_DAY,
    date_of,
    days_of_month,
    days_of_year,
    weekday,
)
from duecourse.adapters.calendar.rrule_days import RuleDays
from duecourse.adapters.calendar.rrule_steps import Steps
from duecourse.adapters.calendar.rrule_text import RuleText

SIZES = {"MINUTELY": MINUTE_S, "HOURLY": HOUR_S, "DAILY": DAY_S, "WEEKLY": DAY_S}
"""Length of a unit in seconds; weeks are looked at day by day."""


class LongPeriods:
    """Years or months of a rule from its start (a wall-clock time).

    A unit takes `size` seconds, and a period has at most `most` of them. After `quiet` periods without a time there is
    none.
    """

    def __init__(self, rule: RuleText, start: int) -> None:
        self._yearly = rule.freq == "YEARLY"
        self._interval = rule.interval
        self._first = self._number(start // DAY_S)
        self._days = RuleDays(rule, start // DAY_S)
        self.size, self.most = DAY_S, 366 if self._yearly else 31
        self.quiet = CYCLE_YEARS if self._yearly else CYCLE_YEARS * 12

    def since(self, begin: int) -> Iterator[list[int]]:
        """Units that fit, numbered from 1970, period by period, from the one of a wall-clock time on."""
        now, end, quiet = self._number(begin // DAY_S), self._number(LAST_DAY) + 1, 0
        for number in range(now - (now - self._first) % self._interval, end, self._interval):
            days = self._days_of(number)
            quiet = 0 if days else quiet + 1
            if quiet > self.quiet:
                return
            if days:
                yield days

    def _days_of(self, number: int) -> list[int]:
        if self._yearly:
            return days_of_year(self._days, number)
        return days_of_month(self._days, number // 12, number % 12 + 1)

    def _number(self, day: int) -> int:
        """Year of a day, or number of its month."""
        found = date_of(day)
        return found.year if self._yearly else found.year * 12 + found.month - 1


class ShortPeriods:
    """Weeks, days, hours or minutes of a rule from its start (a wall-clock time); fields as of `LongPeriods`."""

    def __init__(self, rule: RuleText, start: int) -> None:
        day, self._weekly = start // DAY_S, rule.freq == "WEEKLY"
        self.size, self.quiet = SIZES[rule.freq], CYCLE_DAYS // 7 // rule.interval
        self.most = len({kind for _, kind in rule.by_day}) or 1 if self._weekly else 1
        self._first = day - (weekday(day) - rule.week_start) % 7 if self._weekly else start // self.size
        source = RuleDays(rule, day)
        self._steps = (
            Steps.of_weeks(source, self._first, rule.interval)
            if self._weekly
            else Steps.of_units(source, self._first, rule.interval, DAY_S // self.size, _named(rule))
        )

    def since(self, begin: int) -> Iterator[list[int]]:
        """Units that fit, numbered from 1970, period by period, from the one of a wall-clock time on."""
        unit = begin // self.size
        if not self._weekly:
            return ([one] for one in self._steps.since(unit))
        days = self._steps.since(unit - (unit - self._first) % 7)
        return (list(week) for _, week in groupby(days, lambda day: (day - self._first) // 7))


def periods(rule: RuleText, start: int) -> LongPeriods | ShortPeriods:
    """Periods of a rule from its start (a wall-clock time)."""
    return ShortPeriods(rule, start) if rule.freq in SIZES else LongPeriods(rule, start)


def _named(rule: RuleText) -> Sequence[int]:
    """Units of a day that the lists name, ascending: minutes, hours, or the day."""
    if rule.freq == "DAILY":
        return [0]
    hours = rule.by.get("BYHOUR", range(24))
    if rule.freq == "HOURLY":
        return hours
    return [hour * 60 + minute for hour in hours for minute in rule.by.get("BYMINUTE", range(60))]
