"""Contract of the schedules: entries of the ledger that add tasks, and are never leased."""

from collections.abc import Sequence
from enum import StrEnum
from typing import NamedTuple, Protocol

from duecourse.domain.schedule import Firing, Kept, Progress, Schedule
from duecourse.domain.task import DEFAULT_TENANT, Shard
from duecourse.ports.ledger import Ledger

MAX_FIRE = 200
"""The most schedules of one step."""


class Put(StrEnum):
    """Effect of writing a schedule."""

    CREATED = "created"
    CHANGED = "changed"
    KEPT = "kept"
    CONFLICT = "conflict"
    ABSENT = "absent"


class Fired(StrEnum):
    """Effect of one firing: STALE where the schedule was no longer as it was read, and nothing was done."""

    FIRED = "fired"
    STALE = "stale"


class SchedulePage(NamedTuple):
    """Some schedules of a queue, by id, and the id after which the next page begins; "" for no more."""

    schedules: list[Kept]
    next: str


class ScheduleStore(Ledger, Protocol):
    """The ledger for schedules. A schedule's occurrences are in its own shard: their group is its id."""

    def put_schedule(self, schedule: Schedule, progress: Progress, *, if_version: int | None = None) -> Put:
        """Write a schedule, in one step.

        With `if_version` it is changed where its version is that; CONFLICT where it is another, ABSENT where it is not
        there. Without it is created; KEPT, and unchanged, where it is there. Raises LedgerTooOld in a shard whose
        records are of an earlier version, and QuotaExceeded as an add does for its tenant's pending tasks and bytes.
        """

    def schedule(self, queue: str, id: str, tenant: str = DEFAULT_TENANT) -> Kept | None:
        """One schedule."""

    def schedules(self, queue: str, after: str, limit: int, tenant: str = DEFAULT_TENANT) -> SchedulePage:
        """At most `limit` schedules of a tenant in a queue, by id, those after an id."""

    def drop_schedule(
        self, queue: str, id: str, tenant: str = DEFAULT_TENANT, *, generation: int | None = None
    ) -> bool:
        """Delete a schedule, not its occurrences; False where it is not there, or is of another `generation`."""

    def due_schedules(self, shard: Shard, limit: int = MAX_FIRE) -> list[Kept]:
        """Schedules of a shard that are due, the longest due first."""

    def fire(self, shard: Shard, firings: Sequence[Firing]) -> list[Fired]:
        """Add the occurrences of schedules and move these on, each in one step or not at all, at most MAX_FIRE.

        `overlap` is decided here, by the occurrences that have not ended: an occurrence that is skipped is `skipped` in
        the schedule's progress. One that is queued waits until the one before has ended, and takes the place of one
        that waits already. A task over a quota of its tenant is not added: it counts as skipped.
        """
