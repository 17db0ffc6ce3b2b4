"""Task: as requested, as kept in the ledger, as leased to a worker."""

import json
import os
from collections.abc import Callable
from contextlib import suppress
from datetime import datetime
from enum import StrEnum
from math import inf, isfinite
from typing import TYPE_CHECKING, Any, Generic, NamedTuple, TypeAlias

from duecourse.domain.history import Entry, Run, Trigger
from duecourse.domain.lost import Lost
from duecourse.domain.times import DAY_MS, MAX_INSTANT, to_datetime
from duecourse.domain.values import brief, value
from duecourse.errors import TaskDamaged

if TYPE_CHECKING:
    from typing_extensions import TypeVar

    Payload = TypeVar("Payload", default=Any)
else:
    from typing import TypeVar

    Payload = TypeVar("Payload")

Json: TypeAlias = Any
"""A value that JSON can carry."""

DEFAULT_QUEUE = "default"
DEFAULT_TENANT = "-"
ID_PATTERN = r"^[A-Za-z0-9._:@-]{1,128}$"
ANY_ID_PATTERN = r"^[A-Za-z0-9._:@-]{1,128}(~[0-9]{1,15}\.[0-9]{1,10}~[nd])?$"
"""Pattern of an id that a user gave, or of a completion notification's."""
MARK = "~"
"""Character in the id of each completion notification, and in no user's id."""
NAME_PATTERN = r"^[A-Za-z0-9._:@-]{1,64}$"
"""Pattern of names of queues, kinds and reminders: no slash and no brace, which keys need for themselves."""
MAX_STATE_BYTES = 4 * 1024
MAX_RESULT_BYTES = 64 * 1024
MAX_PAYLOAD_BYTES = 256 * 1024
MAX_DEPTH = 100
"""Maximum depth of a payload, a result or a state: well within what every JSON library carries."""
FENCE_DIGITS = 12
"""Length of the lease's fence in hexadecimal, at the beginning of a token; the rest of the token is random."""
SEALED = " "
"""Beginning of a payload's text with a seal in it (domain/seals.py); compact JSON never begins so."""
KEPT_AT = " "
"""Beginning of a result's text that names the table with the result; compact JSON never begins so.

A space and a JSON string: programs of 0.1.0, which know no such text, show the name.
"""
DEADLINES_MS = {"poll": DAY_MS}
"""Default deadline of a kind's tasks, from the due time."""

_ENCODER = json.JSONEncoder(separators=(",", ":"), ensure_ascii=False, allow_nan=False)
"""Encoder, made once: `json.dumps` makes one for each text, which takes as long as a small payload itself."""
_make: Any = getattr(json.encoder, "c_make_encoder", None)
_rest: Any = (None, _ENCODER.default, json.encoder.encode_basestring, None, ":", ",", False, False, False)
_encode: Any = _make(*_rest) if _make else _ENCODER.iterencode
"""Inner encoder of `encode`, made once: to make it takes as long as three small payloads. No circle is detected."""


def new_id() -> str:
    """A fresh task id: 24 hexadecimal digits, 96 random bits."""
    return os.urandom(12).hex()


def dump_json(value: Json) -> str:
    """`value` as compact JSON text, the one form in which payload, state and result are kept.

    Raises TypeError or ValueError for what JSON cannot carry, NaN included.
    """
    try:
        return "".join(_encode(value, 0))
    except RecursionError:
        return _ENCODER.encode(value)  # which tells of a circle


def _no_constant(name: str) -> Json:
    raise ValueError(f"JSON has no {name}")


def _finite(text: str) -> float:
    return number if isfinite(number := float(text)) else _no_constant(text)


_DECODER = json.JSONDecoder(parse_constant=_no_constant, parse_float=_finite)


def load_json(text: str, name: str) -> Json:
    """The value of a text that a ledger keeps; `name` is that of its field. Raises TaskDamaged.

    A value that `dump_json` could not have written is damaged too: every reader would stumble over it later.
    """
    try:
        value = _DECODER.decode(text)
        if "\\ud" in text or "\\uD" in text:
            dump_json(value).encode()  # half of a surrogate pair is no text
    except (ValueError, RecursionError) as error:
        raise TaskDamaged(f"the {name} of this task is damaged: it is no JSON that can be kept") from error
    return value


