"""History of a queue: its numbers by minute, hour and day, as each shard keeps them, and their sums.

A shard has at most 4 KB of it: an hour of minutes, a week of hours and 90 days of days. The scripts that add, claim and
end tasks append to `numbers` in its meta (lua/modules/numbers.lua).

    numbers   the minute since the epoch, 4 bytes; how many entries were summed up last, at most 255; then entries,
              each a place and a number, 2 bytes each; all big-endian

Entries of one place add up. Scripts sum them up once half as many, and a few, have come. The places of a line are

    0 added, 1 claimed, 2 done, 3 again, 4 retried, 5 dead
    6 ... 37 run time, 38 ... 69 wait, 70 ... 101 lateness: histograms; bucket n has the durations under 2^n ms, and not
    under half of that; the last has all that are longer too

Entries have a place for each bucket of lateness as ledger/queue.py has it, from 70 on. The first script of another
minute adds them to the lines of the key `history` (lua/modules/lines.lua). It is a hash of `minutes`, `hours` and
`days`. Each of them is one text, the newest line first.

    text      unit of the newest line (minutes, hours or days since the epoch), 4 bytes, big-endian; then lines
    line      its width in units less 1, plus 128 for each empty unit before it; length of its body; body
    body      of each place whose number is not 0: four times the number, plus how many places are skipped before it;
              where these are three or more, plus 3, and how many follows

A number of a line is in groups of 7 bits, the lowest first. 128 is added to each byte but the last. Where a text would
have more bytes than it may, neighbours become one line, the narrowest for their age first. So sums are exact, and
detail fades with age: a unit of a wide line gets an equal part of it.

Lines that are ahead of the clock, which was put back, count in the current unit. A release that does not know
these keys leaves them alone.
"""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import islice
from struct import Struct
from typing import Literal, NamedTuple, get_args

from duecourse.base.times import DAY_MS
from duecourse.base.value_classes import value
from duecourse.ledger.queue import PARTS, merge_histograms, quantile

MINUTE_MS = 60_000
COUNTS = ("added", "claimed", "done", "again", "retried", "dead")
"""Names of the counts, in the order of their places."""
HISTOGRAMS = ("run_time", "wait", "lateness")
"""Names of the histograms, in their order."""
BUCKETS = 32
"""Number of buckets of a histogram."""
PLACES = len(COUNTS) + len(HISTOGRAMS) * BUCKETS
"""Number of places of a line."""
LATE = PLACES - BUCKETS
"""Place at which lateness begins."""
WIDEST = 128
ENTRY = Struct(">HH")

HistorySpan = Literal["1h", "1d", "7d", "90d"]
"""Span of a history, up to now."""


class Grid(NamedTuple):
    """Lines of a span: field of `history`, number, length of each in ms."""

    field: str
    lines: int
    unit_ms: int


GRIDS: Mapping[HistorySpan, Grid] = {
    "1h": Grid("minutes", 60, MINUTE_MS),
    "1d": Grid("hours", 24, 60 * MINUTE_MS),
    "7d": Grid("hours", 168, 60 * MINUTE_MS),
    "90d": Grid("days", 90, DAY_MS),
}
FIELDS = tuple(dict.fromkeys(grid.field for grid in GRIDS.values()))
"""Fields of `history`."""
SPANS: tuple[HistorySpan, ...] = get_args(HistorySpan)

Histogram = Mapping[int, int]
"""Number of durations by bucket: n for those under 2^n ms."""


def longest_ms(bucket: int) -> int:
    """The longest duration of a bucket, in whole milliseconds."""
    return (1 << bucket) - 1


@value
class QueueNumbers:
    """Numbers of a queue in a span of time.

    `added` tasks, with replacements and notifications; `claimed` leases and deliveries. Runs that ended: `done`,
    `again`, and `retried` after a failure or a lapsed lease. `dead` tasks. Histograms: `lateness` from due time to
    handler, `run_time` from handler to settle, `wait` from claim to handler.
    """

    added: int
    claimed: int
    done: int
    again: int
    retried: int
    dead: int
    lateness: Histogram
    run_time: Histogram
    wait: Histogram


def duration_quantile(histogram: Histogram, share: float) -> int | None:
    """The duration in ms that `share` of all did not exceed, rounded up to its bucket's end; None for none."""
    return quantile(histogram, share, longest_ms)


@value
class HistoryLine:
    """One minute, hour or day from `at` on (epoch ms), in UTC."""

    at: int
    numbers: QueueNumbers


@value
class QueueHistory:
    """History of a queue over a span: its lines, `unit_ms` each, the oldest first and the current one last."""

    queue: str
    span: HistorySpan
    unit_ms: int
    lines: Sequence[HistoryLine]

    @property
    def total(self) -> QueueNumbers:
        """Sums of all lines."""
        every = [line.numbers for line in self.lines]
        counts = {name: sum(getattr(one, name) for one in every) for name in COUNTS}
        return QueueNumbers(
            **counts,
            lateness=merge_histograms(one.lateness for one in every),
            run_time=merge_histograms(one.run_time for one in every),
            wait=merge_histograms(one.wait for one in every),
        )


