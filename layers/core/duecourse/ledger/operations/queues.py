"""Operations on queues: settings, pauses, numbers and lateness."""

import logging
from collections import Counter
from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

from duecourse.ledger.keys import FIELDS, as_fields, settings_of
from duecourse.ledger.operation_types import (
    LOOKED_AT,
    Away,
    answered,
)
from duecourse.ledger.operations.base import LedgerBase, ScriptRequest, ScriptRunner
from duecourse.ledger.queue import SLOT_MS, SLOTS, QueueChanges, QueueSettings, Stats, apply_changes, check_split, share
from duecourse.ledger.queue_history import EMPTY, MINUTE_MS, NO_MINUTE, ShardHistory, unpack_history, unpack_minute
from duecourse.ledger.queue_history import FIELDS as HISTORY
from duecourse.ledger.script_calls import Request
from duecourse.ledger.script_codec import Argument
from duecourse.ledger.task import DEFAULT_TENANT, Shard

log = logging.getLogger("duecourse.ledger")

RECORD = (*FIELDS, "defaulted", "revision")
"""Fields of the record of a queue's settings: those of its first shard's meta."""
NEWER = ">"
"""Mark in place of the version that a shard must have: any that is older than the record."""


def lagging(runner: ScriptRunner, revisions: Mapping[Shard, str]) -> dict[Shard, str]:
    """Shards whose settings are of another version than their queue's record, and the version that each has."""
    others = {shard: revision for shard, revision in revisions.items() if shard.number}
    reads = [("HGET", runner.keys(Shard(shard.queue)).meta, "revision") for shard in others]
    records = runner.scripts.read(*reads) if reads else []
    # A record without a version is lost: it is not carried on.
    return {
        shard: revision
        for (shard, revision), record in zip(others.items(), records, strict=True)
        if record and record.decode() != revision
    }


def copy_settings(runner: ScriptRunner, shards: Mapping[Shard, str]) -> list[Away | None]:
    """Copy the record of a queue's settings to its shards; returns the error of each shard, None where it succeeded.

    Each shard is given with the version that it must have, or NEWER where it takes a newer one alone.
    """
    records: dict[str, list[Argument]] = {}

    def give(shard: Shard) -> None:
        if shard.queue not in records:
            [found] = runner.scripts.read(("HMGET", runner.keys(Shard(shard.queue)).meta, *RECORD))
            records[shard.queue] = [
                part for pair in zip(RECORD, found, strict=True) for part in (pair[0], pair[1] or b"")
            ]
        _set(runner, shard, ("r", shards[shard], *records[shard.queue]))

    answers = [answered(partial(give, shard)) for shard in shards]
    return [answer if isinstance(answer, Away) else None for answer in answers]


def _set(runner: ScriptRunner, shard: Shard, arguments: Sequence[Argument]) -> bool:
    """Set one shard, and make the further steps of that; if they are cut off, sweeps make them.

    False where it has another mark than the change asks for.
    """
    while more := runner.run("configure", shard, [DEFAULT_TENANT], arguments)[2]:
        if more < 0:
            return False
        arguments = ("w",)
    return True


