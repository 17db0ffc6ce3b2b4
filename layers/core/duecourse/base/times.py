"""Instants and durations: RFC 3339, ISO 8601 and `5m` outside, whole milliseconds inside; in words."""

import re
from datetime import UTC, datetime, timedelta, tzinfo
from functools import lru_cache
from typing import Protocol

from duecourse.base.hints import WRONG_DURATION, wrong_duration, wrong_rate

# Instants and durations: RFC 3339, ISO 8601 and `5m` outside, whole milliseconds inside.

DAY_MS = 86_400_000
MAX_DURATION_MS = 100 * 366 * DAY_MS
MAX_INSTANT = 253_402_300_799_999
"""The last millisecond of the year 9999."""

# Digits are ASCII alone. The schema of the HTTP API has this very pattern, so that both take the same texts.
_AMOUNT = r"[0-9]+(\.[0-9]+)?"
_ISO = r"[0-9]+([.,][0-9]+)?"
DURATION_PATTERN = (
    rf"^(P(?=.)({_ISO}W)?({_ISO}D)?(T(?=.)({_ISO}H)?({_ISO}M)?({_ISO}S)?)?"
    rf"|(?=[0-9])({_AMOUNT}w)?({_AMOUNT}d)?({_AMOUNT}h)?({_AMOUNT}m)?({_AMOUNT}s)?({_AMOUNT}ms)?"
    rf"|{_AMOUNT})$"
)
"""ISO 8601 without years and months; or amounts with units, the largest first, as in `1h30m`; or seconds."""
RATE_PATTERN = rf"^[0-9]+/(ms|[wdhms]|{DURATION_PATTERN[1:-1]})$"
"""Count and duration, or its unit alone for one of it: `10/PT1S`, `10/s`."""
_DURATION = re.compile(DURATION_PATTERN)
_PART = re.compile(r"([0-9.,]+)(ms|[A-Za-z]?)")
UNIT_MS = {"w": 7 * DAY_MS, "d": DAY_MS, "h": 3_600_000, "m": 60_000, "s": 1_000, "": 1_000, "ms": 1}
"""Length of each unit, in either case; a number without one is seconds."""
MAX_TEXT = 1_000
"""Maximum length of a duration as text: processes keep those that they have read."""
INSTANT = re.compile(
    r"\d{4}-\d\d-\d\d(T(?P<hour>\d\d):\d\d:(?P<second>\d\d)(\.\d+)?(Z|[+-](?P<ahead>\d\d:\d\d))?)?",
    re.ASCII | re.IGNORECASE,
)
"""Shape of an instant; not each number in it is one of a clock."""
LEAP = "60"
MAX_AHEAD = "23:59"
NO_INSTANT = "must be an RFC 3339 instant such as 2026-03-29T01:30:00Z"


def parse_duration(value: int | float | str | timedelta) -> int:
    """Milliseconds of `value`: seconds, a text that fits DURATION_PATTERN, or a timedelta.

    Raises ValueError with a text fit for a user, which names the right form of a near one.
    """
    ms = _text_ms(value) if isinstance(value, str) else _number_ms(value)
    if not 0 <= ms <= MAX_DURATION_MS:
        raise ValueError("must be between 0 and 100 years")
    return round(ms)


@lru_cache(maxsize=1024)
def _text_ms(text: str) -> float:
    if len(text) > MAX_TEXT or not _DURATION.fullmatch(text):
        raise ValueError(wrong_duration(text[:MAX_TEXT]))
    return sum(float(amount.replace(",", ".")) * UNIT_MS[unit.lower()] for amount, unit in _PART.findall(text))


def _number_ms(value: int | float | timedelta) -> float:
    if isinstance(value, timedelta):
        return value.total_seconds() * 1000
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise ValueError(WRONG_DURATION)  # noqa: TRY004 - a wrong value, to its reader
    return value * 1000


def parse_rate(text: str) -> tuple[int, int]:
    """Count and milliseconds of a rate such as `10/s`. Raises ValueError with a text fit for a user."""
    count, per = split_rate(text)
    return count, parse_duration(per)


def split_rate(text: str) -> tuple[int, str]:
    """Count of a rate, and its duration as text. Raises ValueError with a text fit for a user."""
    if len(text) > MAX_TEXT or not re.fullmatch(RATE_PATTERN, text):
        raise ValueError(wrong_rate(text[:MAX_TEXT]))
    count, _, per = text.partition("/")
    return int(count), f"1{per}" if per in UNIT_MS else per


def parse_instant(value: str | datetime) -> int:
    """Epoch milliseconds of an RFC 3339 text or an aware datetime. Raises ValueError with a text fit for a user."""
    moment, is_leap = (value, False) if isinstance(value, datetime) else _moment(value)
    if moment.tzinfo is None:
        raise ValueError("must have an offset, such as Z or +02:00")
    at = to_ms(moment)
    if is_leap and at // 1000 % 86_400 != 86_399:
        raise ValueError("must have seconds from 00 to 59: a leap second is at 23:59:60 UTC")
    at += 1000 * is_leap  # the second after it, as clocks of computers count
    if not 0 <= at <= MAX_INSTANT:
        raise ValueError("must be between the years 1970 and 9999")
    return at


