"""Verbs of operators on queues (ports.queues)."""

import logging
from collections import Counter
from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

from duecourse.adapters.redis import bulk
from duecourse.adapters.redis.arguments import Argument
from duecourse.adapters.redis.ledger import RedisLedger
from duecourse.adapters.redis.queue_settings import FIELDS, as_fields, settings_of
from duecourse.adapters.redis.scripts import Request
from duecourse.adapters.redis.verbs import Question, Verbs
from duecourse.domain.bulk import Bulk, BulkResult, Reached
from duecourse.domain.dead import Deaths, DeathsFound
from duecourse.domain.lateness import SLOT_MS, SLOTS
from duecourse.domain.queues import QueueChanges, QueueSettings, Stats, changed, check_split, share
from duecourse.domain.task import DEFAULT_TENANT, Shard
from duecourse.ports.ledger import Away, answered
from duecourse.ports.queues import LOOKED_AT

log = logging.getLogger("duecourse.queues")

RECORD = (*FIELDS, "defaulted", "revision")
"""Fields of the record of a queue's settings: those of its first shard's meta."""
NEWER = ">"
"""Mark in place of the version that a shard must have: any that is older than the record."""


def lagging(verbs: Verbs, revisions: Mapping[Shard, str]) -> dict[Shard, str]:
    """Shards whose settings are of another version than their queue's record, and the version that each has."""
    others = {shard: revision for shard, revision in revisions.items() if shard.number}
    reads = [("HGET", verbs.keys(Shard(shard.queue)).meta, "revision") for shard in others]
    records = verbs.scripts.read(*reads) if reads else []
    # A record without a version is lost, or of a time when no shard had one: it is not carried on.
    return {
        shard: revision
        for (shard, revision), record in zip(others.items(), records, strict=True)
        if record and record.decode() != revision
    }


def copy_settings(verbs: Verbs, shards: Mapping[Shard, str]) -> list[Away | None]:
    """Copy the record of a queue's settings to its shards; returns the error of each shard, None where it succeeded.

    Each shard is given with the version that it must have, or NEWER where it takes a newer one alone.
    """
    records: dict[str, list[Argument]] = {}

    def give(shard: Shard) -> None:
        if shard.queue not in records:
            [found] = verbs.scripts.read(("HMGET", verbs.keys(Shard(shard.queue)).meta, *RECORD))
            records[shard.queue] = [
                part for pair in zip(RECORD, found, strict=True) for part in (pair[0], pair[1] or b"")
            ]
        _set(verbs, shard, ("r", shards[shard], *records[shard.queue]))

    answers = [answered(partial(give, shard)) for shard in shards]
    return [answer if isinstance(answer, Away) else None for answer in answers]


def _set(verbs: Verbs, shard: Shard, arguments: Sequence[Argument]) -> bool:
    """Set one shard, and make the further steps of that; if they are cut off, sweeps make them.

    False where it has another mark than the change asks for.
    """
    while more := verbs.run("configure", shard, [DEFAULT_TENANT], arguments)[2]:
        if more < 0:
            return False
        arguments = ("w",)
    return True


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
        seen: str | None = None,
    ) -> bool:
        """See QueueStore; in a queue without tasks its shards are put on record first."""
        shards = self._sharding.every(queue)
        asked = changed(QueueSettings(), changes)
        check_split(asked, len(shards))
        values = as_fields(asked)
        arguments = [part for field, name in FIELDS.items() if name in changes for part in (field, values[field])]
        how = 1 if default else f"{mark.hex() or '-'} {'*' if seen is None else seen}"
        for shard in shards:
            self._record.check(queue)
            self._record.register(shard, tenant)
        if not _set(self._verbs, shards[0], (how, *arguments)):
            return False
        for shard, left in zip(shards[1:], copy_settings(self._verbs, dict.fromkeys(shards[1:], NEWER)), strict=True):
            if left:
                log.warning("%s has the new settings of its queue once a tick has swept it: %s", shard, left)
        for shard in shards:
            self._record.register(shard)  # again, for a sweep may have been forgetting it until now
        return True

    def mark_of(self, queue: str) -> str:
        """See QueueStore."""
        [mark] = self._scripts.read(("HGET", self._verbs.keys(Shard(queue)).meta, "set_by"))
        return (mark or b"").decode()

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
