"""Operations on tasks: list by pages, explain, move, cancel, replay, and acts on many."""

import secrets
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from functools import partial
from heapq import nsmallest
from typing import Any, NamedTuple, TypeAlias

from duecourse.base.batches import grouped, in_steps
from duecourse.errors import TaskDamaged
from duecourse.ledger import script_codec
from duecourse.ledger.keys import Keys
from duecourse.ledger.many_tasks import (
    MAX_BULK,
    MAX_PAGE,
    PAGE_BYTES,
    SECTIONS,
    Act,
    Bulk,
    BulkProgress,
    BulkResult,
    Death,
    Deaths,
    DeathsFound,
    Page,
    PagePosition,
    TaskFilter,
    fill_page,
    record_size,
)
from duecourse.ledger.operation_types import Move, Reply, TaskSnapshot, Version
from duecourse.ledger.operations.base import LedgerBase, RawRecord, ScriptRunner
from duecourse.ledger.queue import Throttle, ThrottleReason
from duecourse.ledger.record import STATUSES, UNREADABLE, lease_end, stored_id, unpack
from duecourse.ledger.script_calls import Scripts
from duecourse.ledger.script_codec import Argument, unpack_or_log, unpack_replies
from duecourse.ledger.sharding import scatter
from duecourse.ledger.task import DEFAULT_TENANT, Shard, Status, Task, cut_by

# A page of a queue's tasks: answers of page.lua for each of its shards, merged by time, section after section.

LOOK = 500
"""Number of tasks that one shard looks at for a page."""
MAX_PAGE_STEPS = 20
"""Number of looks at each shard for a page: behind so many tasks of other tenants, it ends early."""
MEMBERS = 4_000
"""Number of a group's members that one step reads: some milliseconds of the server's time."""
LIVE = frozenset({"due", "leased"})
"""Sections of the tasks that are not over."""
LETTERS = {status: chr(code) for code, status in STATUSES.items()}

Spot: TypeAlias = tuple[int, str]
"""Instant and id: the place of a task in its section."""


class ShardPage(NamedTuple):
    """Tasks of one shard by their spots, in order, and the last spot that it looked at; None if these are all."""

    tasks: list[tuple[Spot, Task]]
    reached: Spot | None


def _places(wanted: TaskFilter, after: PagePosition | None) -> list[PagePosition]:
    """Beginnings of the sections that are still to be looked at."""
    sections = wanted.sections()
    if after is None:
        return [PagePosition(section) for section in sections]
    if after.section not in sections:
        return []
    later = sections[sections.index(after.section) + 1 :]
    return [after, *(PagePosition(section) for section in later)]


def _merged(found: list[ShardPage], limit: int, room: int) -> tuple[list[Task], Spot | None, int]:
    """The first tasks, the spot after which there may be more, and the room that is left in the page.

    The spot is no further than every shard has looked.
    """
    horizon = min((one.reached for one in found if one.reached), default=None)
    every = sorted((pair for one in found for pair in one.tasks), key=lambda pair: pair[0])
    seen = [pair for pair in every if horizon is None or pair[0] <= horizon]
    sizes = (record_size(task.payload_json, task.result_json, task.state_json) for _, task in seen[:limit])
    count, room = fill_page(sizes, room)
    rest = seen[count - 1][0] if len(seen) > count else horizon
    return [task for _, task in seen[:count]], rest, room


def _look_at_group(
    runner: ScriptRunner, queue: str, wanted: TaskFilter, tenant: str, place: PagePosition, limit: int
) -> list[ShardPage]:
    """Tasks of a group after a place: first their spots, then their records."""
    shard = runner.sharding.of(queue, "", wanted.group)
    spots = _spots(runner.scripts, runner.keys(shard), tenant, wanted.group, place)
    if not spots:
        return []
    named = [part for at, id in spots for part in (stored_id(tenant, id), at)]
    found = _look(runner, shard, tenant, (*walk_arguments(*place, wanted), limit, *named))
    more = spots[-1] if len(spots) == LOOK else None
    return [found if found.reached else found._replace(reached=more)]


