"""Cron expressions of five fields, with L, W and #: read, and their wall-clock times."""

import re
from bisect import bisect_left
from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache
from typing import NamedTuple

from duecourse.schedules.days import Month, days_from, month_of
from duecourse.schedules.wall_time import DAY_S, HOUR_S, MINUTE_S

# Fields of a cron expression: their names, bounds and items.

MACROS = {
    "@hourly": "0 * * * *",
    "@daily": "0 0 * * *",
    "@midnight": "0 0 * * *",
    "@weekly": "0 0 * * 0",
    "@monthly": "0 0 1 * *",
    "@yearly": "0 0 1 1 *",
    "@annually": "0 0 1 1 *",
}
MONTHS = ("JAN", "FEB", "MAR", "APR", "MAY", "JUN", "JUL", "AUG", "SEP", "OCT", "NOV", "DEC")
WEEKDAYS = ("SUN", "MON", "TUE", "WED", "THU", "FRI", "SAT")
LONG_NAMES = (
    "JANUARY", "FEBRUARY", "MARCH", "APRIL", "JUNE", "JULY", "AUGUST", "SEPTEMBER", "OCTOBER", "NOVEMBER", "DECEMBER",
    "SUNDAY", "MONDAY", "TUESDAY", "WEDNESDAY", "THURSDAY", "FRIDAY", "SATURDAY",
)  # fmt: skip
EXAMPLE = "such as 0 9 * * MON-FRI"
ANY = ("*", "?")
NUMBER = re.compile(r"[0-9]{1,2}", re.ASCII)


class Field(NamedTuple):
    """One of the five fields; `names` are other words for its numbers, from `low` on."""

    place: int
    name: str
    low: int
    high: int
    names: tuple[str, ...] = ()

    def wrong(self, problem: str) -> ValueError:
        """An error that says which field is wrong, and why."""
        return ValueError(f"field {self.place} ({self.name}): {problem}")

    def number(self, text: str, item: str = "") -> int:
        """The number of a name or of digits; an error quotes the item around an empty text."""
        if text in self.names:
            return self.low + self.names.index(text)
        if not NUMBER.fullmatch(text) or not self.low <= int(text) <= self.high:
            written = text or item
            raise self.wrong(f"{repr(written) if written else 'an empty value'} must be {self._allowed(text)}")
        return int(text)

    def _allowed(self, text: str) -> str:
        names = f" or {self.names[0]} to {self.names[-1]}" if self.names else ""
        is_long = text[:3] in self.names and any(name.startswith(text) for name in LONG_NAMES)
        return f"{self.low} to {self.high}{names}" + (f": write {text[:3]}" if is_long else "")


MINUTE = Field(1, "minute", 0, 59)
HOUR = Field(2, "hour", 0, 23)
DAY = Field(3, "day of month", 1, 31)
MONTH = Field(4, "month", 1, 12, MONTHS)
WEEKDAY = Field(5, "day of week", 0, 7, WEEKDAYS)


def split(expression: str) -> list[str]:
    """The five fields of an expression, in capitals. Raises ValueError with a text fit for a user."""
    words = expression.split()
    if len(words) == 1 and words[0].startswith("@"):
        if words[0].lower() not in MACROS:
            raise ValueError(f"{words[0]!r} must be one of {', '.join(MACROS)}, or five fields {EXAMPLE}")
        words = MACROS[words[0].lower()].split()
    if len(words) != 5:
        raise ValueError(f"must have five fields {EXAMPLE}, and has {len(words)}{_advice(words)}")
    return [word.upper() for word in words]


def _advice(words: list[str]) -> str:
    """Advice for the dialects of others: Quartz and Spring put seconds first, AWS and Quartz years last."""
    first = words[0].upper() if words else ""
    if first.startswith(("CRON_TZ=", "TZ=")):
        return f"; write {' '.join(words[1:])} and the zone in time_zone"
    if first.startswith("@EVERY"):
        return '; write {"every": "5m"} for an interval'
    if len(words) not in {6, 7}:
        return ""
    has_years = len(words) == 7 or "?" in (words[2], words[4])
    has_seconds = len(words) == 7 or not has_years
    kept = words[has_seconds : len(words) - has_years]
    # A weekday's number is another day there, and other seconds or years cannot be said here.
    is_same = (words[0] == "0" or not has_seconds) and (words[-1] == "*" or not has_years)
    if is_same and not any(map(str.isdigit, kept[4])):
        return f"; write {' '.join(kept)}"
    return "; leave out seconds and years, and write weekdays by name"


def numbers(field: Field, text: str) -> frozenset[int]:
    """Numbers of a list of values, ranges and steps."""
    return frozenset(number for item in text.split(",") for number in plain(field, item))


def plain(field: Field, item: str) -> Iterator[int]:
    """Numbers of a value, a range, `*` or `?`, with or without a step. `5/15` begins at 5 and ends with the field."""
    base, slash, text = item.partition("/")
    step = _step(field, text) if slash else 1
    first, last = _ends(field, base, item)
    return iter(range(first, last + 1, step))


def _step(field: Field, text: str) -> int:
    if not NUMBER.fullmatch(text) or not 1 <= int(text) <= field.high:
        raise field.wrong(f"the step {text!r} must be 1 to {field.high}, for each {_OVER[field.place]} begins anew")
    return int(text)


_OVER = {1: "hour", 2: "day", 3: "month", 4: "year", 5: "week"}


def _ends(field: Field, base: str, item: str) -> tuple[int, int]:
    if base in ANY:
        return field.low, _end(field, field.low)
    low, dash, high = base.partition("-")
    first = field.number(low, item)
    if not dash:
        return first, first if base == item else _end(field, first)
    last = field.number(high, item)
    if field is WEEKDAY and last == 0 < first:
        last = 7
    if last < first:
        raise field.wrong(f"the range {base} must not go down; write {_rising(field, low, high, item)}")
    return first, last


def _rising(field: Field, low: str, high: str, item: str) -> str:
    """The same numbers without a range that goes down: two ranges, or with a step each number."""
    _, slash, step = item.partition("/")
    if not slash:
        top, bottom = (field.names[-1], field.names[0]) if low in field.names else (field.high, field.low)
        return f"{low}-{top},{bottom}-{high}"
    size = _end(field, field.low) - field.low + 1
    first, last = field.number(low) - field.low, field.number(high) - field.low
    found = [(first + more) % size for more in range(0, (last - first) % size + 1, int(step))]
    is_named = low in field.names
    return ",".join(field.names[place] if is_named else str(place + field.low) for place in sorted(found))


def _end(field: Field, first: int) -> int:
    """The last number of a field; of a week it is 6, for 7 is Sunday again."""
    return max(first, 6) if field is WEEKDAY else field.high


# Days that the two day fields of a cron expression name, with L, W and #.

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


# Wall-clock times of a cron expression of five fields.


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
