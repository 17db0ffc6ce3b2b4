"""Task: its fields, its states, its retry policy with the delay before the next attempt, and results."""

import random
from collections.abc import Callable, Generator
from contextlib import suppress
from datetime import datetime, timedelta
from enum import StrEnum
from hashlib import sha256
from math import inf
from typing import TYPE_CHECKING, Annotated, Any, Generic, NamedTuple, Self, TypeAlias

from duecourse.base.described_fields import About
from duecourse.base.ids import MARK
from duecourse.base.json_text import Json, dump_json, load_json
from duecourse.base.masking import masked_error
from duecourse.base.times import DAY_MS, MAX_INSTANT, to_datetime
from duecourse.base.value_classes import Deferred, brief, value
from duecourse.errors import DuecourseError, TaskDamaged

# Task: as requested, stored and leased; its history, the outcomes of a run, and the notification of its end.

# History of a task: its finished runs, and what callers did to it.

LOG_LENGTH = 20
"""Maximum number of entries that a task remembers, the newest."""
LOG_BYTES = 6_000
"""Maximum size of the packed entries, in bytes: long errors leave room for fewer."""
DETAIL_LENGTH = 400
"""Maximum length of an entry's error or reason, in bytes."""
MAX_LOOKED_AT = 20_000
"""Number of characters that are searched for credentials before a text is cut."""
BY_LENGTH = 192
"""Maximum length of a source's name, in bytes: the longest session of an IAM role fits."""


class Trigger(StrEnum):
    """Trigger of a claim: a key event, the bridge's timer, a tick, or a request that took the task itself."""

    RING = "ring"
    TIMER = "timer"
    TICK = "tick"
    TAKE = "take"


class Action(StrEnum):
    """Action of a caller. The log has earlier adds and replacements, but not the one that made the record."""

    ADDED = "added"
    REPLACED = "replaced"
    DEBOUNCED = "debounced"
    MOVED = "moved"
    REPLAYED = "replayed"
    CANCELLED = "cancelled"


ORIGINS = frozenset({Action.ADDED, Action.REPLACED})
"""Actions that make a record. In a log, one ends an earlier life of the id: later entries are its successor's."""


@value
class Run:
    """One finished lease. `outcome` is one of the keys of timeline.OUTCOMES: `done`, `again`, `lapsed` and so on.

    `trigger` is None where nothing was claimed. `claimed_at` is when the handler began, or the claim where none did;
    `late_ms` is the time from the due time to that. `times` is over 1 for leases given back in a row, which make one
    entry, the last.
    """

    run: int
    fence: int
    claimed_at: int
    ended_at: int
    outcome: str
    detail: str = ""
    trigger: Trigger | None = None
    late_ms: int = 0
    times: int = 1


@value
class Change:
    """Action of a caller, its source, and the due time before and after it.

    `times` is over 1 for debounces in a row, which make one entry.
    """

    at: int
    action: Action
    by: str = ""
    due_before: int = 0
    due_at: int = 0
    times: int = 1


Entry: TypeAlias = Run | Change


def cut_detail(text: str) -> str:
    """Cut an error or a reason to what an entry keeps, between characters and without credentials."""
    return _cut(masked_error(text[:MAX_LOOKED_AT]), DETAIL_LENGTH) if text else text


def with_place(detail: str, place: str) -> str:
    """A cut error and the place in code, together within DETAIL_LENGTH; "" is no place."""
    behind = f" at {place}" if place else ""
    return _cut(detail, DETAIL_LENGTH - len(behind.encode())) + behind


def cut_by(text: str) -> str:
    """Cut a source's name to what a record keeps."""
    return _cut(text, BY_LENGTH)


def _cut(text: str, most: int) -> str:
    return text.encode(errors="replace")[:most].decode(errors="ignore")


# Signal that a worker has lost the lease of a task that it runs.


