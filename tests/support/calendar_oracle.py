"""A second opinion on times of cron expressions: UTC walked minute by minute, with no code of the calendar.

It knows nothing of how a wall-clock time becomes an instant. It looks at what a zone's clock shows in each minute of a
window; what a clock leaves out is a jump of what it shows, and what comes twice is shown twice.
"""

from calendar import monthrange
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from functools import cache, cached_property, lru_cache
from importlib.resources import files
from itertools import pairwise
from zoneinfo import ZoneInfo

MINUTE = timedelta(minutes=1)
GAPS = ("auto", "shift", "skip")
FOLDS = ("auto", "first", "second", "both")
MONTHS = ["JAN", "FEB", "MAR", "APR", "MAY", "JUN", "JUL", "AUG", "SEP", "OCT", "NOV", "DEC"]
WEEKDAYS = ["SUN", "MON", "TUE", "WED", "THU", "FRI", "SAT"]
SHORT = {
    "@hourly": "0 * * * *",
    "@daily": "0 0 * * *",
    "@midnight": "0 0 * * *",
    "@weekly": "0 0 * * 0",
    "@monthly": "0 0 1 * *",
    "@yearly": "0 0 1 1 *",
    "@annually": "0 0 1 1 *",
}


@cache
def zone(name: str) -> ZoneInfo:
    with files("tzdata").joinpath("zoneinfo", *name.split("/")).open("rb") as file:
        return ZoneInfo.from_file(file, key=name)


@cache
def zone_names() -> list[str]:
    """A name for each distinct zone: the first in the alphabet of those with the same data."""
    found: dict[bytes, str] = {}
    for name in sorted({*files("tzdata").joinpath("zones").read_text().split()} - {"Factory"}):
        found.setdefault(files("tzdata").joinpath("zoneinfo", *name.split("/")).read_bytes(), name)
    return list(found.values())


def offset(name: str, at: datetime) -> timedelta:
    return at.astimezone(zone(name)).utcoffset() or timedelta()


@dataclass(frozen=True)
class Transition:
    """A change of a zone's clock: the first minute after it (UTC), and the distances to UTC before and after."""

    zone: str
    at: datetime
    before: timedelta
    after: timedelta

    def shows(self) -> tuple[datetime, datetime]:
        """What a clock would have shown and what it shows."""
        return (self.at + self.before).replace(tzinfo=None), (self.at + self.after).replace(tzinfo=None)


def transitions(name: str, first: int, last: int) -> Iterator[Transition]:
    """Changes of a zone's clock in those years, found by looking each noon and then closer."""
    low, end = datetime(first, 1, 1, tzinfo=UTC), datetime(last + 1, 1, 1, tzinfo=UTC)
    here = zone(name)
    known = low.astimezone(here).utcoffset()
    while low < end:
        high = low + timedelta(days=1)
        now = high.astimezone(here).utcoffset()
        if now != known:
            yield _closer(name, low, high)
            known = now
        low = high