def deeper_than(depth: int, value: Json) -> bool:
    """True if objects and lists nest deeper than `depth` within `value`."""
    inside = value.values() if isinstance(value, dict) else value if isinstance(value, list | tuple) else ()
    return depth < 0 or any(deeper_than(depth - 1, item) for item in inside)


def dump_state(value: Json) -> str:
    """The text of a state to save. Raises ValueError over 4 KiB, and what `dump_json` raises."""
    state = dump_json(value)
    if len(state.encode()) > MAX_STATE_BYTES:
        raise ValueError(f"the state is over {MAX_STATE_BYTES // 1024} KiB")
    return state


class Status(StrEnum):
    """State of a task."""

    SCHEDULED = "scheduled"
    LEASED = "leased"
    DONE = "done"
    DEAD = "dead"
    CANCELLED = "cancelled"


class OnDuplicate(StrEnum):
    """Effect of an add whose id already exists."""

    KEEP = "keep"
    REPLACE = "replace"
    REJECT = "reject"
    DEBOUNCE = "debounce"


class Shard(NamedTuple):
    """A part of a queue that lives on one node."""

    queue: str = DEFAULT_QUEUE
    number: int = 0

    def __str__(self) -> str:
        return f"{self.queue}/{self.number}"


@value(frozen=True, slots=True)
class RetryPolicy:
    """Attempts and backoff of a failing task: exponential, by default with full jitter."""

    max_attempts: int = 10
    backoff_ms: int = 1_000
    factor: float = 2.0
    max_backoff_ms: int = 3_600_000
    jitter: bool = True


@value(frozen=True, slots=True)
class DueTask:
    """Id of a task, and its due time (epoch ms)."""

    id: str
    due_at: int

    def __repr__(self) -> str:
        return brief(self, "id", "due_at")


class Apart(NamedTuple):
    """A condition on an add: no task of its tenant and group has an id from `first` to `last`, both included.

    Ids are compared byte by byte. If there is such a task, in whatever state, the new one is not added.
    """

    first: str
    last: str


class NewTask(NamedTuple):
    """A task as asked for.

    The task is due at `due_at` where given, else `delay_ms` after the server's now; dead past `deadline_at`, or
    `deadline_ms` after it was due. `payload` and `state` are JSON text (state "" for none).

    `max_wait_ms` bounds how far `debounce` pushes the due time back, counted from the first add.

    `by` is the source of the request (`http`, `client`, …). `notify` is the receiver of the completion notification: an
    http or https URL, else a kind with a target; "" for none (notification.Notify).

    With `apart`, which needs a group, that decides in place of `on_duplicate`.
    """

    id: str
    kind: str
    payload: str = "{}"
    queue: str = DEFAULT_QUEUE
    tenant: str = DEFAULT_TENANT
    group: str = ""
    state: str = ""
    due_at: int | None = None
    delay_ms: int = 0
    deadline_at: int | None = None
    deadline_ms: int | None = None
    retry: RetryPolicy = RetryPolicy()
    on_duplicate: OnDuplicate = OnDuplicate.KEEP
    max_wait_ms: int = 3_600_000
    by: str = ""
    notify: str = ""
    apart: Apart | None = None