class Lost:
    """Signal of a lost lease: false while the lease holds, true once it is gone. `await` it, or call `wait`.

    A lease is gone once a caller has taken the task away by force, or another worker may have it. A signal that is true
    stays so.
    """

    __slots__ = ("_is_set", "_listeners", "_until")

    def __init__(self, until: float = inf) -> None:
        self._is_set = False
        self._until = until
        self._listeners: list[Callable[[], object]] = []

    def __bool__(self) -> bool:
        return self._is_set

    def __repr__(self) -> str:
        return f"Lost({self._is_set})"

    def is_set(self) -> bool:
        """True once the lease is gone."""
        return self._is_set

    def wait(self, timeout: float | None = None) -> bool:
        """Wait until the lease is gone, at most `timeout` seconds; returns `is_set()`."""
        import threading

        gone = threading.Event()
        with self.listening(gone.set):
            if not self._is_set:
                gone.wait(timeout)
        return self._is_set

    def __await__(self) -> Generator[Any, None, None]:
        """Wait in an event loop until the lease is gone."""
        return self._awaited().__await__()

    def set(self) -> None:
        """Note that the lease is gone, and wake all that wait for it."""
        self._is_set = True  # before the calls: a waiter registers itself, then checks this
        for listener in list(self._listeners):
            listener()

    def keep(self, until: float) -> None:
        """Note that the lease holds until an instant (time.monotonic())."""
        self._until = max(self._until, until) if self._until < inf else until

    def lapse(self, now: float) -> None:
        """Set the signal if the lease has lapsed by this process's own clock (time.monotonic())."""
        if now >= self._until:
            self.set()

    def listening(self, listener: Callable[[], object]) -> "_Listening":
        """Call `listener` if the signal is set within the block, on the thread that sets it."""
        return _Listening(self._listeners, listener)

    async def _awaited(self) -> None:
        import asyncio

        loop, gone = asyncio.get_running_loop(), asyncio.Event()
        with self.listening(lambda: loop.call_soon_threadsafe(gone.set)):
            if not self._is_set:
                await gone.wait()


class _Listening:
    """Context in which a listener is one of these listeners."""

    def __init__(self, listeners: list[Callable[[], object]], listener: Callable[[], object]) -> None:
        self._listeners, self._listener = listeners, listener

    def __enter__(self) -> None:
        self._listeners.append(self._listener)

    def __exit__(self, *_: object) -> None:
        self._listeners.remove(self._listener)


# Task: as requested, as kept in the ledger, as leased to a worker.

if TYPE_CHECKING:
    from typing_extensions import TypeVar

    Payload = TypeVar("Payload", default=Any)
else:
    from typing import TypeVar

    Payload = TypeVar("Payload")


DEFAULT_QUEUE = "default"
DEFAULT_TENANT = "-"
MAX_STATE_BYTES = 4 * 1024
MAX_RESULT_BYTES = 64 * 1024
MAX_PAYLOAD_BYTES = 256 * 1024
FENCE_DIGITS = 12
"""Length of the lease's fence in hexadecimal, at the beginning of a token; the rest of the token is random."""
SEALED = " "
"""Beginning of a payload's text with a seal in it (guard/seals.py); compact JSON never begins so."""
KEPT_AT = " "
"""Beginning of a result's text that names the table with the result; compact JSON never begins so."""
MAX_BACKOFF_MS = 49 * DAY_MS
"""Upper bound of a delay between attempts: a task's record has 32 bits for it."""
DEADLINES_MS = {"poll": DAY_MS}
"""Default deadline of a kind's tasks, from the due time."""


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


@value
class RetryPolicy:
    """Attempts and backoff of a failing task: exponential, by default with full jitter."""

    max_attempts: Annotated[
        int,
        About(
            "Maximum attempts.",
            asked="Maximum attempts, 1 to 1,000; a failure on the last one makes the task dead.",
            low=1,
            high=1_000,
        ),
    ] = 10
    backoff_ms: Annotated[
        int,
        About(
            "Delay after the first failure.",
            asked="Delay after the first failure; at most P49D.",
            high=MAX_BACKOFF_MS,
        ),
    ] = 1_000
    factor: Annotated[
        float,
        About(
            "Multiplier applied to the delay after each failure.",
            asked="Multiplier applied to the delay after each failure, 1 to 100.",
            low=1,
            high=100,
        ),
    ] = 2.0
    max_backoff_ms: Annotated[
        int,
        About("Upper bound for the delay.", asked="Upper bound for the delay; at most P49D.", high=MAX_BACKOFF_MS),
    ] = 3_600_000
    jitter: Annotated[
        bool,
        About(
            "True if the delay is randomised.",
            asked="Randomise the delay (full jitter) so that clients do not retry in step.",
        ),
    ] = True


