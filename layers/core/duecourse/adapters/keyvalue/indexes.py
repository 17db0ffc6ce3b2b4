"""Where a shard's tasks stand by time: four indexes whose sizes and beginnings are kept, for a map cannot count.

Keys are `<index> NUL <queue> NUL when, stored id`; the numbers stand together under `index NUL <queue> NUL`.
"""

from collections.abc import Iterator
from struct import Struct

from duecourse.adapters.keyvalue.lines import FOREVER
from duecourse.adapters.keyvalue.map import Batch

DUE, LEASED, DONE, DEAD = b"due", b"leased", b"done", b"dead"
NAMES = (DUE, LEASED, DONE, DEAD)
NUMBERS = Struct(">10Q")
NONE = (*[0] * len(NAMES), *[FOREVER] * len(NAMES), 0, 0)


class Indexes:
    """The indexes of one queue's shard within one batch.

    Of each is known how many entries it has, and an instant before which it has none: what was taken from its front
    leaves gaps that a map on disk must step over. Of what is due is known how many entries are ripe, up to an instant:
    as time passes each is counted once.
    """

    def __init__(self, batch: Batch, queue: bytes) -> None:
        self._batch = batch
        self._queue = queue
        stored = batch.get(self._start(b"index"))
        numbers: tuple[int, ...] = NUMBERS.unpack(stored) if stored else NONE
        self._sizes = dict(zip(NAMES, numbers[:4], strict=True))
        self._floors = dict(zip(NAMES, numbers[4:8], strict=True))
        self._ripe_until, self._ripe = numbers[8:]
        self._opened: set[bytes] = set()

    def put(self, index: bytes, at: int, sid: str) -> None:
        """Let a stored id stand at an instant of an index; it stands in none."""
        self._batch.put(self._start(index) + at.to_bytes(8) + sid.encode(), b"")
        self._floors[index] = min(self._floors[index], at)
        self._count(index, at, 1)

    def delete(self, index: bytes, at: int, sid: str) -> None:
        """Take a stored id from where it stands."""
        self._batch.delete(self._start(index) + at.to_bytes(8) + sid.encode())
        self._count(index, at, -1)
        if at == self._floors[index]:
            self._opened.add(index)

    def until(self, index: bytes, until: int) -> Iterator[str]:
        """The stored ids up to an instant, earliest first."""
        skipped = len(self._start(index)) + 8
        return (key[skipped:].decode() for key in self._keys(index, 0, until))

    def since(self, index: bytes, at: int, sid: str) -> Iterator[tuple[int, str]]:
        """What stands after a stored id of an instant, whether or not that is there."""
        start = self._start(index)
        begin, end = start + at.to_bytes(8) + sid.encode() + b"\0", start + FOREVER.to_bytes(8)
        for key, _ in self._batch.range(begin, end):
            when = key[len(start) : len(start) + 8]
            yield int.from_bytes(when), key[len(start) + 8 :].decode()

    def first(self, index: bytes) -> int:
        """The first instant of an index, 0 where it is empty."""
        key = next(self._keys(index, 0, FOREVER), None)
        start = len(self._start(index))
        at = int.from_bytes(key[start : start + 8]) if key else 0
        self._floors[index] = at or FOREVER
        return at

    def size(self, index: bytes) -> int:
        """How many entries an index has."""
        return self._sizes[index]

    def ripe(self, now: int) -> int:
        """How many are due at `now`."""
        earlier, later = sorted((now, self._ripe_until))
        between = sum(1 for _ in self._keys(DUE, earlier + 1, later))
        self._ripe += between if now == later else -between
        self._ripe_until = now
        return self._ripe

    def save(self) -> None:
        """Keep the numbers, the beginnings of what was taken from among them."""
        for index in self._opened:
            self.first(index)
        numbers = (*self._sizes.values(), *self._floors.values(), self._ripe_until, self._ripe)
        self._batch.put(self._start(b"index"), NUMBERS.pack(*numbers))

    def _count(self, index: bytes, at: int, by: int) -> None:
        self._sizes[index] += by
        if index == DUE and at <= self._ripe_until:
            self._ripe += by

    def _keys(self, index: bytes, since: int, until: int) -> Iterator[bytes]:
        start = self._start(index)
        begin, end = max(since, self._floors[index]), until + 1
        return (key for key, _ in self._batch.range(start + begin.to_bytes(8), start + end.to_bytes(8)))

    def _start(self, part: bytes) -> bytes:
        return part + b"\0" + self._queue + b"\0"
