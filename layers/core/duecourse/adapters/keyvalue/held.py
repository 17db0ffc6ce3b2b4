"""One task as the ordered map holds it: a value in Python, packed as in Redis on its way in and out."""

from collections.abc import Iterable
from typing import NamedTuple

from duecourse.adapters.record import ENTRY, FRONT, OUTCOMES, STATUSES, VERSION, pack_rest, split_token, unpack
from duecourse.domain.task import NewTask, Run, Task

SUCCESSOR = 2
NO_ORIGIN = bytes(8)
"""Nothing is ever sent twice to a store in the same process."""
STATUS_CODES = {status: code for code, status in STATUSES.items()}
OUTCOME_CODES = {outcome: code for code, outcome in OUTCOMES.items()}


class Held(NamedTuple):
    """A task, `last` as in record.py, and whether a successor waits for its lease to end."""

    task: Task
    last: int = 0
    successor: bool = False


def encode(held: Held) -> bytes:
    """`held` in the layout of record.py."""
    task = held.task
    fence, nonce = split_token(task.token)
    halves = _halves(task.due_at, task.created_at, task.generation, task.deadline_at, task.claimed_at, fence)
    status, flags = STATUS_CODES[task.status], held.successor * SUCCESSOR
    front = FRONT.pack(VERSION, status, flags, held.last, len(task.history), task.run, task.attempt, *halves, nonce)
    body = NewTask(task.id, task.kind, task.payload_json, group=task.group, retry=task.retry)
    return front + pack_rest(body, NO_ORIGIN) + _tail(task)


def decode(queue: str, sid: str, data: bytes) -> Held:
    """What `encode` made."""
    return Held(unpack(queue, sid, data), data[3], bool(data[2] & SUCCESSOR))


def _tail(task: Task) -> bytes:
    if not (task.state_json or task.result_json or task.history):
        return b""
    state, result = task.state_json.encode(), task.result_json.encode()
    return len(state).to_bytes(2) + state + len(result).to_bytes(4) + result + b"".join(_entries(task.history))


def _entries(history: Iterable[Run]) -> Iterable[bytes]:
    for run in history:
        detail = run.detail.encode()
        halves = _halves(run.fence, run.claimed_at, run.ended_at)
        yield ENTRY.pack(OUTCOME_CODES[run.outcome], run.run, *halves, len(detail)) + detail


def _halves(*numbers: int) -> list[int]:
    return [half for number in numbers for half in (number >> 32, number & 0xFFFFFFFF)]
