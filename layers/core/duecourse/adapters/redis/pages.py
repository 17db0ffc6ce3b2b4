"""A queue's tasks in pages, on Redis: what page.lua reads of each shard."""

from collections.abc import Sequence
from functools import partial
from typing import Any

from duecourse.adapters.redis.group_spots import spots_of_group
from duecourse.adapters.redis.merged_pages import LOOK, Found, paged
from duecourse.adapters.redis.record import STATUSES, stored_id
from duecourse.adapters.redis.verbs import Verbs
from duecourse.adapters.redis.wire import Argument, readable
from duecourse.domain.pages import Page, Place, Wanted
from duecourse.domain.task import Shard

LETTERS = {status: chr(code) for code, status in STATUSES.items()}


def page(verbs: Verbs, queue: str, wanted: Wanted, after: Place | None, limit: int, tenant: str) -> Page:
    """One page; a group's tasks are in one shard, and have an index of their own."""
    sharding = verbs.sharding
    if wanted.group:
        look = partial(_look_at_group, verbs, sharding.of(queue, "", wanted.group), wanted, tenant)
    else:
        look = partial(_look, verbs, sharding.every(queue), wanted, tenant)
    return paged(wanted, after, limit, look)


def _look(verbs: Verbs, shards: Sequence[Shard], wanted: Wanted, tenant: str, place: Place, limit: int) -> list[Found]:
    arguments = _arguments(wanted, place, limit)
    answers = [verbs.run("page", shard, [tenant], arguments, again=True) for shard in shards]
    return [_found(shard.queue, answer) for shard, answer in zip(shards, answers, strict=True)]


def _look_at_group(verbs: Verbs, shard: Shard, wanted: Wanted, tenant: str, place: Place, limit: int) -> list[Found]:
    """What the group has after a place: where its tasks stand first, then their records."""
    spots = spots_of_group(verbs.scripts, verbs.keys(shard), tenant, wanted.group, place)
    if not spots:
        return []
    named = [part for at, id in spots for part in (stored_id(tenant, id), at)]
    found = _found(
        shard.queue, verbs.run("page", shard, [tenant], (*_arguments(wanted, place, limit), *named), again=True)
    )
    more = spots[-1] if len(spots) == LOOK else None
    return [found if found.reached else found._replace(reached=more)]


def _arguments(wanted: Wanted, place: Place, limit: int) -> tuple[Argument, ...]:
    letter = LETTERS[wanted.status] if wanted.status else ""
    return (*place, limit, letter, wanted.kind, wanted.group)


def _found(queue: str, answer: Any) -> Found:
    _, reached, flat = answer
    tasks = []
    for sid, at, data, body in zip(flat[::4], flat[1::4], flat[2::4], flat[3::4], strict=True):
        task = readable(queue, sid.decode(), data, int(at), body)
        if task:
            held = task if task.status == "leased" else task._replace(lease_expires_at=0)
            tasks.append(((int(at), task.id), held))
    return Found(tasks, (int(reached[0]), reached[1].decode()) if reached else None)
