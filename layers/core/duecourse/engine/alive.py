"""Leases of tasks that run in a process of their own: extended while their handlers run."""

import logging
import threading
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager

from duecourse.domain.batches import grouped
from duecourse.domain.history import cut_detail
from duecourse.domain.lease import STEP_MS, STEPS
from duecourse.domain.outcomes import Ending, Settlement
from duecourse.domain.task import Shard, Task
from duecourse.errors import StoreMisused, StoreUnavailable
from duecourse.ports.leases import Lease, LeaseStore

log = logging.getLogger("duecourse.engine")

AGAIN_S = 1.0
"""Pause after an extension that failed: a store that is back spares lapsed leases for some seconds only."""


class KeptAlive:
    """Extends the leases of running tasks by `step_ms`, several times in that time: `run` it on a thread of its own."""

    def __init__(self, store: LeaseStore, step_ms: int = STEP_MS) -> None:
        self._store = store
        self._step_ms = step_ms
        self._running: dict[str, Task] = {}
        self._stopped = threading.Event()

    @contextmanager
    def while_running(self, task: Task) -> Iterator[None]:
        """Keep the task's lease meanwhile; where its queue gives shorter ones, from the beginning."""
        self._running[task.token] = task
        if task.lease_expires_at - task.claimed_at < self._step_ms:
            self._extend([task])
        try:
            yield
        finally:
            self._running.pop(task.token, None)

    def run(self) -> None:
        """Extend leases until stopped."""
        pause_s = step_s = self._step_ms / STEPS / 1_000
        while not self._stopped.wait(pause_s):
            pause_s = step_s if self.extend() else min(AGAIN_S, step_s)

    def stop(self) -> None:
        """Let `run` return."""
        self._stopped.set()

    def extend(self) -> bool:
        """Extend the lease of each task that runs now; False where a shard did not answer."""
        return self._extend(list(self._running.values()))

    def _extend(self, running: Sequence[Task]) -> bool:
        answered = True
        for shard, tasks in self._by_shard(running):
            leases = list(map(Lease.of, tasks))
            try:
                self._store.extend(shard, leases, self._step_ms, at_least=True)
            except (StoreUnavailable, StoreMisused) as error:
                answered = False
                log.warning("%d leases in shard %s were not extended and will be: %s", len(tasks), shard, error)
        return answered

    def give_up(self, why: str) -> int:
        """End the attempt of each task that runs still, for this reason: it is due again at once. Answers how many.

        A worker that ends calls it last: the process is to end before another worker has claimed them.
        """
        count = 0
        for shard, tasks in self._by_shard(list(self._running.values())):
            ends = [Settlement.of(task, Ending.RETRY, delay_ms=0, detail=cut_detail(why)) for task in tasks]
            try:
                count += len(self._store.settle(shard, ends))
            except (StoreUnavailable, StoreMisused) as error:
                log.warning("%d leases in shard %s will lapse: %s", len(tasks), shard, error)
        return count

    def _by_shard(self, tasks: Sequence[Task]) -> Iterable[tuple[Shard, list[Task]]]:
        return grouped(tasks, lambda task: self._store.shard_of(task.queue, task.id, task.group)).items()
