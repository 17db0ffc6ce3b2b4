"""Between a zone's wall clock and instants.

A wall-clock time is the number of seconds from 1970-01-01T00:00 to what the clock shows, as if each day had 24 hours.
"""

from collections import deque
from collections.abc import Iterable, Iterator
from datetime import UTC, datetime, timedelta, tzinfo

from duecourse.domain.schedule import Fold, Gap

SECOND = timedelta(seconds=1)
EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
MINUTE_S = 60
HOUR_S = 3_600
DAY_S = 86_400
CYCLE_DAYS = 146_097
"""Days after which the Gregorian calendar comes again, weekdays too: 400 years."""

MAX_MISSING = 100_000
"""Wall-clock times in a row that a clock leaves out, after which none is taken to come: a day of seconds is less."""


def offset(zone: tzinfo, at: int) -> int:
    """Seconds that a zone's clock is ahead of UTC at an instant (epoch s)."""
    return _seconds((EPOCH + at * SECOND).astimezone(zone))


def wall(zone: tzinfo, at: int) -> int:
    """Wall-clock time of an instant (epoch s)."""
    return at + offset(zone, at)


def earliest_wall(zone: tzinfo, at: int) -> int:
    """A wall-clock time so early that what a clock shows later than `at` (epoch s) is not before it.

    That is what it shows at `at`, or what it will show again once it has gone back.
    """
    moment = (EPOCH + at * SECOND).astimezone(zone)
    return at + min(_seconds(moment), _seconds(moment.replace(fold=1)))


def instants(walls: Iterable[int], zone: tzinfo, gap: Gap, fold: Fold) -> Iterator[int]:
    """Instants (epoch s) of ascending wall-clock times: ascending, each once."""
    origin = datetime(1970, 1, 1, tzinfo=zone)
    second_passes: deque[int] = deque()
    last: int | None = None
    missing = 0
    for shown in walls:
        found = _instants_of(zone, origin + shown * SECOND, shown, gap, fold)
        missing = 0 if found else missing + 1
        if missing > MAX_MISSING:
            break
        if not found or found[0] == last:
            continue
        while second_passes and second_passes[0] < found[0]:
            yield second_passes.popleft()
        last = found[0]
        yield last
        second_passes.extend(found[1:])
    yield from second_passes


def _instants_of(zone: tzinfo, moment: datetime, shown: int, gap: Gap, fold: Fold) -> tuple[int, ...]:
    """The instants of a wall-clock time; `moment` is its first pass, which counts by the distance before a change."""
    before, after = _seconds(moment), _seconds(moment.replace(fold=1))
    if before == after:
        return (shown - before,)
    if before < after:
        return (_change(zone, shown - after, shown - before),) if gap is Gap.SHIFT else ()
    both = (shown - before, shown - after)
    return both if fold is Fold.BOTH else both[:1] if fold is Fold.FIRST else both[1:]


def _change(zone: tzinfo, low: int, high: int) -> int:
    """The first instant after the change of a clock between two instants (epoch s), the second of them after it."""
    new = offset(zone, high)
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (low, middle) if offset(zone, middle) == new else (middle, high)
    return high


def _seconds(moment: datetime) -> int:
    ahead = moment.utcoffset()
    return ahead.days * DAY_S + ahead.seconds if ahead else 0
