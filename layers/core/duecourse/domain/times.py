"""Instants and durations: RFC 3339 and ISO 8601 outside, whole milliseconds inside."""

import re
from datetime import UTC, datetime, timedelta
from functools import lru_cache
from math import inf

DAY_MS = 86_400_000
MAX_DURATION_MS = 100 * 366 * DAY_MS
MAX_INSTANT = 253_402_300_799_999
"""The last millisecond of the year 9999."""

_DURATION = re.compile(
    r"^P(?!$)(?:(?P<weeks>\d+(?:\.\d+)?)W)?(?:(?P<days>\d+(?:\.\d+)?)D)?"
    r"(?:T(?!$)(?:(?P<hours>\d+(?:\.\d+)?)H)?(?:(?P<minutes>\d+(?:\.\d+)?)M)?(?:(?P<seconds>\d+(?:\.\d+)?)S)?)?$",
    re.ASCII,
)
# Python takes more than the standards do: blanks and underscores in numbers, any script's digits, week dates.
_PLAIN = re.compile(r"[!-^`-~]+")
_SHORT = re.compile(r"(?P<amount>\d{1,9}(?:\.\d{1,9})?)(?P<unit>[wdhms])", re.ASCII)
_UNITS = {"w": "weeks", "d": "days", "h": "hours", "m": "minutes", "s": "seconds"}
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
    """Milliseconds of `value`: seconds (a number or its text), ISO 8601 text without years or months, or a timedelta.

    Raises ValueError with a text fit for a user.
    """
    seconds = _seconds(value)
    if not 0 <= seconds <= MAX_DURATION_MS / 1000:
        raise ValueError("must be between 0 and 100 years")
    return round(seconds * 1000)


def parse_span(value: int | float | str | timedelta) -> int:
    """Milliseconds of `value` as a person writes it: `30d`, `24h`, `90m`, `15s` or `2w`, or as `parse_duration`."""
    short = _SHORT.fullmatch(value) if isinstance(value, str) else None
    if short is None:
        return parse_duration(value)
    return parse_duration(timedelta(**{_UNITS[short["unit"]]: float(short["amount"])}))


def _seconds(value: int | float | str | timedelta) -> float:
    if isinstance(value, timedelta):
        return value.total_seconds()
    if isinstance(value, bool) or (isinstance(value, str) and not (len(value) <= MAX_TEXT and _PLAIN.fullmatch(value))):
        raise ValueError("must be seconds or an ISO 8601 duration such as PT5M")
    match = _DURATION.fullmatch(value) if isinstance(value, str) else None
    try:
        if match:
            return timedelta(**{unit: float(amount or 0) for unit, amount in match.groupdict().items()}).total_seconds()
        return float(value)
    except OverflowError:
        return inf
    except (TypeError, ValueError):
        raise ValueError("must be seconds or an ISO 8601 duration such as PT5M") from None


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


def format_instant(at: int) -> str:
    """Epoch milliseconds as RFC 3339 in UTC with milliseconds: `2026-03-29T01:30:00.000Z`."""
    second, ms = divmod(at, 1000)
    return f"{_second(second)}.{ms:03d}Z"


@lru_cache(maxsize=1024)
def _second(at: int) -> str:
    """Kept, for the tasks of a batch or a page fall into few seconds."""
    return (datetime(1970, 1, 1) + timedelta(seconds=at)).isoformat()


def format_duration(ms: int) -> str:
    """Milliseconds as ISO 8601 in seconds: `PT1.5S`."""
    seconds, rest = divmod(ms, 1000)
    return f"PT{seconds}.{rest:03d}".rstrip("0") + "S" if rest else f"PT{seconds}S"
