"""A ledger in a folder, and a look at its own keys: whether each task stands in exactly one place."""

from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from duecourse.adapters.keyvalue.held import Held, decode
from duecourse.adapters.keyvalue.indexes import DUE, NAMES, Indexes
from duecourse.adapters.keyvalue.ledger import INDEX
from duecourse.adapters.keyvalue.leveldb import LevelMap
from duecourse.adapters.keyvalue.map import Batch, OrderedMap
from duecourse.adapters.keyvalue.store import KeyValueStore
from duecourse.domain.shards import Sharding
from duecourse.ports.clock import Clock

EVERYTHING = (b"", b"\xff" * 8)


@contextmanager
def level_store(
    folder: Path, clock: Clock | None = None, sharding: Sharding | None = None, *, deaths: bool = False
) -> Iterator[KeyValueStore]:
    """A store in `folder`; what it wrote is true when it is closed."""
    below = LevelMap(str(folder))
    store = KeyValueStore(below, clock, sharding, deaths=deaths)
    try:
        yield store
        check(below)
    finally:
        store.close()


def check(below: OrderedMap) -> None:
    """Fail where a task stands in more than one place or in a wrong one, or where the kept numbers are not true."""
    parts = [(key.split(b"\0", 2), value) for key, value in below.range(*EVERYTHING) if not key.startswith(b"\0")]
    for shard in {rest[1] for rest, _ in parts if rest[0] == b"task"}:
        found = {(part, tail): value for (part, name, tail), value in _whole(parts) if name == shard}
        places = Counter((part, tail) for part, tail in found if part in NAMES)
        tasks = {
            tail: (value[:8], _held(shard, tail, value)) for (part, tail), value in found.items() if part == b"task"
        }
        assert places == Counter((INDEX[held.task.status], when + sid) for sid, (when, held) in tasks.items())
        waits = {tail for part, tail in found if part == b"wait"}
        assert waits == {sid for sid, (_, held) in tasks.items() if held.successor}
        indexes = Indexes(Batch(below), shard)
        assert [indexes.size(name) for name in NAMES] == [sum(part == name for part, _ in places) for name in NAMES]
        dues = [int.from_bytes(tail[:8]) for part, tail in places if part == DUE]
        assert indexes.ripe(max(dues, default=0)) == len(dues)
        assert indexes.first(DUE) == min(dues, default=0)


def _whole(parts: list[tuple[list[bytes], bytes]]) -> Iterator[tuple[tuple[bytes, bytes, bytes], bytes]]:
    for rest, value in parts:
        if len(rest) == 3:
            yield (rest[0], rest[1], rest[2]), value


def _held(shard: bytes, sid: bytes, value: bytes) -> Held:
    return decode(shard.decode().rpartition("/")[0], sid.decode(), value[8:])
