"""Tasks whose invocation failed: Lambda's own record of it is the error of their attempt."""

import random

from duecourse.domain import backoff
from duecourse.domain.batches import grouped
from duecourse.domain.history import cut_detail
from duecourse.domain.outcomes import Ending, Settlement
from duecourse.ports.leases import LeaseStore, Settled
from duecourse.wire.events.failures import Failure


def settle_failure(store: LeaseStore, failure: Failure) -> dict[str, int]:
    """Retry each task that the invocation had not settled, by its own backoff; answers what became of them.

    Where the event never reached the function, tasks that nobody began spend no attempt: their delivery has come to
    nothing. Keys are the values of Settled; `stale` had been settled before. Raises StoreUnavailable.
    """
    counts = dict.fromkeys(map(str, Settled), 0)
    ending = Ending.FAILED if failure.arrived else Ending.UNDELIVERED
    error, rng = cut_detail(failure.error), random.Random()
    for shard, tasks in grouped(failure.tasks, lambda task: store.shard_of(task.queue, task.id, task.group)).items():
        ends = [
            Settlement.of(task, ending, delay_ms=backoff.delay_ms(task.retry, task.attempt, rng), detail=error)
            for task in tasks
        ]
        for settled in store.settle(shard, ends):
            counts[settled] += 1
    return counts