def _closer(name: str, low: datetime, high: datetime) -> Transition:
    before, after = offset(name, low), offset(name, high)
    while high - low > MINUTE:
        middle = low + ((high - low) // MINUTE // 2) * MINUTE
        low, high = (middle, high) if offset(name, middle) == before else (low, middle)
    return Transition(name, high, before, after)


@lru_cache(maxsize=20_000)
def _numbers(text: str, low: int, high: int, names: tuple[str, ...] = ()) -> frozenset[int]:
    """Every number from `low` to `high` that one of the text's items names, tried one by one."""
    items = text.upper().split(",")
    return frozenset(
        number for number in range(low, high + 1) if any(_fits(item, number, low, high, names) for item in items)
    )


def _fits(item: str, number: int, low: int, high: int, names: tuple[str, ...]) -> bool:
    body, _, step = item.partition("/")
    ends = [low, high] if body in {"*", "?"} else [_number(word, low, names) for word in body.split("-")]
    if len(ends) == 1:
        ends = [ends[0], high if step else ends[0]]
    if high == 6 and ends[0] > ends[1]:
        ends[1] += 7  # a week that ends with Sunday
    return any(
        ends[0] <= one <= ends[1] and (one - ends[0]) % int(step or 1) == 0
        for one in {number, number + (high + 1 if high == 6 else 0)}
    )


def _number(word: str, low: int, names: tuple[str, ...]) -> int:
    return low + names.index(word) if word in names else int(word)


class Expression:
    """What an expression says of a minute and of a day, each item of a day looked at by itself."""

    def __init__(self, text: str) -> None:
        minute, hour, self._day, month, self._weekday = SHORT.get(text.lower(), text).upper().split()
        self.minutes = _numbers(minute, 0, 59)
        self.hours = _numbers(hour, 0, 23)
        self.months = _numbers(month, 1, 12, tuple(MONTHS))
        self.is_interval = bool({"*", "?", "/"} & {*minute, *hour})
        self._days: dict[date, bool] = {}

    def fits(self, shown: datetime) -> bool:
        return shown.minute in self.minutes and shown.hour in self.hours and self.fits_day(shown.date())

    def fits_day(self, day: date) -> bool:
        if day not in self._days:
            self._days[day] = self._looks_at(day)
        return self._days[day]

    def _looks_at(self, day: date) -> bool:
        if day.month not in self.months:
            return False
        by_date = any(_date_fits(item, day) for item in self._day.split(","))
        by_weekday = any(_weekday_fits(item, day) for item in self._weekday.split(","))
        if self._day[0] in "*?" or self._weekday[0] in "*?":
            return by_date and by_weekday
        return by_date or by_weekday


def _last(day: date) -> int:
    return monthrange(day.year, day.month)[1]


def _date_fits(item: str, day: date) -> bool:
    if item == "L":
        return day.day == _last(day)
    if item.startswith("L-"):
        return day.day == _last(day) - int(item[2:])
    if item.endswith("W"):
        wanted = _last(day) if item == "LW" else int(item[:-1])
        return wanted <= _last(day) and day == _nearest(day.replace(day=wanted))
    return day.day in _numbers(item, 1, 31)


def _nearest(day: date) -> date:
    near = [day + timedelta(days=by) for by in (0, -1, 1, -2, 2)]
    return next(one for one in near if one.month == day.month and one.isoweekday() <= 5)


def _weekday_fits(item: str, day: date) -> bool:
    kind, nth = day.isoweekday() % 7, (day.day - 1) // 7 + 1
    if item.endswith("L"):
        return _number(item[:-1], 0, tuple(WEEKDAYS)) % 7 == kind and day.day + 7 > _last(day)
    if "#" in item:
        name, _, place = item.partition("#")
        return _number(name, 0, tuple(WEEKDAYS)) % 7 == kind and nth == int(place)
    if item.startswith("7"):
        return kind == 0
    return kind in _numbers(item, 0, 6, tuple(WEEKDAYS))


@dataclass
class Window:
    """Every minute of a span of UTC (epoch ms, both ends included), and what a zone's clock shows in it."""

    minutes: list[int]
    shown: list[datetime]

    def fires(self, expression: Expression) -> dict[tuple[str, str], list[int]]:
        """Minutes in which an expression fires, by the policies of gap and fold."""
        hits = [place for place, shown in enumerate(self.shown) if expression.fits(shown)]
        after_jumps = {at for at, left_out in self.jumps if any(map(expression.fits, left_out))}
        # An interval fires whenever the clock shows one of its times, and at no other minute.
        meant = {"auto": "both"} if expression.is_interval else {"auto": "first"}
        shifting = {"shift"} if expression.is_interval else {"shift", "auto"}
        found = {
            fold: {self.minutes[place] for place in hits if self._counts(place, meant.get(fold, fold))}
            for fold in FOLDS
        }
        return {
            (gap, fold): sorted(found[fold] | (after_jumps if gap in shifting else set()))
            for gap in GAPS
            for fold in FOLDS
        }

    def _counts(self, place: int, fold: str) -> bool:
        passes = self.passes[self.shown[place]]
        return fold == "both" or place == passes[0 if fold == "first" else -1]

    @cached_property
    def passes(self) -> dict[datetime, list[int]]:
        """Places of what the clock shows: two of them for what it shows twice."""
        found: dict[datetime, list[int]] = {}
        for place, shown in enumerate(self.shown):
            found.setdefault(shown, []).append(place)
        return found

    @cached_property
    def jumps(self) -> list[tuple[int, list[datetime]]]:
        """First minutes after a jump of the clock, each with what the clock left out."""
        found = []
        for place, (earlier, later) in enumerate(pairwise(self.shown), 1):
            steps = (later - earlier) // MINUTE
            if steps > 1:
                found.append((self.minutes[place], [earlier + step * MINUTE for step in range(1, steps)]))
        return found


def window(name: str, first: datetime, last: datetime) -> Window:
    here, count = zone(name), (last - first) // MINUTE + 1
    begin = round(first.timestamp()) * 1000
    shown = [(first + place * MINUTE).astimezone(here).replace(tzinfo=None) for place in range(count)]
    return Window([begin + place * 60_000 for place in range(count)], shown)
