"""A queue's tasks in pages, on Redis: what page.lua reads of each shard."""

from collections.abc import Sequence
from functools import partial
from typing import Any

from duecourse.adapters.redis.merged_pages import Found, paged
from duecourse.adapters.redis.record import STATUSES
from duecourse.adapters.redis.verbs import Verbs
from duecourse.adapters.redis.wire import readable
from duecourse.domain.pages import Page, Place, Wanted
from duecourse.domain.task import Shard

LETTERS = {status: chr(code) for code, status in STATUSES.items()}


def page(verbs: Verbs, queue: str, wanted: Wanted, after: Place | None, limit: int, tenant: str) -> Page:
    """One page; a group's tasks are in one shard."""
    sharding = verbs.sharding
    shards = [sharding.of(queue, "", wanted.group)] if wanted.group else sharding.every(queue)
    return paged(wanted, after, limit, partial(_look, verbs, shards, wanted, tenant))


def _look(verbs: Verbs, shards: Sequence[Shard], wanted: Wanted, tenant: str, place: Place, limit: int) -> list[Found]:
    letter = LETTERS[wanted.status] if wanted.status else ""
    arguments = (*place, limit, letter, wanted.kind, wanted.group)
    answers = [verbs.run("page", shard, [tenant], arguments, again=True) for shard in shards]
    return [_found(shard.queue, answer) for shard, answer in zip(shards, answers, strict=True)]


def _found(queue: str, answer: Any) -> Found:
    _, reached, flat = answer
    tasks = []
    for sid, at, data, body in zip(flat[::4], flat[1::4], flat[2::4], flat[3::4], strict=True):
        task = readable(queue, sid.decode(), data, int(at), body)
        if task:
            held = task if task.status == "leased" else task._replace(lease_expires_at=0)
            tasks.append(((int(at), task.id), held))
    return Found(tasks, (int(reached[0]), reached[1].decode()) if reached else None)
