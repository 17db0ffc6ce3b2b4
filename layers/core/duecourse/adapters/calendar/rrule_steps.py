"""Minutes, hours or days that the interval of a recurrence rule comes to."""

from array import array
from bisect import bisect_left
from collections.abc import Iterator, Sequence
from itertools import groupby
from math import gcd

from duecourse.adapters.calendar.days import CYCLE_DAYS, LAST_DAY, Source, days_from, days_of_year, has_day

LEAP_YEAR = 2_000


class Steps:
    """Units of days that are reached: those at some places of a cycle of days, which comes again and again.

    Units are numbered from 1970-01-01, which begins a cycle; `places`, ascending, from the begin of one.
    """

    def __init__(self, source: Source, places: Sequence[int], cycle: int, in_day: int) -> None:
        self._source = source
        self._places = places
        self._cycle = cycle
        self._in_day = in_day
        self._are_rarer = cycle > 1 and len(places) * 366 < len(days_of_year(source, LEAP_YEAR)) * cycle
        """True if fewer days are reached than the source has."""

    @classmethod
    def of_weeks(cls, source: Source, first: int, interval: int) -> "Steps":
        """Days of each so many weeks; `first` is the first day of one."""
        cycle = 7 * interval
        return cls(source, sorted((first + day) % cycle for day in range(7)), cycle, 1)

    @classmethod
    def of_units(cls, source: Source, first: int, interval: int, in_day: int, named: Sequence[int]) -> "Steps":
        """Each so many units from `first` on, of those that are named by their place in a day."""
        step = gcd(interval, in_day)
        cycle = interval // step
        if len(named) == in_day:
            return cls(source, array("l", range(first % interval, cycle * in_day, interval)), cycle, in_day)
        # A unit of a day is reached on one day of a cycle if at all: the one that the interval's inverse names.
        inverse = pow(in_day // step, -1, cycle)
        reached = (unit for unit in named if (first - unit) % step == 0)
        places = sorted((first - unit) // step * inverse % cycle * in_day + unit for unit in reached)
        return cls(source, array("l", places), cycle, in_day)

    def since(self, begin: int) -> Iterator[int]:
        """Units from `begin` on that are reached, on days of the source; none more after 400 years without one."""
        places, cycle, in_day = self._places, self._cycle, self._in_day
        start = last = begin // in_day
        for day in self._days_from(start):
            first = day % cycle * in_day
            low = bisect_left(places, first)
            is_reached = low < len(places) and places[low] < first + in_day
            if is_reached and (not self._are_rarer or has_day(self._source, day)):
                last, turn = day, day * in_day - first
                high = bisect_left(places, first + in_day, low)
                yield from (turn + place for place in places[bisect_left(places, begin - turn, low, high) : high])
            elif day - last > CYCLE_DAYS:
                return

    def _days_from(self, start: int) -> Iterator[int]:
        """Days of the source, or the days that are reached if they are rarer."""
        if not self._places:
            return iter(())
        if not self._are_rarer:
            return days_from(self._source, start)
        turns = range(start - start % self._cycle, LAST_DAY + 1, self._cycle)
        days = (turn + place // self._in_day for turn in turns for place in self._places)
        return (day for day, _ in groupby(days) if start <= day <= LAST_DAY)
