"""One task as one string of bytes, by the description in layout.py."""

from functools import lru_cache
from struct import Struct
from struct import error as StructError  # noqa: N812

from duecourse.adapters.redis import layout
from duecourse.adapters.redis.record_log import MOST_LATE_MS, TRIGGERS, grown, unpack_log
from duecourse.domain.history import Entry, Run, cut_by
from duecourse.domain.outcomes import Ending
from duecourse.domain.task import NewTask, RetryPolicy, Status, Task
from duecourse.domain.times import MAX_INSTANT
from duecourse.domain.values import maker, replaced
from duecourse.errors import FieldError, InvalidInput

FRONT = Struct(">" + layout.FRONT.python)
RULES = Struct(">" + layout.POLICY.python)
REST = Struct(f">{layout.ORIGIN.size}s{RULES.size}s{layout.LENGTHS.python}")
HEAD = Struct(f"{FRONT.format}{layout.ORIGIN.size}x{RULES.size}s{layout.LENGTHS.python}")
"""All of a record that has a fixed place and that a task shows, a token's and a policy's bytes as they are."""
LENGTHS = Struct(">" + layout.LENGTHS.python)
LENGTHS_AT = HEAD.size - LENGTHS.size
BEGUN = Struct(">" + layout.BEGUN.python)
OVER = Struct(">" + layout.OVER.python)
BODY = Struct(">" + layout.BODY.python)
VERSIONS = range(layout.OLDEST, layout.NEWEST + 1)
"""The versions of records that are read."""

STATUSES = {
    ord(layout.LETTERS["SCHEDULED"]): Status.SCHEDULED,
    ord(layout.LETTERS["LEASE"]): Status.LEASED,
    ord(layout.LETTERS["FINISHED"]): Status.DONE,
    ord(layout.LETTERS["DIED"]): Status.DEAD,
    ord(layout.LETTERS["CANCELLED"]): Status.CANCELLED,
}
LETTER_SCHEDULED, LETTER_BEGUN, LETTER_HANDED, LETTER_WORKED, LETTER_OVER, LETTER_LEASED = (
    ord(layout.LETTERS[name]) for name in ("SCHEDULED", "BEGUN", "HANDED", "WORKED", "OVER", "LEASE")
)
BEHIND = frozenset({LETTER_BEGUN, LETTER_HANDED, LETTER_WORKED})
"""Letters at the end of a lease behind a record."""
ENDING_CODES = {ending: ord(layout.OUTCOMES[ending.name]) for ending in Ending}
"""Letters of endings in `last`, and in the arguments of settle.lua."""
NO_TOKEN = bytes(layout.TOKEN.size)
"""Token of a task that was never leased; and, for no fence is 0, of no lease."""
NO_ORIGIN = bytes(layout.ORIGIN.size)
"""Origin of a record that is never sent twice: to a store in the same process, or by a script."""
UNREADABLE = (StructError, LookupError, ValueError)
"""Errors of `unpack` for a broken record, one that a later version made, or one whose payload is absent."""


_make_task = maker(Task)


def stored_id(tenant: str, id: str) -> str:
    """The id under which a task is kept: unique within its shard."""
    return f"{tenant}/{id}"


def lease_end(score: float | bytes | None) -> int:
    """End of a lease by its score in the ledger, 0 for none; another program may have put any number there."""
    return int(min(max(float(score or 0), 0), MAX_INSTANT))


def pack_rest(task: NewTask, origin: bytes) -> bytes:
    """The rest of a fresh record; `origin` has 8 bytes. Raises InvalidInput where a field does not fit."""
    by, payload, state = cut_by(task.by).encode(), task.payload.encode(), task.state.encode()
    kind, group, notify = task.kind.encode(), task.group.encode(), task.notify.encode()
    try:
        rules = pack_policy(task.retry)
        head = REST.pack(origin, rules, len(by), len(kind), len(group), len(notify), len(payload))
        tail = len(state).to_bytes(2) + state + bytes(6) if state else b""
        return b"".join((head, by, kind, group, notify, payload, tail))
    except (StructError, OverflowError) as error:
        raise InvalidInput([FieldError("task", f"does not fit into a record: {error}")]) from error


def pack_policy(policy: RetryPolicy) -> bytes:
    """A policy's bytes. Raises StructError where a number does not fit."""
    return _pack_policy(policy.jitter, policy.max_attempts, policy.backoff_ms, policy.factor, policy.max_backoff_ms)


@lru_cache(maxsize=1024)
def _pack_policy(jitter: bool, max_attempts: int, backoff_ms: int, factor: float, max_backoff_ms: int) -> bytes:
    """The same by its fields, which are looked up sooner than a policy is hashed: each add passes here."""
    return RULES.pack(jitter, max_attempts, backoff_ms, round(factor * 100), max_backoff_ms)


def origin_of(data: bytes) -> bytes:
    """The origin of a packed record, as `pack_rest` got it."""
    return data[FRONT.size : FRONT.size + len(NO_ORIGIN)]


def body_field(sid: str, data: bytes) -> str | None:
    """The field of the tasks' hash that has a record's payload; None where the record has it, or cannot be read."""
    if len(data) <= HEAD.size or not data[1] & layout.APART:
        return None
    at = HEAD.size + sum(LENGTHS.unpack_from(data, LENGTHS_AT)[:-1])
    if len(data) < at + BODY.size:
        return None
    high, low, _ = BODY.unpack_from(data, at)
    return f"{sid}={high << 32 | low}"


