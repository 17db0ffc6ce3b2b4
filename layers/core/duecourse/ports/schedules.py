"""Contract of the schedules: entries of the ledger that add tasks, and are never leased."""

from collections.abc import Iterator, Sequence
from enum import StrEnum
from typing import NamedTuple, Protocol

from duecourse.domain.schedule import Firing, Kept, Progress, Schedule
from duecourse.domain.task import DEFAULT_TENANT, Shard
from duecourse.ports.ledger import Throttled

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

    schedules: list[Kept]
    next: str


class ScheduleStore(Throttled, Protocol):
    """The ledger for schedules. A schedule's occurrences are in its own shard: their group is its id."""

    def put_schedule(self, schedule: Schedule, progress: Progress, *, if_version: int | None = None) -> Written:
        """Write a schedule, in one step.

        With `if_version` it is changed where its version is that. CONFLICT where it is another, or where it has fired
        since `progress` was read, by its counters and its recent occurrences; ABSENT where it is not there. A change
        keeps what became of occurrences since. Without `if_version` it is created; KEPT, and unchanged, where it is
        there.

        Raises LedgerTooOld in a shard whose records are of an earlier version, and TaskDamaged where its record cannot
        be read: `drop_schedule` deletes that. Raises QuotaExceeded and BeyondQuota as an add of one task does; its
        bytes count among its tenant's until it is dropped.
        """

    def schedule(self, queue: str, id: str, tenant: str = DEFAULT_TENANT) -> Kept | None:
        """One schedule. Raises TaskDamaged where its record cannot be read."""

    def schedules(self, queue: str, after: str, limit: int, tenant: str = DEFAULT_TENANT) -> SchedulePage:
        """At most `limit` schedules of a tenant in a queue, by id, those after an id; no backfills."""

    def schedule_ids(self, queue: str, tenant: str = DEFAULT_TENANT) -> list[str]:
        """Ids of schedules of a tenant in a queue, 2,000 at most, in no order; no backfills."""

    def drop_schedule(
        self, queue: str, id: str, tenant: str = DEFAULT_TENANT, *, generation: int | None = None
    ) -> bool:
        """Delete a schedule, and cancel the occurrence that waits for another.

        False where it is not there, or is of another `generation`. Its other occurrences stay. Its backfills add
        nothing any more, even if it is added again: the next step of each deletes it.
        """

    def coming_schedules(self) -> Iterator[Kept]:
        """Schedules of all shards that are not due yet, paused ones too, read as they are asked for.

        One that fires or is changed meanwhile may come twice, or not at all. One that cannot be read is only logged.
        Where there are none, it costs a round trip a node.
        """

    def fire(self, shard: Shard, firings: Sequence[Firing]) -> list[Fired]:
        """Add the occurrences of schedules and move these on, each in one step or not at all, at most MAX_FIRE.

        Each step draws a new generation. So does each change: STALE where the generation is another than was read. The
        same call that is sent again after a lost reply is FIRED again, and does nothing twice.

        The last step of a backfill deletes it; sent again it is STALE. One that queues is STALE, and adds nothing,
        while an occurrence of its series has not ended. It is due again after a tenth of the time for which the newest
        of them has been there: at least a second, at most a minute.

        `overlap` is decided here, for each task in turn, by the occurrences that were added here and have not ended,
        the newest 32 of its series. An occurrence that is left out is `skipped` in the schedule's progress, and counted
        in `skipped` besides `fired`; what a backfill leaves out counts in its series'. One that is queued is due at
        NEVER until the others have ended. It takes the place of one that waits already, which is cancelled and counts
        as skipped. With `replace` those before are cancelled, by force. A task over a quota of its tenant is not added:
        it counts as skipped. One whose id exists, in whatever state, is kept as it is.

        A firing `by_hand` is alone in its call, and no `overlap` holds for it. Raises QuotaExceeded and BeyondQuota as
        an add does where its task is over a quota; then nothing has changed.

        The step that ends an occurrence notes in its schedule what became of it, and lets the one that waits be due.
        The step that schedules it again (a replay, a move, an add in place of a dead one) notes that it is live.
        """
