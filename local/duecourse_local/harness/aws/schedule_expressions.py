"""Due times of schedules: EventBridge's `rate(…)`, `cron(…)` and `at(…)` expressions, by the product's calendar."""

import re
from collections.abc import Iterator
from datetime import UTC, datetime
from math import inf
from typing import NamedTuple, Protocol

from duecourse.errors import InvalidInput
from duecourse.ledger.schedule import Cron as FiveFields
from duecourse.ledger.schedule import Fold, Gap, Rule
from duecourse.schedules import wall_time
from duecourse.schedules.calendar import Calendar
from duecourse.schedules.cron import WEEKDAYS, cron_times

from ...errors import TemplateError

RATE = re.compile(r"rate\((\d{1,9}) (minute|hour|day)(s?)\)")
CRON = re.compile(r"cron\((\S+) (\S+) (\S+) (\S+) (\S+) (\S+)\)")
ONCE = re.compile(r"at\((\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d)\)")
YEARS = re.compile(r"(?:(\*)|(\d{4})(?:-(\d{4}))?)(?:/(\d{1,3}))?")
WEEKDAY = re.compile(r"(?<![#/0-9])[1-7](?![0-9])")
"""Number of a weekday in the fifth field: not that behind `#`, and not a step."""
OTHER_NUMBER = re.compile(r"(?<![#/0-9])(?![1-7](?![0-9]))[0-9]+")
UNIT_SECONDS = {"minute": 60, "hour": 3_600, "day": 86_400}
FIRST_YEAR, LAST_YEAR = 1970, 2199


class Cadence(Protocol):
    """A repeating instant."""

    def next_after(self, at: float) -> float:
        """The first instant after `at`, both in epoch seconds; infinity for none."""


class Every(NamedTuple):
    """Every so many seconds, aligned to the epoch."""

    seconds: float

    def __str__(self) -> str:
        return f"every {self.seconds:g} s"

    def next_after(self, at: float) -> float:
        """The next multiple of the interval."""
        return (at // self.seconds + 1) * self.seconds


class Once(NamedTuple):
    """One instant, in epoch seconds."""

    expression: str
    at: float

    def __str__(self) -> str:
        return self.expression

    def next_after(self, at: float) -> float:
        """That instant, while it is to come."""
        return self.at if self.at > at else inf


class Never(NamedTuple):
    """No instant, and why."""

    problem: str

    def __str__(self) -> str:
        return "never"

    def next_after(self, at: float) -> float:  # noqa: ARG002 - as of every cadence
        """No instant."""
        return inf


class Cron(NamedTuple):
    """The times of five fields in the years of the sixth.

    A time that a clock leaves out is left out, and one that it shows twice comes once: so does EventBridge Scheduler.
    """

    expression: str
    fields: str
    years: frozenset[int]
    zone: str

    def __str__(self) -> str:
        return self.expression

    def next_after(self, at: float) -> float:
        """The next time; infinity where no year has one."""
        after, zone = int(at * 1000), wall_time.zone(self.zone)
        while True:
            rule = Rule(FiveFields(self.fields), 0, self.zone, None, Gap.SKIP, Fold.FIRST)
            found = next(Calendar().times(rule, after), None)
            if found is None:
                return inf
            year = datetime.fromtimestamp(found / 1000, zone).year
            if year in self.years:
                return found / 1000
            later = min((one for one in self.years if one > year), default=None)
            if later is None:
                return inf
            after = round(datetime(later, 1, 1, tzinfo=zone).timestamp() * 1000) - 1


def parse_cadence(expression: object, zone: object = "UTC", *, scheduler: bool = True) -> Cadence:
    """The cadence of an expression of EventBridge Scheduler, or of a rule, which knows no `at(…)`.

    Raises TemplateError where AWS would reject it.
    """
    text = str(expression)
    if match := RATE.fullmatch(text):
        return _every(int(match[1]), match[2], match[3], strict=not scheduler)
    if match := CRON.fullmatch(text):
        return _cron(text, match.groups(), _zone(zone))
    if scheduler and (match := ONCE.fullmatch(text)):
        return Once(text, _instant(match[1], _zone(zone)))
    forms = "rate(…), cron(…) with six fields, or at(…)" if scheduler else "rate(…), or cron(…) with six fields"
    raise TemplateError(f"must be {forms}")


def _every(count: int, unit: str, plural: str, *, strict: bool) -> Every:
    if count < 1:
        raise TemplateError(f"must be 1 {unit} or more")
    if strict and bool(plural) != (count > 1):
        raise TemplateError(f"must be rate({count} {unit}{'s' if count > 1 else ''}) in a rule")
    return Every(count * UNIT_SECONDS[unit])


def _cron(text: str, fields: tuple[str, ...], zone: str) -> Cron:
    minute, hour, day, month, weekday, year = (field.upper() for field in fields)
    if (day == "?") == (weekday == "?"):
        raise TemplateError("field 3 (day of month) or field 5 (day of week) must be ?, and not both")
    five = f"{minute} {hour} {day} {month} {_weekday(weekday)}"
    try:
        cron_times(five)
        return Cron(text, five, frozenset(_years(year)), zone)
    except ValueError as error:
        raise TemplateError(str(error)) from None


def _weekday(field: str) -> str:
    """The fifth field with names in place of numbers: AWS counts from 1, Sunday; `L` alone is the week's last day."""
    if wrong := OTHER_NUMBER.search(field):
        raise TemplateError(f"field 5 (day of week): {wrong[0]!r} must be 1 (Sunday) to 7, or SUN to SAT")
    named = WEEKDAY.sub(lambda match: WEEKDAYS[int(match[0]) - 1], field)
    return ",".join("SAT" if item == "L" else item for item in named.split(","))


def _years(field: str) -> Iterator[int]:
    """Years of the sixth field. Raises ValueError."""
    for item in field.split(","):
        match = YEARS.fullmatch(item)
        if not match:
            raise ValueError(f"field 6 (year): {item!r} must be {FIRST_YEAR} to {LAST_YEAR}, a range or *")
        star, low, high, step = match.groups()
        first = FIRST_YEAR if star else int(low)
        last = LAST_YEAR if star or (step and not high) else int(high or low)
        if not FIRST_YEAR <= first <= last <= LAST_YEAR or step == "0":
            raise ValueError(f"field 6 (year): {item!r} must rise, from {FIRST_YEAR} to {LAST_YEAR}")
        yield from range(first, last + 1, int(step or 1))


def _zone(name: object) -> str:
    try:
        wall_time.zone(str(name))
    except InvalidInput as error:
        raise TemplateError(f"time zone {name} {error.problems[0].problem}") from None
    return str(name)


def _instant(text: str, zone: str) -> float:
    try:
        return datetime.fromisoformat(text).replace(tzinfo=wall_time.zone(zone)).astimezone(UTC).timestamp()
    except (ValueError, OverflowError):
        raise TemplateError(f"{text} is no time") from None
