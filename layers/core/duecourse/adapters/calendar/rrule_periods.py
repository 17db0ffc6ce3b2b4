"""Periods of a recurrence rule: where the days, hours or minutes that fit begin.

Periods are numbered from the rule's start, so that the one of any time is found by arithmetic.
"""

from collections.abc import Iterator
from itertools import groupby
from math import gcd

from duecourse.adapters.calendar.clock import CYCLE_DAYS, DAY_S, HOUR_S, MINUTE_S
from duecourse.adapters.calendar.days import LAST_YEAR, MONTHS_OF_CYCLE, date_of, days_from, weekday
from duecourse.adapters.calendar.rrule_days import RuleDays
from duecourse.adapters.calendar.rrule_text import SUB_DAILY, RuleText

QUIET = {"YEARLY": 400, "MONTHLY": MONTHS_OF_CYCLE, "WEEKLY": CYCLE_DAYS // 7}
"""Periods without a time after which a rule has none, whatever its interval: those of 400 years."""
MAX_LOOKS = 150_000
"""Hours and minutes in a row that are looked at for one that fits."""


class Periods:
    """Periods of a rule from its start (a wall-clock time)."""

    def __init__(self, rule: RuleText, start: int) -> None:
        self._freq = rule.freq
        self._interval = rule.interval
        self._day = start // DAY_S
        self._week = self._day - (weekday(self._day) - rule.week_start) % 7
        self._days = RuleDays(rule, self._day)
        self._size = HOUR_S if rule.freq == "HOURLY" else MINUTE_S
        self._unit = start // self._size
        self._units = _units(rule) if rule.freq in SUB_DAILY else {}

    def since(self, begin: int) -> Iterator[list[int]]:
        """Beginnings (wall-clock times) of what fits, period by period, from the one of a time on."""
        if self._freq in SUB_DAILY:
            return self._short(begin)
        days = self._long(begin // DAY_S) if self._freq in {"YEARLY", "MONTHLY"} else self._by_days(begin // DAY_S)
        return ([day * DAY_S for day in found] for found in days)

    def _long(self, begin: int) -> Iterator[list[int]]:
        """Days of years or months."""
        yearly, first, now = self._freq == "YEARLY", date_of(self._day), date_of(begin)
        passed = (now.year - first.year) * (1 if yearly else 12) + (0 if yearly else now.month - first.month)
        number, quiet = passed - passed % self._interval, 0
        while quiet <= QUIET[self._freq]:
            years, month = (number, 0) if yearly else divmod(first.month - 1 + number, 12)
            if first.year + years > LAST_YEAR:
                return
            year = first.year + years
            days = self._days.of_year(year) if yearly else self._days.of_month(year, month + 1)
            quiet = 0 if days else quiet + 1
            if days:
                yield days
            number += self._interval

    def _by_days(self, begin: int) -> Iterator[list[int]]:
        """Days of weeks, or single days."""
        first, size = (self._week, 7) if self._freq == "WEEKLY" else (self._day, 1)
        begin -= (begin - first) % size
        last = begin
        for number, days in groupby(days_from(self._days, begin), lambda day: (day - first) // size):
            now = first + number * size
            if number % self._interval == 0:
                last = now
                yield list(days)
            elif now - last > CYCLE_DAYS:
                return

    def _short(self, begin: int) -> Iterator[list[int]]:
        """Hours or minutes, each a period of its own."""
        if not self._reachable():
            return
        looks, cost, last = 0, 1 + min(len(self._units), DAY_S // self._size // self._interval), begin // DAY_S
        for day in days_from(self._days, last):
            units = self._units_of(day)
            looks, last = (0, day) if units else (looks + cost, last)
            if looks > MAX_LOOKS or day - last > CYCLE_DAYS:
                return
            bases = (day * DAY_S + unit * self._size for unit in units)
            yield from ([base] for base in bases if base + self._size > begin)

    def _units_of(self, day: int) -> list[int]:
        """Units of a day that the interval reaches and the lists name, by whichever are fewer."""
        in_day = DAY_S // self._size
        reached = range((self._unit - day * in_day) % self._interval, in_day, self._interval)
        if len(reached) < len(self._units):
            return [unit for unit in reached if unit in self._units]
        return [unit for unit in self._units if unit in reached]

    def _reachable(self) -> bool:
        """True if the interval comes to a unit that the lists name, on whatever day."""
        step = gcd(self._interval, DAY_S // self._size)
        return any((unit - self._unit) % step == 0 for unit in self._units)


def _units(rule: RuleText) -> dict[int, None]:
    """Hours or minutes of the day that the lists name, ascending."""
    hours = rule.by.get("BYHOUR", range(24))
    if rule.freq == "HOURLY":
        return dict.fromkeys(hours)
    return dict.fromkeys(hour * 60 + minute for hour in hours for minute in rule.by.get("BYMINUTE", range(60)))
