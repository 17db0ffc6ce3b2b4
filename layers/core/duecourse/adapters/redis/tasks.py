"""Tasks as they stand in Redis: one by its id, or a group's; nothing is changed."""

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

from duecourse.adapters.redis.keys import Keys
from duecourse.adapters.redis.record import UNREADABLE, body_field, stored_id, unpack
from duecourse.adapters.redis.verbs import Verbs
from duecourse.adapters.redis.wire import readable
from duecourse.domain.task import Task
from duecourse.errors import StoreMisused

READS = 3
"""How often a record and its payload are read: what is replaced between the two takes its payload with it."""


def get(verbs: Verbs, queue: str, id: str, tenant: str) -> Task | None:
    """One task; one that is not in its id's shard is looked for in all others, in one round trip.

    Raises StoreMisused where its record cannot be read.
    """
    sid = stored_id(tenant, id)
    for _ in range(READS):
        found = _find(verbs, queue, id, sid)
        if found is None:
            return None
        keys, data, end = found
        bodies = _bodies(verbs, keys, {sid: data})
        if None not in bodies.values():
            break
    try:
        return unpack(queue, sid, data, int(end or 0), bodies.get(sid))
    except UNREADABLE as error:
        raise StoreMisused(f"the record of {sid} cannot be read: {error}") from error


def members(verbs: Verbs, queue: str, group: str, tenant: str) -> list[Task]:
    """The tasks of a group, by id; one whose record cannot be read is only told."""
    keys, name = verbs.keys(verbs.sharding.of(queue, "", group)), f"{tenant}/{group}"
    for _ in range(READS):
        members, told = verbs.scripts.read(
            lambda p: p.zrangebylex(keys.groups, f"[{name}\0", f"({name}\1"), lambda p: p.hget(keys.meta, "shards")
        )
        verbs.record.compare(queue, told)
        if not members:
            return []
        sids = [member.partition(b"\0")[2].decode() for member in members]
        records, ends = verbs.scripts.read(partial(_records, keys, sids), partial(_leases, keys, sids))
        there = {sid: data for sid, data in zip(sids, records, strict=True) if data is not None}
        bodies = _bodies(verbs, keys, there)
        if None not in bodies.values():
            break
    leases = {sid: int(end or 0) for sid, end in zip(sids, ends, strict=True)}
    tasks = [readable(queue, sid, data, leases[sid], bodies.get(sid)) for sid, data in there.items()]
    return [task for task in tasks if task]


def _find(verbs: Verbs, queue: str, id: str, sid: str) -> tuple[Keys, bytes, float | None] | None:
    """The keys of the shard that has a task, its record and the end of its lease."""
    home = verbs.sharding.of(queue, id)
    reads = partial(_record_and_lease, sid=sid)
    told, *found = verbs.scripts.read(lambda p: p.hget(verbs.keys(home).meta, "shards"), *reads(verbs.keys(home)))
    verbs.record.compare(queue, told)
    shards = [home]
    others = [shard for shard in verbs.sharding.every(queue) if shard != home]
    if found[0] is None and others:
        shards, found = others, verbs.scripts.read(*(read for shard in others for read in reads(verbs.keys(shard))))
    rows = zip(shards, found[::2], found[1::2], strict=True)
    return next(((verbs.keys(shard), data, end) for shard, data, end in rows if data is not None), None)


def _bodies(verbs: Verbs, keys: Keys, records: Mapping[str, bytes]) -> dict[str, bytes | None]:
    """The payloads that stand apart, by stored id; None for one that is not there."""
    fields = {sid: field for sid, data in records.items() if (field := body_field(sid, data))}
    if not fields:
        return {}
    [found] = verbs.scripts.read(partial(_records, keys, list(fields.values())))
    return dict(zip(fields, found, strict=True))


def _records(keys: Keys, fields: Sequence[str], pipe: Any) -> None:
    pipe.hmget(keys.tasks, fields)


def _leases(keys: Keys, sids: Sequence[str], pipe: Any) -> None:
    pipe.zmscore(keys.leased, sids)


def _record_and_lease(keys: Keys, sid: str) -> tuple[Callable[[Any], object], Callable[[Any], object]]:
    return (lambda p: p.hget(keys.tasks, sid), lambda p: p.zscore(keys.leased, sid))