def _moment(text: object) -> tuple[datetime, bool]:
    """The moment of an RFC 3339 text; of a leap second, the second before it and True."""
    found = INSTANT.fullmatch(text) if isinstance(text, str) else None
    if not found or (found["hour"] or "") > "23":
        raise ValueError(NO_INSTANT)
    ahead = found["ahead"] or ""
    # Python reads +01:60 as +02:00.
    if ahead > MAX_AHEAD or ahead[3:] > "59":
        raise ValueError(f"must have an offset of 00:00 to {MAX_AHEAD}, with minutes from 00 to 59")
    whole, is_leap = found[0].upper(), found["second"] == LEAP
    try:
        return datetime.fromisoformat(f"{whole[:17]}59{whole[19:]}" if is_leap else whole), is_leap
    except ValueError:
        raise ValueError(NO_INSTANT) from None


def to_ms(moment: datetime) -> int:
    """Epoch milliseconds of an aware datetime, rounded down."""
    return (moment - datetime(1970, 1, 1, tzinfo=UTC)) // timedelta(milliseconds=1)


def to_datetime(at: int) -> datetime:
    """Epoch milliseconds as an aware datetime in UTC."""
    return datetime(1970, 1, 1, tzinfo=UTC) + timedelta(milliseconds=at)


def format_instant(at: int) -> str:
    """Epoch milliseconds as RFC 3339 in UTC with milliseconds: `2026-03-29T01:30:00.000Z`."""
    second, ms = divmod(at, 1000)
    return f"{_second(second)}.{ms:03d}Z"


@lru_cache(maxsize=1024)
def _second(at: int) -> str:
    """Kept, for the tasks of a batch or a page fall into few seconds."""
    return (datetime(1970, 1, 1) + timedelta(seconds=at)).isoformat()


def format_duration(ms: int) -> str:
    """Milliseconds in the shortest usual form of ISO 8601: `P1D`, `PT36H`, `PT90S`, `P1DT1M7.1S`."""
    for unit, length in _WHOLE:
        amount, rest = divmod(ms, length)
        if amount and not rest and (amount < _ALONE or unit == "D"):
            return f"P{amount}D" if unit == "D" else f"PT{amount}{unit}"
    if ms < 1000 * _ALONE:
        return f"PT{_seconds(ms)}S"
    found = ""
    for unit, length in _WHOLE:
        amount, ms = divmod(ms, length)
        found += f"{amount}{unit}" if amount else ""
        found += "T" if unit == "D" else ""
    return f"P{found}{_seconds(ms)}S" if ms else f"P{found}"


_WHOLE = (("D", DAY_MS), ("H", 3_600_000), ("M", 60_000))
_ALONE = 1_000
"""Amount from which hours, minutes or seconds are not written alone: `PT90S`, and `PT59M59S`."""


def _seconds(ms: int) -> str:
    seconds, rest = divmod(ms, 1000)
    return f"{seconds}.{rest:03d}".rstrip("0") if rest else str(seconds)


# Instants and spans of time as people say them, in English.

DAYS = ("Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday", "Sunday")
MONTHS = (
    "January", "February", "March", "April", "May", "June",
    "July", "August", "September", "October", "November", "December",
)  # fmt: skip
UNITS_MS = (("day", DAY_MS), ("hour", 3_600_000), ("minute", 60_000))


class Moment(dict[str, str | int]):
    """An instant's parts by name; as text, the one among them that is for people."""

    def __str__(self) -> str:
        return str(self["text"])


def moment(at: int, zone: tzinfo) -> Moment:
    """An instant (epoch ms) in a time zone: `Sunday, 29 March 2026 at 03:30 CEST`; seconds only where there are any."""
    local = datetime.fromtimestamp(at // 1000, UTC).astimezone(zone)
    time = f"{local:%H:%M:%S}" if local.second else f"{local:%H:%M}"
    weekday, month = DAYS[local.weekday()], MONTHS[local.month - 1]
    date = f"{weekday}, {local.day} {month} {local.year}"
    return Moment(
        text=f"{date} at {time} {local.tzname()}",
        date=date,
        time=time,
        weekday=weekday,
        day=local.day,
        month=month,
        year=local.year,
        zone=str(local.tzname()),
        iso=local.isoformat(),
        timestamp=at // 1000,
    )


def span(ms: int) -> str:
    """A span of time: `1 day 2 hours`, `5 minutes`, `1.5 seconds`, `12 milliseconds`."""
    if 0 < ms < 1_000:
        return counted(ms, "millisecond")
    parts = []
    for unit, length in UNITS_MS:
        count, ms = divmod(ms, length)
        parts += [counted(count, unit)] if count else []
    if ms or not parts:
        parts.append(counted(ms / 1000, "second"))
    return " ".join(parts)


def counted(count: float, unit: str) -> str:
    """A number of things: `1 task`, `2 tasks`."""
    number = f"{count:g}" if isinstance(count, float) else str(count)
    return f"{number} {unit}" + ("" if count == 1 else "s")


# Time for the stores that have no server to ask.


class Clock(Protocol):
    """A source of time."""

    def now(self) -> int:
        """Epoch milliseconds."""
