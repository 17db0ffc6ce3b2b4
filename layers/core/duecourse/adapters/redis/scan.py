"""All tasks of a queue's shards in Redis, scanned as they are, some perhaps twice."""

from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from typing import Any, NamedTuple

from duecourse.adapters.redis.keys import keys_of
from duecourse.adapters.redis.record import UNREADABLE, body_field, unpack
from duecourse.adapters.redis.scripts import Scripts
from duecourse.adapters.redis.wire import MAX_PIECE_BYTES
from duecourse.domain.task import Shard, Status, Task

APART = "="
"""What the name of a payload's own field has in it, and no stored id."""
BATCH = 200
"""Most tasks that are asked for at a time."""
FIRST = 8
"""Tasks that are asked for first; their size says how many more at a time are MAX_PIECE_BYTES."""


class Item(NamedTuple):
    """A task: the shard it is in, its record as it is and as it is packed."""

    shard: Shard
    sid: str
    data: bytes
    task: Task
    body: bytes = b""
    """Its payload where that stands apart from its record."""


class Scan:
    """The tasks of one queue; `unreadable` are the stored ids of records that could not be read, and why."""

    def __init__(self, scripts: Scripts, namespace: str, queue: str) -> None:
        self._scripts = scripts
        self._namespace = namespace
        self._queue = queue
        self.unreadable: dict[str, str] = {}

    def every(self, shards: Sequence[Shard]) -> Iterator[Item]:
        """All tasks of some shards."""
        return (item for shard in shards for batch in self.batches(shard) for item in batch)

    def batches(self, shard: Shard) -> Iterator[list[Item]]:
        """A shard's tasks, about BATCH at a time, fewer where they are large: meanwhile Redis serves nobody else."""
        tasks, cursor, count = keys_of(self._namespace, shard).tasks, 0, FIRST
        while True:
            found: Any
            cursor, found = self._scripts.call(
                partial(self._scripts.client.hscan, tasks, cursor, count=count), again=True
            )
            yield list(self._readable(shard, {name.decode(): data for name, data in found.items()}))
            if not cursor:
                return
            count = _next_count(found)

    def whens(self, shard: Shard, items: Sequence[Item]) -> list[int]:
        """When each is due, or ended."""
        keys, sids = keys_of(self._namespace, shard), [item.sid for item in items]
        done, dead = self._scripts.read(lambda p: p.zmscore(keys.done, sids), lambda p: p.zmscore(keys.dead, sids))
        return [
            item.task.due_at if item.task.status is Status.SCHEDULED else int(ended or died or 0)
            for item, ended, died in zip(items, done, dead, strict=True)
        ]

    def _readable(self, shard: Shard, found: Mapping[str, bytes]) -> Iterator[Item]:
        records = {name: data for name, data in found.items() if APART not in name}
        bodies = self._bodies(shard, records)
        for sid, data in records.items():
            body = bodies.get(sid)
            try:
                yield Item(shard, sid, data, unpack(self._queue, sid, data, body=body), body or b"")
            except UNREADABLE as error:
                self.unreadable[sid] = str(error)

    def _bodies(self, shard: Shard, records: Mapping[str, bytes]) -> dict[str, bytes]:
        """The payloads that stand apart and are there, by stored id: a scan tells each at another time."""
        fields = {sid: field for sid, data in records.items() if (field := body_field(sid, data))}
        if not fields:
            return {}
        tasks = keys_of(self._namespace, shard).tasks
        [found] = self._scripts.read(lambda p: p.hmget(tasks, list(fields.values())))
        return {sid: body for sid, body in zip(fields, found, strict=True) if body is not None}


def _next_count(found: Mapping[bytes, bytes]) -> int:
    """How many tasks like those found to ask for next."""
    size = sum(map(len, found.values()))
    return max(1, min(BATCH, MAX_PIECE_BYTES * len(found) // size)) if size else BATCH
