"""Scan of all tasks of a queue's shards, as they are, some perhaps twice."""

from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

from duecourse.adapters.redis.arguments import MAX_PIECE_BYTES
from duecourse.adapters.redis.keys import keys_of
from duecourse.adapters.redis.record import UNREADABLE, body_field, unpack
from duecourse.adapters.redis.scripts import Scripts
from duecourse.domain.batches import cut
from duecourse.domain.task import Shard, Status, Task

APART = "="
"""Part of each name of a payload's own field, and of no stored id."""
SUCCESSOR = "+"
"""End of a stored id under which a task waits for the lease of the one before; its payload's field is named without."""
BATCH = 200
"""Most tasks that are asked for at a time."""
FIRST = 8
"""Tasks that are asked for first; their size gives the number whose bytes are MAX_PIECE_BYTES."""


class Item(NamedTuple):
    """A task: the shard it is in, its record as it is and as it is packed, its payload if apart from that."""

    shard: Shard
    sid: str
    data: bytes
    task: Task
    body: bytes

    @property
    def size(self) -> int:
        """Bytes of its record and payload."""
        return len(self.data) + len(self.body)


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
        """A shard's tasks, at most BATCH at a time, fewer where they are large: meanwhile Redis serves nobody else."""
        tasks, cursor, count = keys_of(self._namespace, shard).tasks, 0, FIRST
        while True:
            cursor, found = self._scripts.command("HSCAN", tasks, cursor, "COUNT", count)
            items = self._readable(shard, {name.decode(): data for name, data in found.items()})
            # A scan may find more than was asked for.
            yield from cut(items, lambda item: item.size, most=BATCH, max_bytes=MAX_PIECE_BYTES)
            if not cursor:
                return
            size = sum(map(len, found.values()))
            count = max(1, min(BATCH, MAX_PIECE_BYTES * len(found) // size)) if size else BATCH

    def whens(self, shard: Shard, items: Sequence[Item]) -> list[int]:
        """Instants at which each is due, or was done or dead."""
        keys, sids = keys_of(self._namespace, shard), [item.sid for item in items]
        done, dead = self._scripts.read(("ZMSCORE", keys.done, *sids), ("ZMSCORE", keys.dead, *sids))
        return [
            item.task.due_at if item.task.status is Status.SCHEDULED else int(ended or died or 0)
            for item, ended, died in zip(items, done, dead, strict=True)
        ]

    def _readable(self, shard: Shard, found: Mapping[str, bytes]) -> Iterator[Item]:
        # A scan meets a record and its payload at different times: payloads are read with their records.
        records = {name: data for name, data in found.items() if APART not in name}
        bodies: dict[str, bytes] = {}
        if fields := {
            sid: field for sid, data in records.items() if (field := body_field(sid.removesuffix(SUCCESSOR), data))
        }:
            payloads = self._scripts.command("HMGET", keys_of(self._namespace, shard).tasks, *fields.values())
            bodies = dict(zip(fields, payloads, strict=True))
        for sid, data in records.items():
            body = bodies.get(sid)
            try:
                yield Item(shard, sid, data, unpack(self._queue, sid, data, body=body), body or b"")
            except UNREADABLE as error:
                self.unreadable[sid] = str(error)
