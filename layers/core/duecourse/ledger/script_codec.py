"""Arguments and answers of the scripts, to and from values."""

import logging
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import repeat
from struct import Struct
from typing import Any, NamedTuple, TypeVar

from duecourse.base.batches import cut
from duecourse.ledger.operation_types import (
    AddReply,
    Begun,
    Claim,
    Deliveries,
    Lease,
    Move,
    Reply,
    Settled,
    Version,
)
from duecourse.ledger.queue import DEFAULT_PRIORITY
from duecourse.ledger.record import (
    ENDING_CODES,
    TRIGGER_CODES,
    UNREADABLE,
    origin,
    pack_policy,
    pack_rest,
    pack_token,
    stored_id,
    unpack,
)
from duecourse.ledger.task import POLICY, NewTask, OnDuplicate, Settlement, Task, Trigger, cut_by, cut_detail

# Arguments of the Lua scripts, made of the domain's values.

Argument = str | bytes | int
T = TypeVar("T")

MAX_PIECE = 440
"""Most tasks of one add's request. At eight arguments each, a tenant of its own included, these are fewer than the
3,999 that ElastiCache Serverless takes. The largest settle, at three each, has fewer."""
MAX_PIECE_BYTES = 2_000_000
"""Most bytes of payloads, or results, in one such request, unless its first has more: they keep Redis busy."""
MODES = {OnDuplicate.KEEP: "k", OnDuplicate.REPLACE: "r", OnDuplicate.REJECT: "j", OnDuplicate.DEBOUNCE: "d"}
SETTLEMENT = Struct(">14sBBHIBII")
UNCOUNTED = 0xFFFFFFFF
"""Lateness of a lease whose begin is counted elsewhere, or that began nothing."""


def size_batches(items: Sequence[T], weigh: Callable[[T], int], most: int = MAX_PIECE) -> Iterator[list[T]]:
    """The items in their order, as many at a time as one request takes; `weigh` answers the bytes of one."""
    return cut(items, weigh, most=most, max_bytes=MAX_PIECE_BYTES)


def task_size(task: NewTask) -> int:
    """Size of a task in bytes, nearly."""
    return len(task.payload) + len(task.state)


def settlement_size(end: Settlement) -> int:
    """Size of a settlement in bytes, nearly."""
    return len(end.result) + len(end.state or "")


def tenants_of(items: Iterable[NewTask | Task | Settlement | Lease]) -> list[str]:
    """Tenants of the items, each once: their due sets are among the script's keys."""
    return list({item.tenant: None for item in items})


class PackedTask(NamedTuple):
    """A new task, and its arguments of add.lua: stored id, mode, due time, deadline, longest wait, group, record."""

    task: NewTask
    arguments: tuple[str, str, str, str, int, str, bytes]


def pack_new_task(task: NewTask, call: bytes, place: int, *, is_keyed: bool = False) -> PackedTask:
    """A task as add.lua takes it; `call`, and the task's place in it, are those of `origin` in record.py."""
    mode, due, deadline = _mode(task), _instant(task.due_at, task.delay_ms), _deadline(task)
    sid, rest = stored_id(task.tenant, task.id), pack_rest(task, origin(call, place, is_keyed=is_keyed))
    return PackedTask(task, (sid, mode, due, deadline, task.max_wait_ms, task.group, rest))


def _mode(task: NewTask) -> str:
    if not task.apart:
        return MODES[task.on_duplicate]
    first, last = (stored_id(task.tenant, id) for id in task.apart)
    return f"a{first}\0{last}"


def _instant(at: int | None, delay_ms: int) -> str:
    return f"+{delay_ms}" if at is None else str(at)


def _deadline(task: NewTask) -> str:
    if task.deadline_at is None and task.deadline_ms is None:
        return ""
    return _instant(task.deadline_at, task.deadline_ms or 0)


def pack_completion_options(*, deaths: bool) -> tuple[Argument, ...]:
    """First arguments of scripts that end tasks: if a death adds a notification, and how notifications are retried."""
    return int(deaths), pack_policy(POLICY)


def pack_trigger(found: Trigger) -> bytes:
    """The trigger of a claim as claim.lua takes it."""
    return bytes([TRIGGER_CODES[found]])


def pack_deliveries(given: Deliveries) -> list[Argument]:
    """Deliveries as claim.lua takes them."""
    return [argument for kind, delivery in given.items() for argument in (kind, *delivery)]


def pack_kinds(worked: Collection[str]) -> list[Argument]:
    """Kinds that are worked where they are claimed, as claim.lua takes them beside deliveries."""
    return [argument for kind in worked for argument in (kind, "", 0, 0)]


def pack_settlements(ends: Sequence[Settlement]) -> list[Argument]:
    """Settlements as settle.lua takes them: few arguments, for each costs both sides more than its content."""
    details = [_details(end) for end in ends]
    heads = b"".join(_head(end, bool(text)) for end, text in zip(ends, details, strict=True))
    return [heads, *(stored_id(end.tenant, end.id) for end in ends), *filter(None, details)]


