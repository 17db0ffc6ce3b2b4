"""What targets have that they did not begin, and the due tasks that wait for room at one, within one batch.

Keys are `<part> NUL <shard> NUL target`; those of what waits `aside NUL <shard> NUL target NUL due, until when
it is put aside, stored id`, instants 8 bytes. Until then is when it is due in the indexes meanwhile.
"""

from collections.abc import Iterator
from itertools import islice
from typing import NamedTuple

from duecourse.adapters.keyvalue.map import Batch

TENTH = 10
"""Of the places: so many must be free before it rings for what waits, so that few hand-overs take many."""


class Waiting(NamedTuple):
    """A task that is put aside: when it was due, and until when it is not."""

    sid: str
    due_at: int
    until: int


class Handovers:
    """The targets of one shard."""

    def __init__(self, batch: Batch, shard: bytes) -> None:
        self._batch, self._shard = batch, shard

    def free(self, target: str, most: int) -> int:
        """How many more a target may have."""
        return most - self._number(b"out", target)

    def count(self, target: str, by: int) -> bool:
        """Count a delivery that began or ended; answers whether a claim may now hand over what waits, as none could."""
        self._set(b"out", target, max(0, self._number(b"out", target) + by))
        return by < 0 and not self.wake and self._set_wake(self.has_room(target))

    def has_room(self, target: str) -> bool:
        """Whether tasks wait for a target, and a tenth of its places are free."""
        most = self._number(b"most", target)
        return bool(most) and self.free(target, most) >= max(1, most // TENTH) and self.waiting(target, 1) != []

    @property
    def wake(self) -> bool:
        """Whether a claim may hand over what waits."""
        return self._batch.get(self._key(b"wake", "")) is not None

    def stop_waking(self) -> None:
        """Let nothing ring for what waits any more, unless there is room for some of it still."""
        if self.wake and not any(map(self.has_room, self.targets())):
            self._set_wake(False)

    def put_aside(self, waiting: Waiting, target: str, most: int) -> None:
        """Let a task wait for room at its target."""
        self._batch.put(self._place(waiting, target), b"")
        self._set(b"most", target, most)

    def waiting(self, target: str, most: int) -> list[Waiting]:
        """Those that wait for a target, the longest due first."""
        start = self._key(b"aside", target) + b"\0"
        items = self._batch.range(start, start[:-1] + b"\1")
        return [_waiting(key[len(start) :]) for key, _ in islice(items, most)]

    def stop_waiting(self, waiting: Waiting, target: str) -> None:
        """Forget that a task waits."""
        self._batch.delete(self._place(waiting, target))

    def is_waited_for(self, target: str) -> bool:
        """Whether tasks wait for a target; how many it may have is forgotten once none does."""
        if self._number(b"most", target) and not self.waiting(target, 1):
            self._set(b"most", target, 0)
        return self._number(b"most", target) > 0

    def oldest(self) -> int:
        """When the longest due of all that wait was due, 0 where none does."""
        return min((one.due_at for target in self.targets() for one in self.waiting(target, 1)), default=0)

    def targets(self) -> Iterator[str]:
        """The targets that tasks wait for."""
        start = self._key(b"most", "")
        return (key[len(start) :].decode() for key, _ in self._batch.range(start, start[:-1] + b"\1"))

    def _set_wake(self, on: bool) -> bool:
        if on:
            self._batch.put(self._key(b"wake", ""), b"")
        else:
            self._batch.delete(self._key(b"wake", ""))
        return on

    def _number(self, part: bytes, target: str) -> int:
        return int.from_bytes(self._batch.get(self._key(part, target)) or b"")

    def _set(self, part: bytes, target: str, number: int) -> None:
        key = self._key(part, target)
        if number:
            self._batch.put(key, number.to_bytes(8))
        elif self._batch.get(key):
            self._batch.delete(key)

    def _place(self, waiting: Waiting, target: str) -> bytes:
        return (
            self._key(b"aside", target)
            + b"\0"
            + waiting.due_at.to_bytes(8)
            + waiting.until.to_bytes(8)
            + waiting.sid.encode()
        )

    def _key(self, part: bytes, target: str) -> bytes:
        return part + b"\0" + self._shard + b"\0" + target.encode()


def _waiting(place: bytes) -> Waiting:
    return Waiting(place[16:].decode(), int.from_bytes(place[:8]), int.from_bytes(place[8:16]))