@value
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
    http or https URL, else a kind with a target; "" for none (`Notify` below).

    With `apart`, which needs a group, that decides in place of `on_duplicate`.

    A described field is one of requests, of the client and of the command (`--more`). To add a field, add it here, with
    About if callers give it, and to the record as `ledger/layout.py` says. A type that `api/derived_models.py` does not
    know (`_form_of`; `str` is such) needs a form in `tasks/http.py` and its reader in BY_NAME of `tasks/fast_parse.py`.
    Answers have it once TaskView and `show_task` of `tasks/http.py` do. Then `make reference`, and
    `docs/reference/python.md`.
    """

    id: str
    kind: str
    payload: Annotated[
        str,
        About(
            "Payload of the task: a JSON object of at most 256 KiB. `poll` and `webhook` define their own fields.",
        ),
    ] = "{}"
    queue: str = DEFAULT_QUEUE
    tenant: str = DEFAULT_TENANT
    group: str = ""
    state: str = ""
    due_at: Annotated[int | None, About("Due time. Default: now. Give `due_at` or `delay`, not both.")] = None
    delay_ms: Annotated[int, About("Delay from now to the due time. Give `due_at` or `delay`, not both.")] = 0
    deadline_at: int | None = None
    deadline_ms: Annotated[
        int | None,
        About(
            "Time after which the task is dead: an instant, or a duration from the due time. Default: PT24H for `poll`,"
            " which has at most P366D, and none for other kinds."
        ),
    ] = None
    retry: Annotated[RetryPolicy, About("Attempts and backoff after failures.")] = RetryPolicy()
    on_duplicate: Annotated[
        OnDuplicate,
        About(
            "Effect if the id already exists. `keep` the old task, `replace` it, `reject` this request,"
            " or `debounce`: take the new content and postpone the due time."
        ),
    ] = OnDuplicate.KEEP
    max_wait_ms: Annotated[int, About("Upper bound for the delay by `debounce`, counted from the first add.")] = (
        3_600_000
    )
    by: str = ""
    notify: Annotated[
        str, About("Receiver of a completion notification when the task is done or dead.", name="notify_done")
    ] = ""
    apart: Apart | None = None

    def __repr__(self) -> str:
        # The router writes a route's arguments into a log that is off: a payload may be long, and hold credentials.
        return f"NewTask(id={self.id!r}, kind={self.kind!r}, queue={self.queue!r})"


@value
class Task(Generic[Payload]):
    """A task as the ledger keeps it; instants are epoch milliseconds, 0 for none.

    `due_at` is when it may next run; MAX_INSTANT while an occurrence waits for the end of another. `payload_json`,
    `state_json` and `result_json` are JSON text, "" for none.
    `token` is the last lease's, "" before the first: hexadecimal digits, its fence in the first twelve, the rest
    random. `trigger` is that of its claim.
    `target` is whom a leased task was handed to, until that one begins it; from then on `delivery` is that token.
    `mark` is that of the request with a key that added it (6 bytes), b"" for none.
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
    mark: bytes = b""
    left_ms: Callable[[], float] | None = None
    model: Payload | None = None
    signal: Lost | None = None

    def __repr__(self) -> str:
        return brief(self, "id", "kind", "queue", "status", "due_at", "attempt", "error")

    def under(self, left_ms: Callable[[], float], signal: Lost) -> Self:
        """This task, with the time left and the signal of its lease set in place: a copy would be a tenth of a run."""
        object.__setattr__(self, "left_ms", left_ms)
        object.__setattr__(self, "signal", signal)
        return self

    def is_of(self, mark: bytes) -> bool:
        """True if the request with this mark (6 bytes, or the first 6 of more) added the task."""
        return bool(self.mark) and mark.startswith(self.mark)

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


# Outcomes of a run: the values that a handler returns, and the settlement that the ledger takes.

