"""Verbs of callers on tasks (ports.tasks)."""

import secrets
from collections.abc import Callable, Sequence
from functools import partial
from typing import TypeAlias

from duecourse.adapters.redis import arguments, pages
from duecourse.adapters.redis.answers import readable, replies
from duecourse.adapters.redis.ledger import Found, RedisLedger
from duecourse.adapters.redis.record import UNREADABLE, lease_end, stored_id, unpack
from duecourse.adapters.redis.verbs import in_steps
from duecourse.domain.batches import grouped
from duecourse.domain.history import cut_by
from duecourse.domain.pages import Page, Place, Wanted
from duecourse.domain.queues import Throttle, ThrottleReason
from duecourse.domain.shards import scatter
from duecourse.domain.task import DEFAULT_TENANT, NewTask, Shard, Status, Task
from duecourse.errors import TaskDamaged
from duecourse.ports.tasks import AddReply, Alone, Move, Reply, Seen, Version

Words: TypeAlias = Sequence[arguments.Argument]
Act: TypeAlias = Callable[[Shard, Sequence[int]], list[Reply]]
"""A verb on a shard's tasks, by their indexes."""


class RedisTasks(RedisLedger):
    """Tasks, for their callers."""

    def add(
        self, tasks: Sequence[NewTask], *, echo: bool = False, alone: Alone | None = None, since: int = 0
    ) -> list[AddReply]:
        """See TaskStore."""
        return self._adds.add(tasks, echo, alone, since)

    def group(self, queue: str, group: str, tenant: str = DEFAULT_TENANT) -> list[Task]:
        """See TaskStore; a task whose record cannot be read is only logged."""
        shard, name = self._sharding.of(queue, "", group), f"{tenant}/{group}"
        keys = self._verbs.keys(shard)
        members, shards = self._scripts.read(
            ("ZRANGEBYLEX", keys.groups, f"[{name}\0", f"({name}\1"), ("HGET", keys.meta, "shards")
        )
        self._record.compare(queue, shards)
        if not members:
            return []
        sids = [member.partition(b"\0")[2].decode() for member in members]
        records, ends = self._scripts.read(("HMGET", keys.tasks, *sids), ("ZMSCORE", keys.leased, *sids))
        rows = zip(sids, records, ends, strict=True)
        found = self._whole(shard, {sid: Found(data, end) for sid, data, end in rows if data is not None})
        tasks = (
            readable(queue, sid, one.data, lease_end(one.lease_expires_at), one.payload) for sid, one in found.items()
        )
        return [task for task in tasks if task]

    def seen(self, queue: str, id: str, tenant: str = DEFAULT_TENANT) -> Seen | None:
        """See TaskStore: a round trip more for a task that is leased, which may have a replacement beside it."""
        sid = stored_id(tenant, id)
        shard, found = self._find(queue, id, sid)
        if sid not in found:
            return None
        try:
            task = newest = unpack(queue, sid, found[sid].data, 0)
            if task.status is Status.LEASED:
                waiting = self._scripts.command("HGET", self._verbs.keys(shard).tasks, f"{sid}+")
                newest = unpack(queue, sid, waiting, 0) if waiting else task
        except UNREADABLE as error:
            raise TaskDamaged(f"the record of {sid} cannot be read: {error}") from error
        return Seen(Version(newest.generation, newest.due_at), task.status)

    def page(self, queue: str, wanted: Wanted, after: Place | None, limit: int, tenant: str = DEFAULT_TENANT) -> Page:
        """See TaskStore."""
        return pages.page(self._verbs, queue, wanted, after, limit, tenant)

    def throttle(self, shard: Shard, tenant: str = DEFAULT_TENANT, task: Task | None = None) -> Throttle:
        """See TaskStore."""
        one = (stored_id(task.tenant, task.id), task.due_at, task.kind) if task else ()
        now, reason, until = self._verbs.run("throttle", shard, [tenant], one)
        return Throttle(ThrottleReason(reason.decode()) if reason else None, until, now)

    def move(self, queue: str, moves: Sequence[Move], tenant: str = DEFAULT_TENANT, *, group: str = "") -> list[Reply]:
        """See TaskStore."""
        call = secrets.token_bytes(6)
        parts = [arguments.move(one, tenant, call + place.to_bytes(2)) for place, one in enumerate(moves)]
        act = self._act("move", tenant, [int(bool(group))], parts)
        return self._on_tasks(queue, [move.id for move in moves], tenant, group, act)

    def cancel(
        self,
        queue: str,
        ids: Sequence[str],
        *,
        force: bool = False,
        tenant: str = DEFAULT_TENANT,
        group: str = "",
        by: str = "",
        newest: int | None = None,
    ) -> list[Reply]:
        """See TaskStore."""
        parts = [[stored_id(tenant, id)] for id in ids]
        terms: Words = [int(bool(group)), int(force), cut_by(by), "" if newest is None else newest]
        act = self._act("cancel", tenant, terms, parts)
        return self._on_tasks(queue, ids, tenant, group, act)

    def replay(
        self,
        queue: str,
        ids: Sequence[str],
        tenant: str = DEFAULT_TENANT,
        *,
        delays_ms: Sequence[int] = (),
        deadlines_ms: Sequence[int] = (),
        by: str = "",
        seen: Sequence[Version] = (),
    ) -> list[Reply]:
        """See TaskStore."""
        none, sids = [0] * len(ids), [stored_id(tenant, id) for id in ids]
        versions = [arguments.version(one) for one in seen] or [""] * len(ids)
        parts = [*zip(sids, delays_ms or none, deadlines_ms or none, versions, strict=True)]
        return self._on_tasks(queue, ids, tenant, "", self._act("replay", tenant, [cut_by(by)], parts))

    def _act(self, verb: str, tenant: str, terms: Words, parts: Sequence[Words]) -> Act:
        """A verb whose arguments are its terms, and then the part of each task."""

        def step(shard: Shard, chosen: Sequence[int]) -> list[Reply]:
            every = (*terms, *(one for i in chosen for one in parts[i]))
            return replies(self._verbs.run(verb, shard, [tenant], every))

        return lambda shard, chosen: in_steps(chosen, partial(step, shard))

    def _on_tasks(self, queue: str, ids: Sequence[str], tenant: str, group: str, act: Act) -> list[Reply]:
        """Replies of `act` for tasks of a group, or for each task in whatever shard: first in its id's, then in all."""
        replies = scatter([self._sharding.of(queue, id, group) for id in ids], act)
        absent = [index for index, reply in enumerate(replies) if reply is Reply.ABSENT]
        if group or not absent or self._sharding.count(queue) == 1:
            return replies
        found = self._find_all(queue, {index: stored_id(tenant, ids[index]) for index in absent})
        for shard, indexes in grouped(found, found.__getitem__).items():
            for index, reply in zip(indexes, act(shard, indexes), strict=True):
                replies[index] = reply
        return replies

    def _find_all(self, queue: str, sids: dict[int, str]) -> dict[int, Shard]:
        """Shards of those stored ids that exist, in one round trip a node."""
        places = [(index, shard) for index in sids for shard in self._sharding.every(queue)]
        reads = [("HEXISTS", self._verbs.keys(shard).tasks, sids[index]) for index, shard in places]
        there = self._scripts.read(*reads)
        return dict(place for place, has in zip(places, there, strict=True) if has)
