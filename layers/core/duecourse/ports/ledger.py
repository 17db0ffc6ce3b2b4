"""The ledger as such, which every verb on it shares: its time, its shards, one task of it.

Every verb is one atomic step on one shard: an answer has happened, and a rejected request has changed nothing. A great
add may be several such steps; repeated after an interruption, it adds nothing twice. Time is the store's own.

The step that ends a task, done or dead, also adds its completion notifications (domain/notification.py): for its own
`notify`, and for any death if the store was made with `deaths`.

Each verb raises StoreUnavailable if the store does not answer, and ValueError for more tasks at a time than it takes.
It raises StoreMisused if a queue has another number of shards than the store was given.
"""

from collections.abc import Callable, Sequence
from typing import Protocol, TypeVar

from duecourse.domain.queues import Stats, Throttle
from duecourse.domain.task import DEFAULT_TENANT, Shard, Task
from duecourse.errors import StoreMisused, StoreUnavailable

T = TypeVar("T")
Away = StoreUnavailable | StoreMisused
"""Error because of which one of many shards has no answer."""


def check_count(count: int, most: int, least: int = 0) -> None:
    """Return if a verb takes so many at a time. Raises ValueError."""
    if not least <= count <= most:
        raise ValueError(f"{least} to {most} at a time, not {count}")


def answered(ask: Callable[[], T]) -> T | Away:
    """Answer of `ask`, or the error as a value: for one of many shards, while the others continue."""
    try:
        return ask()
    except (StoreUnavailable, StoreMisused) as error:
        return error


class Ledger(Protocol):
    """Tasks by due time, in shards."""

    def ping(self) -> None:
        """Return if the store answers, or one of its servers."""

    def now(self) -> int:
        """The store's own time in epoch milliseconds."""

    def shards(self) -> list[Shard]:
        """Every shard that was ever added to, or whose queue was ever set."""

    def shard_of(self, queue: str, id: str, group: str = "") -> Shard:
        """Shard of a task of this group, or of none: its leases are settled there."""

    def get(self, queue: str, id: str, tenant: str = DEFAULT_TENANT) -> Task | None:
        """One task, in any shard of its queue. Raises TaskDamaged where its record cannot be read."""

    def confirm(self, shard: Shard) -> None:
        """Return once as many replicas as must have a change have all that was written to a shard until now.

        For an answer that reports what was there, and changes nothing. Raises StoreUnavailable.
        """


class Throttled(Ledger, Protocol):
    """The ledger with the reasons for which due tasks wait."""

    def throttle(self, shard: Shard, tenant: str = DEFAULT_TENANT, task: Task | None = None) -> Throttle:
        """Reason why a tenant's due tasks in a shard, or this one of them, cannot be claimed now."""


class Figures(Ledger, Protocol):
    """The ledger in numbers."""

    def stats(self, shard: Shard) -> Stats:
        """The shard in numbers."""

    def stats_of(self, shards: Sequence[Shard]) -> list[Stats | Away]:
        """Many shards in numbers, or why one's are not known."""
