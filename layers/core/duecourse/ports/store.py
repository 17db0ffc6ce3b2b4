"""The ledger's contract: every verb that changes a task, and what it answers.

Every verb is one atomic step on one shard; what it answers has happened, what it refuses has changed nothing. A great
add may be several such steps: cut off, and asked for again, it adds nothing twice.
Time is the store's own. A task that ends, done or dead, is followed in the same step by the tasks that tell of it
(domain/follow_up.py): of its own `notify`, and of any death where the store was made with `deaths`. Each verb raises
StoreUnavailable where the store does not answer, StoreMisused where a queue has another number of shards than the store
was told, and ValueError for more things at a time than it takes.
"""

from collections.abc import Sequence
from enum import StrEnum
from typing import NamedTuple, Protocol

from duecourse.domain.history import Door
from duecourse.domain.outcomes import Settlement
from duecourse.domain.pages import Page, Place, Wanted
from duecourse.domain.queues import DEFAULT_PRIORITY, HeldBack, QueueChanges, QueueSettings, Stats
from duecourse.domain.task import DEFAULT_TENANT, NewTask, Shard, Task
from duecourse.ports.repeats import Repeats

MAX_ADD = 1_000
"""The most tasks one add takes to one shard."""
MAX_CLAIM = 500
"""The most tasks one claim hands out, and one settle takes."""


def check_count(count: int, most: int, least: int = 0) -> None:
    """Return if a verb takes so many at a time. Raises ValueError."""
    if not least <= count <= most:
        raise ValueError(f"{least} to {most} at a time, not {count}")


class Reply(StrEnum):
    """What a verb did with one task; those after OK are refusals."""

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


class Settled(StrEnum):
    """What became of one settled lease."""

    DONE = "done"
    AGAIN = "again"
    RETRIED = "retried"
    DEAD = "dead"
    RELEASED = "released"
    STALE = "stale"


class Added(NamedTuple):
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
    due tasks wait until leases end. `priority` is the queue's.
    """

    tasks: list[Task]
    died: int
    backlog: int
    bell_at: int
    now: int
    held: bool = False
    priority: int = DEFAULT_PRIORITY


class Lease(NamedTuple):
    """The right to work one task: its id and the token that proves it."""

    id: str
    token: str
    tenant: str = DEFAULT_TENANT


class Move(NamedTuple):
    """A new due time for one task: `due_at` where given, else `delay_ms` from the server's now.

    `state` replaces the saved state where given (JSON text). `force` takes a leased task from its worker;
    `revive` schedules a done one again, as a new generation. `by` says by which of the product's doors it came.
    """

    id: str
    due_at: int | None = None
    delay_ms: int = 0
    state: str | None = None
    force: bool = False
    revive: bool = False
    by: str = ""


class Swept(NamedTuple):
    """What one sweep did: leases that had lapsed, tasks dead by it, finished tasks forgotten; `more` if bounded."""

    reclaimed: int
    died: int
    pruned: int
    more: bool
    bell_at: int
    now: int


class Store(Protocol):
    """The ledger."""

    def repeats(self) -> Repeats:
        """What is remembered of requests sent twice, beside the tasks and by the same clock."""

    def ping(self) -> None:
        """Return if the store answers."""

    def now(self) -> int:
        """The store's own time in epoch milliseconds."""

    def shards(self) -> list[Shard]:
        """Every shard that was ever added to, or whose queue was ever set."""

    def shard_of(self, queue: str, id: str, group: str = "") -> Shard:
        """The shard that a task of this group, or of none, is in: leases are settled there."""

    def add(self, tasks: Sequence[NewTask], *, echo: bool = False, alone: Alone | None = None) -> list[Added]:
        """Schedule tasks, at most MAX_ADD to a shard, each as its `on_duplicate` says where its id stands already.

        One that is not as far `apart` from its group's as it says is answered KEPT, without a record.
        With `alone`, where all are one tenant's and of its group: all of them in one step, or none and an empty answer.
        """

    def get(self, queue: str, id: str, tenant: str = DEFAULT_TENANT) -> Task | None:
        """One task as it stands, in whichever shard."""

    def group(self, queue: str, group: str, tenant: str = DEFAULT_TENANT) -> list[Task]:
        """The tasks of a group, by id."""

    def claim(
        self, shard: Shard, limit: int, *, lease_ms: int, max_bytes: int = 4_000_000, door: Door = Door.TAKE
    ) -> Claim:
        """Lease at most `limit` due tasks as the queue's limits allow, and no more than `max_bytes` after the first.

        Leases that have lapsed are taken back first, each at the cost of an attempt. Tenants take turns. A queue's own
        `lease_ms` goes before the one given. `door` is how they were found.
        """

    def take(self, queue: str, id: str, tenant: str = DEFAULT_TENANT, *, lease_ms: int, group: str = "") -> Task | None:
        """Lease one scheduled task now, due or not; None where it is not scheduled, or a limit does not allow it.

        As in a claim, lapsed leases are taken back first and a queue's own `lease_ms` goes before. Without its `group`
        a task is found in its id's shard alone. Its log says Door.TAKE.
        """

    def settle(self, shard: Shard, settlements: Sequence[Settlement]) -> list[Settled]:
        """End leases, at most MAX_CLAIM. The same token and ending again gets the same answer."""

    def extend(self, shard: Shard, leases: Sequence[Lease], lease_ms: int) -> list[int]:
        """Let leases end `lease_ms` from now; answers each one's new end, 0 where it is lost."""

    def save(self, shard: Shard, lease: Lease, state: str) -> bool:
        """Keep `state` (JSON text) for the task's next run; False where the lease is lost."""

    def move(self, queue: str, moves: Sequence[Move], tenant: str = DEFAULT_TENANT, *, group: str = "") -> list[Reply]:
        """Give tasks new due times, those of one shard in one step: with `group`, whose tasks they are, all.

        Without it, a task that is not in its id's shard is looked for in the queue's others.
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
        """Cancel scheduled tasks and delete dead ones; in which steps, as `move`."""

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

    def configure(self, queue: str, changes: QueueChanges) -> None:
        """Set a queue anew: what is given changes, from the next claim on; a step a shard, to be repeated if it fails.

        Paused, it hands nothing out, and what is leased goes on. Of each limit each shard gets its part. A limit counts
        what is leased already; a rate, what was claimed since it was set. Raises InvalidInput where a limit is lower
        than the number of shards.
        """

    def settings(self, queue: str) -> QueueSettings:
        """How a queue is set, as a whole."""

    def sweep(self, shard: Shard, *, retention_ms: int) -> Swept:
        """Take back lapsed leases, forget what finished over `retention_ms` ago, hang the bell: a bounded step.

        A queue's own `retention_ms` goes before the one given.
        """

    def stats(self, shard: Shard) -> Stats:
        """The shard in numbers."""

    def lateness(self, shard: Shard) -> dict[int, int]:
        """How late the tasks of the last hour were when they were claimed, in the buckets of domain.lateness."""

    def held_back(self, shard: Shard, tenant: str = DEFAULT_TENANT) -> HeldBack:
        """What holds a tenant's due tasks in a shard back from being claimed now."""
