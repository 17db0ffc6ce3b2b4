"""Fields of a cron expression: their names, bounds and items."""

import re
from collections.abc import Iterator
from typing import NamedTuple

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
