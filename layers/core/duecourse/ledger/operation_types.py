"""Requests, answers and bounds of the ledger's operations; Protocols of the parts beside it."""

import json
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import StrEnum
from hashlib import sha256
from types import MappingProxyType
from typing import Any, NamedTuple, Protocol, Self, TypeVar

from duecourse.base.json_text import Json
from duecourse.base.times import DAY_MS
from duecourse.errors import KeyInUse, StoreMisused, StoreUnavailable
from duecourse.ledger.queue import DEFAULT_PRIORITY
from duecourse.ledger.record import unpack_sound
from duecourse.ledger.schedule import StoredSchedule
from duecourse.ledger.task import DEFAULT_TENANT, Status, Task


class KeyedTry:
    """One try of a request with a key: the first, or a later one after a fault or a crash.

    `since` is the first instant (epoch ms) after the first try began, 0 in that try. What others added from then on may
    be newer than the request. Its own work is known by its marks. `seed` differs from that of every other request.
    `note` is what an earlier try kept by `keep`, which returns False where the request is another owner's by now.
    """

    def __init__(
        self, seed: str, since: int = 0, note: bytes = b"", keep: Callable[[bytes], bool] | None = None
    ) -> None:
        self.since = since
        self.is_repeat = bool(note)
        """True if an earlier try may have changed something."""
        self._seed = seed
        self._note = note
        self._keep = keep

    def first_saw(self, look: Callable[[], Any]) -> Any:
        """Result of `look` (JSON) in the first try; later tries get the same.

        It is kept in the store before the request changes anything. Raises StoreUnavailable, and KeyInUse where the
        request is another owner's by now.
        """
        if not self._note:
            self._note = json.dumps(look(), separators=(",", ":")).encode()
            if self._keep and not self._keep(self._note):
                raise KeyInUse
        return json.loads(self._note)

    def may_be_newer(self, added_at: int) -> bool:
        """True if a task added at that time may be newer than the first try of this request."""
        return 0 < self.since <= added_at

    def mark(self, name: str = "") -> bytes:
        """Mark (8 bytes) of this request's change of `name`: the same in each try, and in no other request."""
        return sha256(f"{self._seed}\0{name}".encode()).digest()[:8]


# Records of requests with an Idempotency-Key, so that a request sent twice is done once.

KEPT_MS = DAY_MS
"""Time for which a request is remembered, from its first begin."""
PRUNE = 500
"""Number of requests that one step forgets."""


class RequestState(StrEnum):
    """State of a request before this begin."""

    NEW = "new"
    """Nobody began it: it is the caller's."""
    AGAIN = "again"
    """Another process began the request and failed: the caller has it now, and may find it done."""
    UNDER_WAY = "under_way"
    """Another has it now."""
    ENDED = "ended"
    """The request was answered."""
    OTHER = "other"
    """The key belongs to another request."""
    OVER_QUOTA = "over_quota"
    """Nobody began it, and its tenant has used up what it may have kept."""


class SavedResponse(NamedTuple):
    """State of a request: its answer if it has ended; the time (ms) to wait, for another process or for the quota.

    `begun_at` is when it was first begun (epoch ms), where it is the caller's now. `note` is what an earlier try noted,
    b"" for nothing.
    """

    state: RequestState
    answer: bytes = b""
    left_ms: int = 0
    begun_at: int = 0
    note: bytes = b""


class KeyedRequest(NamedTuple):
    """A request with a key: its tenant, its key, and a digest of 32 bytes.

    `max_bytes` is its tenant's quota of requests and answers that are kept, 0 for none.
    """

    tenant: str
    key: str
    fingerprint: bytes
    max_bytes: int = 0


# Any operation.

T = TypeVar("T")
Away = StoreUnavailable | StoreMisused
"""Error because of which one of many shards has no answer."""


