"""What operators do with queues: look at them, set them."""

import logging

from duecourse.domain.lateness import added_up, quantile
from duecourse.domain.queues import QueueChanges, QueueStanding, ShardStanding
from duecourse.domain.task import Shard
from duecourse.errors import QueueNotFound, StoreMisused
from duecourse.ports.store import Store

log = logging.getLogger("duecourse.queues")


class Queues:
    """The verbs on queues."""

    def __init__(self, store: Store) -> None:
        self._store = store

    def every(self) -> list[QueueStanding]:
        """All queues that were ever added to or set, by name; one of another number of shards than the settings say is
        told in the log instead. Raises StoreUnavailable."""
        queues: dict[str, list[Shard]] = {}
        for shard in self._store.shards():
            queues.setdefault(shard.queue, []).append(shard)
        seen = [self._view_or_tell(queue, shards) for queue, shards in sorted(queues.items())]
        return [queue for queue in seen if queue]

    def get(self, queue: str) -> QueueStanding:
        """One queue. Raises QueueNotFound where nothing was ever added to it, nor was it set; StoreUnavailable."""
        shards = [shard for shard in self._store.shards() if shard.queue == queue]
        if not shards:
            raise QueueNotFound
        return self._view(queue, shards)

    def configure(self, queue: str, changes: QueueChanges) -> QueueStanding:
        """Set a queue anew, which may have no tasks yet. Raises InvalidInput and StoreUnavailable."""
        self._store.configure(queue, changes)
        return self.get(queue)

    def _view_or_tell(self, queue: str, shards: list[Shard]) -> QueueStanding | None:
        try:
            return self._view(queue, shards)
        except StoreMisused as error:
            log.error("queue %s is not shown: %s", queue, error)  # noqa: TRY400 - it says all there is to do
            return None

    def _view(self, queue: str, shards: list[Shard]) -> QueueStanding:
        stats = [self._store.stats(shard) for shard in shards]
        late = added_up(self._store.lateness(shard) for shard in shards)
        return QueueStanding(
            name=queue,
            settings=self._store.settings(queue),
            scheduled=sum(one.scheduled for one in stats),
            running=sum(one.leased for one in stats),
            done=sum(one.done for one in stats),
            dead=sum(one.dead for one in stats),
            oldest_overdue_ms=max(one.overdue_ms for one in stats),
            late_p50_ms=quantile(late, 0.5),
            late_p99_ms=quantile(late, 0.99),
            shards=[ShardStanding(s.number, one.leased, one.settings) for s, one in zip(shards, stats, strict=True)],
        )