def walk_arguments(section: str, at: int, id: str, wanted: TaskFilter) -> tuple[Argument, ...]:
    """Arguments of lua/modules/walk.lua. In a section of tasks that ended, all before `since_at` are skipped."""
    letter = LETTERS[wanted.status] if wanted.status else ""
    start = (at, id) if section in LIVE or wanted.since_at <= at else (wanted.since_at, "")
    return section, *start, letter, wanted.kind, wanted.group, wanted.error, wanted.since_at


def _look(runner: ScriptRunner, shard: Shard, tenant: str, arguments: Sequence[Argument]) -> ShardPage:
    _, reached, flat = runner.run("page", shard, [tenant], arguments)
    tasks = []
    for sid, at, data, body in zip(flat[::4], flat[1::4], flat[2::4], flat[3::4], strict=True):
        task = unpack_or_log(shard.queue, sid.decode(), data, int(at), body)
        if task:
            shown = task if task.status is Status.LEASED else replace(task, lease_expires_at=0)
            tasks.append(((int(at), task.id), shown))
    return ShardPage(tasks, (int(reached[0]), reached[1].decode()) if reached else None)


def _spots(scripts: Scripts, keys: Keys, tenant: str, group: str, place: PagePosition) -> list[Spot]:
    """The first LOOK spots of a group after a place, in order.

    The group's index is in the order of ids, so all of it is read. Changes meanwhile may be seen or not, as between two
    pages.
    """
    own = f"{tenant}/"
    section = keys.due(tenant) if place.section == "due" else f"{keys.prefix}{place.section}"
    best: list[Spot] = []
    for sids in _members(scripts, keys.groups, f"{tenant}/{group}"):
        [scores] = scripts.read(("ZMSCORE", section, *sids))
        here = [(int(at), sid.removeprefix(own)) for sid, at in zip(sids, scores, strict=True) if at is not None]
        best = nsmallest(LOOK, [*best, *(spot for spot in here if spot > (place.at, place.id))])
    return best


def _members(scripts: Scripts, groups: str, name: str) -> Iterator[list[str]]:
    """Stored ids of a group's tasks, at most MEMBERS at a time."""
    after, last = f"[{name}\0".encode(), f"({name}\1"
    found: Any = [b""] * MEMBERS
    while len(found) == MEMBERS:
        [found] = scripts.read(("ZRANGEBYLEX", groups, after, last, "LIMIT", 0, MEMBERS))
        if found:
            yield [member.decode().partition("\0")[2] for member in found]
            after = b"(" + found[-1]


# Acts on many tasks (bulk.lua) and reads of deaths (dead.lua), by shard and state, in bounded steps.

MAX_STEPS = 100
"""Maximum number of steps of one call: each looks at 500 tasks at most."""
MAX_CHANGES = 200
"""Most tasks that one step changes: each takes the server ten times as long as a look."""
SECTION_OF = {status: section for section, statuses in SECTIONS.items() for status in statuses}


def _concealed(runner: ScriptRunner, place: BulkProgress, tenant: str) -> BulkProgress:
    hidden = runner.cursors.hide(PagePosition(place.status, place.at, place.id), tenant)
    return place._replace(at=hidden.at, id=hidden.id)


def _revealed(runner: ScriptRunner, place: BulkProgress, tenant: str) -> BulkProgress:
    shown = runner.cursors.reveal(PagePosition(place.status, place.at, place.id), tenant)
    return place._replace(at=shown.at, id=shown.id)


def _is_section(place: BulkProgress, until: BulkProgress | None) -> bool:
    """True if a place is in the shard and state in which the call ends."""
    return until is not None and (place.shard, place.status) == (until.shard, until.status)


def _is_behind(place: BulkProgress, until: BulkProgress | None) -> bool:
    return until is not None and _is_section(place, until) and (place.at, place.id) >= (until.at, until.id)


