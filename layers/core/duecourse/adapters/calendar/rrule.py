"""Wall-clock times of a recurrence rule of RFC 5545, period by period.

A rule without COUNT begins at the period of the asked time: periods are numbered from the start, so that one can be
reached by arithmetic. One with COUNT is walked from its start.
"""

from bisect import bisect_left
from collections.abc import Iterator
from functools import lru_cache
from math import gcd

from duecourse.adapters.calendar.clock import CYCLE_DAYS, DAY_S, HOUR_S, MINUTE_S
from duecourse.adapters.calendar.days import LAST_YEAR, MONTHS_OF_CYCLE, date_of, weekday
from duecourse.adapters.calendar.rrule_days import RuleDays
from duecourse.adapters.calendar.rrule_text import SUB_DAILY, RuleText, parse

QUIET = {"YEARLY": 400, "MONTHLY": MONTHS_OF_CYCLE, "WEEKLY": CYCLE_DAYS // 7}
"""Periods without a time after which a rule has none, whatever its interval: those of 400 years."""
MAX_LOOKS = 500_000
"""The same for shorter periods, in days, hours and minutes that are looked at."""
LAST_DAY = 2_932_896
"""Number of 9999-12-31."""


class Clocks:
    """Times within a day, an hour or a minute: every hour with every minute and every second, in order."""

    def __init__(self, hours: list[int], minutes: list[int], seconds: list[int]) -> None:
        self._hours = hours
        self._minutes = minutes
        self._seconds = seconds

    def __len__(self) -> int:
        return len(self._hours) * len(self._minutes) * len(self._seconds)

    def __getitem__(self, place: int) -> int:
        place, second = divmod(place, len(self._seconds))
        hour, minute = divmod(place, len(self._minutes))
        if hour >= len(self._hours):
            raise IndexError
        return self._hours[hour] * HOUR_S + self._minutes[minute] * MINUTE_S + self._seconds[second]


class RuleTimes:
    """Times of one rule from one start (a wall-clock time)."""

    def __init__(self, rule: RuleText, start: int) -> None:
        self.until_at = rule.until_at
        self._rule = rule
        self._start = start
        self._first_day, second = divmod(start, DAY_S)
        self._days = RuleDays(rule, self._first_day)
        hour, minute = divmod(second // MINUTE_S, 60)
        hours, minutes = rule.by.get("BYHOUR", [hour]), rule.by.get("BYMINUTE", [minute])
        if rule.freq in SUB_DAILY:
            hours, self._units = [0], _units(rule)
        if rule.freq == "MINUTELY":
            minutes = [0]
        self._clocks = Clocks(hours, minutes, rule.by.get("BYSECOND", [second % 60]))
        self._places = rule.by.get("BYSETPOS", [])

    def walls(self, start: int) -> Iterator[int]:
        """Wall-clock times from `start` on, ascending."""
        begin = self._start if self._rule.count else max(start, self._start)
        left = self._rule.count or 0
        for wall in self._all_from(begin):
            if self._rule.until_wall is not None and wall > self._rule.until_wall:
                return
            if wall >= start:
                yield wall
            left -= 1
            if left == 0 or (self._rule.count and wall - self._start > CYCLE_DAYS * DAY_S):
                return

    def _all_from(self, begin: int) -> Iterator[int]:
        for bases in self._periods(begin):
            if self._places:
                yield from (wall for wall in self._at_places(bases) if wall >= begin)
                continue
            for base in bases:
                first = bisect_left(self._clocks, begin - base)
                yield from (base + self._clocks[place] for place in range(first, len(self._clocks)))

    def _at_places(self, bases: list[int]) -> list[int]:
        """Times of a period at the places of BYSETPOS; what a period holds is counted and not written out."""
        size = len(bases) * len(self._clocks)
        places = {place - 1 if place > 0 else size + place for place in self._places}
        found = [divmod(place, len(self._clocks)) for place in sorted(places) if 0 <= place < size]
        return [bases[base] + self._clocks[clock] for base, clock in found]

    def _periods(self, begin: int) -> Iterator[list[int]]:
        """Beginnings (wall-clock times) of the days, hours or minutes that fit, period by period."""
        if self._rule.freq in SUB_DAILY:
            yield from self._units_from(begin)
            return
        quiet, most = 0, QUIET.get(self._rule.freq, CYCLE_DAYS)
        number = self._number_of(begin)
        while quiet <= most and (days := self._days_of(number)) is not None:
            quiet = 0 if days else quiet + 1
            yield [day * DAY_S for day in days]
            number += self._rule.interval

    def _number_of(self, begin: int) -> int:
        """Number of the last period at or before a time, of those that the interval leaves."""
        day = begin // DAY_S
        first, now = date_of(self._first_day), date_of(day)
        passed = {
            "YEARLY": now.year - first.year,
            "MONTHLY": (now.year - first.year) * 12 + now.month - first.month,
            "WEEKLY": (day - self._first_week()) // 7,
            "DAILY": day - self._first_day,
        }[self._rule.freq]
        return passed - passed % self._rule.interval

    def _first_week(self) -> int:
        return self._first_day - (weekday(self._first_day) - self._rule.week_start) % 7

    def _days_of(self, number: int) -> list[int] | None:
        """Days that fit of the period of a number; None beyond the year 9999."""
        start = date_of(self._first_day)
        if self._rule.freq == "YEARLY":
            year = start.year + number
            return self._days.of_year(year) if year <= LAST_YEAR else None
        if self._rule.freq == "MONTHLY":
            years, month = divmod(start.month - 1 + number, 12)
            year = start.year + years
            return self._days.of_month(year, month + 1) if year <= LAST_YEAR else None
        first = self._first_week() + 7 * number if self._rule.freq == "WEEKLY" else self._first_day + number
        days = range(first, first + 7 if self._rule.freq == "WEEKLY" else first + 1)
        return self._days.of_span(days) if days[-1] <= LAST_DAY else None

    def _units_from(self, begin: int) -> Iterator[list[int]]:
        """Hours or minutes that fit, each a period of its own."""
        size = HOUR_S if self._rule.freq == "HOURLY" else MINUTE_S
        if not self._reachable(size):
            return
        looks, day = 0, begin // DAY_S
        while looks <= MAX_LOOKS and day <= LAST_DAY:
            units = self._units_of(day, size) if self._days.of_span([day]) else []
            looks = 0 if units else looks + 1 + min(len(self._units), DAY_S // size // self._rule.interval)
            for unit in units:
                base = day * DAY_S + unit * size
                if base + size > begin:
                    yield [base]
            day += 1

    def _units_of(self, day: int, size: int) -> list[int]:
        """Units of a day that fit: those that the interval reaches and the lists name, by whichever are fewer."""
        interval, in_day = self._rule.interval, DAY_S // size
        passed = day * in_day - self._start // size
        reached = range(-passed % interval, in_day, interval)
        if len(reached) < len(self._units):
            return [unit for unit in reached if unit in self._units]
        return [unit for unit in self._units if unit in reached]

    def _reachable(self, size: int) -> bool:
        """True if the interval comes to a unit that the lists name, on whatever day."""
        step = gcd(self._rule.interval, DAY_S // size)
        return any((unit - self._start // size) % step == 0 for unit in self._units)


def _units(rule: RuleText) -> dict[int, None]:
    """Hours or minutes of the day that the lists name, ascending."""
    hours = rule.by.get("BYHOUR", range(24))
    if rule.freq == "HOURLY":
        return dict.fromkeys(hours)
    return dict.fromkeys(hour * 60 + minute for hour in hours for minute in rule.by.get("BYMINUTE", range(60)))


@lru_cache(maxsize=4_096)
def rule_times(text: str, start: int) -> RuleTimes:
    """Times of a rule from a start (a wall-clock time). Raises ValueError with a text fit for a user."""
    return RuleTimes(parse(text), start)
