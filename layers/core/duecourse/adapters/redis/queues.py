"""Verbs of operators on queues (ports.queues)."""

import secrets
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

from duecourse.adapters.redis import bulk
from duecourse.adapters.redis.ledger import RedisLedger
from duecourse.adapters.redis.queue_settings import FIELDS, as_fields, settings_of
from duecourse.adapters.redis.scripts import Request
from duecourse.adapters.redis.verbs import Question
from duecourse.domain.bulk import Bulk, BulkResult, Reached
from duecourse.domain.dead import Deaths, DeathsFound
from duecourse.domain.lateness import SLOT_MS, SLOTS
from duecourse.domain.queues import QueueChanges, QueueSettings, Stats, changed, check_split, share
from duecourse.domain.task import DEFAULT_TENANT, Shard
from duecourse.ports.ledger import Away
from duecourse.ports.queues import LOOKED_AT


class RedisQueues(RedisLedger):
    """Queues and their settings."""

    def configure(
        self,
        queue: str,
        changes: QueueChanges,
        *,
        default: bool = False,
        tenant: str = DEFAULT_TENANT,
        mark: bytes = b"",
        seen: Sequence[str] = (),
    ) -> bool:
        """See QueueStore; in a queue without tasks its shards are put on record first."""
        shards = self._sharding.every(queue)
        asked = changed(QueueSettings(), changes)
        check_split(asked, len(shards))
        values = as_fields(asked)
        arguments = [part for field, name in FIELDS.items() if name in changes for part in (field, values[field])]
        mine, were_as_seen = (mark or secrets.token_bytes(8)).hex(), True
        for shard, before in zip(shards, seen or ["*"] * len(shards), strict=True):
            self._record.check(queue)
            self._record.register(shard, tenant)
            how = 1 if default else f"{mine} {before}"
            _, _, is_set = self._verbs.run("configure", shard, [DEFAULT_TENANT], (how, *arguments))
            were_as_seen = were_as_seen and bool(is_set)
            self._record.register(shard)  # again, for a sweep may have been forgetting it until now
        return were_as_seen

    def marks_of(self, queue: str) -> list[str]:
        """See QueueStore."""
        reads = [("HGET", self._verbs.keys(shard).meta, "set_by") for shard in self._sharding.every(queue)]
        return [(mark or b"").decode() for mark in self._scripts.read(*reads)]

    def settings_of(self, queues: Sequence[str]) -> list[QueueSettings]:
        """See QueueStore; each shard knows those of its whole queue."""
        reads = [("HMGET", self._verbs.keys(Shard(queue)).meta, *FIELDS) for queue in queues]
        return [settings_of(found) for found in (self._scripts.read(*reads) if reads else [])]

    def stats_of_tenant(self, shards: Sequence[Shard], tenant: str) -> list[Stats | Away]:
        """See QueueStore: a round trip a node."""

        def request(shard: Shard) -> Request:
            keys = self._verbs.keys(shard)
            every = (*keys.fixed, keys.due(tenant))
            return len(every), (*every, tenant, LOOKED_AT, *FIELDS)

        return self._verbs.ask_all(Question("own", request, self._read_own), shards)

    def bulk(
        self, queue: str, asked: Bulk, after: Reached | None = None, tenant: str = DEFAULT_TENANT, *, by: str = ""
    ) -> BulkResult:
        """See BulkStore."""
        return bulk.bulk(self._verbs, queue, asked, after, tenant, by)

    def deaths(
        self, queue: str, asked: Deaths, after: Reached | None = None, tenant: str = DEFAULT_TENANT
    ) -> DeathsFound:
        """See BulkStore."""
        return bulk.deaths(self._verbs, queue, asked, after, tenant)

    def _read_own(self, shard: Shard, answer: Any) -> Stats:
        now, scheduled, leased, done, dead, oldest, settings = answer
        part = share(settings_of(settings), shard.number, self._sharding.count(shard.queue))
        travel = self._scripts.travel
        return Stats(scheduled, leased, done, dead, int(oldest or 0), 0, part, travel.now() if travel else now)

    def dead_by_tenant(self, shards: Sequence[Shard]) -> dict[str, int]:
        """See QueueStore."""
        reads = [("ZRANGE", self._verbs.keys(shard).dead, -LOOKED_AT, -1) for shard in shards]
        found = self._scripts.read(*reads) if reads else []
        return dict(Counter(sid.decode().partition("/")[0] for dead in found for sid in dead))

    def lateness_of(self, shards: Sequence[Shard]) -> list[dict[int, int]]:
        """See QueueStore."""
        every = [self._verbs.keys(shard) for shard in shards]
        reads = [command for keys in every for command in (("HGETALL", keys.late), ("HGET", keys.meta, "late_slot"))]
        now, found = self.now(), self._scripts.read(*reads) if reads else []
        return [_lateness(now, *pair) for pair in zip(found[::2], found[1::2], strict=True)]


def _lateness(now: int, counts: Mapping[bytes, bytes], newest: bytes | None) -> dict[int, int]:
    """Runs by bucket in the slots that are not over; a slot's number is taken again an hour later."""
    live = {slot % SLOTS for slot in range(now // SLOT_MS - SLOTS + 1, int(newest or 0) + 1)}
    total: dict[int, int] = {}
    for field, count in counts.items():
        slot, bucket = map(int, field.split(b":"))
        if slot in live:
            total[bucket] = total.get(bucket, 0) + int(count)
    return total
