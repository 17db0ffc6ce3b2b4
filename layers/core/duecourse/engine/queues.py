"""Verbs of operators on queues: show them, set them."""

import logging
from collections.abc import Iterator, Mapping

from duecourse.domain.batches import cut, grouped
from duecourse.domain.lateness import added_up, quantile
from duecourse.domain.queues import QueueChanges, QueueSettings, QueueStatus, ShardStatus, Stats
from duecourse.domain.task import Shard
from duecourse.errors import QueueNotFound, StoreMisused
from duecourse.ports.ledger import Away
from duecourse.ports.queues import QueueStore

log = logging.getLogger("duecourse.queues")

MOST = 200
"""Number of shards that are read at a time."""


class Queues:
    """The verbs on queues."""

    def __init__(self, store: QueueStore) -> None:
        self._store = store

    def every(self) -> list[QueueStatus]:
        """All queues that were ever added to or set, by name. Raises StoreUnavailable.

        A queue with another number of shards than the settings say is left out, with an error in the log.
        """
        queues = grouped(self._store.shards(), lambda shard: shard.queue)
        names = sorted(queues)
        return [
            one
            for some in cut(names, lambda name: len(queues[name]), most=MOST, max_bytes=MOST)
            for one in self._views(some, queues)
        ]

    def get(self, queue: str) -> QueueStatus:
        """One queue. Raises QueueNotFound where nothing was ever added to it, nor was it set; StoreUnavailable."""
        shards = [shard for shard in self._store.shards() if shard.queue == queue]
        if not shards:
            raise QueueNotFound
        stats = [_known(one) for one in self._store.stats_of(shards)]
        [settings], late = self._store.settings_of([queue]), self._store.lateness_of(shards)
        return _view(queue, settings, shards, stats, late)

    def configure(self, queue: str, changes: QueueChanges) -> QueueStatus:
        """Change the settings of a queue, which may have no tasks yet. Raises InvalidInput and StoreUnavailable."""
        self._store.configure(queue, changes)
        return self.get(queue)

    def _views(self, names: list[str], queues: Mapping[str, list[Shard]]) -> Iterator[QueueStatus]:
        """Some queues, asked for together."""
        every = [shard for name in names for shard in queues[name]]
        answers = dict(zip(every, self._store.stats_of(every), strict=True))
        shown = [name for name in names if self._is_shown(name, [answers[shard] for shard in queues[name]])]
        shards = [shard for name in shown for shard in queues[name]]
        late = dict(zip(shards, self._store.lateness_of(shards), strict=True))
        for name, settings in zip(shown, self._store.settings_of(shown), strict=True):
            own = queues[name]
            yield _view(name, settings, own, [_known(answers[one]) for one in own], [late[one] for one in own])

    def _is_shown(self, queue: str, answers: list[Stats | Away]) -> bool:
        misused = [one for one in answers if isinstance(one, StoreMisused)]
        for error in misused[:1]:
            log.error("queue %s is not shown: %s", queue, error)
        return not misused


def _known(answer: Stats | Away) -> Stats:
    if isinstance(answer, Stats):
        return answer
    raise answer


def _view(
    queue: str, settings: QueueSettings, shards: list[Shard], stats: list[Stats], late: list[dict[int, int]]
) -> QueueStatus:
    total = added_up(late)
    return QueueStatus(
        name=queue,
        settings=settings,
        scheduled=sum(one.scheduled for one in stats),
        running=sum(one.leased for one in stats),
        done=sum(one.done for one in stats),
        dead=sum(one.dead for one in stats),
        oldest_overdue_ms=max(one.overdue_ms for one in stats),
        late_p50_ms=quantile(total, 0.5),
        late_p99_ms=quantile(total, 0.99),
        shards=[ShardStatus(s.number, one.leased, one.settings) for s, one in zip(shards, stats, strict=True)],
    )
