"""Answers of the Lua scripts as the domain's values; of the longest, each place has a name, in the order of RETURNS."""

import logging
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from duecourse.adapters.redis.record import UNREADABLE, stored_id, unpack
from duecourse.domain.queues import DEFAULT_PRIORITY
from duecourse.domain.task import NewTask, Task
from duecourse.domain.values import replaced
from duecourse.ports.leases import Begun, Claim, Deliveries, Settled
from duecourse.ports.tasks import AddReply, Reply

log = logging.getLogger("duecourse.store")

REPLIES = {
    1: Reply.CREATED,
    2: Reply.KEPT,
    3: Reply.REPLACED,
    4: Reply.DEBOUNCED,
    0: Reply.OK,
    -1: Reply.ABSENT,
    -2: Reply.SCHEDULED,
    -3: Reply.LEASED,
    -4: Reply.DONE,
    -5: Reply.CANCELLED,
    -6: Reply.DEAD,
    -11: Reply.PAST_DEADLINE,
    -12: Reply.OVER_PENDING,
    -13: Reply.OVER_BYTES,
    -14: Reply.OVER_ADDS,
    -15: Reply.BEYOND_PENDING,
    -16: Reply.BEYOND_BYTES,
    -17: Reply.BEYOND_ADDS,
    -18: Reply.OVER_SCHEDULES,
    -19: Reply.CHANGED,
}
"""Meaning of the scripts' numbers, rejections below 0: the one table of them."""
SETTLED = (Settled.STALE, Settled.DONE, Settled.AGAIN, Settled.RETRIED, Settled.DEAD, Settled.RELEASED)


class ClaimAnswer(NamedTuple):
    """Answer of claim.lua; `flat` are stored ids and records in turn.

    `bodies` are payloads apart from their records, each behind the place of its record among those. The next claim
    declares the tenants in `want` and `following`. `schedules` are due ones: stored id, record, payload where that is
    apart, in turn. `fitting` are targets and how many tasks one event is to have, in turn.
    """

    now: int
    bell_at: int
    died: int
    backlog: int
    want: list[bytes]
    flat: list[bytes]
    lease_ms: int
    priority: int
    throttled: int
    following: list[bytes]
    aside: int
    bodies: list[Any]
    schedules: list[bytes] | None
    fitting: list[Any] | None = None
    reclaimed: int = 0

    @property
    def size(self) -> int:
        """Bytes of the records and payloads."""
        return sum(map(len, (*self.flat[1::2], *self.bodies[1::2])))


class SweepAnswer(NamedTuple):
    """Answer of sweep.lua; `idle_ms` is how long the shard has had neither tasks nor settings, -1 where it has some."""

    now: int
    bell_at: int
    reclaimed: int
    died: int
    pruned: int
    more: int
    want: list[bytes]
    idle_ms: int
    revision: bytes
    spared_until: int


def replies(answer: Any) -> list[Reply]:
    """Effect of a script on each task."""
    _, _, codes = answer
    return [REPLIES[code] for code in codes]


def added(tasks: Sequence[NewTask], answer: Any) -> list[AddReply]:
    """Replies of add.lua to the first of the tasks, as many as its bounds allowed; with their records if echoed."""
    _, _, codes, records, bodies, *waits = answer
    tasks, wait_ms = tasks[: len(codes)], sum(waits)
    if not records:
        return [AddReply(task.id, REPLIES[code], None, wait_ms) for task, code in zip(tasks, codes, strict=True)]
    apart, replies = _by_place(bodies), []
    for place, (task, code, data) in enumerate(zip(tasks, codes, records, strict=True), 1):
        sid = stored_id(task.tenant, task.id)
        echoed = readable(task.queue, sid, data, body=apart.get(place)) if data else None
        replies.append(AddReply(task.id, REPLIES[code], echoed, wait_ms))
    return replies


def claimed(before: Claim, got: ClaimAnswer, queue: str, given: Deliveries, at_once: int = 0) -> Claim:
    """A claim of several rounds, with the answer of claim.lua in the newest; it begins as many `at_once`."""
    tasks = _leased(queue, got)
    if given:  # a task that is handed over has a lease of its own length
        tasks = [
            replaced(task, lease_expires_at=got.now + given[task.kind].lease_ms) if task.target else task
            for task in tasks
        ]
    return Claim(
        tasks=before.tasks + tasks,
        at_once=min(at_once, len(before.tasks) + len(tasks)),
        died=before.died + got.died,
        reclaimed=before.reclaimed + got.reclaimed,
        backlog=got.backlog,
        bell_at=got.bell_at,
        now=got.now,
        throttled=bool(got.throttled),
        priority=DEFAULT_PRIORITY if got.priority < 0 else got.priority,
        aside=before.aside + got.aside,
        each=_each(before.each, got.fitting) if got.fitting else before.each,
    )


def _each(before: Mapping[str, int], fitting: Sequence[Any]) -> dict[str, int]:
    return {**before, **dict(zip(map(bytes.decode, fitting[::2]), fitting[1::2], strict=True))}


def _leased(queue: str, got: ClaimAnswer) -> list[Task]:
    """The tasks that claim.lua hands out; one that cannot be read is only logged."""
    apart, expires_at = _by_place(got.bodies), got.now + got.lease_ms
    pairs = enumerate(zip(map(bytes.decode, got.flat[::2]), got.flat[1::2], strict=True), 1)
    rows = [(queue, sid, data, expires_at, apart.get(place)) for place, (sid, data) in pairs]
    try:
        return [unpack(*row) for row in rows]
    except UNREADABLE:
        return [task for row in rows if (task := readable(*row))]


def _by_place(bodies: Sequence[Any]) -> dict[int, bytes]:
    """Payloads apart from their records, by the place of each record among the others."""
    return dict(zip(bodies[::2], bodies[1::2], strict=True))


def begun(answer: Any) -> list[Begun]:
    """Leases of runs that begin, by work.lua; a lost one has no token."""
    _, _, flat, expires_at = answer
    each = zip(flat[::3], flat[1::3], flat[2::3], strict=True)
    return [Begun(token.hex(), run, expires_at if token else 0, late_ms) for token, run, late_ms in each]


def readable(queue: str, sid: str, data: bytes, expires_at: int = 0, body: bytes | None = None) -> Task | None:
    """The task in a record; None, with a line of log, where it cannot be read."""
    try:
        return unpack(queue, sid, data, expires_at, body)
    except UNREADABLE:
        log.exception("task %s in queue %s waits because its record cannot be read", sid, queue)
        return None