def check_count(count: int, most: int, least: int = 0) -> None:
    """Return if a verb takes so many at a time. Raises ValueError."""
    if not least <= count <= most:
        raise ValueError(f"{least} to {most} at a time, not {count}")


def answered(ask: Callable[[], T]) -> T | Away:
    """Answer of `ask`, or its error as a value, so that the other shards of a call continue."""
    try:
        return ask()
    except (StoreUnavailable, StoreMisused) as error:
        return error


# Operations of callers on tasks: add, list, explain, move, cancel, replay.

MAX_ADD = 1_000
"""The most tasks one add takes to one shard."""
MAX_SHARED = 200
"""The most tasks of separate coroutines in one script, which is done for all of them or for none."""
MAX_SHARED_BYTES = 1_000_000
"""Most bytes that the adds of several callers have together: a larger one goes by itself."""


class Reply(StrEnum):
    """Effect of a verb on one task; those after OK are rejections.

    OVER_… is over a quota of the tenant, BEYOND_… more than the whole of one, for which no wait makes room. CHANGED is
    a task that is no longer as the caller saw it.
    """

    CREATED = "created"
    KEPT = "kept"
    REPLACED = "replaced"
    DEBOUNCED = "debounced"
    OK = "ok"
    ABSENT = "absent"
    SCHEDULED = "scheduled"
    LEASED = "leased"
    DONE = "done"
    CANCELLED = "cancelled"
    DEAD = "dead"
    PAST_DEADLINE = "past_deadline"
    CHANGED = "changed"
    OVER_PENDING = "over_pending"
    OVER_BYTES = "over_bytes"
    OVER_ADDS = "over_adds"
    OVER_SCHEDULES = "over_schedules"
    BEYOND_PENDING = "beyond_pending"
    BEYOND_BYTES = "beyond_bytes"
    BEYOND_ADDS = "beyond_adds"


class AddReply(NamedTuple):
    """The answer to one added task; `echo` are queue, stored id, record and payload of the task that now has the id.

    There is none for a rejected one, and where it was not asked for. The payload is None where the record has it.
    `wait_ms` is how long the tenant is to wait where its adds are over their quota.
    """

    id: str
    reply: Reply
    echo: tuple[str, str, bytes, bytes | None] | None = None
    wait_ms: int = 0

    @property
    def task(self) -> Task | None:
        """The echoed task, read from its record; None for none. Raises TaskDamaged."""
        if self.echo is None:
            return None
        queue, sid, data, payload = self.echo
        return unpack_sound(queue, sid, data, 0, payload)


QUOTAS = {
    Reply.OVER_PENDING: "tenant_max_pending",
    Reply.OVER_BYTES: "tenant_max_bytes",
    Reply.OVER_ADDS: "tenant_adds_per_minute",
    Reply.OVER_SCHEDULES: "tenant_max_schedules",
}
"""Quotas of a tenant, by what the ledger answers where one is used up."""
BEYOND = {
    Reply.BEYOND_PENDING: "tenant_max_pending",
    Reply.BEYOND_BYTES: "tenant_max_bytes",
    Reply.BEYOND_ADDS: "tenant_adds_per_minute",
}
"""Quotas of a tenant, by what the ledger answers where the whole of one is too little."""


class UniqueCondition(NamedTuple):
    """A condition on an add: no task of `group` is live, nor of a later generation than `since`."""

    group: str
    since: int


class Version(NamedTuple):
    """Version of a task: another after each change of a caller. Of a replacement that waits for it, the replacement's.

    An add draws another generation; a move, a replay and a run that comes again give another due time.
    """

    generation: int
    due_at: int


class TaskSnapshot(NamedTuple):
    """A task as a look at it found it."""

    version: Version
    status: Status