def _head(end: Settlement, detailed: bool) -> bytes:
    delayed = end.due_at is None
    due = end.delay_ms if end.due_at is None else end.due_at
    code = ENDING_CODES[end.ending]
    late = UNCOUNTED if end.late_ms < 0 else min(end.late_ms, UNCOUNTED - 1)
    parts = (code, delayed, due >> 32, due & 0xFFFFFFFF, detailed, late, min(end.waited_ms, UNCOUNTED))
    return SETTLEMENT.pack(pack_token(end.token), *parts)


def _details(end: Settlement) -> bytes:
    if end.state is None and not end.detail and not end.result:
        return b""
    state = b"\xff\xff" if end.state is None else _sized(end.state)
    return state + _sized(cut_detail(end.detail)) + end.result.encode()


def _sized(text: str) -> bytes:
    encoded = text.encode()
    return len(encoded).to_bytes(2) + encoded


def pack_lease(one: Lease | Settlement) -> tuple[Argument, ...]:
    """A lease as extend.lua and save.lua take it: stored id, token."""
    return stored_id(one.tenant, one.id), pack_token(one.token)


def pack_begins(some: Sequence[tuple[Lease, bytes]]) -> list[Argument]:
    """Deliveries with the nonces of their workers, as begin.lua takes them."""
    heads = b"".join(pack_token(delivery.token) + nonce for delivery, nonce in some)
    return [heads, *(stored_id(delivery.tenant, delivery.id) for delivery, _ in some)]


def pack_move(wanted: Move, tenant: str, nonce: bytes) -> tuple[Argument, ...]:
    """A move as move.lua takes it; `nonce`, which no other move has, is the mark of a move without one."""
    state = "" if wanted.state is None else f"={wanted.state}"
    due = _instant(wanted.due_at, wanted.delay_ms)
    how = (int(wanted.force), int(wanted.revive), cut_by(wanted.by))
    return stored_id(tenant, wanted.id), due, state, *how, wanted.mark or nonce, pack_version(wanted.seen)


def pack_version(seen: Version | None) -> str:
    """A version as modules/history.lua compares it; "" for any."""
    return f"{seen.generation} {seen.due_at}" if seen else ""


# Answers of the Lua scripts as the domain's values; of the longest, each place has a name, in the order of RETURNS.

log = logging.getLogger("duecourse.ledger")

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
    lapsed: int = 0
    lapsed_at_target: int = 0

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
    lapsed: int
    lapsed_at_target: int


def unpack_replies(answer: Any) -> list[Reply]:
    """Effect of a script on each task."""
    _, _, codes = answer
    return [REPLIES[code] for code in codes]


def unpack_add_replies(packed: Sequence[PackedTask], answer: Any) -> list[AddReply]:
    """Replies of add.lua to the first of the tasks, as many as its bounds allowed; with their records if echoed."""
    _, _, codes, records, bodies, *waits = answer
    apart, wait_ms, replies = _by_place(bodies), sum(waits), []
    for place, ((task, arguments), code, data) in enumerate(
        zip(packed, codes, records or repeat(b""), strict=False), 1
    ):
        # Few callers look at the task that they have just added: it is read for those alone.
        echo = (task.queue, arguments[0], data, apart.get(place)) if data else None
        replies.append(AddReply(task.id, REPLIES[code], echo, wait_ms))
    return replies


def merge_claim(before: Claim, got: ClaimAnswer, queue: str, given: Deliveries, at_once: int = 0) -> Claim:
    """A claim of several rounds, with the answer of claim.lua in the newest; it begins as many `at_once`."""
    tasks = _leased(queue, got)
    if given:  # a task that is handed over has a lease of its own length
        tasks = [
            replace(task, lease_expires_at=got.now + given[task.kind].lease_ms) if task.target else task
            for task in tasks
        ]
    return Claim(
        tasks=before.tasks + tasks,
        at_once=min(at_once, len(before.tasks) + len(tasks)),
        died=before.died + got.died,
        reclaimed=before.reclaimed + got.reclaimed,
        lapsed=before.lapsed + got.lapsed,
        lapsed_at_target=before.lapsed_at_target + got.lapsed_at_target,
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
        return [task for row in rows if (task := unpack_or_log(*row))]


def _by_place(bodies: Sequence[Any]) -> dict[int, bytes]:
    """Payloads apart from their records, by the place of each record among the others."""
    return dict(zip(bodies[::2], bodies[1::2], strict=True))


def unpack_begins(answer: Any) -> list[Begun]:
    """Leases of runs that begin, by begin.lua; a lost one has no token."""
    _, _, flat, expires_at = answer
    each = zip(flat[::3], flat[1::3], flat[2::3], strict=True)
    return [Begun(token.hex(), run, expires_at if token else 0, late_ms) for token, run, late_ms in each]


def unpack_or_log(queue: str, sid: str, data: bytes, expires_at: int = 0, body: bytes | None = None) -> Task | None:
    """The task in a record; None, with a line of log, where it cannot be read."""
    try:
        return unpack(queue, sid, data, expires_at, body)
    except UNREADABLE:
        log.exception("task %s in queue %s waits because its record cannot be read", sid, queue)
        return None
