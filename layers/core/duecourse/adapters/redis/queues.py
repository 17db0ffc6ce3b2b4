"""Verbs of operators on queues (ports.queues)."""

from collections.abc import Mapping, Sequence

from duecourse.adapters.redis.ledger import RedisLedger
from duecourse.adapters.redis.queue_settings import FIELDS, as_fields, settings_of
from duecourse.domain.lateness import SLOT_MS, SLOTS
from duecourse.domain.queues import QueueChanges, QueueSettings, changed, check_split
from duecourse.domain.task import DEFAULT_TENANT, Shard


class RedisQueues(RedisLedger):
    """Queues and their settings."""

    def configure(self, queue: str, changes: QueueChanges, *, default: bool = False) -> None:
        """See QueueStore; in a queue without tasks its shards are put on record first."""
        shards = self._sharding.every(queue)
        asked = changed(QueueSettings(), changes)
        check_split(asked, len(shards))
        values = as_fields(asked)
        arguments = [part for field, name in FIELDS.items() if name in changes for part in (field, values[field])]
        for shard in shards:
            self._record.check(queue)
            self._record.register(shard)
            self._verbs.run("configure", shard, [DEFAULT_TENANT], (int(default), *arguments))
            self._record.register(shard)  # again, for a sweep may have been forgetting it until now

    def settings_of(self, queues: Sequence[str]) -> list[QueueSettings]:
        """See QueueStore; each shard knows those of its whole queue."""
        reads = [("HMGET", self._verbs.keys(Shard(queue)).meta, *FIELDS) for queue in queues]
        return [settings_of(found) for found in (self._scripts.read(*reads) if reads else [])]

    def lateness_of(self, shards: Sequence[Shard]) -> list[dict[int, int]]:
        """See QueueStore."""
        every = [self._verbs.keys(shard) for shard in shards]
        reads = [command for keys in every for command in (("HGETALL", keys.late), ("HGET", keys.meta, "late_slot"))]
        now, found = self.now(), self._scripts.read(*reads) if reads else []
        return [_lateness(now, *pair) for pair in zip(found[::2], found[1::2], strict=True)]


def _lateness(now: int, counts: Mapping[bytes, bytes], newest: bytes | None) -> dict[int, int]:
    """Claims by bucket in the slots that are not over; a slot's number is taken again an hour later."""
    live = {slot % SLOTS for slot in range(now // SLOT_MS - SLOTS + 1, int(newest or 0) + 1)}
    total: dict[int, int] = {}
    for field, count in counts.items():
        slot, bucket = map(int, field.split(b":"))
        if slot in live:
            total[bucket] = total.get(bucket, 0) + int(count)
    return total
