"""Due times of schedules: EventBridge's `rate(…)` and `cron(…)` expressions."""

import re
from datetime import UTC, datetime, timedelta, tzinfo
from typing import NamedTuple, Protocol
from zoneinfo import ZoneInfo

from ..stack.problems import TemplateError

RATE = re.compile(r"^rate\((\d+) (minute|hour|day)s?\)$")
CRON = re.compile(r"^cron\((\S+) (\S+) (\S+) (\S+) (\S+) (\S+)\)$")
PART = re.compile(r"^(?:(\*)|(\d+)(?:-(\d+))?)(?:/(\d+))?$")
UNIT_SECONDS = {"minute": 60, "hour": 3_600, "day": 86_400}
MONTHS = ("JAN", "FEB", "MAR", "APR", "MAY", "JUN", "JUL", "AUG", "SEP", "OCT", "NOV", "DEC")
DAYS = ("SUN", "MON", "TUE", "WED", "THU", "FRI", "SAT")
SPANS = ((0, 59), (0, 23), (1, 31), (1, 12), (1, 7), (1970, 2199))
"""Bounds of minute, hour, day of the month, month, day of the week (Sunday is 1) and year."""
HORIZON = timedelta(days=5 * 366)


class Cadence(Protocol):
    """A repeating instant."""

    def next_after(self, at: float) -> float:
        """The first instant after `at`, both in epoch seconds."""


class Every(NamedTuple):
    """Every so many seconds, aligned to the epoch."""

    seconds: float

    def __str__(self) -> str:
        return f"every {self.seconds:g} s"

    def next_after(self, at: float) -> float:
        """The next multiple of the interval."""
        return (at // self.seconds + 1) * self.seconds


class Cron(NamedTuple):
    """The minutes whose fields are all in the allowed sets."""

    expression: str
    fields: tuple[frozenset[int], ...]
    zone: tzinfo

    def __str__(self) -> str:
        return self.expression

    def next_after(self, at: float) -> float:
        """The next minute that matches; infinity where none does within five years."""
        minute = datetime.fromtimestamp(at // 60 * 60 + 60, UTC)
        last = minute + HORIZON
        while minute < last:
            wait = self._wait(minute.astimezone(self.zone))
            if not wait:
                return minute.timestamp()
            minute += wait
        return float("inf")

    def _wait(self, local: datetime) -> timedelta:
        minutes, hours, days, months, weekdays, years = self.fields
        midnight = timedelta(hours=24) - timedelta(hours=local.hour, minutes=local.minute)
        if local.year not in years or local.month not in months:
            return midnight
        if local.day not in days or local.isoweekday() % 7 + 1 not in weekdays:
            return min(midnight, timedelta(hours=1) - timedelta(minutes=local.minute))
        if local.hour not in hours:
            return timedelta(hours=1) - timedelta(minutes=local.minute)
        return timedelta(minutes=0 if local.minute in minutes else 1)


def parse_cadence(expression: str, zone: str = "UTC") -> Cadence:
    """The cadence that `expression` describes. Raises TemplateError."""
    if match := RATE.match(expression):
        return Every(int(match[1]) * UNIT_SECONDS[match[2]])
    if match := CRON.match(expression):
        return Cron(expression, tuple(map(_allowed, match.groups(), SPANS)), ZoneInfo(zone))
    raise TemplateError(f"{expression} is neither rate(…) nor cron(…) with six fields")


def _allowed(field: str, span: tuple[int, int]) -> frozenset[int]:
    return frozenset(value for part in field.split(",") for value in _part(part, span))


def _part(part: str, span: tuple[int, int]) -> range:
    match = PART.match(_numbers("*" if part == "?" else part.upper()))
    if not match:
        raise TemplateError(f"{part} is not understood in a cron expression")
    star, first, last, step = match.groups()
    start = span[0] if star else int(first)
    end = span[1] if star or (step and not last) else int(last or first)
    return range(start, end + 1, int(step or 1))


def _numbers(part: str) -> str:
    for names in (MONTHS, DAYS):
        for number, name in enumerate(names, start=1):
            part = part.replace(name, str(number))
    return part
