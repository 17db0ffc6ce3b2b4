"""Tasks whose invocation failed: Lambda's own record of it is the error of their attempt."""

import random

from duecourse.domain import backoff
from duecourse.domain.history import cut_detail
from duecourse.domain.outcomes import Ending, Settlement
from duecourse.domain.shards import by_shard
from duecourse.domain.task import Task
from duecourse.ports.leases import LeaseStore, Settled
from duecourse.wire.events.failures import Failure


class Failures:
    """Ends the leases that a failed invocation leaves behind."""

    def __init__(self, store: LeaseStore, rng: random.Random) -> None:
        self._store = store
        self._rng = rng

    def settle(self, failure: Failure) -> dict[str, int]:
        """Retry each task that the invocation had not settled, by its own backoff; answers what became of them.

        Where the event never reached the function, tasks that nobody began spend no attempt: their delivery has come to
        nothing. Keys are the values of Settled; `stale` had been settled before. Raises StoreUnavailable.
        """
        counts = dict.fromkeys(map(str, Settled), 0)
        tasks = failure.tasks
        shards = [self._store.shard_of(task.queue, task.id, task.group) for task in tasks]
        for shard, chosen in by_shard(shards).items():
            ends = [self._end(tasks[index], failure) for index in chosen]
            for settled in self._store.settle(shard, ends):
                counts[settled] += 1
        return counts

    def _end(self, task: Task, failure: Failure) -> Settlement:
        ending = Ending.FAILED if failure.arrived else Ending.UNDELIVERED
        delay_ms = backoff.delay_ms(task.retry, task.attempt, self._rng)
        error = cut_detail(failure.error)
        return Settlement(task.id, task.tenant, task.token, ending, delay_ms, detail=error)
