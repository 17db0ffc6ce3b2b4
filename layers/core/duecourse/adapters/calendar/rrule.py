"""Wall-clock times of a recurrence rule of RFC 5545.

A search begins at the period of the given time. COUNT is applied to instants, by calendar.py.
"""

from bisect import bisect_left
from collections.abc import Iterator
from functools import lru_cache
from itertools import takewhile

from duecourse.adapters.calendar.clock import DAY_S, HOUR_S, MINUTE_S
from duecourse.adapters.calendar.days import LAST_DAY
from duecourse.adapters.calendar.rrule_periods import periods
from duecourse.adapters.calendar.rrule_text import SUB_DAILY, RuleText, parse

END = (LAST_DAY + 1) * DAY_S
"""A wall-clock time behind all others."""


class Clocks:
    """Times within a day, an hour or a minute: every hour with every minute and every second, in order."""

    def __init__(self, hours: list[int], minutes: list[int], seconds: list[int]) -> None:
        self._hours = hours
        self._minutes = minutes
        self._seconds = seconds
        self._in_minute, self._in_hour = len(seconds), len(minutes) * len(seconds)
        self._size = len(hours) * self._in_hour

    def __len__(self) -> int:
        return self._size

    def __getitem__(self, place: int) -> int:
        hour, minute = self._hours[place // self._in_hour], self._minutes[place % self._in_hour // self._in_minute]
        return hour * HOUR_S + minute * MINUTE_S + self._seconds[place % self._in_minute]


class RuleTimes:
    """Times of one rule from one start (a wall-clock time), without an end by `count`.

    `until_at` is its end as an instant (epoch s).
    """

    def __init__(self, rule: RuleText, start: int) -> None:
        self.until_at = rule.until_at
        self.count = rule.count
        self._last = END if rule.until_wall is None else rule.until_wall
        self._start = start
        self._periods = periods(rule, start)
        self._clocks = _clocks(rule, start % DAY_S)
        self._places = rule.by.get("BYSETPOS", [])
        units = 1 + (DAY_S // self._periods.size - 1) // rule.interval
        self._in_day = units * min(len(self._clocks), len(self._places) or len(self._clocks))

    def uncounted(self, passes: int) -> int:
        """Instant (epoch s) before which COUNT is not reached, if a wall-clock time has at most `passes` instants."""
        # An estimate that needs no counting: each day is taken to have the most times that a day can have.
        days = (self.count or 0) // (passes * self._in_day)
        return (self._start // DAY_S + days - 1) * DAY_S  # a wall clock is less than a day ahead of UTC

    def walls(self, start: int) -> Iterator[int]:
        """Wall-clock times from `start` on, ascending."""
        return takewhile(lambda wall: wall <= self._last, self._since(max(start, self._start)))

    def _since(self, begin: int) -> Iterator[int]:
        found, size = self._periods.since(begin), self._periods.size
        if self._places:
            return (wall for wall in self._at_places(found, size) if wall >= begin)
        return (wall for units in found for unit in units for wall in self._in_unit(unit * size, begin))

    def _in_unit(self, base: int, begin: int) -> Iterator[int]:
        first = bisect_left(self._clocks, begin - base) if base < begin else 0
        return (base + self._clocks[place] for place in range(first, len(self._clocks)))

    def _at_places(self, found: Iterator[list[int]], size: int) -> Iterator[int]:
        """Times of periods at the places of BYSETPOS; what a period holds is counted and not written out."""
        if min(map(abs, self._places)) > self._periods.most * len(self._clocks):
            return
        quiet, places = 0, dict[int, list[tuple[int, int]]]()
        for units in found:
            number = len(units)
            places[number] = places[number] if number in places else self._places_of(number * len(self._clocks))
            yield from (units[unit] * size + self._clocks[clock] for unit, clock in places[number])
            quiet = 0 if places[number] else quiet + 1
            if quiet > self._periods.quiet:
                return

    def _places_of(self, size: int) -> list[tuple[int, int]]:
        """Unit and clock of each place of BYSETPOS in a period of so many times."""
        places = {place - 1 if place > 0 else size + place for place in self._places}
        return [divmod(place, len(self._clocks)) for place in sorted(places) if 0 <= place < size]


def _clocks(rule: RuleText, second: int) -> Clocks:
    """Times within a base of a rule; what the lists leave open is as at the start, `second` of its day."""
    hour, minute = divmod(second // MINUTE_S, 60)
    hours = [0] if rule.freq in SUB_DAILY else rule.by.get("BYHOUR", [hour])
    minutes = [0] if rule.freq == "MINUTELY" else rule.by.get("BYMINUTE", [minute])
    return Clocks(hours, minutes, rule.by.get("BYSECOND", [second % 60]))


@lru_cache(maxsize=4_096)
def rule_times(text: str, start: int) -> RuleTimes:
    """Times of a rule from a start (a wall-clock time). Raises ValueError with a text fit for a user."""
    return RuleTimes(parse(text), start)
