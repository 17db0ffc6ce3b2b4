"""Arguments of the Lua scripts, made of the domain's values."""

from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from struct import Struct
from typing import TypeVar

from duecourse.adapters.redis.record import ENDING_CODES, pack_policy, pack_rest, pack_token, stored_id
from duecourse.adapters.redis.record_log import TRIGGER_CODES
from duecourse.domain.batches import cut
from duecourse.domain.history import Trigger, cut_by, cut_detail
from duecourse.domain.notification import POLICY
from duecourse.domain.outcomes import Settlement
from duecourse.domain.task import NewTask, OnDuplicate, Task
from duecourse.ports.leases import Deliveries, Lease
from duecourse.ports.tasks import Alone, Move

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


def pieces(items: Sequence[T], weigh: Callable[[T], int], most: int = MAX_PIECE) -> Iterator[list[T]]:
    """The items in their order, as many at a time as one request takes; `weigh` answers the bytes of one."""
    return cut(items, weigh, most=most, max_bytes=MAX_PIECE_BYTES)


def weight(task: NewTask) -> int:
    """Size of a task in bytes, nearly."""
    return len(task.payload) + len(task.state)


def result_weight(end: Settlement) -> int:
    """Size of a settlement in bytes, nearly."""
    return len(end.result) + len(end.state or "")


def tenants_of(items: Iterable[NewTask | Task | Settlement | Lease]) -> list[str]:
    """The tenants of these, each once: their due sets are among the script's keys."""
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


def alone(tenant: str, condition: Alone | None) -> tuple[Argument, ...]:
    """A condition on an add as add.lua takes it."""
    if not condition:
        return "", 0
    return f"{tenant}/{condition.group}", f"{condition.since} {condition.tasks} {condition.bytes}"


def ending(*, deaths: bool) -> tuple[Argument, ...]:
    """First arguments of scripts that end tasks: if a death adds a notification, and how notifications are retried."""
    return int(deaths), pack_policy(POLICY)


def trigger(found: Trigger) -> bytes:
    """The trigger of a claim as claim.lua takes it."""
    return bytes([TRIGGER_CODES[found]])


def deliveries(given: Deliveries) -> list[Argument]:
    """Deliveries as claim.lua takes them."""
    return [argument for kind, delivery in given.items() for argument in (kind, *delivery)]


def kinds(worked: Collection[str]) -> list[Argument]:
    """Kinds that are worked where they are claimed, as claim.lua takes them beside deliveries."""
    return [argument for kind in worked for argument in (kind, "", 0, 0)]


def settlements(ends: Sequence[Settlement]) -> list[Argument]:
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


def lease(one: Lease | Settlement) -> tuple[Argument, ...]:
    """A lease as extend.lua and save.lua take it: stored id, token."""
    return stored_id(one.tenant, one.id), pack_token(one.token)


def beginnings(some: Sequence[tuple[Lease, bytes]]) -> list[Argument]:
    """Deliveries and the nonces of who begins them, as work.lua takes them."""
    heads = b"".join(pack_token(delivery.token) + nonce for delivery, nonce in some)
    return [heads, *(stored_id(delivery.tenant, delivery.id) for delivery, _ in some)]


def move(wanted: Move, tenant: str, nonce: bytes) -> tuple[Argument, ...]:
    """A move as move.lua takes it; `nonce` has 8 bytes, and no other move has the same."""
    state = "" if wanted.state is None else f"={wanted.state}"
    due = _instant(wanted.due_at, wanted.delay_ms)
    return stored_id(tenant, wanted.id), due, state, int(wanted.force), int(wanted.revive), cut_by(wanted.by), nonce