def unpack(queue: str, sid: str, data: bytes, lease_expires_at: int = 0, body: bytes | None = None) -> Task:
    """The task in one record, and the end of its lease where the caller knows it.

    `body` is its payload if apart from the record. Raises one of UNREADABLE.
    """
    if data[-1] == LETTER_OVER:
        return _unpack_over(queue, sid, data, body)
    (
        version, flags, _, entries, trigger, run, attempt, due_high, due, created_high, created,
        generation_high, generation, deadline_high, deadline, claimed_high, claimed, token, policy,
        by_size, kind_size, group_size, notify_size, payload_size,
    ) = HEAD.unpack_from(data)  # fmt: skip
    if version not in VERSIONS:
        raise ValueError(f"the record has version {version}, and this code reads {layout.OLDEST} to {layout.NEWEST}")
    status_at, status, target, delivery = len(data) - 1, data[-1], "", ""
    if status in BEHIND:
        run, token, claimed_high, claimed, trigger, _ = BEGUN.unpack_from(data, len(data) - BEGUN.size)
        status_at -= BEGUN.size
        if status != LETTER_BEGUN:
            status_at, target, delivery = _handed(data, status, status_at + 1)
        status = LETTER_LEASED
        if data[status_at] != LETTER_SCHEDULED:
            raise ValueError("a lease behind what is not scheduled")
    tenant, _, id = sid.partition("/")
    by_end = HEAD.size + by_size
    kind_end = by_end + kind_size
    group_end = kind_end + group_size
    notify_end = group_end + notify_size
    end = notify_end + payload_size
    untailed = status_at == end and not entries
    state, result, forgotten, log = ("", "", 0, ()) if untailed else _tail(data[:status_at], end, entries)
    payload = data[notify_end:end] if flags < layout.APART else _apart(sid, data, body)
    # Each task that is claimed passes here: what is empty costs as much to decode as what is not.
    return _make_task(
        id, queue, tenant, data[by_end:kind_end].decode(), data[kind_end:group_end].decode() if group_size else "",
        STATUSES[status], payload.decode(), state, result,
        due_high << 32 | due, created_high << 32 | created, deadline_high << 32 | deadline,
        generation_high << 32 | generation, run, attempt, _unpack_policy(policy),
        token.hex() if token != NO_TOKEN else "", claimed_high << 32 | claimed, log, lease_expires_at,
        data[HEAD.size : by_end].decode(errors="replace") if by_size else "",
        data[group_end:notify_end].decode() if notify_size else "",
        TRIGGERS.get(trigger % layout.AHEAD), forgotten, target, delivery, None,
    )  # fmt: skip


def without_lease(data: bytes) -> bytes:
    """A packed record as it was before its lease; one without a lease as it is."""
    letter, status_at = data[-1], len(data) - 1 - BEGUN.size
    if letter == LETTER_LEASED:
        return data[:-1] + bytes([LETTER_SCHEDULED])
    if letter not in BEHIND:
        return data
    if letter != LETTER_BEGUN:
        status_at, _, _ = _handed(data, letter, status_at + 1)
    return data[: status_at + 1]


def _apart(sid: str, data: bytes, body: bytes | None) -> bytes:
    if not body:
        raise LookupError(f"the payload in {body_field(sid, data)} is missing")
    return body


def _handed(data: bytes, letter: int, end: int) -> tuple[int, str, str]:
    """Place of the status before the bytes of a hand-over up to `end`, and its target or its token."""
    if letter == LETTER_WORKED:
        begin = end - len(NO_TOKEN)
        return begin - 1, "", data[begin:end].hex()
    begin = end - 1 - data[end - 1]
    return begin - 1, data[begin : end - 1].decode(), ""


def _unpack_over(queue: str, sid: str, data: bytes, body: bytes | None) -> Task:
    size, high, low, _ = OVER.unpack_from(data, len(data) - OVER.size)
    at = len(data) - OVER.size - size
    begun = data[: max(0, at)]
    if begun[-1] not in (LETTER_BEGUN, LETTER_WORKED):
        raise ValueError("an end without a lease")
    task = unpack(queue, sid, begun, 0, body)
    late = min(max(task.claimed_at - task.due_at, 0), MOST_LATE_MS)
    run = Run(task.run, task.fence, task.claimed_at, high << 32 | low, "done", "", task.trigger, late)
    log, forgotten = grown(task.log, task.forgotten, run)
    result = data[at : -OVER.size].decode()
    return replaced(task, status=Status.DONE, result_json=result, log=log, forgotten=forgotten, delivery="")


@lru_cache(maxsize=1024)
def _unpack_policy(packed: bytes) -> RetryPolicy:
    """Many tasks are retried alike: a policy made for each was a fifth of the cost of reading one."""
    jitter, max_attempts, backoff_ms, factor, max_backoff_ms = RULES.unpack(packed)
    return RetryPolicy(max_attempts, backoff_ms, factor / 100, max_backoff_ms, bool(jitter))


def pack_token(token: str) -> bytes:
    """A token's bytes; NO_TOKEN for a text that cannot be one, which matches no lease."""
    try:
        packed = bytes.fromhex(token)
    except ValueError:
        return NO_TOKEN
    return packed if len(packed) == len(NO_TOKEN) and packed.hex() == token else NO_TOKEN


def _tail(data: bytes, at: int, count: int) -> tuple[str, str, int, tuple[Entry, ...]]:
    state_end = at + 2 + int.from_bytes(data[at : at + 2])
    result_end = state_end + 4 + int.from_bytes(data[state_end : state_end + 4])
    state, result = data[at + 2 : state_end].decode(), data[state_end + 4 : result_end].decode()
    return state, result, int.from_bytes(data[result_end : result_end + 2]), unpack_log(data, result_end + 2, count)
