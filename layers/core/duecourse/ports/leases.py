"""Contract of the verbs of workers: claim due tasks, begin what was handed over, settle, extend, save."""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from types import MappingProxyType
from typing import NamedTuple, Protocol, Self

from duecourse.domain.history import Trigger
from duecourse.domain.outcomes import Settlement
from duecourse.domain.queues import DEFAULT_PRIORITY
from duecourse.domain.schedule import Kept
from duecourse.domain.task import DEFAULT_TENANT, Shard, Task
from duecourse.domain.values import replaced
from duecourse.ports.ledger import Ledger

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

    `reclaimed` is how many lapsed leases were taken back first.

    `backlog` is how many could be claimed still, at least; none where the queue is paused or a limit is reached.
    `throttled`: due tasks wait until leases end. `priority` is the queue's. `aside` is how many were put aside, because
    their target has as many as it may that it has not begun. `schedules` are due, the longest due first, and wait to be
    fired (ScheduleStore.fire). `each` is how many tasks one invocation of a target has time for, where that is few. Of
    `tasks`, the first `at_once` count as begun: the others are claimed ahead.
    """

    tasks: list[Task] = field(default_factory=list)
    died: int = 0
    reclaimed: int = 0
    backlog: int = 0
    bell_at: int = 0
    now: int = 0
    throttled: bool = False
    priority: int = DEFAULT_PRIORITY
    aside: int = 0
    schedules: list[Kept] = field(default_factory=list)
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
        return replaced(task, token=self.token, run=self.run, lease_expires_at=self.expires_at, target="")


class Lease(NamedTuple):
    """The right to work one task: its id and the token that proves it."""

    id: str
    token: str
    tenant: str = DEFAULT_TENANT

    @classmethod
    def of(cls, task: Task) -> Self:
        """The lease that a worker has of this task."""
        return cls(task.id, task.token, task.tenant)


class LeaseStore(Ledger, Protocol):
    """The ledger for those who work tasks."""

    def server_of(self, shard: Shard) -> str:
        """Name of the server that has a shard, as far as is known; "" where there is only one."""

    def claim(
        self,
        shard: Shard,
        limit: int,
        *,
        lease_ms: int,
        max_bytes: int = 4_000_000,
        trigger: Trigger = Trigger.TAKE,
        deliveries: Deliveries = NO_DELIVERIES,
        kinds: Collection[str] = (),
        at_once: int = MAX_CLAIM,
    ) -> Claim:
        """Lease at most `limit` due tasks as the queue's limits allow, and no more than `max_bytes` after the first.

        Leases that have lapsed are taken back first, each at the cost of an attempt. Tenants take turns. A queue's own
        `lease_ms` goes before the one given. `trigger` is that of the claim.

        The caller begins the first `at_once` tasks at once, and the others are claimed ahead. If a lease of theirs
        lapses, no attempt is spent and the task keeps its due time. An extension of the lease, or a checkpoint, says
        that the task has begun. From the second such lapse in a row on, the task is due later each time; it is dead
        after 20.

        A claim whose reply is lost is looked for: the next claim of this process in the shard answers the leases that
        it has made, alone. An error after the first of them leaves the caller what it has leased.

        A task of a kind in `deliveries` gets the lease of a delivery, and `target`; limits count it as running. Its
        token begins it (`begin`), or settles it directly. A delivery that lapses first spends no attempt: the task is
        due again, later each time. It is dead after 20 deliveries of one run that its target was free to begin. The
        target of a delivery was busy if it has begun or run another task of the shard since: it has fewer places then.
        A task whose target has no room is put aside until there is room, and delays no other task.

        With `kinds`, those alone and the kinds in `deliveries` are claimed. A task of any other kind is put aside for
        30 s, and delays no other task; a claim that names its kind has it at once.
        """

    def begin(
        self, shard: Shard, deliveries: Sequence[Lease], lease_ms: int, nonces: Sequence[bytes], each: int = 0
    ) -> list[Begun]:
        """Begin tasks that were handed over, at most MAX_CLAIM: each delivery becomes the lease of its run.

        The new token ends in the delivery's nonce (8 bytes each). The same delivery and nonce again get the same
        answer; another worker does not. A task past its deadline is dead instead. `each` is the number of tasks that
        one invocation of the target has time for, 0 where that is not known: later claims answer it.
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

        A lease that ends later stays so with `at_least`. A task that was claimed ahead counts as begun. A delivery that
        is not begun may be extended too, and may save a state.
        """

    def save(self, shard: Shard, lease: Lease, state: str, *, instead_of: str | None = None) -> bool:
        """Keep `state` (JSON text) for the task's next run; False where the lease is lost.

        With `instead_of`, a state that is another by now stays.
        """
