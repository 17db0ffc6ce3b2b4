"""The ledger's contract: every verb that changes a task, and its answer.

Every verb is one atomic step on one shard: an answer has happened, and a rejected request has changed nothing. A great
add may be several such steps; repeated after an interruption, it adds nothing twice. Time is the store's own.
The step that ends a task, done or dead, also adds its completion notifications (domain/notification.py): for its own
`notify`, and for any death if the store was made with `deaths`.
Each verb raises StoreUnavailable if the store does not answer, ValueError for more tasks at a time than it takes, and
StoreMisused if a queue has another number of shards than the store was given.
"""

from collections.abc import Mapping, Sequence
from enum import StrEnum
from types import MappingProxyType
from typing import NamedTuple, Protocol

from duecourse.domain.history import Trigger
from duecourse.domain.outcomes import Settlement
from duecourse.domain.pages import Page, Place, Wanted
from duecourse.domain.queues import DEFAULT_PRIORITY, QueueChanges, QueueSettings, Stats, Throttle
from duecourse.domain.task import DEFAULT_TENANT, NewTask, Shard, Task
from duecourse.ports.idempotency import IdempotencyStore
from duecourse.ports.upkeep import Away, Swept
from duecourse.ports.warmth import Warmth

MAX_ADD = 1_000
"""The most tasks one add takes to one shard."""
FORGET_MS = 600_000
"""Time without tasks and without a user's settings after which a shard may be forgotten."""
MAX_CLAIM = 500
"""The most tasks one claim hands out, and one settle takes."""


def check_count(count: int, most: int, least: int = 0) -> None:
    """Return if a verb takes so many at a time. Raises ValueError."""
    if not least <= count <= most:
        raise ValueError(f"{least} to {most} at a time, not {count}")


class Reply(StrEnum):
    """Effect of a verb on one task; those after OK are rejections."""

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


class Settled(StrEnum):
    """Effect of a settlement on one lease."""

    DONE = "done"
    AGAIN = "again"
    RETRIED = "retried"
    DEAD = "dead"
    RELEASED = "released"
    STALE = "stale"


class AddReply(NamedTuple):
    """The answer to one added task; `task` is its record where `echo` asked for it."""

    id: str
    reply: Reply
    task: Task | None = None


class Alone(NamedTuple):
    """A condition on an add: no task of `group` is live, nor of a later generation than `since`."""

    group: str
    since: int


class Claim(NamedTuple):
    """Leased tasks, those that died on the way (out of attempts or past their deadline), and what is left due.

    `backlog` is how many could be claimed still, at least; none where the queue is paused or a limit reached. `held`:
    due tasks wait until leases end. `priority` is the queue's. `aside` is how many were put aside, for their target has
    as many as it may that it has not begun.
    """

    tasks: list[Task]
    died: int
    backlog: int
    bell_at: int
    now: int
    held: bool = False
    priority: int = DEFAULT_PRIORITY
    aside: int = 0


class Delivery(NamedTuple):
    """A target that tasks are handed to, how many of a shard it may have that it has not begun, and for how long."""

    target: str
    most: int
    lease_ms: int


Deliveries = Mapping[str, Delivery]
"""Deliveries by kind: a claimed task of such a kind is handed over, under a delivery that its target begins."""
NO_DELIVERIES: Deliveries = MappingProxyType({})
MOST_UNDELIVERED = 20
"""Number of deliveries in a row that are not begun, after which the task is dead."""
FIRST_DELAY_MS, LONGEST_DELAY_MS = 1_000, 300_000
"""Delay after a delivery that was not begun: the first, doubled each time up to the longest."""
PUT_ASIDE_MS = 900_000
"""Time after which a claim looks again at a task that was put aside, unless something makes it due before."""


class Begun(NamedTuple):
    """The lease of a run that its worker has begun; no token where the delivery is no longer that, or is another's."""

    token: str
    run: int
    expires_at: int


class Lease(NamedTuple):
    """The right to work one task: its id and the token that proves it."""

    id: str
    token: str
    tenant: str = DEFAULT_TENANT


