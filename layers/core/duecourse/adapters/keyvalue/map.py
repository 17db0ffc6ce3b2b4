"""What the ledger needs of an ordered map, that map in memory, and a batch of writes that is read through."""

import heapq
from bisect import bisect_left
from collections.abc import Iterator, Mapping
from typing import Protocol

from sortedcontainers import SortedDict

Item = tuple[bytes, bytes]


class OrderedMap(Protocol):
    """A map of bytes to bytes in the order of its keys."""

    def get(self, key: bytes) -> bytes | None:
        """The value at `key`, if there is one."""

    def range(self, start: bytes, end: bytes) -> Iterator[Item]:
        """The items with start <= key < end, in order; the map does not change meanwhile."""

    def apply(self, writes: Mapping[bytes, bytes | None]) -> None:
        """Write all of `writes` or nothing, as lastingly as this map can; None deletes."""

    def close(self) -> None:
        """Give up what the map holds open."""


class MemoryMap:
    """The ordered map of one process, gone with it."""

    def __init__(self) -> None:
        self._items: SortedDict[bytes, bytes] = SortedDict()

    def get(self, key: bytes) -> bytes | None:
        """See OrderedMap."""
        return self._items.get(key)

    def range(self, start: bytes, end: bytes) -> Iterator[Item]:
        """See OrderedMap."""
        for key in self._items.irange(start, end, inclusive=(True, False)):
            yield key, self._items[key]

    def apply(self, writes: Mapping[bytes, bytes | None]) -> None:
        """See OrderedMap."""
        for key, value in writes.items():
            if value is None:
                self._items.pop(key, None)
            else:
                self._items[key] = value

    def close(self) -> None:
        """See OrderedMap; there is nothing."""


class Batch:
    """Writes that nobody else sees before `commit`, read through to the map beneath."""

    def __init__(self, below: OrderedMap) -> None:
        self._below = below
        self._writes: dict[bytes, bytes | None] = {}
        self._order: list[bytes] = []

    def get(self, key: bytes) -> bytes | None:
        """The value at `key` after these writes."""
        return self._writes[key] if key in self._writes else self._below.get(key)

    def put(self, key: bytes, value: bytes) -> None:
        """Set `key`."""
        self._writes[key] = value

    def delete(self, key: bytes) -> None:
        """Remove `key`."""
        self._writes[key] = None

    def range(self, start: bytes, end: bytes) -> Iterator[Item]:
        """The items with start <= key < end after the writes made so far."""
        if len(self._order) != len(self._writes):  # keys are only added: sorted once for many looks
            self._order = sorted(self._writes)
        mine = self._order[bisect_left(self._order, start) : bisect_left(self._order, end)]
        written = [(key, value) for key in mine if (value := self._writes[key]) is not None]
        overwritten = set(mine)
        return heapq.merge((item for item in self._below.range(start, end) if item[0] not in overwritten), written)

    @property
    def is_empty(self) -> bool:
        """Whether nothing was written."""
        return not self._writes

    def commit(self) -> None:
        """Hand all writes to the map as one."""
        if self._writes:
            self._below.apply(self._writes)
