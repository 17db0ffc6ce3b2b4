"""What goes into the Lua scripts and what comes out of them, between the domain's words and theirs."""

import logging
from collections.abc import Callable, Iterable, Iterator, Sequence
from struct import Struct
from typing import Any, TypeVar

from duecourse.adapters.redis.answers import Changed, Claimed, Worked
from duecourse.adapters.redis.record import (
    ENDINGS,
    UNREADABLE,
    pack_policy,
    pack_rest,
    pack_token,
    stored_id,
    unpack,
)
from duecourse.adapters.redis.record_log import DOOR_CODES
from duecourse.domain.batches import cut
from duecourse.domain.history import Trigger, cut_by, cut_detail
from duecourse.domain.notification import POLICY
from duecourse.domain.outcomes import Settlement
from duecourse.domain.queues import DEFAULT_PRIORITY
from duecourse.domain.task import NewTask, OnDuplicate, Task
from duecourse.ports.leases import Begun, Claim, Deliveries, Lease, Settled
from duecourse.ports.tasks import AddReply, Alone, Move, Reply

log = logging.getLogger("duecourse.store")

Argument = str | bytes | int
T = TypeVar("T")

MAX_PIECE = 440
"""The most tasks of one add's request: at eight arguments each, a tenant of its own included, fewer than the 3,999 in
all that ElastiCache Serverless takes. A settle of the most that it takes, at three each, is fewer."""

MAX_PIECE_BYTES = 2_000_000
"""The most payload, or results, of one such request, unless its first has more: so long is Redis busy with it."""

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
}
"""What the scripts' numbers mean, refusals below 0: the one table of them."""
SETTLED = (Settled.STALE, Settled.DONE, Settled.AGAIN, Settled.RETRIED, Settled.DEAD, Settled.RELEASED)
ENDING_CODES = {ending: ord(letter) for ending, letter in ENDINGS.items()}
SETTLEMENT = Struct(">14sBBHIB")
LOW = 0xFFFFFFFF
MODES = {OnDuplicate.KEEP: "k", OnDuplicate.REPLACE: "r", OnDuplicate.REJECT: "j", OnDuplicate.DEBOUNCE: "d"}


def pieces(items: Sequence[T], weigh: Callable[[T], int], most: int = MAX_PIECE) -> Iterator[list[T]]:
    """The items in their order, as many at a time as one request takes; `weigh` says how many bytes one brings."""
    return cut(items, weigh, most=most, max_bytes=MAX_PIECE_BYTES)


def weight(task: NewTask) -> int:
    """How many bytes a task brings, but for a few."""
    return len(task.payload) + len(task.state)


def result_weight(end: Settlement) -> int:
    """How many bytes come with a settlement, but for a few."""
    return len(end.result) + len(end.state or "")


def tenants_of(items: Iterable[NewTask | Task | Settlement | Lease]) -> list[str]:
    """Whose tasks these are, each once: their due sets are among the script's keys."""
    return list({item.tenant: None for item in items})


def new_task(task: NewTask, origin: bytes) -> tuple[Argument, ...]:
    """A task as add.lua takes it; `origin` is as in record.py."""
    return (
        stored_id(task.tenant, task.id),
        _mode(task),
        _instant(task.due_at, task.delay_ms),
        _deadline(task),
        task.max_wait_ms,
        task.group,
        pack_rest(task, origin),
    )


def ending(*, deaths: bool) -> tuple[Argument, ...]:
    """What the scripts that end tasks take before their own: whether deaths are told of, and how follow-ups retry."""
    return int(deaths), pack_policy(POLICY)


def trigger(found: Trigger) -> bytes:
    """How tasks were found, as claim.lua takes it."""
    return bytes([DOOR_CODES[found]])


def alone(tenant: str, condition: Alone | None) -> tuple[Argument, ...]:
    """A condition on an add as add.lua takes it."""
    return (f"{tenant}/{condition.group}", condition.since) if condition else ("", 0)


def settlements(ends: Sequence[Settlement]) -> list[Argument]:
    """Settlements as settle.lua takes them: few arguments, for each costs both sides more than what is in it."""
    details = [_details(end) for end in ends]
    heads = b"".join(_head(end, bool(text)) for end, text in zip(ends, details, strict=True))
    return [heads, *(stored_id(end.tenant, end.id) for end in ends), *filter(None, details)]


def _head(end: Settlement, detailed: bool) -> bytes:
    due = end.delay_ms if end.due_at is None else end.due_at
    code, delayed = ENDING_CODES[end.ending], end.due_at is None
    return SETTLEMENT.pack(pack_token(end.token), code, delayed, due >> 32, due & LOW, detailed)


def _details(end: Settlement) -> bytes:
    if end.state is None and not end.detail and not end.result:
        return b""
    detail = cut_detail(end.detail).encode()
    state = b"\xff\xff" if end.state is None else _sized(end.state.encode())
    return state + _sized(detail) + end.result.encode()


