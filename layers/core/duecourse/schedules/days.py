"""Days as numbers from 1970-01-01, months as their lengths and first weekdays, and the days that a source names.

Years of one kind have the same days: a source of days is asked once for each of the 28 kinds, whatever the years.
"""

from bisect import bisect_left
from collections.abc import Hashable, Iterator
from datetime import date
from functools import lru_cache
from typing import NamedTuple, Protocol

EPOCH_ORDINAL = date(1970, 1, 1).toordinal()
LAST_YEAR = 9_999
LAST_DAY = date(LAST_YEAR, 12, 31).toordinal() - EPOCH_ORDINAL
CYCLE_YEARS, CYCLE_DAYS = 400, 146_097
"""Time after which the Gregorian calendar comes again, weekdays too."""
MONTHS = range(1, 13)
LENGTHS = (31, 28, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31)


class Month(NamedTuple):
    """A month: `first` is the number of its first day."""

    year: int
    month: int
    first: int
    length: int

    def weekday(self, day: int) -> int:
        """Weekday of the month's `day`: 0 is Monday, 6 is Sunday."""
        return weekday(self.first + day - 1)


def month_of(year: int, month: int) -> Month:
    """A month of a year."""
    return Month(year, month, day_number(date(year, month, 1)), LENGTHS[month - 1] + (month == 2 and is_leap(year)))


def is_leap(year: int) -> bool:
    """True if the year has 366 days."""
    return year % 4 == 0 and (year % 100 != 0 or year % 400 == 0)


def day_number(day: date) -> int:
    """Number of a day; 1970-01-01 is 0."""
    return day.toordinal() - EPOCH_ORDINAL


def date_of(day: int) -> date:
    """The day of a number."""
    return date.fromordinal(day + EPOCH_ORDINAL)


def weekday(day: int) -> int:
    """Weekday of a numbered day: 0 is Monday; 1970-01-01 was a Thursday."""
    return (day + 3) % 7


class DaySource(Hashable, Protocol):
    """Something that names days, month by month, the same ones in all years of a kind."""

    def of_month(self, year: int, month: int) -> list[int]:
        """Numbers of a month's days, ascending."""


def days_from(source: DaySource, start: int) -> Iterator[int]:
    """The days of a source from `start` on; none more where 400 years have none."""
    begin, quiet = date_of(start), 0
    for year in range(begin.year, LAST_YEAR + 1):
        months = MONTHS[begin.month - 1 :] if year == begin.year else _months(source, _model(year))
        quiet = 0 if months else quiet + 1
        if quiet > CYCLE_YEARS:
            return
        for month in months:
            days = days_of_month(source, year, month)
            yield from days[bisect_left(days, start) :]


def days_of_year(source: DaySource, year: int) -> list[int]:
    """Days of a source in a year, ascending."""
    before = day_number(date(year, 1, 1)) - 1
    return [before + place for place in _in_year(source, _model(year))]


def days_of_month(source: DaySource, year: int, month: int) -> list[int]:
    """Days of a source in a month, ascending."""
    places = _in_month(source, _model(year), month)
    before = day_number(date(year, month, 1)) - 1 if places else 0
    return [before + place for place in places]


def has_day(source: DaySource, day: int) -> bool:
    """True if a source names a day."""
    found = date_of(day)
    return found.day in _in_month(source, _model(found.year), found.month)


@lru_cache(maxsize=8_192)
def _months(source: DaySource, year: int) -> tuple[int, ...]:
    """Months of a year in which a source has days."""
    return tuple(month for month in MONTHS if _in_month(source, year, month))


@lru_cache(maxsize=512)
def _in_year(source: DaySource, year: int) -> tuple[int, ...]:
    """Days of a source in a year, counted from 1."""
    before = day_number(date(year, 1, 1)) - 1
    return tuple(day - before for month in _months(source, year) for day in days_of_month(source, year, month))


@lru_cache(maxsize=8_192)
def _in_month(source: DaySource, year: int, month: int) -> tuple[int, ...]:
    """Days of a source in a month, counted from 1."""
    before = day_number(date(year, month, 1)) - 1
    return tuple(day - before for day in source.of_month(year, month))


@lru_cache(maxsize=1_024)
def _model(year: int) -> int:
    """The first year that was asked for of a year's kind: its length, its first weekday, its neighbours' lengths."""
    kind = (weekday(day_number(date(year, 1, 1))), is_leap(year - 1), is_leap(year), is_leap(year + 1))
    return _MODELS.setdefault(kind, year)


_MODELS: dict[tuple[int, bool, bool, bool], int] = {}