Span: TypeAlias = int | float | str | timedelta
"""A duration: seconds, a text such as `5m` or ISO 8601, or a timedelta."""


@value
class Done:
    """The work is finished; `result` (JSON, at most 64 KiB) is kept."""

    result: Json = None


@value
class Again:
    """Not yet: run the task again `after` a duration or `at` an instant; no attempt is spent.

    The next run begins 100 ms later at the earliest, so that a handler cannot spin. `task.state` is then `state` (JSON,
    at most 4 KiB); None keeps the state that the task had.
    """

    after: Span | None = None
    at: datetime | str | None = None
    state: Json = None


@value
class Retry:
    """The run failed and may succeed later: an attempt is spent. Without `after`, the task's own backoff applies."""

    after: Span | None = None
    state: Json = None
    error: str = ""


@value
class Drop:
    """The run failed for good: the task is dead, with the reason."""

    reason: str


Outcome: TypeAlias = Done | Again | Retry | Drop


class Ending(StrEnum):
    """Endings that a settlement can ask for."""

    DONE = "done"
    AGAIN = "again"
    RETRY = "retry"
    DROP = "drop"
    RELEASE = "release"
    UNDELIVERED = "undelivered"
    """The function had no room for the event, or did not get to this task, which goes back. Stale once it is begun."""


class Settlement(NamedTuple):
    """The end of one lease, under its token.

    `due_at` is used where given, else `delay_ms` after the server's now (again, retry, release).
    `state` is JSON text, None to leave it. `detail` is the error or reason; `result` the JSON text of Done's result.
    `late_ms` is the time from the due time to the first line of the handler. It is -1 if nothing ran, or if a begin has
    counted it. `waited_ms` is the part of that time after the claim.
    """

    id: str
    tenant: str
    token: str
    ending: Ending
    delay_ms: int = 0
    due_at: int | None = None
    state: str | None = None
    detail: str = ""
    result: str = ""
    late_ms: int = -1
    waited_ms: int = 0

    def with_lateness(self, task: Task, waited_ms: int) -> Self:
        """This end with the lateness of its run, whose handler began `waited_ms` after the claim."""
        # A lease that is given back began no run; a function counts the begin of a task that was handed over.
        if self.ending is Ending.RELEASE or task.target:
            return self
        # `_replace` takes six times as long, of each run.
        return tuple.__new__(type(self), (*self[:-2], max(0, task.claimed_at - task.due_at + waited_ms), waited_ms))

    @classmethod
    def of(cls, task: Task, ending: Ending, **rest: Any) -> Self:
        """The end of this task's lease; `rest` are the other fields."""
        return cls(task.id, task.tenant, task.token, ending, **rest)


# Adds: a task as a message asks for it, and what an add answers.


@value
class AddResult(Deferred):
    """Result of an add: the task, and `created`, True if this add made it.

    The task is read at the first look at it, which raises TaskDamaged where its record is damaged.
    """

    task: Task
    created: bool


Item: TypeAlias = AddResult | DuecourseError
"""Result for one task of many: the task, or the error that rejected it."""


class TaskMessage(NamedTuple):
    """A new task. With `once` its id is the message's own: if that id exists, done or dead too, it came twice."""

    task: NewTask
    once: bool


# Lease of a task that a function works: its length, and the invocation that began it.

STEP_MS = 30_000
"""Length of a lease that is extended: a function that dies keeps its tasks no longer than this."""
STEPS = 3
"""Number of extensions within a lease's length."""
GRACE_MS = 5_000
"""Time by which a lease outlasts its function: Lambda's record of the failure comes first, then the lapse."""


def lease_within(wanted_ms: int, remaining_ms: float) -> int:
    """Length of a lease (ms): as wanted, but not much longer than its function has time."""
    return max(1, int(min(wanted_ms, remaining_ms + GRACE_MS)))


HALF = 4
"""Bytes of a begun lease's nonce that name its invocation, and as many that are its worker's own."""