class Move(NamedTuple):
    """A new due time for one task: `due_at` where given, else `delay_ms` from the server's now.

    `state` replaces the saved state where given (JSON text). `force` takes a leased task from its worker;
    `revive` schedules a done one again, as a new generation. `by` is the source of the request.
    A deadline that was given as a duration moves along. One that was given as an instant stays: a task that would not
    be due before it is answered PAST_DEADLINE and not moved. If a replacement waits for a task that is taken by force,
    the replacement takes its place at once and is moved.
    `mark` is 8 bytes of this move alone: a task that has it in its log was moved by it before, and is answered OK. With
    `seen`, a task of another version is answered CHANGED and not moved.
    """

    id: str
    due_at: int | None = None
    delay_ms: int = 0
    state: str | None = None
    force: bool = False
    revive: bool = False
    by: str = ""
    mark: bytes = b""
    seen: Version | None = None


# Operations of workers: claim due tasks, begin what was handed over, settle, extend, save.

MAX_CLAIM = 500
"""The most tasks one claim hands out, and one settle takes."""


class Settled(StrEnum):
    """Effect of a settlement on one lease."""

    DONE = "done"
    AGAIN = "again"
    RETRIED = "retried"
    DEAD = "dead"
    RELEASED = "released"
    STALE = "stale"


@dataclass(frozen=True, slots=True, kw_only=True)
class Claim:
    """Leased tasks, those that died on the way (out of attempts or past their deadline), and what is left due.

    `reclaimed` is how many lapsed leases were taken back first. Of those, `lapsed` were of runs, which ended without a
    settle. The others were of tasks that nobody had begun. A target had begun `lapsed_at_target` of the runs.

    `backlog` is how many could be claimed still, at least; none where the queue is paused or a limit is reached.
    `throttled`: due tasks wait until leases end. `priority` is the queue's. `aside` is how many were put aside, because
    their target has as many as it may that it has not begun. `schedules` are due, the longest due first, and wait to be
    fired (Ledger.fire). `each` is how many tasks one invocation of a target has time for, where that is few. Of
    `tasks`, the first `at_once` count as begun: the others are claimed ahead.
    """

    tasks: list[Task] = field(default_factory=list)
    died: int = 0
    reclaimed: int = 0
    lapsed: int = 0
    lapsed_at_target: int = 0
    backlog: int = 0
    bell_at: int = 0
    now: int = 0
    throttled: bool = False
    priority: int = DEFAULT_PRIORITY
    aside: int = 0
    schedules: list[StoredSchedule] = field(default_factory=list)
    each: Mapping[str, int] = field(default_factory=dict)
    at_once: int = 0


class Delivery(NamedTuple):
    """A target that tasks are handed to, how many of a shard it may have that it has not begun, and for how long."""

    target: str
    most: int
    lease_ms: int


Deliveries = Mapping[str, Delivery]
"""Deliveries by kind: a claimed task of such a kind is handed over, under a delivery that its target begins."""
NO_DELIVERIES: Deliveries = MappingProxyType({})


class Begun(NamedTuple):
    """The lease of a run that its worker has begun, `late_ms` after its due time.

    No token where the delivery is no longer that, or is another's.
    """

    token: str
    run: int
    expires_at: int
    late_ms: int = 0

    def under(self, task: Task) -> Task:
        """The task under this lease, in place of its delivery."""
        return replace(task, token=self.token, run=self.run, lease_expires_at=self.expires_at, target="")


class Lease(NamedTuple):
    """The right to work one task: its id and the token that proves it."""

    id: str
    token: str
    tenant: str = DEFAULT_TENANT

    @classmethod
    def of(cls, task: Task) -> Self:
        """The lease that a worker has of this task."""
        return cls(task.id, task.token, task.tenant)


# Operations of operators on queues.

FORGET_MS = 600_000
"""Time without tasks and without a user's settings after which a shard may be forgotten."""

LOOKED_AT = 1_000
"""Number of done, and of dead, tasks of a shard among which those of one tenant are counted."""


# Schedules: entries of the ledger that add tasks, and are never leased.

MAX_FIRE = 200
"""The most schedules of one step."""


