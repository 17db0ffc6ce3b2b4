"""Wall-clock times of a cron expression of five fields."""

from bisect import bisect_left
from collections.abc import Iterator
from functools import lru_cache

from duecourse.adapters.calendar.clock import DAY_S, HOUR_S, MINUTE_S
from duecourse.adapters.calendar.cron_days import Days, days_of
from duecourse.adapters.calendar.cron_fields import HOUR, MINUTE, numbers, split
from duecourse.adapters.calendar.days import days_from


class CronTimes:
    """Times of one expression: minutes and hours of those days that fit."""

    def __init__(self, minutes: list[int], hours: list[int], days: Days) -> None:
        self._minutes = minutes
        self._hours = hours
        self._days = days

    def walls(self, start: int) -> Iterator[int]:
        """Wall-clock times from `start` on, ascending; none more where 400 years have none."""
        for day in days_from(self._days, start // DAY_S):
            yield from self._in_day(day * DAY_S, start)

    def _in_day(self, midnight: int, start: int) -> Iterator[int]:
        minute = max(0, -((midnight - start) // MINUTE_S))
        for hour in self._hours[bisect_left(self._hours, minute // 60) :]:
            base = midnight + hour * HOUR_S
            for one in self._minutes[bisect_left(self._minutes, minute - hour * 60) :]:
                yield base + one * MINUTE_S


@lru_cache(maxsize=16_384)
def cron_times(expression: str) -> CronTimes:
    """Times of an expression. Raises ValueError with a text fit for a user."""
    minute, hour, day, month, weekday = split(expression)
    minutes, hours = sorted(numbers(MINUTE, minute)), sorted(numbers(HOUR, hour))
    return CronTimes(minutes, hours, days_of(day, month, weekday))
