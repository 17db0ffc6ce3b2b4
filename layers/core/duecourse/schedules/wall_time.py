"""Days as numbers, time zones of the tzdata package, and instants of a zone's wall clock."""

from __future__ import annotations

from bisect import bisect_left
from collections import deque
from collections.abc import Callable, Hashable, Iterator
from datetime import UTC, date, datetime, timedelta, tzinfo
from functools import cache, lru_cache
from typing import TYPE_CHECKING, NamedTuple, Protocol

from duecourse.base.hints import nearest
from duecourse.errors import FieldError, InvalidInput
from duecourse.ledger.schedule import Fold, Gap

if TYPE_CHECKING:
    from zoneinfo import ZoneInfo

# Days as numbers from 1970-01-01, and months as their lengths and first weekdays.
#
# Years of one kind have the same days: a source of days is asked once for each of the 28 kinds, whatever the years.

EPOCH_ORDINAL = date(1970, 1, 1).toordinal()
LAST_YEAR = 9_999
LAST_DAY = date(LAST_YEAR, 12, 31).toordinal() - EPOCH_ORDINAL
CYCLE_YEARS, CYCLE_DAYS = 400, 146_097
"""Time after which the Gregorian calendar comes again, weekdays too."""
MONTHS = range(1, 13)
LENGTHS = (31, 28, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31)


class Month(NamedTuple):
    """A month: `first` is the number of its first day."""

    year: int
    month: int
    first: int
    length: int

    def weekday(self, day: int) -> int:
        """Weekday of the month's `day`: 0 is Monday, 6 is Sunday."""
        return weekday(self.first + day - 1)


def month_of(year: int, month: int) -> Month:
    """A month of a year."""
    return Month(year, month, day_number(date(year, month, 1)), LENGTHS[month - 1] + (month == 2 and is_leap(year)))


def is_leap(year: int) -> bool:
    """True if the year has 366 days."""
    return year % 4 == 0 and (year % 100 != 0 or year % 400 == 0)


def day_number(day: date) -> int:
    """Number of a day; 1970-01-01 is 0."""
    return day.toordinal() - EPOCH_ORDINAL


def date_of(day: int) -> date:
    """The day of a number."""
    return date.fromordinal(day + EPOCH_ORDINAL)


def weekday(day: int) -> int:
    """Weekday of a numbered day: 0 is Monday; 1970-01-01 was a Thursday."""
    return (day + 3) % 7


class DaySource(Hashable, Protocol):
    """Something that names days, month by month, the same ones in all years of a kind."""

    def of_month(self, year: int, month: int) -> list[int]:
        """Numbers of a month's days, ascending."""


def days_from(source: DaySource, start: int) -> Iterator[int]:
    """The days of a source from `start` on; none more where 400 years have none."""
    begin, quiet = date_of(start), 0
    for year in range(begin.year, LAST_YEAR + 1):
        months = MONTHS[begin.month - 1 :] if year == begin.year else _months(source, _model(year))
        quiet = 0 if months else quiet + 1
        if quiet > CYCLE_YEARS:
            return
        for month in months:
            days = days_of_month(source, year, month)
            yield from days[bisect_left(days, start) :]


def days_of_year(source: DaySource, year: int) -> list[int]:
    """Days of a source in a year, ascending."""
    before = day_number(date(year, 1, 1)) - 1
    return [before + place for place in _in_year(source, _model(year))]


def days_of_month(source: DaySource, year: int, month: int) -> list[int]:
    """Days of a source in a month, ascending."""
    places = _in_month(source, _model(year), month)
    before = day_number(date(year, month, 1)) - 1 if places else 0
    return [before + place for place in places]


def has_day(source: DaySource, day: int) -> bool:
    """True if a source names a day."""
    found = date_of(day)
    return found.day in _in_month(source, _model(found.year), found.month)


@lru_cache(maxsize=8_192)
def _months(source: DaySource, year: int) -> tuple[int, ...]:
    """Months of a year in which a source has days."""
    return tuple(month for month in MONTHS if _in_month(source, year, month))


@lru_cache(maxsize=512)
def _in_year(source: DaySource, year: int) -> tuple[int, ...]:
    """Days of a source in a year, counted from 1."""
    before = day_number(date(year, 1, 1)) - 1
    return tuple(day - before for month in _months(source, year) for day in days_of_month(source, year, month))


@lru_cache(maxsize=8_192)
def _in_month(source: DaySource, year: int, month: int) -> tuple[int, ...]:
    """Days of a source in a month, counted from 1."""
    before = day_number(date(year, month, 1)) - 1
    return tuple(day - before for day in source.of_month(year, month))


@lru_cache(maxsize=1_024)
def _model(year: int) -> int:
    """The first year that was asked for of a year's kind: its length, its first weekday, its neighbours' lengths."""
    kind = (weekday(day_number(date(year, 1, 1))), is_leap(year - 1), is_leap(year), is_leap(year + 1))
    return _MODELS.setdefault(kind, year)


_MODELS: dict[tuple[int, bool, bool, bool], int] = {}


# Time zones of the tzdata package, never the system's; both libraries are imported when a zone is first asked for.