class Put(StrEnum):
    """Effect of writing a schedule."""

    CREATED = "created"
    CHANGED = "changed"
    KEPT = "kept"
    CONFLICT = "conflict"
    ABSENT = "absent"


class Written(NamedTuple):
    """Effect of writing a schedule, and the store's time of it (epoch ms)."""

    put: Put
    at: int


class Fired(StrEnum):
    """Effect of one firing: STALE where the schedule was no longer as it was read, or waits, and nothing was added."""

    FIRED = "fired"
    STALE = "stale"


class SchedulePage(NamedTuple):
    """Some schedules of a queue, by id, and the id after which the next page begins; "" for no more."""

    schedules: list[StoredSchedule]
    next: str


class WrappedKey(NamedTuple):
    """A data key as the ledger keeps it: its id, and its bytes as the wrapping key encrypted them."""

    id: str
    wrapped: bytes


# Upkeep that a tick does, shard by shard.


class Outlook(NamedTuple):
    """The next instant at which a shard has something to do, 0 for none: a task comes due, or a lease ends.

    The instant is past where due tasks wait, whatever they wait for. `dead` is the number of dead tasks.
    """

    next_at: int
    dead: int
    now: int


class Swept(NamedTuple):
    """Figures of one sweep: lapsed leases, tasks dead by it, ended tasks forgotten; `more` if bounded.

    `revision` is the version of the queue's settings that the shard had. Leases that lapsed while nobody looked are
    taken back at `spared_until`, 0 for none: some seconds later, for their tasks may go on. Of the
    lapsed leases, `lapsed` were of runs, which ended without a settle. A target had begun `lapsed_at_target` of these.
    """

    reclaimed: int
    died: int
    pruned: int
    more: bool
    bell_at: int
    now: int
    revision: str = ""
    spared_until: int = 0
    lapsed: int = 0
    lapsed_at_target: int = 0


# Waiting for the ends of tasks: the ledger publishes an end where somebody has said that it waits.


class Waited(NamedTuple):
    """Name of a task for which somebody waits, whatever its generation."""

    queue: str
    tenant: str
    id: str


class EndListener(Protocol):
    """Ends of tasks, heard by one thread; every verb but `wake` raises StoreUnavailable once it may miss some."""

    def hear(self, timeout_s: float) -> Sequence[Waited]:
        """Ends that were published since the last call, waited for at most `timeout_s`; none after a `wake`."""

    def prove(self) -> None:
        """Return if the store still reaches this listener."""

    def wake(self) -> None:
        """Have `hear` return at once, now or when it is next called; any thread may call this."""

    def close(self) -> None:
        """Stop listening."""


# Record of deployments in the ledger, for programs that know its address alone: kinds, and the results table.


class Deployed(NamedTuple):
    """Kinds that deployments run, those `handed` to a target, and the place of the newest results table, "" for none.

    `written_at` is the newest writing (epoch ms, 0 for none).
    """

    kinds: Collection[str] = frozenset()
    handed: Collection[str] = frozenset()
    results: str = ""
    written_at: int = 0


# Table in which results outlive their tasks.

PATIENCE_MS = 5_000
"""Maximum time of either verb, even if the database hangs; queries subtract it from their time."""


class Result(NamedTuple):
    """Result of a task's newest finished run: its value, the fence it was written under, and the time (epoch ms)."""

    value: Json
    fence: int
    stored_at: int


class Results(Protocol):
    """The results database. Both verbs raise ResultsUnavailable, within PATIENCE_MS."""

    @property
    def place(self) -> str:
        """Name by which a program elsewhere finds it."""

    def put(self, task: Task, result_json: str, now: int) -> bool:
        """Keep the task's result; False, and nothing changed, where a newer one (a higher fence) is there."""

    def get(self, queue: str, id: str, tenant: str) -> Result | None:
        """The task's result, if it has one."""