@value(frozen=True, slots=True, repr=False)
class Task(Generic[Payload]):
    """A task as the ledger keeps it; instants are epoch milliseconds, 0 for none.

    `due_at` is when it may next run; MAX_INSTANT while an occurrence waits for the end of another. `payload_json`,
    `state_json` and `result_json` are JSON text, "" for none.
    `token` is the last lease's, "" before the first: hexadecimal digits, its fence in the first twelve, the rest
    random. `trigger` is that of its claim.
    `target` is whom a leased task was handed to, until that one begins it; from then on `delivery` is that token.
    `left_ms` answers the milliseconds left to the function that works the task, None where nothing counts them.
    `signal` is set once its lease is lost, None where nothing looks after the lease.
    `model` is the payload as its kind's type (`Kind`), None where that has none.
    `log` is what it remembers of itself, oldest first, after as many entries as `forgotten` says.
    """

    id: str
    queue: str
    tenant: str
    kind: str
    group: str
    status: Status
    payload_json: str
    state_json: str
    result_json: str
    due_at: int
    created_at: int
    deadline_at: int
    generation: int
    run: int
    attempt: int
    retry: RetryPolicy
    token: str
    claimed_at: int
    log: tuple[Entry, ...]
    lease_expires_at: int = 0
    by: str = ""
    notify: str = ""
    trigger: Trigger | None = None
    forgotten: int = 0
    target: str = ""
    delivery: str = ""
    left_ms: Callable[[], float] | None = None
    model: Payload | None = None
    signal: Lost | None = None

    def __repr__(self) -> str:
        return brief(self, "id", "kind", "queue", "status", "due_at", "attempt", "error")

    @property
    def due(self) -> datetime | None:
        """`due_at` as an aware datetime in UTC; None while an occurrence waits for the end of another."""
        return None if self.due_at == MAX_INSTANT else to_datetime(self.due_at)

    @property
    def deadline(self) -> datetime | None:
        """`deadline_at` as an aware datetime in UTC; None without a deadline."""
        return to_datetime(self.deadline_at) if self.deadline_at else None

    @property
    def remaining(self) -> float:
        """Seconds left until the function that works this task is ended; infinite where nothing ends it."""
        return inf if self.left_ms is None else max(0, self.left_ms()) / 1_000

    @property
    def lost(self) -> Lost:
        """Signal that the lease of this run is gone: poll it (`if task.lost`), `task.lost.wait(5)`, `await task.lost`.

        The outcome of such a run counts no more.
        """
        return Lost() if self.signal is None else self.signal

    @property
    def payload(self) -> Payload:
        """Payload of the task, decoded; of one with a seal in it, what is shown. Raises TaskDamaged."""
        if self.model is not None:
            return self.model
        found: Any = load_json(self.payload_json, "payload")
        try:
            shown: Payload = found["shown"] if self.payload_json.startswith(SEALED) else found
        except (TypeError, LookupError) as error:
            raise TaskDamaged("the payload of this task is damaged: it has no sealed part that can be read") from error
        return shown

    @property
    def state(self) -> Json:
        """State that an earlier run saved, decoded; None if there is none. Raises TaskDamaged."""
        return load_json(self.state_json, "state") if self.state_json else None

    @property
    def result(self) -> Json:
        """Result of the task, decoded, unless a results table keeps it. Raises TaskDamaged."""
        return load_json(self.result_json, "result") if self.result_json and not self.kept_at else None

    @property
    def is_over(self) -> bool:
        """True for a task that is done, dead or cancelled."""
        return self.status not in {Status.SCHEDULED, Status.LEASED}

    @property
    def kept_at(self) -> str:
        """Place of the results table that keeps the result; "" if none does, or if the text is damaged."""
        with suppress(TaskDamaged):
            return str(load_json(self.result_json, "result")) if self.result_json.startswith(KEPT_AT) else ""
        return ""

    @property
    def history(self) -> tuple[Run, ...]:
        """Finished runs, oldest first, without leases that were given back unused."""
        return tuple(entry for entry in self.log if isinstance(entry, Run) and entry.outcome not in UNUSED)

    @property
    def fence(self) -> int:
        """The last lease's fence: it only grows within a shard, 0 before the first lease."""
        return int(self.token[:FENCE_DIGITS] or "0", 16)

    @property
    def idempotency_key(self) -> str:
        """The same over attempts and replays of one generation."""
        return f"{self.id}:{self.generation}"

    @property
    def error(self) -> str:
        """Error of the newest failed run; "" if none failed, or the task is done."""
        if self.status is Status.DONE:
            return ""
        failed = (e for e in reversed(self.log) if isinstance(e, Run) and e.outcome in FAILURES)
        return next((run.detail for run in failed), "")


UNUSED = frozenset({"release", "undelivered"})
FAILURES = frozenset({"retry", "drop", "lapsed", "expired", "undelivered"})
