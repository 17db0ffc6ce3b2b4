"""Recurrence rules of RFC 5545: read, checked, and their wall-clock times."""

import re
from array import array
from bisect import bisect_left
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, date, datetime
from functools import lru_cache
from itertools import groupby, takewhile
from math import gcd

from duecourse.base.hints import near_name
from duecourse.schedules.days import (
    CYCLE_DAYS,
    CYCLE_YEARS,
    LAST_DAY,
    DaySource,
    Month,
    date_of,
    days_from,
    days_of_month,
    days_of_year,
    has_day,
    is_leap,
    month_of,
    weekday,
)
from duecourse.schedules.wall_time import DAY_S, EPOCH, HOUR_S, MINUTE_S, SECOND

# A recurrence rule of RFC 5545 as text, read and checked.

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


# Minutes, hours or days that the interval of a recurrence rule comes to.

LEAP_YEAR = 2_000


class Steps:
    """Units of days that are reached: those at some places of a cycle of days, which comes again and again.

    Units are numbered from 1970-01-01, which begins a cycle; `places`, ascending, from the begin of one.
    """

    def __init__(self, source: DaySource, places: Sequence[int], cycle: int, in_day: int) -> None:
        self._source = source
        self._places = places
        self._cycle = cycle
        self._in_day = in_day
        self._are_rarer = cycle > 1 and len(places) * 366 < len(days_of_year(source, LEAP_YEAR)) * cycle
        """True if fewer days are reached than the source has."""

    @classmethod
    def of_weeks(cls, source: DaySource, first: int, interval: int) -> "Steps":
        """Days of each so many weeks; `first` is the first day of one."""
        cycle = 7 * interval
        return cls(source, sorted((first + day) % cycle for day in range(7)), cycle, 1)

    @classmethod
    def of_units(cls, source: DaySource, first: int, interval: int, in_day: int, named: Sequence[int]) -> "Steps":
        """Each so many units from `first` on, of those that are named by their place in a day."""
        step = gcd(interval, in_day)
        cycle = interval // step
        if len(named) == in_day:
            return cls(source, array("l", range(first % interval, cycle * in_day, interval)), cycle, in_day)
        # A unit of a day is reached on one day of a cycle if at all: the one that the interval's inverse names.
        inverse = pow(in_day // step, -1, cycle)
        reached = (unit for unit in named if (first - unit) % step == 0)
        places = sorted((first - unit) // step * inverse % cycle * in_day + unit for unit in reached)
        return cls(source, array("l", places), cycle, in_day)

    def since(self, begin: int) -> Iterator[int]:
        """Units from `begin` on that are reached, on days of the source; none more after 400 years without one."""
        places, cycle, in_day = self._places, self._cycle, self._in_day
        start = last = begin // in_day
        for day in self._days_from(start):
            first = day % cycle * in_day
            low = bisect_left(places, first)
            is_reached = low < len(places) and places[low] < first + in_day
            if is_reached and (not self._are_rarer or has_day(self._source, day)):
                last, turn = day, day * in_day - first
                high = bisect_left(places, first + in_day, low)
                yield from (turn + place for place in places[bisect_left(places, begin - turn, low, high) : high])
            elif day - last > CYCLE_DAYS:
                return

    def _days_from(self, start: int) -> Iterator[int]:
        """Days of the source, or the days that are reached if they are rarer."""
        if not self._places:
            return iter(())
        if not self._are_rarer:
            return days_from(self._source, start)
        turns = range(start - start % self._cycle, LAST_DAY + 1, self._cycle)
        days = (turn + place // self._in_day for turn in turns for place in self._places)
        return (day for day, _ in groupby(days) if start <= day <= LAST_DAY)


# Days of a recurrence rule: what each of its periods holds, by the lists that RFC 5545 has for days.

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
            and (not self._month_days or _is_named(self._month_days, place, month.length))
            and ("BYYEARDAY" not in self._by or self._fits_year(day, month))
            and ("BYWEEKNO" not in self._by or self._fits_week(day, month))
        )

    def _fits_year(self, day: int, month: Month) -> bool:
        first, length = _year(month.year)
        return _is_named(self._by["BYYEARDAY"], day - first, length)

    def _fits_week(self, day: int, month: Month) -> bool:
        """True if the day's week is named; a week counts in the year that has its fourth day."""
        week = day - (weekday(day) - self._week_start) % 7
        first, length = _year(month.year)
        year = month.year + (week + 3 >= first + length) - (week + 3 < first)
        begin, following = self._first_week(year), self._first_week(year + 1)
        return _is_named(self._by["BYWEEKNO"], (week - begin) // 7, (following - begin) // 7)

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


def _is_named(numbers: frozenset[int], place: int, length: int) -> bool:
    """True if a place (from 0) of that many is among numbers that count from 1, or back from -1."""
    return place + 1 in numbers or place - length in numbers


def _year(year: int) -> tuple[int, int]:
    """Number of a year's first day, and its length."""
    years = year - 1
    return years * 365 + years // 4 - years // 100 + years // 400 - BEFORE_EPOCH, 365 + is_leap(year)


# Periods of a recurrence rule, each with its units that fit: days, hours or minutes.
#
# Periods are numbered, so that the one of any time is found by arithmetic.

SIZES = {"MINUTELY": MINUTE_S, "HOURLY": HOUR_S, "DAILY": DAY_S, "WEEKLY": DAY_S}
"""Length of a unit in seconds; weeks are looked at day by day."""


class LongPeriods:
    """Years or months of a rule from its start (a wall-clock time).

    A unit takes `size` seconds, and a period has at most `most` of them. After `quiet` periods without a time there is
    none.
    """

    def __init__(self, rule: RuleText, start: int) -> None:
        self._yearly = rule.freq == "YEARLY"
        self._interval = rule.interval
        self._first = self._number(start // DAY_S)
        self._days = RuleDays(rule, start // DAY_S)
        self.size, self.most = DAY_S, 366 if self._yearly else 31
        self.quiet = CYCLE_YEARS if self._yearly else CYCLE_YEARS * 12

    def since(self, begin: int) -> Iterator[list[int]]:
        """Units that fit, numbered from 1970, period by period, from the one of a wall-clock time on."""
        now, end, quiet = self._number(begin // DAY_S), self._number(LAST_DAY) + 1, 0
        for number in range(now - (now - self._first) % self._interval, end, self._interval):
            days = self._days_of(number)
            quiet = 0 if days else quiet + 1
            if quiet > self.quiet:
                return
            if days:
                yield days

    def _days_of(self, number: int) -> list[int]:
        if self._yearly:
            return days_of_year(self._days, number)
        return days_of_month(self._days, number // 12, number % 12 + 1)

    def _number(self, day: int) -> int:
        """Year of a day, or number of its month."""
        found = date_of(day)
        return found.year if self._yearly else found.year * 12 + found.month - 1


class ShortPeriods:
    """Weeks, days, hours or minutes of a rule from its start (a wall-clock time); fields as of `LongPeriods`."""

    def __init__(self, rule: RuleText, start: int) -> None:
        day, self._weekly = start // DAY_S, rule.freq == "WEEKLY"
        self.size, self.quiet = SIZES[rule.freq], CYCLE_DAYS // 7 // rule.interval
        self.most = len({kind for _, kind in rule.by_day}) or 1 if self._weekly else 1
        self._first = day - (weekday(day) - rule.week_start) % 7 if self._weekly else start // self.size
        source = RuleDays(rule, day)
        self._steps = (
            Steps.of_weeks(source, self._first, rule.interval)
            if self._weekly
            else Steps.of_units(source, self._first, rule.interval, DAY_S // self.size, _named(rule))
        )

    def since(self, begin: int) -> Iterator[list[int]]:
        """Units that fit, numbered from 1970, period by period, from the one of a wall-clock time on."""
        unit = begin // self.size
        if not self._weekly:
            return ([one] for one in self._steps.since(unit))
        days = self._steps.since(unit - (unit - self._first) % 7)
        return (list(week) for _, week in groupby(days, lambda day: (day - self._first) // 7))


def periods(rule: RuleText, start: int) -> LongPeriods | ShortPeriods:
    """Periods of a rule from its start (a wall-clock time)."""
    return ShortPeriods(rule, start) if rule.freq in SIZES else LongPeriods(rule, start)


def _named(rule: RuleText) -> Sequence[int]:
    """Units of a day that the lists name, ascending: minutes, hours, or the day."""
    if rule.freq == "DAILY":
        return [0]
    hours = rule.by.get("BYHOUR", range(24))
    if rule.freq == "HOURLY":
        return hours
    return [hour * 60 + minute for hour in hours for minute in rule.by.get("BYMINUTE", range(60))]


# Wall-clock times of a recurrence rule of RFC 5545.
#
# A search begins at the period of the given time. COUNT is applied to instants, by calendar.py.

END = (LAST_DAY + 1) * DAY_S
"""A wall-clock time behind all others."""


class Clocks:
    """Times within a day, an hour or a minute: every hour with every minute and every second, in order."""

    def __init__(self, hours: list[int], minutes: list[int], seconds: list[int]) -> None:
        self._hours = hours
        self._minutes = minutes
        self._seconds = seconds
        self._in_minute, self._in_hour = len(seconds), len(minutes) * len(seconds)
        self._size = len(hours) * self._in_hour

    def __len__(self) -> int:
        return self._size

    def __getitem__(self, place: int) -> int:
        hour, minute = self._hours[place // self._in_hour], self._minutes[place % self._in_hour // self._in_minute]
        return hour * HOUR_S + minute * MINUTE_S + self._seconds[place % self._in_minute]


class RRuleTimes:
    """Times of one rule from one start (a wall-clock time), without an end by `count`.

    `until_at` is its end as an instant (epoch s).
    """

    def __init__(self, rule: RuleText, start: int) -> None:
        self.until_at = rule.until_at
        self.count = rule.count
        self._last = END if rule.until_wall is None else rule.until_wall
        self._start = start
        self._periods = periods(rule, start)
        self._clocks = _clocks(rule, start % DAY_S)
        self._places = rule.by.get("BYSETPOS", [])
        units = 1 + (DAY_S // self._periods.size - 1) // rule.interval
        self._in_day = units * min(len(self._clocks), len(self._places) or len(self._clocks))

    def uncounted(self, passes: int) -> int:
        """Instant (epoch s) before which COUNT is not reached, if a wall-clock time has at most `passes` instants."""
        # An estimate that needs no counting: each day is taken to have the most times that a day can have.
        days = (self.count or 0) // (passes * self._in_day)
        return (self._start // DAY_S + days - 1) * DAY_S  # a wall clock is less than a day ahead of UTC

    def walls(self, start: int) -> Iterator[int]:
        """Wall-clock times from `start` on, ascending."""
        return takewhile(lambda wall: wall <= self._last, self._since(max(start, self._start)))

    def _since(self, begin: int) -> Iterator[int]:
        found, size = self._periods.since(begin), self._periods.size
        if self._places:
            return (wall for wall in self._at_places(found, size) if wall >= begin)
        return (wall for units in found for unit in units for wall in self._in_unit(unit * size, begin))

    def _in_unit(self, base: int, begin: int) -> Iterator[int]:
        first = bisect_left(self._clocks, begin - base) if base < begin else 0
        return (base + self._clocks[place] for place in range(first, len(self._clocks)))

    def _at_places(self, found: Iterator[list[int]], size: int) -> Iterator[int]:
        """Times of periods at the places of BYSETPOS; what a period holds is counted and not written out."""
        if min(map(abs, self._places)) > self._periods.most * len(self._clocks):
            return
        quiet, places = 0, dict[int, list[tuple[int, int]]]()
        for units in found:
            number = len(units)
            places[number] = places[number] if number in places else self._places_of(number * len(self._clocks))
            yield from (units[unit] * size + self._clocks[clock] for unit, clock in places[number])
            quiet = 0 if places[number] else quiet + 1
            if quiet > self._periods.quiet:
                return

    def _places_of(self, size: int) -> list[tuple[int, int]]:
        """Unit and clock of each place of BYSETPOS in a period of so many times."""
        places = {place - 1 if place > 0 else size + place for place in self._places}
        return [divmod(place, len(self._clocks)) for place in sorted(places) if 0 <= place < size]


def _clocks(rule: RuleText, second: int) -> Clocks:
    """Times within a base of a rule; what the lists leave open is as at the start, `second` of its day."""
    hour, minute = divmod(second // MINUTE_S, 60)
    hours = [0] if rule.freq in SUB_DAILY else rule.by.get("BYHOUR", [hour])
    minutes = [0] if rule.freq == "MINUTELY" else rule.by.get("BYMINUTE", [minute])
    return Clocks(hours, minutes, rule.by.get("BYSECOND", [second % 60]))


@lru_cache(maxsize=4_096)
def rrule_times(text: str, start: int) -> RRuleTimes:
    """Times of a rule from a start (a wall-clock time). Raises ValueError with a text fit for a user."""
    return RRuleTimes(parse(text), start)
