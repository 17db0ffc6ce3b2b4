"""The tick: upkeep of every shard, and a drain of what the rings missed."""

from collections.abc import Callable
from typing import NamedTuple

from duecourse.domain.history import Door
from duecourse.domain.queues import Stats
from duecourse.domain.task import Shard
from duecourse.engine.drain import Drainer
from duecourse.errors import StoreMisused, StoreUnavailable
from duecourse.ports.repeats import PRUNE
from duecourse.ports.store import Store, Swept


class Survey(NamedTuple):
    """How the ledger stands when a tick comes; `oldest_overdue_ms` is how late the longest waiting task is then.

    `away` is why some shards are not among `shards`: a cluster's whose primary has gone, or those of a queue of another
    number of shards than the settings say.
    """

    shards: list[Shard]
    oldest_overdue_ms: int
    dead_total: int
    away: StoreUnavailable | StoreMisused | None


class Ticked(NamedTuple):
    """What a tick found and did."""

    shards: int
    oldest_overdue_ms: int
    dead_total: int
    reclaimed: int
    pruned: int
    claimed: int
    done: int
    again: int
    retried: int
    dead: int
    backlog: int


class Sweeper:
    """The second door to the ledger: needs no ring."""

    def __init__(self, store: Store, drainer: Drainer, retention_ms: int, margin_ms: int) -> None:
        self._store = store
        self._drainer = drainer
        self._retention_ms = retention_ms
        self._margin_ms = margin_ms

    def survey(self) -> Survey:
        """See what there is, and change nothing. Raises StoreUnavailable where the whole store is away."""
        stats: dict[Shard, Stats] = {}
        away: StoreUnavailable | StoreMisused | None = None
        for shard in self._store.shards():
            try:
                stats[shard] = self._store.stats(shard)
            except StoreUnavailable as error:
                self._store.ping()
                away = error
            except StoreMisused as error:
                away = error
        overdue_ms = max((one.overdue_ms for one in stats.values() if not one.settings.paused), default=0)
        return Survey(list(stats), overdue_ms, sum(s.dead for s in stats.values()), away)

    def tick(self, found: Survey, remaining_ms: Callable[[], int]) -> Ticked:
        """Sweep every shard found a bounded step, drain them all, and go on sweeping while there is time."""
        shards = found.shards
        swept = {shard: [self._sweep(shard)] for shard in shards}
        drained = self._drainer.drain(shards, remaining_ms, dict.fromkeys(shards, Door.TICK))
        for shard, steps in swept.items():
            while steps[-1].more and remaining_ms() > self._margin_ms:
                steps.append(self._sweep(shard))
        self._forget_requests(remaining_ms)
        every = [step for steps in swept.values() for step in steps]
        return Ticked(
            shards=len(shards),
            oldest_overdue_ms=found.oldest_overdue_ms,
            dead_total=found.dead_total,
            reclaimed=sum(step.reclaimed for step in every),
            pruned=sum(step.pruned for step in every),
            claimed=drained.claimed,
            done=drained.done,
            again=drained.again,
            retried=drained.retried,
            dead=drained.dead + sum(step.died for step in every),
            backlog=drained.backlog,
        )

    def _forget_requests(self, remaining_ms: Callable[[], int]) -> None:
        repeats = self._store.repeats()
        while repeats.prune() == PRUNE and remaining_ms() > self._margin_ms:
            pass

    def _sweep(self, shard: Shard) -> Swept:
        return self._store.sweep(shard, retention_ms=self._retention_ms)
