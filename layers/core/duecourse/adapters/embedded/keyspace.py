"""Hashes and sorted sets, as in Redis; writes of a script that failed can be undone."""

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, TypeAlias

from sortedcontainers import SortedList

HASH, SET = b"h", b"s"
"""Kinds of keys."""
Place: TypeAlias = tuple[bytes, bytes, bytes]
"""Place of one value: the kind of its key, the key, and the field or member."""


class SortedSet:
    """Members by their scores, and in the order of (score, member)."""

    __slots__ = ("_moved", "_order", "scores")

    def __init__(self) -> None:
        self.scores: dict[bytes, float] = {}
        self._order: SortedList[tuple[float, bytes]] = SortedList()
        self._moved: dict[bytes, float | None] = {}
        """Members that were written since `_order` was last read, each with its score there."""

    def put(self, items: Iterable[tuple[bytes, float | None]], before: dict[bytes, float | None]) -> int:
        """Set the scores of members, None to remove one; answers how many were there.

        `before` receives the first score of each.
        """
        scores, moved, found = self.scores, self._moved, 0
        for member, score in items:
            old = scores.get(member)
            before.setdefault(member, old)
            found += old is not None
            if old != score:
                moved.setdefault(member, old)
                if score is None:
                    del scores[member]
                else:
                    scores[member] = score
        return found

    @property
    def order(self) -> "SortedList[tuple[float, bytes]]":
        """The pairs in their order, sorted when they are read: many sets are written far more often."""
        if self._moved:
            self._sort()
        return self._order

    def _sort(self) -> None:
        moved, scores = self._moved, self.scores
        if len(moved) > FEW and REBUILD * len(moved) > len(scores):
            self._order = SortedList(zip(scores.values(), scores, strict=True))
        else:
            for member, score in moved.items():
                if score is not None:
                    self._order.remove((score, member))
                if member in scores:
                    self._order.add((scores[member], member))
        self._moved = {}


FEW, REBUILD = 8, 4
"""A set of which more than so few members were written, and at least one in so many, is sorted as a whole."""
NO_FIELDS: dict[bytes, bytes] = {}
NO_MEMBERS = SortedSet()


class Keyspace:
    """Keys and their values; a key without fields or members is absent. `undo` reverts all writes since `keep`."""

    def __init__(self) -> None:
        self._hashes: dict[bytes, dict[bytes, bytes]] = {}
        self._sets: dict[bytes, SortedSet] = {}
        # What was written since `keep`, as it was before, by kind and key: a Place for each would cost more to make.
        self._before: dict[tuple[bytes, bytes], dict[bytes, Any]] = {}

    def hash(self, key: bytes) -> dict[bytes, bytes]:
        """The fields of a hash, to be read only."""
        return self._hashes.get(key, NO_FIELDS)

    def set(self, key: bytes) -> SortedSet:
        """A sorted set, to be read only."""
        return self._sets.get(key, NO_MEMBERS)

    def keys(self) -> Iterator[bytes]:
        """Every key."""
        yield from self._hashes
        yield from self._sets

    def write(self, key: bytes, *items: tuple[bytes, bytes | None]) -> int:
        """Set fields of a hash, None to remove one; answers how many were there."""
        before = self._before.setdefault((HASH, key), {})
        fields, found = self._hashes.setdefault(key, {}), 0
        for field, value in items:
            old = fields.get(field)
            before.setdefault(field, old)
            found += old is not None
            if value is not None:
                fields[field] = value
            elif old is not None:
                del fields[field]
        if not fields:
            del self._hashes[key]
        return found

    def rank(self, key: bytes, *items: tuple[bytes, float | None]) -> int:
        """Set members' scores in a sorted set, None to remove one; answers how many were there."""
        before = self._before.setdefault((SET, key), {})
        members = self._sets.get(key)
        if members is None:
            members = self._sets[key] = SortedSet()
        found = members.put(items, before)
        if not members.scores:
            del self._sets[key]
        return found

    def delete(self, key: bytes) -> bool:
        """Remove a key; answers whether there was one."""
        fields = self.write(key, *dict.fromkeys(self.hash(key)).items())
        members = self.rank(key, *dict.fromkeys(self.set(key).scores).items())
        return bool(fields or members)

    def written(self) -> dict[Place, bytes | float | None]:
        """Places written since the last `keep` or `undo`, each with its present value, None if it is removed."""
        found: dict[Place, bytes | float | None] = {}
        for (kind, key), before in self._before.items():
            values: Mapping[bytes, Any] = self.hash(key) if kind == HASH else self.set(key).scores
            found |= {(kind, key, name): values.get(name) for name in before}
        return found

    def before(self) -> dict[Place, bytes | float | None]:
        """The same places, each with its value before."""
        return {(*key, name): old for key, before in self._before.items() for name, old in before.items()}

    def keep(self) -> None:
        """Accept the writes: `undo` no longer reverts them."""
        self._before = {}

    def undo(self) -> None:
        """Revert the writes since the last `keep`."""
        for (kind, key), before in self._before.items():
            put: Callable[..., int] = self.write if kind == HASH else self.rank
            put(key, *before.items())
        self.keep()
