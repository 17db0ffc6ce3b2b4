"""Contract of the verbs of callers on tasks: add, list, explain, move, cancel, replay."""

from collections.abc import Sequence
from enum import StrEnum
from typing import NamedTuple, Protocol

from duecourse.domain.pages import Page, Place, Wanted
from duecourse.domain.task import DEFAULT_TENANT, NewTask, Task
from duecourse.ports.ledger import Throttled

MAX_ADD = 1_000
"""The most tasks one add takes to one shard."""


class Reply(StrEnum):
    """Effect of a verb on one task; those after OK are rejections.

    OVER_… is over a quota of the tenant, BEYOND_… more than the whole of one, for which no wait makes room.
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
    OVER_PENDING = "over_pending"
    OVER_BYTES = "over_bytes"
    OVER_ADDS = "over_adds"
    OVER_SCHEDULES = "over_schedules"
    BEYOND_PENDING = "beyond_pending"
    BEYOND_BYTES = "beyond_bytes"
    BEYOND_ADDS = "beyond_adds"


class AddReply(NamedTuple):
    """The answer to one added task; `task` is its record where `echo` asked for it.

    `wait_ms` is how long the tenant is to wait where its adds are over their quota.
    """

    id: str
    reply: Reply
    task: Task | None = None
    wait_ms: int = 0


QUOTAS = {
    Reply.OVER_PENDING: "tenant_max_pending",
    Reply.OVER_BYTES: "tenant_max_bytes",
    Reply.OVER_ADDS: "tenant_adds_per_minute",
    Reply.OVER_SCHEDULES: "tenant_max_schedules",
}
"""Quotas of a tenant, by what a store answers where one is used up."""
BEYOND = {
    Reply.BEYOND_PENDING: "tenant_max_pending",
    Reply.BEYOND_BYTES: "tenant_max_bytes",
    Reply.BEYOND_ADDS: "tenant_adds_per_minute",
}
"""Quotas of a tenant, by what a store answers where the whole of one is too little."""


class Alone(NamedTuple):
    """A condition on an add: no task of `group` is live, nor of a later generation than `since`.

    `tasks` and `bytes` are those of what was added before and is a part of the same: a quota must be able to hold both.
    """

    group: str
    since: int
    tasks: int = 0
    bytes: int = 0


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


class TaskStore(Throttled, Protocol):
    """The ledger for those who ask for tasks."""

    def add(self, tasks: Sequence[NewTask], *, echo: bool = False, alone: Alone | None = None) -> list[AddReply]:
        """Schedule tasks, at most MAX_ADD to a shard; `on_duplicate` of each decides if its id exists already.

        Each shard's tasks are one step, a great many are several. A step is done or not; if the store fails between two
        steps, PartlyAdded names the tasks that it has.
        A task that is not as far `apart` from its group's others as it asks is answered KEPT, without a record.
        With `alone`, all tasks are of one tenant and its group: all are added in one step, or none (an empty answer).
        A task over a quota of its tenant is answered with that quota and not added; with `alone` then none is. Raises
        QuotaExceeded, with nothing added, where a queue is new and its tenant has made as many as it may.
        """

    def group(self, queue: str, group: str, tenant: str = DEFAULT_TENANT) -> list[Task]:
        """The tasks of a group, by id."""

    def page(self, queue: str, wanted: Wanted, after: Place | None, limit: int, tenant: str = DEFAULT_TENANT) -> Page:
        """At most `limit` of a queue's tasks, at most MAX_PAGE, in their order, those that follow `after`.

        The work of one call is bounded, so that a page may be short, or empty, and still have a `next`.
        """

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

        Also take a leased task from its worker with `force`, and cancel it together with a waiting replacement; the
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
        them, now and never. One that is over a quota of its tenant stays dead.
        """
