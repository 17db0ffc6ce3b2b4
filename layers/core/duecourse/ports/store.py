"""The ledger's contract: every verb that changes a task, and what it answers.

Every verb is one atomic step on one shard; what it answers has happened, what it refuses has changed nothing. A great
add may be several such steps: cut off, and asked for again, it adds nothing twice.
Time is the store's own. A task that ends, done or dead, is followed in the same step by the tasks that tell of it
(domain/follow_up.py): of its own `notify`, and of any death where the store was made with `deaths`. Each verb raises
StoreUnavailable where the store does not answer, StoreMisused where a queue has another number of shards than the store
was told, and ValueError for more things at a time than it takes.
"""

from collections.abc import Mapping, Sequence
from enum import StrEnum
from types import MappingProxyType
from typing import NamedTuple, Protocol

from duecourse.domain.history import Door
from duecourse.domain.outcomes import Settlement
from duecourse.domain.pages import Page, Place, Wanted
from duecourse.domain.queues import DEFAULT_PRIORITY, HeldBack, QueueChanges, QueueSettings, Stats
from duecourse.domain.task import DEFAULT_TENANT, NewTask, Shard, Task
from duecourse.ports.repeats import Repeats
from duecourse.ports.upkeep import Away, Swept
from duecourse.ports.warmth import Warmth

MAX_ADD = 1_000
"""The most tasks one add takes to one shard."""
FORGET_MS = 600_000
"""How long a shard has neither tasks nor settings of a user's before it may be forgotten."""
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
    PAST_DEADLINE = "past_deadline"


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
"""By kind: what is claimed of these is handed over, under a lease of delivery that its target is to begin."""
NO_DELIVERIES: Deliveries = MappingProxyType({})
MOST_UNDELIVERED = 20
"""How many deliveries in a row come to nothing before the task is dead."""
FIRST_DELAY_MS, LONGEST_DELAY_MS = 1_000, 300_000
"""When a task whose delivery came to nothing is due again: twice as late each time."""
PUT_ASIDE_MS = 900_000
"""When a claim looks again at a task that was put aside, should nothing make it due before."""


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
    `revive` schedules a done one again, as a new generation. `by` says by which of the product's doors it came.
    A deadline that was given as a duration moves along; one that was given as an instant stays, and what would be due
    no sooner is answered PAST_DEADLINE and not moved. What waits to replace a task that is taken by force takes its
    place at once, and is what is moved.
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

    def repeats(self) -> Repeats:
        """What is remembered of requests sent twice, beside the tasks and by the same clock."""

    def warmth(self) -> Warmth:
        """What comes due soon, and which functions were invoked lately, by the same clock."""

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

        Each shard's are one step, a great many several. A step is done or not; where the store fails between two of
        them, PartlyAdded says which tasks it has.
        One that is not as far `apart` from its group's as it says is answered KEPT, without a record.
        With `alone`, where all are one tenant's and of its group: all of them in one step, or none and an empty answer.
        """

    def get(self, queue: str, id: str, tenant: str = DEFAULT_TENANT) -> Task | None:
        """One task as it stands, in whichever shard."""

    def group(self, queue: str, group: str, tenant: str = DEFAULT_TENANT) -> list[Task]:
        """The tasks of a group, by id."""

    def claim(
        self,
        shard: Shard,
        limit: int,
        *,
        lease_ms: int,
        max_bytes: int = 4_000_000,
        door: Door = Door.TAKE,
        deliveries: Deliveries = NO_DELIVERIES,
    ) -> Claim:
        """Lease at most `limit` due tasks as the queue's limits allow, and no more than `max_bytes` after the first.

        Leases that have lapsed are taken back first, each at the cost of an attempt. Tenants take turns. A queue's own
        `lease_ms` goes before the one given. `door` is how they were found.

        What is of a kind in `deliveries` gets a lease of delivery, and `target`: a limit counts it as running. It is
        begun (`begin`), or settled without that, by its token; one that lapses first spends no attempt, and is due
        again later each time, dead after MOST_UNDELIVERED in a row. What its target has no room for is put aside until
        it has, and holds up nothing behind it.
        """

    def begin(self, shard: Shard, deliveries: Sequence[Lease], lease_ms: int, nonces: Sequence[bytes]) -> list[Begun]:
        """Begin tasks that were handed over, at most MAX_CLAIM: each delivery becomes the lease of its run.

        Its new token ends in its one of `nonces` (8 bytes each): the same delivery and nonce again is answered as
        before, another worker is not. One past its deadline dies instead.
        """

    def take(self, queue: str, id: str, tenant: str = DEFAULT_TENANT, *, lease_ms: int, group: str = "") -> Task | None:
        """Lease one scheduled task now, due or not; None where it is not scheduled, or a limit does not allow it.

        As in a claim, lapsed leases are taken back first and a queue's own `lease_ms` goes before. Without its `group`
        a task is found in its id's shard alone. Its log says Door.TAKE.
        """

    def settle(self, shard: Shard, settlements: Sequence[Settlement]) -> list[Settled]:
        """End leases, at most MAX_CLAIM. The same token and ending again gets the same answer."""

    def extend(self, shard: Shard, leases: Sequence[Lease], lease_ms: int, *, at_least: bool = False) -> list[int]:
        """Let leases end `lease_ms` from now; answers each one's new end, 0 where it is lost.

        With `at_least`, one that ends later stays as it is. A delivery that is not begun may be extended, and saved
        under, too.
        """

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
        """Cancel scheduled tasks and delete dead ones; in which steps, as `move`.

        With `force` a leased task is taken from its worker and cancelled, and what waits to replace it with it: that
        is then the task that stands there, cancelled.
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
        """Set a queue anew: what is given changes, from the next claim on; a step a shard, to be repeated if it fails.

        Paused, it hands nothing out, and what is leased goes on. Of each limit each shard gets its part. A limit counts
        what is leased already; a rate, what was claimed since it was set. Raises InvalidInput where a limit is lower
        than the number of shards. As a `default` it sets only what is not set, and the queue may be forgotten with it,
        not sooner than FORGET_MS later.
        """

    def settings(self, queue: str) -> QueueSettings:
        """How a queue is set, as a whole."""

    def settings_of(self, queues: Sequence[str]) -> list[QueueSettings]:
        """How each of some queues is set, as a whole."""

    def sweep(self, shard: Shard, *, retention_ms: int, dead_retention_ms: int | None = None) -> Swept:
        """Take back lapsed leases, forget what finished over `retention_ms` ago, hang the bell: a bounded step.

        A queue's own `retention_ms` goes before the one given. The dead are kept where `dead_retention_ms` is
        None; else they are forgotten so long after their death, and no sooner than so long after the first such sweep.
        A shard without tasks or settings may be forgotten as a whole.
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
        """How late each shard's tasks of the last hour were when claimed, in the buckets of domain.lateness."""

    def held_back(self, shard: Shard, tenant: str = DEFAULT_TENANT, task: Task | None = None) -> HeldBack:
        """What holds a tenant's due tasks in a shard, or this one of them, back from being claimed now."""