def begin_nonce(delivery: str, invocation: str, own: bytes) -> bytes:
    """Nonce with which an invocation begins the delivery with this token.

    `invocation` is Lambda's id of the request, "" where it is not known. The same worker begins again with the same
    `own`, of which the first four bytes count.
    """
    # Half of it is the worker's own, for Lambda gives a second delivery of one event the same id as the first.
    return sha256(f"{delivery}\0{invocation}".encode()).digest()[:HALF] + own[:HALF]


def was_begun_by(token: str, delivery: str, invocation: str) -> bool:
    """True if this invocation may have begun the lease with this token; a lease may name no invocation."""
    named = bytes.fromhex(token)[-2 * HALF : -HALF]
    return any(named == begin_nonce(delivery, one, b"") for one in (invocation, ""))


# Completion notifications: each is a task in the ended task's shard, which reports the end.
#
# The id of a notification names the ended task, its generation and its last run. No id that a user can give has its
# `~`. The step that ends the task also adds the notification. It has the ended task's group only to be in the same
# shard.

ON_REQUEST = ("payload", "result")
"""Parts of the ended task that a notification carries only if `include` names them."""
ENDED = "task.ended"
"""Kind that notifies a URL."""
DEAD = "task.dead"
"""Kind that reports a death."""
RESERVED = "task."
"""Beginning of kinds of duecourse's own, which no user's kind has."""
AUTH = "auth="
"""Beginning of the word of a record's text that names the credential."""
POLICY = RetryPolicy(max_attempts=16, backoff_ms=2_000)
"""At most five hours of trying, with full jitter half of that."""


class Ended(NamedTuple):
    """Reference to the ended task and its end, as the notification's payload keeps it; `at` in epoch ms."""

    id: str
    generation: int
    run: int
    state: str
    at: int
    error: str = ""
    url: str = ""
    auth: str = ""


class Notify(NamedTuple):
    """Receiver of a notification, a URL or a kind, what it includes of ON_REQUEST, and the name of a URL's credential.

    A record keeps all of it in one text. The address of a URL may have a seal in it (guard/seals.py).
    """

    address: str
    include: tuple[str, ...] = ()
    auth: str = ""

    @classmethod
    def of(cls, text: str) -> "Notify":
        """Read the text of a record; neither a URL nor a kind's name has a space."""
        address, *more = text.split(" ")
        auth = next((word.removeprefix(AUTH) for word in more if word.startswith(AUTH)), "")
        return cls(address, tuple(word for word in more if not word.startswith(AUTH)), auth)

    def text(self) -> str:
        """The same as a record keeps it."""
        return " ".join((self.address, *self.include, *([AUTH + self.auth] if self.auth else [])))


def is_notification(id: str) -> bool:
    """True if the task is a completion notification."""
    return MARK in id


def is_url(notify: str) -> bool:
    """True if the receiver is a URL, False for a kind's target."""
    return "://" in notify


def ended_of(payload: Json) -> Ended | None:
    """Reference in a notification's payload; None for any other payload. Raises TaskDamaged."""
    if not isinstance(payload, dict) or payload.keys() != {"ended"}:
        return None
    try:
        ended = Ended(**payload["ended"])
        is_sound = all(map(isinstance, ended, Ended.__annotations__.values())) and 0 <= ended.at <= MAX_INSTANT
    except TypeError:
        is_sound = False
    if not is_sound:
        raise TaskDamaged("the payload of this notification is damaged: it names no ended task")
    return ended


# Delay before the next attempt.


def ceiling_ms(policy: RetryPolicy, attempt: int) -> int:
    """The longest wait after the `attempt`-th attempt failed (1-based): backoff x factor^(attempt-1), capped."""
    exponent = min(attempt - 1, 64)
    try:
        wait = policy.backoff_ms * policy.factor**exponent
    except OverflowError:
        return policy.max_backoff_ms
    return int(min(wait, policy.max_backoff_ms))


def delay_ms(policy: RetryPolicy, attempt: int, rng: random.Random) -> int:
    """The wait in milliseconds: uniform in [0, ceiling] with jitter, the ceiling without.

    Full jitter as in Brooker, "Exponential Backoff And Jitter", AWS Architecture Blog, 2015.
    """
    longest = ceiling_ms(policy, attempt)
    return rng.randint(0, longest) if policy.jitter else longest
