"""Contract of the verbs of operators on queues."""

from collections.abc import Sequence
from typing import Protocol

from duecourse.domain.queues import QueueChanges, QueueSettings, Stats
from duecourse.domain.task import DEFAULT_TENANT, Shard
from duecourse.ports.ledger import Away, Figures

FORGET_MS = 600_000
"""Time without tasks and without a user's settings after which a shard may be forgotten."""

LOOKED_AT = 1_000
"""Number of done, and of dead, tasks of a shard among which those of one tenant are counted."""


class QueueStore(Figures, Protocol):
    """The ledger for those who set its queues and look at them."""

    def configure(
        self, queue: str, changes: QueueChanges, *, default: bool = False, tenant: str = DEFAULT_TENANT
    ) -> None:
        """Change the given settings of a queue, from the next claim on.

        They are one record, which is written in one step: after a failure all of them are changed, or none is. A shard
        that is not reached has them once it is swept. Of two changes at a time, every shard ends with the later record.

        A paused queue hands out no task, and leased tasks continue. Each shard gets its part of each limit. A limit
        counts tasks that are leased already; a rate counts claims since it was set. Raises InvalidInput if a limit is
        lower than the number of shards. A `default` changes only settings that are not set, and the queue may still be
        forgotten, FORGET_MS later at the earliest. Where the queue is new, it is among those that `tenant` made: raises
        QuotaExceeded where these are too many.
        """

    def settings_of(self, queues: Sequence[str]) -> list[QueueSettings]:
        """Settings of each of some queues, as a whole."""

    def stats_of_tenant(self, shards: Sequence[Shard], tenant: str) -> list[Stats | Away]:
        """One tenant's part of many shards in numbers, without bells, or why one's are not known.

        Its done and dead tasks are counted among the LOOKED_AT newest of each shard.
        """

    def dead_by_tenant(self, shards: Sequence[Shard]) -> dict[str, int]:
        """Number of dead tasks of each tenant, among the LOOKED_AT newest of each shard."""

    def lateness_of(self, shards: Sequence[Shard]) -> list[dict[int, int]]:
        """Lateness of each shard's runs of the last hour, due time to handler, in the buckets of domain.lateness."""
