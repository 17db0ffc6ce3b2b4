"""One step on one shard of an ordered map: a look, or a change that is one batch; and in which shard a task is."""

import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager

from duecourse.adapters.keyvalue.ledger import Ledger
from duecourse.adapters.keyvalue.listeners import Listeners
from duecourse.adapters.keyvalue.map import Batch, OrderedMap
from duecourse.adapters.keyvalue.on_record import shards_on_record
from duecourse.adapters.record import stored_id
from duecourse.domain.shards import Sharding, scatter
from duecourse.domain.task import Shard, Task
from duecourse.errors import StoreMisused
from duecourse.ports.clock import Clock
from duecourse.ports.store import Reply


class Steps:
    """The steps on one map, one at a time; `listeners` are told of each bell that is hung elsewhere, in order."""

    def __init__(self, below: OrderedMap, clock: Clock, sharding: Sharding, *, deaths: bool) -> None:
        """Raises StoreMisused where a queue has another number of shards in the map, which is closed then."""
        self._below = below
        self._clock = clock
        self._sharding = sharding
        self._deaths = deaths
        self._lock = threading.Lock()
        self.listeners = Listeners(self._lock)
        self._check_counts()

    @contextmanager
    def change(self, shard: Shard) -> Iterator[Ledger]:
        """One change: all of it is written, with the bell hung, or nothing where it raises."""
        with self._lock:
            batch = Batch(self._below)
            ledger = self._ledger(batch, shard)
            hung = ledger.meta.bell_at
            yield ledger
            ledger.close()
            batch.commit()
            if ledger.meta.bell_at != hung:
                self.listeners.tell(shard, ledger.meta.bell_at)

    @contextmanager
    def batch(self) -> Iterator[tuple[Batch, int]]:
        """One change outside of the shards, and its instant (epoch ms)."""
        with self._lock:
            batch = Batch(self._below)
            yield batch, self._clock.now()
            batch.commit()

    @contextmanager
    def look(self, shard: Shard) -> Iterator[Ledger]:
        """The shard as it stands: what is changed is not kept."""
        with self._lock:
            yield self._ledger(Batch(self._below), shard)

    def change_wherever(
        self, queue: str, ids: Sequence[str], tenant: str, group: str, act: Callable[[Ledger, int], Reply]
    ) -> list[Reply]:
        """What `act` does with each of a group's tasks, or with each wherever it is."""

        def step(shard: Shard, chosen: list[int]) -> list[Reply]:
            with self.change(shard) as ledger:
                return [act(ledger, index) for index in chosen]

        if group:
            return scatter([self._sharding.of(queue, "", group)] * len(ids), step)
        return scatter([self._find(queue, id, stored_id(tenant, id)) for id in ids], step)

    def get(self, queue: str, id: str, tenant: str) -> Task | None:
        """A task, wherever it is."""
        sid = stored_id(tenant, id)
        return self._show(self._find(queue, id, sid), sid)

    def shards(self) -> list[Shard]:
        """Every shard on record."""
        with self._lock:
            return sorted(shards_on_record(Batch(self._below)))

    def close(self) -> None:
        """Give up the map, once no step is under way."""
        with self._lock:
            self._below.close()

    def _ledger(self, batch: Batch, shard: Shard) -> Ledger:
        return Ledger(batch, shard, self._sharding.count(shard.queue), self._clock.now(), deaths=self._deaths)

    def _find(self, queue: str, id: str, sid: str) -> Shard:
        home = self._sharding.of(queue, id)
        every = [home, *self._sharding.every(queue)]
        return next((shard for shard in every if self._show(shard, sid)), home)

    def _show(self, shard: Shard, sid: str) -> Task | None:
        with self.look(shard) as ledger:
            return ledger.show(sid)

    def _check_counts(self) -> None:
        for shard, told in shards_on_record(Batch(self._below)).items():
            count = self._sharding.count(shard.queue)
            if told != count:
                self._below.close()
                raise StoreMisused(
                    f"Queue {shard.queue} has {told} shards on record and DUECOURSE_SHARDS says {count}: "
                    f"set it to {told}, because more shards gain nothing in one process"
                )
