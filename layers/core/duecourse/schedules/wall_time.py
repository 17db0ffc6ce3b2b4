"""Time zones of the tzdata package, and instants of a zone's wall clock."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta, tzinfo
from functools import cache
from typing import TYPE_CHECKING

from duecourse.base.hints import nearest
from duecourse.errors import FieldError, InvalidInput
from duecourse.ledger.schedule import Fold, Gap

if TYPE_CHECKING:
    from zoneinfo import ZoneInfo

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
