"""What Redis knows of a queue beside its tasks: how it is set, and each shard in numbers."""

from collections.abc import Sequence
from functools import partial
from typing import Any

from duecourse.adapters.redis_keys import Keys
from duecourse.adapters.redis_scripts import Scripts
from duecourse.adapters.redis_verbs import Verbs
from duecourse.domain.lateness import SLOT_MS, SLOTS
from duecourse.domain.queues import (
    DEFAULT_PRIORITY,
    HeldBack,
    Hold,
    QueueChanges,
    QueueSettings,
    Rate,
    Stats,
    changed,
    check_split,
    share,
)
from duecourse.domain.task import DEFAULT_TENANT, Shard

FIELDS = {
    "paused": "paused",
    "max_running": "max_running",
    "rate_count": "rate",
    "rate_per": "rate",
    "tenant_max_running": "tenant_max_running",
    "priority": "priority",
    "retention": "retention_ms",
    "lease": "lease_ms",
}
"""Where a shard's meta says how the whole queue is set: its field to the setting that it is of."""
HOLDS = (None, Hold.PAUSE, Hold.MAX_RUNNING, Hold.TENANT_MAX_RUNNING, Hold.RATE)
"""What the numbers of held_back.lua mean."""


def configure(verbs: Verbs, queue: str, changes: QueueChanges) -> None:
    """Set a queue anew, a step a shard. Raises InvalidInput where a limit is lower than the number of shards."""
    shards = verbs.sharding.every(queue)
    asked = changed(QueueSettings(), changes)
    check_split(asked, len(shards))
    told = as_fields(asked)
    arguments = [part for field, name in FIELDS.items() if name in changes for part in (field, told[field])]
    for shard in shards:
        verbs.keys(shard)  # which says where the number of shards is wrong
        verbs.record.register(shard)
        verbs.run("configure", shard, [DEFAULT_TENANT], arguments, again=True)


def settings(verbs: Verbs, queue: str) -> QueueSettings:
    """How a queue is set, as a whole: each of its shards knows."""
    return settings_in(verbs.scripts, verbs.keys(Shard(queue)))


def settings_in(scripts: Scripts, keys: Keys) -> QueueSettings:
    """How a queue is set, by one of its shards."""
    [found] = scripts.read(lambda p: p.hmget(keys.meta, *FIELDS))
    return _settings(found)


def stats(verbs: Verbs, shard: Shard) -> Stats:
    """The shard in numbers, in one round trip; in two where tenants are in the ring, whose heads are read then."""
    keys = verbs.keys(shard)
    arguments = (*keys.fixed, "successors", "bell_at", *FIELDS)
    now, tasks, leased, done, dead, head, parked, ring, bell, (successors, travelling, *found) = verbs.scripts.evaluate(
        "stats", len(keys.fixed), arguments, again=True
    )
    travel = verbs.scripts.travel
    now = travel.now() if travel else now
    scheduled = tasks - int(successors or 0) - leased - done - dead
    oldest = min((int(at) for at in (*head[1:], *parked[1:], *_heads(verbs, keys, ring))), default=0)
    part = share(_settings(found), shard.number, verbs.sharding.count(shard.queue))
    return Stats(scheduled, leased, done, dead, oldest, int(bell or travelling or 0), part, now)


def lateness(verbs: Verbs, shard: Shard, now: int) -> dict[int, int]:
    """How late the tasks of the last hour were when they were claimed: what stands in slots that are not over."""
    keys = verbs.keys(shard)
    counts, newest = verbs.scripts.read(lambda p: p.hgetall(keys.late), lambda p: p.hget(keys.meta, "late_slot"))
    live = {slot % SLOTS for slot in range(now // SLOT_MS - SLOTS + 1, int(newest or 0) + 1)}
    total: dict[int, int] = {}
    for field, count in counts.items():
        slot, bucket = map(int, field.split(b":"))
        if slot in live:
            total[bucket] = total.get(bucket, 0) + int(count)
    return total


def held_back(verbs: Verbs, shard: Shard, tenant: str) -> HeldBack:
    """What holds a tenant's due tasks back."""
    now, code, until = verbs.run("held_back", shard, [tenant], (), again=True)
    return HeldBack(HOLDS[code], until, now)


def _heads(verbs: Verbs, keys: Keys, ring: Sequence[bytes]) -> list[float]:
    """When the earliest task of each tenant in the ring is due."""
    answers = verbs.scripts.read(*(partial(_head, keys.due(tenant.decode())) for tenant in ring)) if ring else []
    return [at for answer in answers for _, at in answer]


def _head(due: str, pipe: Any) -> None:
    pipe.zrange(due, 0, 0, withscores=True)


def as_fields(asked: QueueSettings) -> dict[str, str | int]:
    """The settings as meta keeps them, "" for none."""
    rate = asked.rate
    values = (
        1 if asked.paused else None,
        asked.max_running,
        rate and rate.most,
        rate and rate.per_ms,
        asked.tenant_max_running,
        None if asked.priority == DEFAULT_PRIORITY else asked.priority,
        asked.retention_ms,
        asked.lease_ms,
    )
    return {name: "" if value is None else value for name, value in zip(FIELDS, values, strict=True)}


def _settings(found: Sequence[bytes | None]) -> QueueSettings:
    """The settings as meta keeps them."""
    _, max_running, count, per_ms, tenant_max, priority, retention, lease = (
        int(value) if value and value.isdigit() else None for value in found
    )
    return QueueSettings(
        paused=bool(found[0]),
        max_running=max_running,
        rate=Rate(count, per_ms) if count and per_ms else None,
        tenant_max_running=tenant_max,
        priority=DEFAULT_PRIORITY if priority is None else priority,
        retention_ms=retention,
        lease_ms=lease,
    )
