"""A record written by Python, to compare with the layout that the scripts write."""

from typing import NamedTuple

from duecourse.ledger.layout import APART, VERSION
from duecourse.ledger.record import (
    ACTIONS,
    BEGUN,
    CHANGE,
    ENTRY_HEAD,
    FRONT,
    LETTER_HANDED,
    LETTER_WORKED,
    NO_ORIGIN,
    OUTCOMES,
    RUN,
    STATUSES,
    TRIGGER_CODES,
    body_field,
    pack_rest,
    pack_token,
    unpack,
)
from duecourse.ledger.task import Entry, NewTask, Run, Status, Task

SUCCESSOR = 2
CAME = 4
COUNTS = 16
SIZE_AT = 8 + 13 + 9
"""Where the payload's size ends in the rest of a record: behind its origin, its policy and the other lengths."""
OUTCOME_CODES = {outcome: code for code, outcome in OUTCOMES.items()}
ACTION_CODES = {action: code for code, action in ACTIONS.items()}
STATUS_CODES = {status: code for code, status in STATUSES.items()}


class StoredRecord(NamedTuple):
    """A task, `last` as in record.py, whether a successor waits for its lease to end, and how the record came there.

    `came` is 0 where it was created, 2 replaced, 3 debounced. `counts` says that its deadline was given as a duration.
    `body` is the field of its payload where that stands apart.
    """

    task: Task
    last: int = 0
    successor: bool = False
    came: int = 0
    counts: bool = False
    body: str = ""


def encode(held: StoredRecord) -> bytes:
    """`held` in the layout of record.py."""
    task = held.task
    halves = _halves(task.due_at, task.created_at, task.generation, task.deadline_at, task.claimed_at)
    behind = _behind(task)
    status = STATUS_CODES[Status.SCHEDULED if behind else task.status]
    flags = held.successor * SUCCESSOR + held.came * CAME + held.counts * COUNTS + bool(held.body) * APART
    trigger, token = TRIGGER_CODES[task.trigger], pack_token(task.token)
    front = FRONT.pack(VERSION, flags, held.last, len(task.log), trigger, task.run, task.attempt, *halves, token)
    body = NewTask(
        task.id, task.kind, task.payload_json, group=task.group, retry=task.retry, by=task.by, notify=task.notify
    )
    rest = pack_rest(body, NO_ORIGIN)
    if held.body:
        payload = task.payload_json.encode()
        reference = int(held.body.rpartition("=")[2]).to_bytes(6) + len(payload).to_bytes(4)
        rest = rest[: SIZE_AT - 4] + len(reference).to_bytes(4) + rest[SIZE_AT : -len(payload)] + reference
    return front + rest + _tail(task) + bytes([status]) + behind


def decode(queue: str, sid: str, data: bytes, payload: bytes | None = None) -> StoredRecord:
    """What `encode` made; `payload` is the one that stands apart."""
    task, flags = unpack(queue, sid, data, body=payload), data[1]
    came, counts = flags // CAME % 4, bool(flags & COUNTS)
    return StoredRecord(task, data[2], bool(flags & SUCCESSOR), came, counts, body_field(sid, data) or "")


def _behind(task: Task) -> bytes:
    """The bytes behind the record of a task that was handed over; none if it was not, or its lease is over."""
    if task.status is not Status.LEASED or not (task.target or task.delivery):
        return b""
    target = task.target.encode()
    front = target + bytes([len(target)]) if target else pack_token(task.delivery)
    letter, trigger = LETTER_HANDED if target else LETTER_WORKED, TRIGGER_CODES[task.trigger]
    return front + BEGUN.pack(task.run, pack_token(task.token), *_halves(task.claimed_at), trigger, letter)


def _tail(task: Task) -> bytes:
    if not (task.state_json or task.result_json or task.log):
        return b""
    state, result = task.state_json.encode(), task.result_json.encode()
    values = len(state).to_bytes(2) + state + len(result).to_bytes(4) + result
    return values + task.forgotten.to_bytes(2) + b"".join(map(pack_entry, task.log))


def pack_entry(entry: Entry) -> bytes:
    """One entry of the log."""
    if isinstance(entry, Run):
        code, at = OUTCOME_CODES[entry.outcome], entry.ended_at
        halves = _halves(entry.fence, entry.claimed_at)
        body = RUN.pack(entry.run, *halves, TRIGGER_CODES[entry.trigger], entry.late_ms) + entry.detail.encode()
    else:
        code, at = ACTION_CODES[entry.action], entry.at
        body = CHANGE.pack(*_halves(entry.due_before, entry.due_at)) + entry.by.encode()
    return ENTRY_HEAD.pack(code, *_halves(at), entry.times, len(body)) + body


def _halves(*numbers: int) -> list[int]:
    return [half for number in numbers for half in (number >> 32, number & 0xFFFFFFFF)]