UNKNOWN = "must be the IANA name of a time zone"
NO_ZONE = {"Factory", "posixrules", "localtime"}
"""Names of a machine whose zone is not set, or is its own."""
LIKE = 0.8
"""Least likeness at which a name is suggested for another."""


def version() -> str:
    """Version of the IANA's database, such as `2026f`."""
    import tzdata  # type: ignore[import-untyped]

    named: str = tzdata.IANA_VERSION
    return named


@cache
def names() -> frozenset[str]:
    """Every zone's name with its exact letters: a file system may ignore case."""
    from importlib.resources import files

    return frozenset(files("tzdata").joinpath("zones").read_text().split()) - NO_ZONE


def zone(name: str) -> ZoneInfo:
    """The zone of a name. Raises InvalidInput of `time_zone`."""
    if name not in names():
        raise InvalidInput([FieldError("time_zone", UNKNOWN + _hint(name))])
    return _read(name)


def _hint(name: str) -> str:
    """The known name that is nearest to an unknown one, by its whole name or its city."""
    known = {text: one for one in sorted(names()) for text in (one.rpartition("/")[2], one)}
    near = nearest(name, known, LIKE)
    return f": {known[near]}?" if near else ", such as Europe/Vienna or UTC"


@cache
def _read(name: str) -> ZoneInfo:
    from importlib.resources import files
    from zoneinfo import ZoneInfo

    with files("tzdata").joinpath("zoneinfo", *name.split("/")).open("rb") as file:
        return ZoneInfo.from_file(file, key=name)


# Between a zone's wall clock and instants.
#
# A wall-clock time is the number of seconds from 1970-01-01T00:00 to what the clock shows, as if each day had 24 hours.

SECOND = timedelta(seconds=1)
EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
MINUTE_S = 60
QUARTER_S = 900
HOUR_S = 3_600
DAY_S = 86_400
MAX_SKIPPED = 1_000
"""Gaps in a row that leave out every time, after which no other is taken to come; 400 years have fewer."""


def offset(zone: tzinfo, at: int) -> int:
    """Seconds that a zone's clock is ahead of UTC at an instant (epoch s)."""
    return _seconds((EPOCH + at * SECOND).astimezone(zone))


def wall(zone: tzinfo, at: int) -> int:
    """Wall-clock time of an instant (epoch s)."""
    return at + offset(zone, at)


def earliest_wall(zone: tzinfo, at: int) -> int:
    """Lower bound of the wall-clock times that a zone's clock shows after `at` (epoch s).

    It is the time at `at`, or the time that the clock will show again once it has gone back.
    """
    moment = (EPOCH + at * SECOND).astimezone(zone)
    return at + min(_seconds(moment), _seconds(moment.replace(fold=1)))


def instants(
    walls_from: Callable[[int], Iterator[int]], start: int, zone: tzinfo, gap: Gap, fold: Fold
) -> Iterator[int]:
    """Instants (epoch s) of the wall-clock times from `start` on: ascending, each once.

    `walls_from` yields them in order, from any time on: behind a gap it is called again.
    """
    second_passes: deque[int] = deque()
    last: int | None = None
    for first, *later in _passes(walls_from, start, zone, gap, fold):
        if first == last:
            continue
        while second_passes and second_passes[0] < first:
            yield second_passes.popleft()
        last = first
        yield last
        second_passes.extend(later)
    yield from second_passes


def _passes(
    walls_from: Callable[[int], Iterator[int]], start: int, zone: tzinfo, gap: Gap, fold: Fold
) -> Iterator[tuple[int, ...]]:
    """The instants of each wall-clock time; of all that a gap leaves out, the one after it."""
    origin = datetime(1970, 1, 1, tzinfo=zone)
    walls, skipped = walls_from(start), 0
    while skipped <= MAX_SKIPPED and (shown := next(walls, None)) is not None:
        moment = origin + shown * SECOND  # its first pass, which counts by the distance before a change
        before, after = _seconds(moment), _seconds(moment.replace(fold=1))
        if before < after:
            at = _change(zone, shown - after, shown - before, after)
            walls = walls_from(at + after)
            skipped = skipped + 1 if gap is Gap.SKIP else 0
            if not skipped:
                yield (at,)
        else:
            skipped = 0
            both = (shown - before, shown - after) if before > after else (shown - before,)
            yield both if fold is Fold.BOTH else both[:1] if fold is Fold.FIRST else both[-1:]


def _change(zone: tzinfo, low: int, high: int, new: int) -> int:
    """The first instant after the change of a clock to a `new` offset: after `low` and at most `high` (epoch s)."""
    while high - low > QUARTER_S:  # where nearly every change is
        middle = max(low - low % QUARTER_S + QUARTER_S, (low + high) // 2 // QUARTER_S * QUARTER_S)
        low, high = (low, middle) if offset(zone, middle) == new else (middle, high)
    if offset(zone, high - 1) != new:
        return high
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (low, middle) if offset(zone, middle) == new else (middle, high)
    return high


def _seconds(moment: datetime) -> int:
    ahead = moment.utcoffset()
    return ahead.days * DAY_S + ahead.seconds if ahead else 0