def _read_deaths(shard: int, flat: Sequence[Any]) -> list[Death]:
    rows = zip(flat[::4], flat[1::4], flat[2::4], flat[3::4], strict=True)
    return [
        Death(shard, sid.decode().partition("/")[2], int(at), kind.decode(), error.decode(errors="replace"))
        for sid, at, kind, error in rows
    ]


def _starts(
    runner: ScriptRunner, queue: str, statuses: Sequence[Status], group: str, after: BulkProgress | None
) -> Iterator[BulkProgress]:
    """Beginnings of what is still to be looked at; a group's tasks are all in one shard."""
    sharding = runner.sharding
    shards = [sharding.of(queue, "", group)] if group else sharding.every(queue)
    every = [BulkProgress(shard.number, status) for shard in shards for status in statuses]
    if after is None:
        yield from every
    elif (start := BulkProgress(after.shard, after.status)) in every:
        yield after
        yield from every[every.index(start) + 1 :]


def _step(
    runner: ScriptRunner, queue: str, request: Bulk, place: BulkProgress, most: int, tenant: str, by: str
) -> tuple[int, BulkProgress | None]:
    most = most if request.act is Act.COUNT else min(most, MAX_CHANGES)
    wanted = TaskFilter(place.status, request.kind, request.group, request.error)
    walk = walk_arguments(SECTION_OF[place.status], place.at, place.id, wanted)
    until = (request.until.at, request.until.id) if request.until and _is_section(place, request.until) else ("", "")
    terms = (*walk, request.act, most, request.min_age_ms, cut_by(by), request.before, *until)
    _, _, done, reached = runner.run("bulk", Shard(queue, place.shard), [tenant], terms)
    return done, _after(place, reached)


def _after(place: BulkProgress, reached: Sequence[Any]) -> BulkProgress | None:
    return place._replace(at=int(reached[0]), id=reached[1].decode()) if reached else None


# Operations of callers on tasks.

Words: TypeAlias = Sequence[script_codec.Argument]
ShardCall: TypeAlias = Callable[[Shard, Sequence[int]], list[Reply]]
"""A verb on a shard's tasks, by their indexes."""


