"""A recurrence rule of RFC 5545 as text, read and checked."""

import re
from dataclasses import dataclass
from datetime import UTC, datetime

from duecourse.adapters.calendar.clock import DAY_S, EPOCH, SECOND
from duecourse.domain.near import near_name

SUB_DAILY = ("MINUTELY", "HOURLY")
FREQUENCIES = (*SUB_DAILY, "DAILY", "WEEKLY", "MONTHLY", "YEARLY")
WEEKDAYS = ("MO", "TU", "WE", "TH", "FR", "SA", "SU")
MAX_COUNT = 10_000
"""Bound of COUNT: a process counts so many times, once, to find the last of such a rule."""
MAX_INTERVAL = 100_000
ELSEWHERE = {
    "DTSTART": "write the start in starts_at",
    "RDATE": "add a schedule for further times",
    "EXDATE": "write times to leave out in exdates",
    "EXRULE": "write times to leave out in exdates",
    "TZID": "write the zone in time_zone",
}
NUMBER = re.compile(r"[+-]?[0-9]{1,6}", re.ASCII)
BY_DAY = re.compile(r"([+-]?[0-9]{1,2})?(MO|TU|WE|TH|FR|SA|SU)", re.ASCII)
LEAP = re.compile(r"(?<=T[0-9]{4})60$", re.ASCII)
UNTIL = re.compile(r"[0-9]{8}(T[0-9]{6}Z?)?", re.ASCII)
BOUNDS = {
    "BYSECOND": (0, 59),
    "BYMINUTE": (0, 59),
    "BYHOUR": (0, 23),
    "BYMONTHDAY": (-31, 31),
    "BYYEARDAY": (-366, 366),
    "BYWEEKNO": (-53, 53),
    "BYMONTH": (1, 12),
    "BYSETPOS": (-366, 366),
}
"""First and last number of each list; 0 counts where both have one sign."""
NOT_WITH = {
    "BYMONTHDAY": ("WEEKLY",),
    "BYYEARDAY": ("DAILY", "WEEKLY", "MONTHLY"),
    "BYWEEKNO": tuple(one for one in FREQUENCIES if one != "YEARLY"),
}
PARTS = {"FREQ", "INTERVAL", "COUNT", "UNTIL", "WKST", "BYDAY", *BOUNDS}


@dataclass(slots=True)
class RuleText:
    """A rule as read. `by_day` are pairs of a place in the month or year (0: each) and a weekday, Monday is 0.

    `until_at` is an instant, `until_wall` a wall-clock time (both in seconds, and inclusive).
    """

    freq: str
    interval: int
    count: int | None
    until_at: int | None
    until_wall: int | None
    week_start: int
    by_day: list[tuple[int, int]]
    by: dict[str, list[int]]


def parse(text: str) -> RuleText:
    """Read a rule. Raises ValueError with a text fit for a user."""
    parts = _parts(text)
    freq = _freq(parts.get("FREQ", ""), parts)
    at, wall = _until(parts["UNTIL"]) if "UNTIL" in parts else (None, None)
    rule = RuleText(
        freq=freq,
        interval=_whole("INTERVAL", parts.get("INTERVAL", "1"), 1, MAX_INTERVAL),
        count=_whole("COUNT", parts["COUNT"], 1, MAX_COUNT) if "COUNT" in parts else None,
        until_at=at,
        until_wall=wall,
        week_start=_weekday(parts.get("WKST", "MO")),
        by_day=[_by_day(item) for item in parts["BYDAY"].split(",")] if "BYDAY" in parts else [],
        by={name: _numbers(name, parts[name], *BOUNDS[name]) for name in BOUNDS if name in parts},
    )
    _check_together(rule, parts)
    return rule


