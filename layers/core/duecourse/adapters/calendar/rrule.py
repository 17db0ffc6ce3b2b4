"""Wall-clock times of a recurrence rule of RFC 5545.

A rule without COUNT begins at the period of the asked time; one with COUNT is walked from its start.
"""

from bisect import bisect_left
from collections.abc import Iterator
from functools import lru_cache

from duecourse.adapters.calendar.clock import CYCLE_DAYS, DAY_S, HOUR_S, MINUTE_S
from duecourse.adapters.calendar.rrule_periods import QUIET, Periods
from duecourse.adapters.calendar.rrule_text import SUB_DAILY, RuleText, parse


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
        return self._hours[hour] * HOUR_S + self._minutes[minute] * MINUTE_S + self._seconds[second]


class RuleTimes:
    """Times of one rule from one start (a wall-clock time). `until_at` is its end as an instant (epoch s)."""

    def __init__(self, rule: RuleText, start: int) -> None:
        self.until_at = rule.until_at
        self._rule = rule
        self._start = start
        self._periods = Periods(rule, start)
        self._clocks = _clocks(rule, start % DAY_S)
        self._places = rule.by.get("BYSETPOS", [])

    def walls(self, start: int) -> Iterator[int]:
        """Wall-clock times from `start` on, ascending."""
        rule, begin = self._rule, max(start, self._start)
        if rule.count:
            begin = self._start
        for number, wall in enumerate(self._since(begin), 1):
            if rule.until_wall is not None and wall > rule.until_wall:
                return
            if wall >= start:
                yield wall
            if rule.count and (number == rule.count or wall > self._start + CYCLE_DAYS * DAY_S):
                return

    def _since(self, begin: int) -> Iterator[int]:
        periods = self._periods.since(begin)
        if self._places:
            return (wall for wall in self._at_places(periods) if wall >= begin)
        return (wall for bases in periods for base in bases for wall in self._in_base(base, begin))

    def _in_base(self, base: int, begin: int) -> Iterator[int]:
        first = bisect_left(self._clocks, begin - base) if base < begin else 0
        return (base + self._clocks[place] for place in range(first, len(self._clocks)))

    def _at_places(self, periods: Iterator[list[int]]) -> Iterator[int]:
        """Times of periods at the places of BYSETPOS; what a period holds is counted and not written out."""
        quiet, most = 0, QUIET.get(self._rule.freq, 0)
        for bases in periods:
            size = len(bases) * len(self._clocks)
            places = {place - 1 if place > 0 else size + place for place in self._places}
            found = [divmod(place, len(self._clocks)) for place in sorted(places) if 0 <= place < size]
            yield from (bases[base] + self._clocks[clock] for base, clock in found)
            quiet = 0 if found else quiet + 1
            if quiet > most:
                return


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
