"""Tasks as they stand in Redis: one by its id, or a group's; nothing is changed."""

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, NamedTuple

from duecourse.adapters.redis.keys import Keys
from duecourse.adapters.redis.record import UNREADABLE, body_field, stored_id, unpack
from duecourse.adapters.redis.verbs import Verbs, in_steps
from duecourse.adapters.redis.wire import readable
from duecourse.domain.task import Shard, Task
from duecourse.errors import StoreMisused


class _Found(NamedTuple):
    """A record, the end of its lease (0 for none), and its payload where that stands apart; None for what is not."""

    data: bytes | None
    end: float | None
    body: bytes | None = None


def get(verbs: Verbs, queue: str, id: str, tenant: str) -> Task | None:
    """One task; one that is not in its id's shard is looked for in all others, in one round trip.

    Raises StoreMisused where its record cannot be read.
    """
    sid = stored_id(tenant, id)
    shard, found = _find(verbs, queue, id, sid)
    [found] = _whole(verbs, shard, {sid: found}).values()
    try:
        return unpack(queue, sid, found.data, int(found.end or 0), found.body) if found.data is not None else None
    except UNREADABLE as error:
        raise StoreMisused(f"the record of {sid} cannot be read: {error}") from error


def members(verbs: Verbs, queue: str, group: str, tenant: str) -> list[Task]:
    """The tasks of a group, by id; one whose record cannot be read is only told."""
    shard, name = verbs.sharding.of(queue, "", group), f"{tenant}/{group}"
    keys = verbs.keys(shard)
    members, told = verbs.scripts.read(
        lambda p: p.zrangebylex(keys.groups, f"[{name}\0", f"({name}\1"), lambda p: p.hget(keys.meta, "shards")
    )
    verbs.record.compare(queue, told)
    if not members:
        return []
    sids = [member.partition(b"\0")[2].decode() for member in members]
    records, ends = verbs.scripts.read(
        lambda p: p.hmget(keys.tasks, sids),
        lambda p: p.zmscore(keys.leased, sids),
    )
    rows = zip(sids, records, ends, strict=True)
    found = _whole(verbs, shard, {sid: _Found(data, end) for sid, data, end in rows})
    tasks = (
        readable(queue, sid, one.data, int(one.end or 0), one.body)
        for sid, one in found.items()
        if one.data is not None
    )
    return [task for task in tasks if task]


def _find(verbs: Verbs, queue: str, id: str, sid: str) -> tuple[Shard, _Found]:
    """The shard that has a task, and what it has of it; without a record where none has."""
    home = verbs.sharding.of(queue, id)
    reads = partial(_record_and_lease, sid=sid)
    told, *found = verbs.scripts.read(lambda p: p.hget(verbs.keys(home).meta, "shards"), *reads(verbs.keys(home)))
    verbs.record.compare(queue, told)
    shards = [home]
    others = [shard for shard in verbs.sharding.every(queue) if shard != home]
    if found[0] is None and others:
        shards, found = others, verbs.scripts.read(*(read for shard in others for read in reads(verbs.keys(shard))))
    rows = zip(shards, found[::2], found[1::2], strict=True)
    there = ((shard, _Found(data, end)) for shard, data, end in rows if data is not None)
    return next(there, (home, _Found(None, None)))


def _whole(verbs: Verbs, shard: Shard, records: dict[str, _Found]) -> dict[str, _Found]:
    """The same tasks, by stored id; those whose payloads stand apart as they are by now, with these."""
    apart = [sid for sid, one in records.items() if one.data and body_field(sid, one.data)]
    if not apart:
        return records

    def step(sids: Sequence[str]) -> list[_Found]:
        rows = verbs.run("show", shard, (), sids, again=True)
        return [_Found(*row) for row in rows]

    return records | dict(zip(apart, in_steps(apart, step), strict=True))


def _record_and_lease(keys: Keys, sid: str) -> tuple[Callable[[Any], object], Callable[[Any], object]]:
    return (lambda p: p.hget(keys.tasks, sid), lambda p: p.zscore(keys.leased, sid))