def _parts(text: str) -> dict[str, str]:
    found: dict[str, str] = {}
    for part in text.strip().upper().removeprefix("RRULE:").removesuffix(";").split(";"):
        name, equals, value = part.partition("=")
        if word := next((word for word in ELSEWHERE if word in part), None):
            raise ValueError(f"must hold no {word}: {ELSEWHERE[word]}")
        if not equals or name not in PARTS:
            near = near_name(name, PARTS)
            raise ValueError(f"{part[:40]!r} is no part of a rule, such as FREQ=MONTHLY;BYDAY=1MO{near}")
        if name in found:
            raise ValueError(f"must have {name} once")
        found[name] = value
    return found


def _freq(value: str, parts: dict[str, str]) -> str:
    if value == "SECONDLY":
        seconds = _whole("INTERVAL", parts.get("INTERVAL", "1"), 1, MAX_INTERVAL)
        is_interval = parts.keys() <= {"FREQ", "INTERVAL"}
        advice = f'write {{"every": "PT{seconds}S"}}' if is_interval else "use MINUTELY with fewer times"
        raise ValueError(f"FREQ=SECONDLY is not known: {advice}")
    if value not in FREQUENCIES:
        raise ValueError(f"FREQ must be one of {', '.join(FREQUENCIES)}{near_name(value, FREQUENCIES)}")
    return value


def _whole(name: str, value: str, least: int, most: int) -> int:
    if not NUMBER.fullmatch(value) or not least <= int(value) <= most:
        raise ValueError(f"{name} must be a number from {least} to {most:,}")
    return int(value)


def _numbers(name: str, value: str, least: int, most: int) -> list[int]:
    found = sorted({_whole(name, item, least, most) for item in value.split(",")})
    if least < 0 and 0 in found:
        raise ValueError(f"{name} must not hold 0")
    return found


def _weekday(value: str) -> int:
    if value not in WEEKDAYS:
        raise ValueError(f"WKST must be one of {', '.join(WEEKDAYS)}")
    return WEEKDAYS.index(value)


def _by_day(item: str) -> tuple[int, int]:
    match = BY_DAY.fullmatch(item)
    place = int(match[1] or 0) if match else 99
    if match is None or abs(place) > 53 or (match[1] and not place):
        raise ValueError(f"BYDAY: {item[:40]!r} must be a weekday such as MO, or one of its kind such as 1MO or -1FR")
    return place, WEEKDAYS.index(match[2])


def _until(value: str) -> tuple[int | None, int | None]:
    """An instant, or a wall-clock time; of a date, its last second."""
    if not UNTIL.fullmatch(value):
        raise ValueError("UNTIL must be a date or a time such as 20261224T090000Z")
    # RFC 5545, 3.3.12: a program without leap seconds reads 60 as 59.
    shown_at = LEAP.sub("59", value.rstrip("Z"))
    try:
        shown = datetime.strptime(shown_at, "%Y%m%dT%H%M%S" if "T" in value else "%Y%m%d").replace(tzinfo=UTC)
    except ValueError:
        raise ValueError(f"UNTIL: {value} must be a day and a time that exist") from None
    seconds = (shown - EPOCH) // SECOND
    if value.endswith("Z"):
        return seconds, None
    return None, seconds if "T" in value else seconds + DAY_S - 1


def _check_together(rule: RuleText, parts: dict[str, str]) -> None:
    """Reject what RFC 5545 forbids in one rule."""
    has_places = any(place for place, _ in rule.by_day)
    checks = {
        "must have COUNT or UNTIL, not both": "COUNT" in parts and "UNTIL" in parts,
        "BYSETPOS needs another list, such as BYDAY": "BYSETPOS" in parts and not rule.by_day and len(rule.by) == 1,
        "BYDAY with a number needs FREQ=MONTHLY or YEARLY, without BYWEEKNO": has_places
        and (rule.freq not in {"MONTHLY", "YEARLY"} or "BYWEEKNO" in rule.by),
    }
    found = [problem for problem, is_wrong in checks.items() if is_wrong]
    found += [
        f"{name} does not go with FREQ={rule.freq}"
        for name, bad in NOT_WITH.items()
        if name in rule.by and rule.freq in bad
    ]
    if found:
        raise ValueError("; ".join(found))