class TaskOperations(LedgerBase):
    """Operations of callers on tasks: one, some, or all that match."""

    def group(self, queue: str, group: str, tenant: str = DEFAULT_TENANT) -> list[Task]:
        """The tasks of a group, by id; a task whose record cannot be read is only logged."""
        shard, name = self._sharding.of(queue, "", group), f"{tenant}/{group}"
        keys = self._runner.keys(shard)
        members, shards = self._scripts.read(
            ("ZRANGEBYLEX", keys.groups, f"[{name}\0", f"({name}\1"), ("HGET", keys.meta, "shards")
        )
        self._registry.compare(queue, shards)
        if not members:
            return []
        sids = [member.partition(b"\0")[2].decode() for member in members]
        records, ends = self._scripts.read(("HMGET", keys.tasks, *sids), ("ZMSCORE", keys.leased, *sids))
        rows = zip(sids, records, ends, strict=True)
        found = self._whole(shard, {sid: RawRecord(data, end) for sid, data, end in rows if data is not None})
        tasks = (
            unpack_or_log(queue, sid, one.data, lease_end(one.lease_expires_at), one.payload)
            for sid, one in found.items()
        )
        return [task for task in tasks if task]

    def seen(self, queue: str, id: str, tenant: str = DEFAULT_TENANT) -> TaskSnapshot | None:
        """Version and status of one task, None for none. Raises TaskDamaged.

        A round trip more for a task that is leased, which may have a replacement beside it.
        """
        sid = stored_id(tenant, id)
        shard, found = self._find(queue, id, sid)
        if sid not in found:
            return None
        try:
            task = newest = unpack(queue, sid, found[sid].data, 0)
            if task.status is Status.LEASED:
                waiting = self._scripts.command("HGET", self._runner.keys(shard).tasks, f"{sid}+")
                newest = unpack(queue, sid, waiting, 0) if waiting else task
        except UNREADABLE as error:
            raise TaskDamaged(f"the record of {sid} cannot be read: {error}") from error
        return TaskSnapshot(Version(newest.generation, newest.due_at), task.status)

    def page(
        self, queue: str, wanted: TaskFilter, after: PagePosition | None, limit: int, tenant: str = DEFAULT_TENANT
    ) -> Page:
        """At most `limit` of a queue's tasks, at most MAX_PAGE, in their order, those that follow `after`.

        The work of one call is bounded, so that a page may be short, or empty, and still have a `next`.
        """
        if not 1 <= limit <= MAX_PAGE:
            raise ValueError(f"a page has 1 to {MAX_PAGE} tasks, not {limit}")
        tasks: list[Task] = []
        room, steps = PAGE_BYTES, 0
        places = _places(wanted, self._runner.cursors.reveal(after, tenant) if after else None)
        while places:  # it looks on behind tasks of others, so that it does not end where those do
            place, *later = places
            left = limit - len(tasks)
            if not left or room <= 0 or steps == MAX_PAGE_STEPS:
                return Page(tasks, self._runner.cursors.hide(place, tenant))
            if wanted.group:
                found = _look_at_group(self._runner, queue, wanted, tenant, place, left)
            else:
                terms = (*walk_arguments(*place, wanted), left)
                found = [_look(self._runner, shard, tenant, terms) for shard in self._runner.sharding.every(queue)]
            taken, rest, room = _merged(found, left, room)
            tasks, steps = tasks + taken, steps + bool(rest)
            places = [PagePosition(place.section, *rest), *later] if rest else later
        return Page(tasks, None)

    def bulk(
        self,
        queue: str,
        request: Bulk,
        after: BulkProgress | None = None,
        tenant: str = DEFAULT_TENANT,
        *,
        by: str = "",
    ) -> BulkResult:
        """Count, delete or cancel the tasks of a tenant that match `request`, from `after` on.

        The work of one call is bounded: it may do less than its limit, or nothing, and still have a `next`. Each step
        is done or not; if the store fails between two steps, those before are done. A task that comes to a place behind
        the one that was reached is left out.
        """
        if not 1 <= request.limit <= MAX_BULK:
            raise ValueError(f"one call is for 1 to {MAX_BULK} tasks, not {request.limit}")
        count = steps = 0
        after, until = after and _revealed(self._runner, after, tenant), request.until
        request = request._replace(until=request.until and _revealed(self._runner, request.until, tenant))
        for start in _starts(self._runner, queue, request.statuses, request.group, after):
            place: BulkProgress | None = start
            while place:
                if _is_behind(place, request.until):
                    return BulkResult(count, until)
                if count == request.limit or steps == MAX_STEPS:
                    return BulkResult(count, _concealed(self._runner, place, tenant))
                done, place = _step(self._runner, queue, request, place, request.limit - count, tenant, by)
                count, steps = count + done, steps + 1
            if _is_section(start, request.until):
                return BulkResult(count, until)
        return BulkResult(count, None)

    def deaths(
        self, queue: str, request: Deaths, after: BulkProgress | None = None, tenant: str = DEFAULT_TENANT
    ) -> DeathsFound:
        """Deaths of a tenant's tasks that match `request`, from `after` on, oldest first in each shard.

        The work of one call is bounded: it may find fewer than its limit, or none, and still have a `next`. A task
        whose record cannot be read is left out.
        """
        found: list[Death] = []
        steps = 0
        after = after and _revealed(self._runner, after, tenant)
        wanted = TaskFilter(Status.DEAD, request.kind, request.group, request.error, request.since_at)
        for start in _starts(self._runner, queue, (Status.DEAD,), request.group, after):
            place: BulkProgress | None = start
            while place:
                if len(found) == request.limit or steps == MAX_STEPS:
                    return DeathsFound(found, _concealed(self._runner, place, tenant))
                terms = (
                    *walk_arguments(SECTION_OF[place.status], place.at, place.id, wanted),
                    request.limit - len(found),
                )
                _, reached, flat = self._runner.run("dead", Shard(queue, place.shard), [tenant], terms)
                found += _read_deaths(place.shard, flat)
                place, steps = _after(place, reached), steps + 1
        return DeathsFound(found, None)

    def throttle(self, shard: Shard, tenant: str = DEFAULT_TENANT, task: Task | None = None) -> Throttle:
        """Reason why a tenant's due tasks in a shard, or this one of them, cannot be claimed now."""
        one = (stored_id(task.tenant, task.id), task.due_at, task.kind) if task else ()
        now, reason, until = self._runner.run("throttle", shard, [tenant], one)
        return Throttle(ThrottleReason(reason.decode()) if reason else None, until, now)

    def move(self, queue: str, moves: Sequence[Move], tenant: str = DEFAULT_TENANT, *, group: str = "") -> list[Reply]:
        """Give tasks new due times, those of one shard in one step; with the tasks' common `group`, all in one.

        Otherwise, a task that is not in its id's shard is searched in the queue's other shards.
        """
        call = secrets.token_bytes(6)
        parts = [script_codec.pack_move(one, tenant, call + place.to_bytes(2)) for place, one in enumerate(moves)]
        act = self._act("move", tenant, [int(bool(group))], parts)
        answers = self._on_tasks(queue, [move.id for move in moves], tenant, group, act)
        if self._log:
            self._log.moved(queue, moves, tenant, answers)
        return answers

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
        """Cancel scheduled tasks and delete dead ones, in the same steps as `move`.

        With `force`, also take a leased task from its worker, and cancel it together with a waiting replacement. The
        record is then that of the replacement. With `newest`, a task of a later generation, or with a replacement of a
        later one, is answered CHANGED and left alone.
        """
        parts = [[stored_id(tenant, id)] for id in ids]
        terms: Words = [int(bool(group)), int(force), cut_by(by), "" if newest is None else newest]
        act = self._act("cancel", tenant, terms, parts)
        answers = self._on_tasks(queue, ids, tenant, group, act)
        if self._log:
            self._log.cancelled(queue, ids, tenant, answers)
        return answers

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
        """Schedule dead tasks again: a fresh set of attempts, the same generation, their log kept.

        Each is due its one of `delays_ms` from now, and dead its one of `deadlines_ms` (0: never) after that; without
        them, now and never. One that is over a quota of its tenant stays dead. With `seen`, the version of each, a task
        of another version is answered CHANGED.
        """
        none, sids = [0] * len(ids), [stored_id(tenant, id) for id in ids]
        versions = [script_codec.pack_version(one) for one in seen] or [""] * len(ids)
        parts = [*zip(sids, delays_ms or none, deadlines_ms or none, versions, strict=True)]
        answers = self._on_tasks(queue, ids, tenant, "", self._act("replay", tenant, [cut_by(by)], parts))
        if self._log:
            self._log.replayed(queue, ids, tenant, answers)
        return answers

    def _act(self, verb: str, tenant: str, terms: Words, parts: Sequence[Words]) -> ShardCall:
        """A verb whose arguments are its terms, and then the part of each task."""

        def step(shard: Shard, chosen: Sequence[int]) -> list[Reply]:
            every = (*terms, *(one for i in chosen for one in parts[i]))
            return unpack_replies(self._runner.run(verb, shard, [tenant], every))

        return lambda shard, chosen: in_steps(chosen, partial(step, shard))

    def _on_tasks(self, queue: str, ids: Sequence[str], tenant: str, group: str, act: ShardCall) -> list[Reply]:
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
        reads = [("HEXISTS", self._runner.keys(shard).tasks, sids[index]) for index, shard in places]
        there = self._scripts.read(*reads)
        return dict(place for place, has in zip(places, there, strict=True) if has)
