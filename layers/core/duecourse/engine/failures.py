"""Tasks whose invocation failed: Lambda's own record of it is the error of their attempt."""

import random
from collections.abc import Collection
from functools import partial

from duecourse.domain import backoff
from duecourse.domain.batches import grouped
from duecourse.domain.history import Run, cut_detail
from duecourse.domain.outcomes import Ending, Settlement
from duecourse.domain.task import Task
from duecourse.errors import TaskDamaged
from duecourse.ports.leases import LeaseStore, Settled
from duecourse.wire.events.failures import Failure

WORKED = frozenset({Ending.DONE, Ending.AGAIN, Ending.DROP})
"""Endings that only a run of the handler has."""


def settle_failure(store: LeaseStore, failure: Failure) -> dict[str, int]:
    """Retry each task that the invocation began and did not settle, by the task's backoff; return counts by effect.

    A task that it had not begun spends no attempt, unless it began none: then the function may be unable to start.
    If the event never reached the function, no task spends an attempt. Keys are the values of Settled; `stale` had been
    settled before. Raises StoreUnavailable.
    """
    counts = dict.fromkeys(map(str, Settled), 0)
    began = {task.id for task in failure.tasks if _has_begun(store, task)} if failure.arrived else set[str]()
    ends = partial(_end, failure, began, random.Random())
    for shard, tasks in grouped(failure.tasks, lambda task: store.shard_of(task.queue, task.id, task.group)).items():
        for settled in store.settle(shard, list(map(ends, tasks))):
            counts[settled] += 1
    return counts


def _has_begun(store: LeaseStore, delivered: Task) -> bool:
    """True if the task of this delivery was begun, whether it runs still or has ended."""
    try:
        task = store.get(delivered.queue, delivered.id, delivered.tenant)
    except TaskDamaged:
        return False
    if task is None:
        return False
    runs = (one for one in task.log if isinstance(one, Run) and one.run == delivered.run)
    return task.delivery == delivered.token or any(_is_of(one, delivered) for one in runs)


def _is_of(run: Run, delivered: Task) -> bool:
    """True if the delivery became this run: a begin draws a higher fence, a settle without a begin keeps it."""
    if run.outcome in WORKED:
        return run.fence >= delivered.fence
    return run.outcome in {Ending.RETRY, "lapsed"} and run.fence > delivered.fence


def _end(failure: Failure, began: Collection[str], rng: random.Random, task: Task) -> Settlement:
    if failure.arrived and (task.id in began or not began):
        delay_ms = backoff.delay_ms(task.retry, task.attempt, rng)
        return Settlement.of(task, Ending.FAILED, delay_ms=delay_ms, detail=cut_detail(failure.error))
    left = f"{failure.error}; the function had not begun this task" if failure.arrived else failure.error
    return Settlement.of(task, Ending.UNDELIVERED, detail=cut_detail(left))
