"""Hashes and sorted sets, as in Redis; writes of a script that failed can be undone."""

from collections.abc import Iterator
from typing import Literal, NamedTuple

from sortedcontainers import SortedList

Kind = Literal["hash", "set"]
HASH: Kind = "hash"
SET: Kind = "set"


class Place(NamedTuple):
    """Place of one value: the kind of its key, the key, and the field or member."""

    kind: Kind
    key: bytes
    field: bytes


class SortedSet:
    """Members by their scores, and in the order of (score, member)."""

    __slots__ = ("order", "scores")

    def __init__(self) -> None:
        self.scores: dict[bytes, float] = {}
        self.order: SortedList[tuple[float, bytes]] = SortedList()

    def put(self, member: bytes, score: float | None) -> float | None:
        """Set a member's score, None to remove it; answers the one before."""
        old = self.scores.get(member)
        if old == score:
            return old
        if old is not None:
            self.order.remove((old, member))
        if score is None:
            del self.scores[member]
        else:
            self.scores[member] = score
            self.order.add((score, member))
        return old


NO_FIELDS: dict[bytes, bytes] = {}
NO_MEMBERS = SortedSet()


class Keyspace:
    """Keys and their values; a key without fields or members is absent. `undo` reverts all writes since `keep`."""

    def __init__(self) -> None:
        self._hashes: dict[bytes, dict[bytes, bytes]] = {}
        self._sets: dict[bytes, SortedSet] = {}
        self._before: dict[tuple[Kind, bytes, bytes], bytes | float | None] = {}  # a Place costs more to make

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

    def write(self, key: bytes, field: bytes, value: bytes | None) -> bool:
        """Set a hash's field, None to remove it; answers whether it was there."""
        old = self._put_field(key, field, value)
        self._before.setdefault((HASH, key, field), old)
        return old is not None

    def rank(self, key: bytes, member: bytes, score: float | None) -> bool:
        """Set a member's score in a sorted set, None to remove it; answers whether it was there."""
        old = self._put_score(key, member, score)
        self._before.setdefault((SET, key, member), old)
        return old is not None

    def delete(self, key: bytes) -> bool:
        """Remove a key; answers whether there was one."""
        fields, members = list(self.hash(key)), list(self.set(key).scores)
        for field in fields:
            self.write(key, field, None)
        for member in members:
            self.rank(key, member, None)
        return bool(fields or members)

    def written(self) -> dict[Place, bytes | float | None]:
        """Places written since the last `keep` or `undo`, each with its present value, None if it is removed."""
        return {place: self._value(place) for place in map(Place._make, self._before)}

    def before(self) -> dict[Place, bytes | float | None]:
        """The same places, each with its value before."""
        return {Place._make(place): old for place, old in self._before.items()}

    def keep(self) -> None:
        """Accept the writes: `undo` no longer reverts them."""
        self._before.clear()

    def undo(self) -> None:
        """Revert the writes since the last `keep`."""
        for (kind, key, field), old in self._before.items():
            if kind == HASH:
                self._put_field(key, field, old)  # type: ignore[arg-type]
            else:
                self._put_score(key, field, old)  # type: ignore[arg-type]
        self._before.clear()

    def _value(self, place: Place) -> bytes | float | None:
        if place.kind == HASH:
            return self.hash(place.key).get(place.field)
        return self.set(place.key).scores.get(place.field)

    def _put_field(self, key: bytes, field: bytes, value: bytes | None) -> bytes | None:
        fields = self._hashes.get(key)
        if value is not None:
            if fields is None:
                fields = self._hashes[key] = {}
            old = fields.get(field)
            fields[field] = value
            return old
        if fields is None:
            return None
        old = fields.pop(field, None)
        if not fields:
            del self._hashes[key]
        return old

    def _put_score(self, key: bytes, member: bytes, score: float | None) -> float | None:
        members = self._sets.get(key)
        if members is None:
            if score is None:
                return None
            members = self._sets[key] = SortedSet()
        old = members.put(member, score)
        if not members.scores:
            del self._sets[key]
        return old
