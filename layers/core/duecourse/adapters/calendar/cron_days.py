"""Days that the two day fields of a cron expression name, with L, W and #."""

import re
from dataclasses import dataclass
from functools import lru_cache

from duecourse.adapters.calendar.cron_fields import ANY, DAY, MONTH, WEEKDAY, numbers, plain
from duecourse.adapters.calendar.days import Month, month_of

FROM_LAST = re.compile(r"L(?:-([0-9]{1,2}))?", re.ASCII)
WEEKDAY_BEFORE_LAST = re.compile(r"(L-[0-9]{1,2})W", re.ASCII)
NEAREST = re.compile(r"(L|[0-9]{1,2})W", re.ASCII)
LAST_OF_KIND = re.compile(r"([A-Z0-9]+)L", re.ASCII)
NTH_OF_KIND = re.compile(r"([A-Z0-9]+)#([0-9]+)", re.ASCII)
SATURDAY, SUNDAY = 5, 6


@dataclass(slots=True)
class DaysOfMonth:
    """The third field: plain days, days before the last one, and weekdays nearest to a day (0: the last one)."""

    days: set[int]
    before_last: set[int]
    nearest_to: set[int]

    def of(self, month: Month) -> set[int]:
        """Days of a month that fit."""
        last = month.length
        found = self.days | {last - before for before in self.before_last}
        found |= {_nearest_weekday(month, day or last) for day in self.nearest_to if day <= last}
        return {day for day in found if 1 <= day <= last}


@dataclass(slots=True)
class Weekdays:
    """The fifth field (0 is Sunday): plain weekdays, a month's last of a kind, and its nth of a kind."""

    kinds: set[int]
    last: set[int]
    nth: set[tuple[int, int]]

    def of(self, month: Month) -> set[int]:
        """Days of a month that fit."""
        return {day for day in range(1, month.length + 1) if self._fits(month, day)}

    def _fits(self, month: Month, day: int) -> bool:
        kind = (month.weekday(day) + 1) % 7
        if kind in self.kinds or (kind, (day + 6) // 7) in self.nth:
            return True
        return kind in self.last and day + 7 > month.length


class Days:
    """Days that fit either day field of an expression, or both fields where one of them begins with `*` or `?`."""

    def __init__(self, of_month: DaysOfMonth, months: frozenset[int], weekdays: Weekdays, *, either: bool) -> None:
        self._of_month = of_month
        self._months = months
        self._weekdays = weekdays
        self._either = either

    def of_month(self, year: int, month: int) -> list[int]:
        """Numbers of the days of a month that fit, ascending."""
        if month not in self._months:
            return []
        whole = month_of(year, month)
        by_date, by_weekday = self._of_month.of(whole), self._weekdays.of(whole)
        found = by_date | by_weekday if self._either else by_date & by_weekday
        return [whole.first + day - 1 for day in sorted(found)]


@lru_cache(maxsize=1_024)
def days_of(day: str, month: str, weekday: str) -> Days:
    """Days of three fields. Raises ValueError with a text fit for a user."""
    either = not day.startswith(ANY) and not weekday.startswith(ANY)
    return Days(_days_of_month(day), numbers(MONTH, month), _weekdays(weekday), either=either)


def _days_of_month(text: str) -> DaysOfMonth:
    found = DaysOfMonth(set(), set(), set())
    for item in text.split(","):
        if before_last := WEEKDAY_BEFORE_LAST.fullmatch(item):
            raise DAY.wrong(f"{item!r} is not known; write {before_last[1]} for that day, or LW for the last weekday")
        if from_last := FROM_LAST.fullmatch(item):
            found.before_last.add(_before_last(from_last[1]))
        elif nearest := NEAREST.fullmatch(item):
            found.nearest_to.add(0 if nearest[1] == "L" else DAY.number(nearest[1]))
        else:
            found.days.update(plain(DAY, item))
    return found


def _before_last(text: str | None) -> int:
    before = int(text or 0)
    if text is not None and not 1 <= before <= 30:
        raise DAY.wrong(f"'L-{text}' must be L-1 to L-30")
    return before


def _weekdays(text: str) -> Weekdays:
    found = Weekdays(set(), set(), set())
    for item in text.split(","):
        if item == "L":
            raise WEEKDAY.wrong("'L' needs a weekday, such as FRIL for a month's last Friday")
        if last := LAST_OF_KIND.fullmatch(item):
            found.last.add(WEEKDAY.number(last[1]) % 7)
        elif nth := NTH_OF_KIND.fullmatch(item):
            found.nth.add((WEEKDAY.number(nth[1]) % 7, _nth(nth[2])))
        else:
            found.kinds.update(number % 7 for number in plain(WEEKDAY, item))
    return found


def _nth(text: str) -> int:
    if text not in {"1", "2", "3", "4", "5"}:
        raise WEEKDAY.wrong(f"'#{text}' must be #1 to #5")
    return int(text)


def _nearest_weekday(month: Month, day: int) -> int:
    """The day itself, or of a weekend the nearest weekday in the same month."""
    weekday = month.weekday(day)
    if weekday == SATURDAY:
        return day - 1 if day > 1 else day + 2
    if weekday == SUNDAY:
        return day + 1 if day < month.length else day - 2
    return day
