"""Days as numbers from 1970-01-01, and months as their lengths and first weekdays."""

from bisect import bisect_left
from collections.abc import Iterator
from datetime import date
from typing import NamedTuple, Protocol

EPOCH_ORDINAL = date(1970, 1, 1).toordinal()
LAST_YEAR = 9_999
MONTHS_OF_CYCLE = 4_800
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


class Source(Protocol):
    """Something that names days, month by month."""

    def of_month(self, year: int, month: int) -> list[int]:
        """Numbers of a month's days, ascending."""


def days_from(source: Source, start: int) -> Iterator[int]:
    """The days of a source from `start` on; none more where the months of 400 years have none."""
    begin = date_of(start)
    year, month, quiet = begin.year, begin.month, 0
    while year <= LAST_YEAR and quiet <= MONTHS_OF_CYCLE:
        days = source.of_month(year, month)
        yield from days[bisect_left(days, start) :]
        quiet = 0 if days else quiet + 1
        year, month = (year, month + 1) if month < 12 else (year + 1, 1)