# What a shard has.


class WideLine(NamedTuple):
    """A line as it is kept: the newest of its units, how many they are, numbers by place."""

    last: int
    width: int
    by_place: Mapping[int, int]


class Minute(NamedTuple):
    """The minute that is counted, since the epoch, and its numbers by place; and lateness as ledger/queue.py has it."""

    number: int
    by_place: Mapping[int, int]
    late: Mapping[int, int]


NO_MINUTE = Minute(0, {}, {})


class ShardHistory(NamedTuple):
    """Stored history of a shard: the lines of each field, and the minute that is counted."""

    lines: Mapping[str, Sequence[WideLine]]
    minute: Minute


EMPTY = ShardHistory(dict.fromkeys(FIELDS, ()), NO_MINUTE)
"""History of a shard in which nothing has been counted."""


def unpack_history(texts: Sequence[bytes | None], numbers: bytes | None) -> ShardHistory:
    """The history of a shard: FIELDS of its key, and `numbers` of its meta. Raises ValueError where it is damaged."""
    lines = {field: list(_unpack_lines(text or b"")) for field, text in zip(FIELDS, texts, strict=True)}
    return ShardHistory(lines, unpack_minute(numbers))


def unpack_minute(numbers: bytes | None) -> Minute:
    """The minute in `numbers` of a meta. Raises ValueError where it is damaged."""
    by_place, late = Counter[int](), Counter[int]()
    if not numbers:
        return NO_MINUTE
    entries = numbers[5:]
    if len(entries) % ENTRY.size:
        raise ValueError("the minute is cut off")
    for place, number in ENTRY.iter_unpack(entries):
        bucket = place - LATE
        if bucket >= 0:
            late[bucket] += number
        by_place[LATE + min(bucket // PARTS, BUCKETS - 1) if bucket >= 0 else place] += number
    return Minute(int.from_bytes(numbers[:4]), by_place, late)


def _unpack_lines(text: bytes) -> Iterator[WideLine]:
    last, rest = int.from_bytes(text[:4]), iter(text[4:])
    for first in rest:
        span = _number(first, rest)
        size = _next_number(rest)
        body = bytes(islice(rest, size))
        if len(body) < size:
            raise ValueError("a line is cut off")
        width = span % WIDEST + 1
        yield WideLine(last, width, dict(_unpack_body(body)))
        last -= width + span // WIDEST


def _unpack_body(body: bytes) -> Iterator[tuple[int, int]]:
    place, rest = -1, iter(body)
    for first in rest:
        number, skipped = divmod(_number(first, rest), 4)
        place += 1 + (_next_number(rest) if skipped == 3 else skipped)
        if place >= PLACES:
            raise ValueError(f"a line has no number {place}")
        yield place, number


def _next_number(rest: Iterator[int]) -> int:
    try:
        return _number(next(rest), rest)
    except StopIteration:
        raise ValueError("a line is cut off") from None


def _number(first: int, rest: Iterator[int]) -> int:
    return first if first < 128 else first - 128 + 128 * _next_number(rest)


# Sums over shards.


def history_of(queue: str, span: HistorySpan, shards: Iterable[ShardHistory], now: int) -> QueueHistory:
    """The history of a queue whose shards these are."""
    grid = GRIDS[span]
    last = now // grid.unit_ms
    sums = [[0] * PLACES for _ in range(grid.lines)]
    for shard in shards:
        for unit, by_place in _units(shard, grid):
            if last - grid.lines < unit:
                row = sums[grid.lines - 1 - max(last - unit, 0)]
                for place, number in by_place.items():
                    row[place] += number
    first_at = (last - grid.lines + 1) * grid.unit_ms
    lines = [HistoryLine(first_at + n * grid.unit_ms, _numbers(row)) for n, row in enumerate(sums)]
    return QueueHistory(queue, span, grid.unit_ms, lines)


def _units(shard: ShardHistory, grid: Grid) -> Iterator[tuple[int, Mapping[int, int]]]:
    """The numbers of each unit: of one in a wide line, its part."""
    yield shard.minute.number * MINUTE_MS // grid.unit_ms, shard.minute.by_place
    for line in shard.lines[grid.field]:
        for n in range(line.width):
            parts = {place: _part(number, n, line.width) for place, number in line.by_place.items()}
            yield line.last - line.width + 1 + n, parts


def _part(number: int, n: int, of: int) -> int:
    return number * (n + 1) // of - number * n // of


def _numbers(row: Sequence[int]) -> QueueNumbers:
    counts = dict(zip(COUNTS, row, strict=False))
    starts = range(len(COUNTS), PLACES, BUCKETS)
    found = [{bucket: row[start + bucket] for bucket in range(BUCKETS) if row[start + bucket]} for start in starts]
    run_time, wait, lateness = found
    return QueueNumbers(**counts, run_time=run_time, wait=wait, lateness=lateness)
