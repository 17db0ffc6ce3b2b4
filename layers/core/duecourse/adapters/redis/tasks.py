"""Tasks as they stand in Redis: one by its id, or a group's; nothing is changed."""

from collections.abc import Callable
from functools import partial
from typing import Any

from duecourse.adapters.redis.keys import Keys
from duecourse.adapters.redis.record import UNREADABLE, stored_id, unpack
from duecourse.adapters.redis.verbs import Verbs
from duecourse.adapters.redis.wire import readable
from duecourse.domain.task import Task
from duecourse.errors import StoreMisused


def get(verbs: Verbs, queue: str, id: str, tenant: str) -> Task | None:
    """One task; one that is not in its id's shard is looked for in all others, in one round trip.

    Raises StoreMisused where its record cannot be read.
    """
    home, sid = verbs.sharding.of(queue, id), stored_id(tenant, id)
    reads = partial(_record_and_lease, sid=sid)
    told, *found = verbs.scripts.read(lambda p: p.hget(verbs.keys(home).meta, "shards"), *reads(verbs.keys(home)))
    verbs.record.compare(queue, told)
    others = [shard for shard in verbs.sharding.every(queue) if shard != home]
    if found[0] is None and others:
        found = verbs.scripts.read(*(read for shard in others for read in reads(verbs.keys(shard))))
    data, end = next((pair for pair in zip(found[::2], found[1::2], strict=True) if pair[0] is not None), (None, None))
    if data is None:
        return None
    try:
        return unpack(queue, sid, data, int(end or 0))
    except UNREADABLE as error:
        raise StoreMisused(f"the record of {sid} cannot be read: {error}") from error


def members(verbs: Verbs, queue: str, group: str, tenant: str) -> list[Task]:
    """The tasks of a group, by id; one whose record cannot be read is only told."""
    keys, name = verbs.keys(verbs.sharding.of(queue, "", group)), f"{tenant}/{group}"
    members, told = verbs.scripts.read(
        lambda p: p.zrangebylex(keys.groups, f"[{name}\0", f"({name}\1"), lambda p: p.hget(keys.meta, "shards")
    )
    verbs.record.compare(queue, told)
    if not members:
        return []
    sids = [member.partition(b"\0")[2] for member in members]
    records, ends = verbs.scripts.read(lambda p: p.hmget(keys.tasks, sids), lambda p: p.zmscore(keys.leased, sids))
    found = zip(sids, records, ends, strict=True)
    tasks = [readable(queue, sid.decode(), data, int(end or 0)) for sid, data, end in found if data is not None]
    return [task for task in tasks if task]


def _record_and_lease(keys: Keys, sid: str) -> tuple[Callable[[Any], object], Callable[[Any], object]]:
    return (lambda p: p.hget(keys.tasks, sid), lambda p: p.zscore(keys.leased, sid))