class Move(NamedTuple):
    """A new due time for one task: `due_at` where given, else `delay_ms` from the server's now.

    `state` replaces the saved state where given (JSON text). `force` takes a leased task from its worker;
    `revive` schedules a done one again, as a new generation. `by` is the source of the request.
    A deadline that was given as a duration moves along. One that was given as an instant stays: a task that would not
    be due before it is answered PAST_DEADLINE and not moved. If a replacement waits for a task that is taken by force,
    the replacement takes its place at once and is moved.
    """

    id: str
    due_at: int | None = None
    delay_ms: int = 0
    state: str | None = None
    force: bool = False
    revive: bool = False
    by: str = ""


class Store(Protocol):
    """The ledger."""

    def idempotency(self) -> IdempotencyStore:
        """Records of requests with an Idempotency-Key, kept with the tasks and by the same clock."""

    def warmth(self) -> Warmth:
        """Kinds that come due soon, and functions that were invoked lately, by the same clock."""

    def ping(self) -> None:
        """Return if the store answers."""

    def now(self) -> int:
        """The store's own time in epoch milliseconds."""

    def shards(self) -> list[Shard]:
        """Every shard that was ever added to, or whose queue was ever set."""

    def shard_of(self, queue: str, id: str, group: str = "") -> Shard:
        """Shard of a task of this group, or of none: its leases are settled there."""

    def add(self, tasks: Sequence[NewTask], *, echo: bool = False, alone: Alone | None = None) -> list[AddReply]:
        """Schedule tasks, at most MAX_ADD to a shard; `on_duplicate` of each decides if its id exists already.

        Each shard's tasks are one step, a great many are several. A step is done or not; if the store fails between two
        steps, PartlyAdded names the tasks that it has.
        A task that is not as far `apart` from its group's others as it asks is answered KEPT, without a record.
        With `alone`, all tasks are of one tenant and its group: all are added in one step, or none (an empty answer).
        """

    def get(self, queue: str, id: str, tenant: str = DEFAULT_TENANT) -> Task | None:
        """One task, in any shard of its queue."""

    def group(self, queue: str, group: str, tenant: str = DEFAULT_TENANT) -> list[Task]:
        """The tasks of a group, by id."""

    def claim(
        self,
        shard: Shard,
        limit: int,
        *,
        lease_ms: int,
        max_bytes: int = 4_000_000,
        trigger: Trigger = Trigger.TAKE,
        deliveries: Deliveries = NO_DELIVERIES,
    ) -> Claim:
        """Lease at most `limit` due tasks as the queue's limits allow, and no more than `max_bytes` after the first.

        Leases that have lapsed are taken back first, each at the cost of an attempt. Tenants take turns. A queue's own
        `lease_ms` goes before the one given. `trigger` is the trigger of the claim.

        A task of a kind in `deliveries` gets the lease of a delivery, and `target`; limits count it as running. Its
        token begins it (`begin`), or settles it directly. A delivery that lapses first spends no attempt: the task is
        due again, later each time, and dead after MOST_UNDELIVERED in a row. A task whose target has no room is put
        aside until there is room, and delays no other task.
        """

    def begin(self, shard: Shard, deliveries: Sequence[Lease], lease_ms: int, nonces: Sequence[bytes]) -> list[Begun]:
        """Begin tasks that were handed over, at most MAX_CLAIM: each delivery becomes the lease of its run.

        The new token ends in the delivery's nonce (8 bytes each). The same delivery and nonce again get the same
        answer; another worker does not. A task past its deadline is dead instead.
        """

    def take(self, queue: str, id: str, tenant: str = DEFAULT_TENANT, *, lease_ms: int, group: str = "") -> Task | None:
        """Lease one scheduled task now, due or not; None where it is not scheduled, or a limit does not allow it.

        Lapsed leases are taken back first and a queue's own `lease_ms` goes before, as in a claim. Without its `group`,
        a task is found in its id's shard only. The task's log has the trigger Trigger.TAKE.
        """

    def settle(self, shard: Shard, settlements: Sequence[Settlement]) -> list[Settled]:
        """End leases, at most MAX_CLAIM. The same token and ending again gets the same answer."""

    def extend(self, shard: Shard, leases: Sequence[Lease], lease_ms: int, *, at_least: bool = False) -> list[int]:
        """Let leases end `lease_ms` from now; answers each one's new end, 0 where it is lost.

        A lease that ends later stays so with `at_least`. A delivery that is not begun may be extended too, and may
        save a state.
        """

    def save(self, shard: Shard, lease: Lease, state: str) -> bool:
        """Keep `state` (JSON text) for the task's next run; False where the lease is lost."""

    def move(self, queue: str, moves: Sequence[Move], tenant: str = DEFAULT_TENANT, *, group: str = "") -> list[Reply]:
        """Give tasks new due times, those of one shard in one step; with the tasks' common `group`, all in one.

        Otherwise, a task that is not in its id's shard is searched in the queue's other shards.
        """

    def cancel(
        self,
        queue: str,
        ids: Sequence[str],
        *,
        force: bool = False,
        tenant: str = DEFAULT_TENANT,
        group: str = "",
        by: str = "",
    ) -> list[Reply]:
        """Cancel scheduled tasks and delete dead ones, in the same steps as `move`.

        With `force`, also take a leased task from its worker and cancel it, together with a waiting replacement. The
        record is then that of the replacement.
        """

    def replay(
        self,
        queue: str,
        ids: Sequence[str],
        tenant: str = DEFAULT_TENANT,
        *,
        delays_ms: Sequence[int] = (),
        deadlines_ms: Sequence[int] = (),
        by: str = "",
    ) -> list[Reply]:
        """Schedule dead tasks again: a fresh set of attempts, the same generation, their log kept.

        Each is due its one of `delays_ms` from now, and dead its one of `deadlines_ms` (0: never) after that; without
        them, now and never.
        """

    def page(self, queue: str, wanted: Wanted, after: Place | None, limit: int, tenant: str = DEFAULT_TENANT) -> Page:
        """At most `limit` of a queue's tasks, at most MAX_PAGE, in their order, those that follow `after`.

        The work of one call is bounded, so that a page may be short, or empty, and still have a `next`.
        """

    def configure(self, queue: str, changes: QueueChanges, *, default: bool = False) -> None:
        """Change the given settings of a queue, from the next claim on: one step a shard; repeat it after a failure.

        A paused queue hands out no task, and leased tasks continue. Each shard gets its part of each limit. A limit
        counts tasks that are leased already; a rate counts claims since it was set. Raises InvalidInput if a limit is
        lower than the number of shards. A `default` changes only settings that are not set, and the queue may still be
        forgotten, FORGET_MS later at the earliest.
        """

    def settings(self, queue: str) -> QueueSettings:
        """Settings of a queue, as a whole."""

    def settings_of(self, queues: Sequence[str]) -> list[QueueSettings]:
        """Settings of each of some queues, as a whole."""

    def sweep(self, shard: Shard, *, retention_ms: int, dead_retention_ms: int | None = None) -> Swept:
        """Take back lapsed leases, forget what finished over `retention_ms` ago, hang the bell: a bounded step.

        A queue's own `retention_ms` goes before the one given. Dead tasks are kept if `dead_retention_ms` is None.
        Otherwise they are forgotten that long after their death, and that long after the first such sweep at the
        earliest. A shard without tasks or settings may be forgotten as a whole.
        """

    def sweep_all(
        self, shards: Sequence[Shard], *, retention_ms: int, dead_retention_ms: int | None = None
    ) -> list[Swept | Away]:
        """Sweep many shards, a bounded step each; answers for each what was done, or why nothing was."""

    def stats(self, shard: Shard) -> Stats:
        """The shard in numbers."""

    def stats_of(self, shards: Sequence[Shard]) -> list[Stats | Away]:
        """Many shards in numbers, or why one's are not known."""

    def lateness_of(self, shards: Sequence[Shard]) -> list[dict[int, int]]:
        """Lateness of each shard's claims in the last hour, in the buckets of domain.lateness."""

    def throttle(self, shard: Shard, tenant: str = DEFAULT_TENANT, task: Task | None = None) -> Throttle:
        """Reason why a tenant's due tasks in a shard, or this one of them, cannot be claimed now."""
