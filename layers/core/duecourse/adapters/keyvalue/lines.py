"""Names in the order of a number, in an ordered map; their beginning is known, for what was taken leaves gaps."""

from collections.abc import Iterator

from duecourse.adapters.keyvalue.map import Batch

FOREVER = 2**63


class Line:
    """The names whose keys are `start`, a number of 8 bytes and the name; before `floor` there are none."""

    def __init__(self, batch: Batch, start: bytes, floor: int = FOREVER) -> None:
        self._batch = batch
        self._start = start
        self.floor = floor

    def put(self, at: int, name: str) -> None:
        """Let a name stand at a number."""
        self._batch.put(self._key(at, name), b"")
        self.floor = min(self.floor, at)

    def delete(self, at: int, name: str) -> None:
        """Take a name from where it stands."""
        self._batch.delete(self._key(at, name))

    def until(self, at: int, since: int = 0) -> Iterator[tuple[int, str]]:
        """The names from one number to another, both included, in order."""
        skipped = len(self._start)
        begin, end = max(since, self.floor), at + 1
        for key, _ in self._batch.range(self._start + begin.to_bytes(8), self._start + end.to_bytes(8)):
            yield int.from_bytes(key[skipped : skipped + 8]), key[skipped + 8 :].decode()

    def first(self) -> tuple[int, str] | None:
        """The first name and its number."""
        found = next(self.until(FOREVER), None)
        self.floor = found[0] if found else FOREVER
        return found

    def _key(self, at: int, name: str) -> bytes:
        return self._start + at.to_bytes(8) + name.encode()
