"""How one task is packed into one string: the layout that the Lua scripts and the key-value store share.

Version 1, big-endian, lengths in bytes. The front is what state changes rewrite; the rest is set by an add.

    front  version 1, status 1, flags 1, last 1, runs in history 1, run 4, attempt 2,
           due_at 6, created_at 6, generation 6, deadline_at 6, claimed_at 6, fence 6, nonce 8
    rest   origin 8, jitter 1, max_attempts 2, backoff_ms 4, factor in hundredths 2, max_backoff_ms 4, body length 4,
           body: kind length 1, kind, group length 1, group, payload
           tail (may be empty): state length 2, state, result length 4, result, then the history, oldest first:
           outcome 1, run 4, fence 6, claimed_at 6, ended_at 6, detail length 2, detail

`flags`: bit 1 a successor waits; bits 2 and 3 how the record came (0 created, 1 replaced, 2 debounced).
`last` is the ending of the last settled lease, a small letter where the task died of it, so that a repeated settle gets
the same answer; `origin` is 6 random bytes of the call that added the task and the task's place in it, so that a
repeated add does.
"""

from struct import Struct
from struct import error as StructError  # noqa: N812

from duecourse.domain.outcomes import Ending
from duecourse.domain.task import NewTask, RetryPolicy, Run, Status, Task
from duecourse.errors import FieldError, InvalidInput

VERSION = 1
FRONT = Struct(">BBBBBIH" + "HI" * 6 + "8s")
POLICY = Struct(">8sBHIHII")
ENTRY = Struct(">BI" + "HI" * 3 + "H")
BODY_AT = FRONT.size + POLICY.size
HEAD = Struct(FRONT.format + POLICY.format.lstrip(">"))

STATUSES = {
    ord("s"): Status.SCHEDULED,
    ord("l"): Status.LEASED,
    ord("d"): Status.DONE,
    ord("x"): Status.DEAD,
    ord("c"): Status.CANCELLED,
}
OUTCOMES = {
    ord("D"): "done",
    ord("A"): "again",
    ord("R"): "retry",
    ord("X"): "drop",
    ord("L"): "lapsed",
    ord("E"): "expired",
}
ENDINGS = {Ending.DONE: "D", Ending.AGAIN: "A", Ending.RETRY: "R", Ending.DROP: "X", Ending.RELEASE: "B"}
"""The letters that `last` is kept in, and settle.lua is told."""
NO_NONCE = bytes(8)
UNREADABLE = (StructError, LookupError, ValueError)
"""What `unpack` raises for a record that is broken."""


def pack_rest(task: NewTask, origin: bytes) -> bytes:
    """The rest of a fresh record; `origin` has 8 bytes. Raises InvalidInput where a field does not fit."""
    kind, group, payload, state = (text.encode() for text in (task.kind, task.group, task.payload, task.state))
    policy = task.retry
    size = 2 + len(kind) + len(group) + len(payload)
    try:
        head = POLICY.pack(
            origin,
            policy.jitter,
            policy.max_attempts,
            policy.backoff_ms,
            round(policy.factor * 100),
            policy.max_backoff_ms,
            size,
        )
        tail = len(state).to_bytes(2) + state + bytes(4) if state else b""
        return b"".join((head, len(kind).to_bytes(1), kind, len(group).to_bytes(1), group, payload, tail))
    except (StructError, OverflowError) as error:
        raise InvalidInput([FieldError("task", f"does not fit into a record: {error}")]) from error


def unpack(queue: str, sid: str, data: bytes, lease_expires_at: int = 0) -> Task:
    """The task in one record, and the end of its lease where the caller knows it."""
    f = HEAD.unpack_from(data)
    tenant, _, id = sid.partition("/")
    group_at = BODY_AT + 1 + data[BODY_AT]
    payload_at = group_at + 1 + data[group_at]
    end = BODY_AT + f[26]
    state, result, history = _tail(data, end, f[4]) if len(data) > end else ("", "", ())
    fence = f[17] << 32 | f[18]
    return Task(
        id,
        queue,
        tenant,
        data[BODY_AT + 1 : group_at].decode(),
        data[group_at + 1 : payload_at].decode(),
        STATUSES[f[1]],
        data[payload_at:end].decode(),
        state,
        result,
        f[7] << 32 | f[8],
        f[9] << 32 | f[10],
        f[13] << 32 | f[14],
        f[11] << 32 | f[12],
        f[5],
        f[6],
        RetryPolicy(f[22], f[23], f[24] / 100, f[25], bool(f[21])),
        f"{fence}.{f[19].hex()}" if fence else "",
        f[15] << 32 | f[16],
        history,
        lease_expires_at,
    )


def split_token(token: str) -> tuple[int, bytes]:
    """The fence and the nonce of a token; (0, …) for a text that cannot be one, which matches no lease."""
    fence, _, nonce = token.partition(".")
    try:
        if len(nonce) == 2 * len(NO_NONCE) and 0 <= int(fence) < 2**48:
            return int(fence), bytes.fromhex(nonce)
    except ValueError:
        pass
    return 0, NO_NONCE


def _tail(data: bytes, at: int, count: int) -> tuple[str, str, tuple[Run, ...]]:
    state_end = at + 2 + int.from_bytes(data[at : at + 2])
    result_end = state_end + 4 + int.from_bytes(data[state_end : state_end + 4])
    runs, at_entry = [], result_end
    for _ in range(count):
        run, at_entry = _entry(data, at_entry)
        runs.append(run)
    return data[at + 2 : state_end].decode(), data[state_end + 4 : result_end].decode(), tuple(runs)


def _entry(data: bytes, at: int) -> tuple[Run, int]:
    f = ENTRY.unpack_from(data, at)
    start = at + ENTRY.size
    end = start + f[8]
    detail = data[start:end].decode(errors="replace")
    return Run(f[1], f[2] << 32 | f[3], f[4] << 32 | f[5], f[6] << 32 | f[7], OUTCOMES[f[0]], detail), end
