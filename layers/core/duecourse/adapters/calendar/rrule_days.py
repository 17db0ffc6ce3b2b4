"""Days of a recurrence rule: what each of its periods holds, by the lists that RFC 5545 has for days."""

from collections.abc import Iterable
from datetime import date

from duecourse.adapters.calendar.days import Month, date_of, is_leap, month_of, weekday
from duecourse.adapters.calendar.rrule_text import RuleText

BEFORE_EPOCH = 719_162
"""Days from the first of the year 1 to 1970."""


class RuleDays:
    """Days that fit a rule, whose lists are filled up from the day of its start."""

    def __init__(self, rule: RuleText, start: int) -> None:
        self._yearly = rule.freq == "YEARLY"
        self._by = {name: frozenset(numbers) for name, numbers in rule.by.items()}
        self._month_days = self._by.get("BYMONTHDAY", frozenset())
        self._months = self._by.get("BYMONTH", frozenset())
        self._weekdays = {kind for place, kind in rule.by_day if not place}
        self._placed = {(place, kind) for place, kind in rule.by_day if place}
        self._week_start = rule.week_start
        self._fill(rule, date_of(start))

    def _fill(self, rule: RuleText, start: date) -> None:
        if rule.by_day or self._month_days or "BYYEARDAY" in self._by:
            return
        if rule.freq == "WEEKLY" or "BYWEEKNO" in self._by:
            self._weekdays = {start.weekday()}
        elif rule.freq in {"MONTHLY", "YEARLY"}:
            self._month_days = frozenset({start.day})
            self._months = self._months or frozenset({start.month} if self._yearly else ())

    def of_month(self, year: int, month: int) -> list[int]:
        """Days of a month that fit."""
        if self._months and month not in self._months:
            return []
        whole = month_of(year, month)
        return [day for day in self._listed(whole) if self._fits(day, whole)]

    def _listed(self, month: Month) -> Iterable[int]:
        """Days of a month that need a closer look: few where the rule names them."""
        if not self._month_days:
            return range(month.first, month.first + month.length)
        places = {day if day > 0 else month.length + 1 + day for day in self._month_days}
        return (month.first + day - 1 for day in sorted(places) if 1 <= day <= month.length)

    def _fits(self, day: int, month: Month) -> bool:
        place = day - month.first
        return (
            self._fits_weekday(day, month)
            and (not self._month_days or _named(self._month_days, place, month.length))
            and ("BYYEARDAY" not in self._by or self._fits_year(day, month))
            and ("BYWEEKNO" not in self._by or self._fits_week(day, month))
        )

    def _fits_year(self, day: int, month: Month) -> bool:
        first, length = _year(month.year)
        return _named(self._by["BYYEARDAY"], day - first, length)

    def _fits_week(self, day: int, month: Month) -> bool:
        """True if the day's week is named; a week counts in the year that has its fourth day."""
        week = day - (weekday(day) - self._week_start) % 7
        first, length = _year(month.year)
        year = month.year + (week + 3 >= first + length) - (week + 3 < first)
        begin, following = self._first_week(year), self._first_week(year + 1)
        return _named(self._by["BYWEEKNO"], (week - begin) // 7, (following - begin) // 7)

    def _first_week(self, year: int) -> int:
        fourth = _year(year)[0] + 3
        return fourth - (weekday(fourth) - self._week_start) % 7

    def _fits_weekday(self, day: int, month: Month) -> bool:
        kind = weekday(day)
        if not (self._weekdays or self._placed) or kind in self._weekdays:
            return True
        if not self._placed:
            return False
        whole_year = self._yearly and not self._months
        first, length = _year(month.year) if whole_year else (month.first, month.length)
        place = (day - first) // 7 + 1
        from_end = -((first + length - 1 - day) // 7 + 1)
        return (place, kind) in self._placed or (from_end, kind) in self._placed


def _named(numbers: frozenset[int], place: int, length: int) -> bool:
    """True if a place (from 0) of that many is among numbers that count from 1, or back from -1."""
    return place + 1 in numbers or place - length in numbers


def _year(year: int) -> tuple[int, int]:
    """Number of a year's first day, and its length."""
    years = year - 1
    return years * 365 + years // 4 - years // 100 + years // 400 - BEFORE_EPOCH, 365 + is_leap(year)
