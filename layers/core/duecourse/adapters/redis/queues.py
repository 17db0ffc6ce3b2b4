"""What Redis knows of a queue beside its tasks: how it is set, and each shard in numbers."""

from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

from duecourse.adapters.redis.keys import Keys
from duecourse.adapters.redis.many import Asked, ask
from duecourse.adapters.redis.record import stored_id
from duecourse.adapters.redis.scripts import Scripts
from duecourse.adapters.redis.verbs import Verbs
from duecourse.adapters.redis.wire import Argument
from duecourse.domain.lateness import SLOT_MS, SLOTS
from duecourse.domain.queues import (
    SETTINGS,
    QueueChanges,
    QueueSettings,
    Rate,
    Setting,
    Stats,
    Throttle,
    ThrottleReason,
    changed,
    check_split,
    share,
)
from duecourse.domain.task import DEFAULT_TENANT, Shard, Task
from duecourse.ports.ledger import Away


def _fields_of(one: Setting) -> list[str]:
    return [f"{one.name}_count", f"{one.name}_per"] if one.kind is Rate else [one.name]


FIELDS = {field: one.field for one in SETTINGS for field in _fields_of(one)}
"""Where a shard's meta says how the whole queue is set: its field to the setting that it is of."""


def configure(verbs: Verbs, queue: str, changes: QueueChanges, default: bool) -> None:
    """Set a queue anew, a step a shard. Raises InvalidInput where a limit is lower than the number of shards."""
    shards = verbs.sharding.every(queue)
    asked = changed(QueueSettings(), changes)
    check_split(asked, len(shards))
    told = as_fields(asked)
    arguments = [part for field, name in FIELDS.items() if name in changes for part in (field, told[field])]
    for shard in shards:
        verbs.keys(shard)  # which says where the number of shards is wrong
        verbs.record.register(shard)
        verbs.change("configure", shard, [DEFAULT_TENANT], (int(default), *arguments), again=True)
        verbs.record.register(shard)  # again, for it may have been about to be forgotten until now


def settings_of(verbs: Verbs, queues: Sequence[str]) -> list[QueueSettings]:
    """Settings of queues as a whole, which each of their shards knows, in one round trip a node."""
    reads = [partial(_read_settings, verbs.keys(Shard(queue)).meta) for queue in queues]
    return [_settings(found) for found in (verbs.scripts.read(*reads) if reads else [])]


def _read_settings(meta: str, pipe: Any) -> None:
    pipe.hmget(meta, *FIELDS)


def settings_in(scripts: Scripts, keys: Keys) -> QueueSettings:
    """How a queue is set, by one of its shards."""
    [found] = scripts.read(lambda p: p.hmget(keys.meta, *FIELDS))
    return _settings(found)


def stats(verbs: Verbs, shard: Shard) -> Stats:
    """The shard in numbers, in one round trip; in two where tenants are in the ring, whose heads are read then."""
    count, every = _stats_arguments(verbs, shard)
    return _stats_read(verbs, shard, verbs.scripts.evaluate("stats", count, every, again=True))


def stats_of(verbs: Verbs, shards: Sequence[Shard]) -> list[Stats | Away]:
    """Many shards in numbers, a round trip a node; one more for each in whose ring tenants are."""
    asked = Asked("stats", partial(_stats_arguments, verbs), partial(_stats_read, verbs), partial(stats, verbs))
    return ask(verbs, shards, asked)


def _stats_arguments(verbs: Verbs, shard: Shard) -> tuple[int, Sequence[Argument]]:
    keys = verbs.keys(shard)
    return len(keys.fixed), (*keys.fixed, "successors", "bodies", "bell_at", *FIELDS)


def _stats_read(verbs: Verbs, shard: Shard, answer: Any) -> Stats:
    now, tasks, leased, done, dead, head, parked, ring, bell, fields, waiting = answer
    successors, bodies, travelling, *found = fields
    travel = verbs.scripts.travel
    now = travel.now() if travel else now
    scheduled = tasks - int(successors or 0) - int(bodies or 0) - leased - done - dead
    aside = [waiting] if waiting else []
    heads = _heads(verbs, verbs.keys(shard), ring)
    oldest = min((int(at) for at in (*head[1:], *parked[1:], *aside, *heads)), default=0)
    part = share(_settings(found), shard.number, verbs.sharding.count(shard.queue))
    return Stats(scheduled, leased, done, dead, oldest, int(bell or travelling or 0), part, now)


def lateness_of(verbs: Verbs, shards: Sequence[Shard], now: int) -> list[dict[int, int]]:
    """How late the tasks of the last hour were when they were claimed: what stands in slots that are not over."""
    keys = [verbs.keys(shard) for shard in shards]
    reads = [read for one in keys for read in (partial(_read_late, one.late), partial(_read_slot, one.meta))]
    found = verbs.scripts.read(*reads) if reads else []
    return [_lateness(now, *pair) for pair in zip(found[::2], found[1::2], strict=True)]


def _lateness(now: int, counts: Mapping[bytes, bytes], newest: bytes | None) -> dict[int, int]:
    live = {slot % SLOTS for slot in range(now // SLOT_MS - SLOTS + 1, int(newest or 0) + 1)}
    total: dict[int, int] = {}
    for field, count in counts.items():
        slot, bucket = map(int, field.split(b":"))
        if slot in live:
            total[bucket] = total.get(bucket, 0) + int(count)
    return total


def _read_late(late: str, pipe: Any) -> None:
    pipe.hgetall(late)


def _read_slot(meta: str, pipe: Any) -> None:
    pipe.hget(meta, "late_slot")


def throttle(verbs: Verbs, shard: Shard, tenant: str, task: Task | None) -> Throttle:
    """What holds a tenant's due tasks back, or this one of them."""
    one = (stored_id(task.tenant, task.id), task.due_at) if task else ()
    now, hold, until = verbs.run("held_back", shard, [tenant], one, again=True)
    return Throttle(ThrottleReason(hold.decode()) if hold else None, until, now)


def _heads(verbs: Verbs, keys: Keys, ring: Sequence[bytes]) -> list[float]:
    """When the earliest task of each tenant in the ring is due."""
    answers = verbs.scripts.read(*(partial(_head, keys.due(tenant.decode())) for tenant in ring)) if ring else []
    return [at for answer in answers for _, at in answer]


def _head(due: str, pipe: Any) -> None:
    pipe.zrange(due, 0, 0, withscores=True)


def as_fields(asked: QueueSettings) -> dict[str, str | int]:
    """The settings as meta keeps them, "" for none."""
    return {
        field: value
        for one in SETTINGS
        for field, value in zip(_fields_of(one), _written(one, getattr(asked, one.field)), strict=True)
    }


def _written(one: Setting, value: Any) -> Sequence[str | int]:
    if value == one.default:
        return [""] * len(_fields_of(one))
    return value if isinstance(value, Rate) else [int(value)]


def _settings(found: Sequence[bytes | None]) -> QueueSettings:
    """The settings as meta keeps them."""
    values = dict(zip(FIELDS, found, strict=True))
    return QueueSettings(**{one.field: _read(one, [values[field] for field in _fields_of(one)]) for one in SETTINGS})


def _read(one: Setting, found: Sequence[bytes | None]) -> Any:
    if one.kind is bool:
        return bool(found[0])  # of any value: scripts ask no more than that
    numbers = [int(value) for value in found if value and value.isdigit()]
    if len(numbers) < len(found):
        return one.default
    if one.kind is Rate:
        return Rate(*numbers) if all(numbers) else None
    return numbers[0]