def _sized(text: bytes) -> bytes:
    return len(text).to_bytes(2) + text


def lease(held: Lease | Settlement) -> tuple[Argument, ...]:
    """A lease as extend.lua and save.lua take it: stored id, token."""
    return (stored_id(held.tenant, held.id), pack_token(held.token))


def move(wanted: Move, tenant: str, nonce: bytes) -> tuple[Argument, ...]:
    """A move as move.lua takes it; `nonce` is this one's alone, 8 bytes."""
    due = _instant(wanted.due_at, wanted.delay_ms)
    sid, state = stored_id(tenant, wanted.id), _new_state(wanted.state)
    return (sid, due, state, int(wanted.force), int(wanted.revive), cut_by(wanted.by), nonce)


def replies(answer: Any) -> list[Reply]:
    """What a script says it did with each task."""
    return [REPLIES[code] for code in Changed(*answer).each]


def added(tasks: Sequence[NewTask], answer: Any) -> list[AddReply]:
    """The answer of add.lua for the tasks that it looked at, with the records where it echoes them."""
    _, _, codes, records, bodies = answer
    tasks = tasks[: len(codes)]
    if not records:
        return [AddReply(task.id, REPLIES[code]) for task, code in zip(tasks, codes, strict=True)]
    apart = by_place(bodies)

    def echoed(place: int, task: NewTask, data: bytes) -> Task | None:
        return readable(task.queue, stored_id(task.tenant, task.id), data, body=apart.get(place)) if data else None

    rows = enumerate(zip(tasks, codes, records, strict=True), 1)
    return [AddReply(task.id, REPLIES[code], echoed(place, task, data)) for place, (task, code, data) in rows]


def by_place(bodies: Sequence[Any]) -> dict[int, bytes]:
    """Payloads that stand apart, as scripts answer them: the place of each record among the others, and its payload."""
    return dict(zip(bodies[::2], bodies[1::2], strict=True))


def leased(queue: str, flat: Sequence[bytes], bodies: Sequence[Any], expires_at: int) -> list[Task]:
    """The tasks that claim.lua hands out: stored ids and records in turn; one that cannot be read is only told."""
    pairs = list(zip(map(bytes.decode, flat[::2]), flat[1::2], strict=True))
    apart = by_place(bodies)
    try:
        return [unpack(queue, sid, data, expires_at, apart.get(n)) for n, (sid, data) in enumerate(pairs, 1)]
    except UNREADABLE:
        tasks = (readable(queue, sid, data, expires_at, apart.get(n)) for n, (sid, data) in enumerate(pairs, 1))
        return [task for task in tasks if task]


def deliveries(given: Deliveries) -> list[Argument]:
    """What is handed over, as claim.lua takes it."""
    return [argument for kind, delivery in given.items() for argument in (kind, *delivery)]


def claimed(before: Claim, got: Claimed, queue: str, given: Deliveries) -> Claim:
    """A claim of several rounds, with what claim.lua answered of the newest."""
    return Claim(
        tasks=before.tasks + _handed(leased(queue, got.flat, got.bodies, got.now + got.lease_ms), got.now, given),
        died=before.died + got.died,
        backlog=got.backlog,
        bell_at=got.bell_at,
        now=got.now,
        throttled=bool(got.held),
        priority=DEFAULT_PRIORITY if got.priority < 0 else got.priority,
        aside=before.aside + got.aside,
    )


def _handed(tasks: list[Task], now: int, given: Deliveries) -> list[Task]:
    """The tasks of a claim, those that are to be handed over with the ends of their own leases."""
    if not given:
        return tasks
    return [task._replace(lease_expires_at=now + given[task.kind].lease_ms) if task.target else task for task in tasks]


def begun(got: Worked) -> list[Begun]:
    """The leases of runs that begin; none of what was lost."""
    pairs = zip(got.flat[::2], got.flat[1::2], strict=True)
    return [Begun(token.hex(), run, got.expires_at if token else 0) for token, run in pairs]


def readable(queue: str, sid: str, data: bytes, expires_at: int = 0, body: bytes | None = None) -> Task | None:
    """The task in a record; None, and told in the log, where it cannot be read."""
    try:
        return unpack(queue, sid, data, expires_at, body)
    except UNREADABLE:
        log.exception("task %s in queue %s waits because its record cannot be read", sid, queue)
        return None


def _mode(task: NewTask) -> str:
    if not task.apart:
        return MODES[task.on_duplicate]
    first, last = (stored_id(task.tenant, id) for id in task.apart)
    return f"a{first}\0{last}"


def _instant(at: int | None, delay_ms: int) -> str:
    return f"+{delay_ms}" if at is None else str(at)


def _deadline(task: NewTask) -> str:
    if task.deadline_at is not None:
        return str(task.deadline_at)
    return "" if task.deadline_ms is None else f"+{task.deadline_ms}"


def _new_state(state: str | None) -> str:
    return "" if state is None else f"={state}"
