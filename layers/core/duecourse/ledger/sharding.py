"""Sharding: the shard of each task of a queue, and lists of things by their shards."""

from collections.abc import Callable, Mapping, Sequence
from typing import TypeVar
from zlib import crc32

from duecourse.base.batches import grouped
from duecourse.ledger.task import Shard

T = TypeVar("T")

MAX_SHARDS = 256


class Sharding:
    """Number of shards of each queue: that in `counts`, or one.

    A task's shard is the CRC-32 (zlib's) of its group in UTF-8, else of its id, modulo the count. So tasks that are
    moved and cancelled together are in one shard. An id is unique within its shard: a group's ids must not be used
    outside it.
    """

    def __init__(self, counts: Mapping[str, int] | None = None) -> None:
        self._counts = dict(counts or {})

    def count(self, queue: str) -> int:
        """Number of shards of a queue."""
        return self._counts.get(queue, 1)

    def of(self, queue: str, id: str, group: str = "") -> Shard:
        """The shard of a task."""
        count = self.count(queue)
        return Shard(queue, crc32((group or id).encode()) % count if count > 1 else 0)

    def every(self, queue: str) -> list[Shard]:
        """All shards of a queue."""
        return [Shard(queue, number) for number in range(self.count(queue))]


def by_shard(shards: Sequence[Shard]) -> dict[Shard, list[int]]:
    """Each shard once, with its indexes in the list."""
    return grouped(range(len(shards)), shards.__getitem__)


def scatter(shards: Sequence[Shard], act: Callable[[Shard, list[int]], Sequence[T]]) -> list[T]:
    """Call `act` once a shard, with the indexes of that shard in `shards`.

    The answers, one for each index, are in the order of `shards`.
    """
    answers: dict[int, T] = {}
    for shard, chosen in by_shard(shards).items():
        answers |= zip(chosen, act(shard, chosen), strict=True)
    return [answers[index] for index in range(len(shards))]