class QueueOperations(LedgerBase):
    """Operations of operators on queues."""

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
        """Change the given settings of a queue, from the next claim on.

        They are one record, which is written in one step: after a failure all of them are changed, or none is. A shard
        that is not reached has them once it is swept. Of two changes at a time, every shard ends with the later record.

        A paused queue hands out no task, and leased tasks continue. Each shard gets its part of each limit. A limit
        counts tasks that are leased already; a rate counts claims since it was set. Raises InvalidInput if a limit is
        lower than the number of shards. A `default` changes only settings that are not set, and the queue may still be
        forgotten, FORGET_MS later at the earliest. Where the queue is new, it is among those that `tenant` made: raises
        QuotaExceeded where these are too many. In a queue without tasks its shards are registered first.

        `mark` is 8 bytes of this change alone. With `seen`, which `mark_of` answered, a queue that another change has
        set since stays as it is, and the answer is False.
        """
        shards = self._sharding.every(queue)
        settings = apply_changes(QueueSettings(), changes)
        check_split(settings, len(shards))
        values = as_fields(settings)
        arguments = [part for field, name in FIELDS.items() if name in changes for part in (field, values[field])]
        how = 1 if default else f"{mark.hex() or '-'} {'*' if seen is None else seen}"
        for shard in shards:
            self._registry.check(queue)
            self._registry.register(shard, tenant)
        if not _set(self._runner, shards[0], (how, *arguments)):
            return False
        for shard, left in zip(shards[1:], copy_settings(self._runner, dict.fromkeys(shards[1:], NEWER)), strict=True):
            if left:
                log.warning("%s has the new settings of its queue once a tick has swept it: %s", shard, left)
        for shard in shards:
            self._registry.register(shard)  # again, for a sweep may have been forgetting it until now
        return True

    def mark_of(self, queue: str) -> str:
        """Number of the newest change of a queue's settings, and its mark; "" for no change."""
        [mark] = self._scripts.read(("HGET", self._runner.keys(Shard(queue)).meta, "set_by"))
        return (mark or b"").decode()

    def settings_of(self, queues: Sequence[str]) -> list[QueueSettings]:
        """Settings of each of some queues, as a whole: each shard knows those of its whole queue."""
        reads = [("HMGET", self._runner.keys(Shard(queue)).meta, *FIELDS) for queue in queues]
        return [settings_of(found) for found in (self._scripts.read(*reads) if reads else [])]

    def stats_of_tenant(self, shards: Sequence[Shard], tenant: str) -> list[Stats | Away]:
        """One tenant's part of many shards in numbers, without bells; the error where a shard does not answer.

        Its done and dead tasks are counted among the LOOKED_AT newest of each shard. A round trip a node.
        """

        def request(shard: Shard) -> Request:
            keys = self._runner.keys(shard)
            every = (*keys.fixed, keys.due(tenant))
            return len(every), (*every, tenant, LOOKED_AT, *FIELDS)

        return self._runner.ask_all(ScriptRequest("tenant_stats", request, self._read_own), shards)

    def _read_own(self, shard: Shard, answer: Any) -> Stats:
        now, scheduled, leased, done, dead, oldest, settings = answer
        part = share(settings_of(settings), shard.number, self._sharding.count(shard.queue))
        travel = self._scripts.travel
        return Stats(scheduled, leased, done, dead, int(oldest or 0), 0, part, travel.now() if travel else now)

    def dead_by_tenant(self, shards: Sequence[Shard]) -> dict[str, int]:
        """Number of dead tasks of each tenant, among the LOOKED_AT newest of each shard."""
        reads = [("ZRANGE", self._runner.keys(shard).dead, -LOOKED_AT, -1) for shard in shards]
        found = self._scripts.read(*reads) if reads else []
        return dict(Counter(sid.decode().partition("/")[0] for dead in found for sid in dead))

    def lateness_of(self, shards: Sequence[Shard]) -> list[dict[int, int]]:
        """Lateness of each shard's runs of the last hour, due time to handler, in the buckets of ledger/queue.py."""
        every = [self._runner.keys(shard) for shard in shards]
        reads = [
            command
            for keys in every
            for command in (("HGETALL", keys.late), ("HMGET", keys.meta, "late_slot", "numbers"))
        ]
        now, found = self.now(), self._scripts.read(*reads) if reads else []
        return [_lateness(now, late, *of_meta) for late, of_meta in zip(found[::2], found[1::2], strict=True)]

    def history_of(self, shards: Sequence[Shard]) -> list[ShardHistory]:
        """Numbers of each shard over time (ledger/queue_history.py); empty where another program has damaged them."""
        every = [self._runner.keys(shard) for shard in shards]
        reads = [
            command for keys in every for command in (("HMGET", keys.history, *HISTORY), ("HGET", keys.meta, "numbers"))
        ]
        found = self._scripts.read(*reads) if reads else []
        return list(map(_history, shards, found[::2], found[1::2]))


def _history(shard: Shard, texts: Sequence[bytes | None], numbers: bytes | None) -> ShardHistory:
    try:
        return unpack_history(texts, numbers)
    except ValueError:
        log.exception("%s: the history cannot be read, and is left out", shard)
        return EMPTY


def _lateness(now: int, counts: Mapping[bytes, bytes], newest: bytes | None, numbers: bytes | None) -> dict[int, int]:
    """Runs by bucket in the slots that are not over, and in the minute that is counted.

    A slot's number is taken again an hour later.
    """
    oldest = now // SLOT_MS - SLOTS + 1
    live = {slot % SLOTS for slot in range(oldest, int(newest or 0) + 1)}
    try:
        minute = unpack_minute(numbers)
    except ValueError:  # another program's: scripts forget it
        minute = NO_MINUTE
    total = dict(minute.late) if minute.number * MINUTE_MS >= oldest * SLOT_MS else {}
    for field, count in counts.items():
        slot, bucket = map(int, field.split(b":"))
        if slot in live:
            total[bucket] = total.get(bucket, 0) + int(count)
    return total
