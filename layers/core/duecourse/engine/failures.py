"""Tasks whose invocation failed: Lambda's own record of it is the error of their attempt."""

import random
from collections.abc import Iterator
from enum import Enum, auto

from duecourse.domain import backoff
from duecourse.domain.batches import grouped
from duecourse.domain.history import Run, cut_detail
from duecourse.domain.lease import was_begun_by
from duecourse.domain.outcomes import Ending, Settlement
from duecourse.domain.task import Task
from duecourse.errors import TaskDamaged
from duecourse.ports.leases import LeaseStore, Settled
from duecourse.wire.events.failures import Failure

WORKED = frozenset({Ending.DONE, Ending.AGAIN, Ending.DROP})
"""Endings that only a run of the handler has."""


class Beginning(Enum):
    """State of one delivery of a failed invocation."""

    NONE = auto()
    """Nobody has begun the delivery."""
    RUNNING = auto()
    """The failed invocation has begun the delivery, and the lease holds."""
    ENDED = auto()
    """The run has ended, and no other invocation is known to have begun it."""
    ANOTHER = auto()
    """Another invocation with the same event has begun the delivery."""


def settle_failure(store: LeaseStore, failure: Failure) -> dict[str, int]:
    """Retry each task that the invocation began and did not settle, by the task's backoff; return counts by effect.

    A task that it had not begun spends no attempt, unless it began none: then the function may be unable to start.
    If the event never reached the function, no task spends an attempt. If this invocation began none and another one
    did, the record is of a further delivery of the event and changes nothing. Keys are the values of Settled; `stale`
    had been settled before. Raises StoreUnavailable.
    """
    counts = dict.fromkeys(map(str, Settled), 0)
    ends = list(_ends(store, failure))
    counts[Settled.STALE] = len(failure.tasks) - len(ends)
    for shard, some in grouped(ends, lambda end: store.shard_of(end[0].queue, end[0].id, end[0].group)).items():
        for settled in store.settle(shard, [end for _, end in some]):
            counts[settled] += 1
    return counts


def _ends(store: LeaseStore, failure: Failure) -> Iterator[tuple[Task, Settlement]]:
    """Ends of the leases that the failure ends, each beside its task."""
    found = [(task, *_beginning(store, failure.invocation, task)) for task in failure.tasks]
    seen = {beginning for _, beginning, _ in found}
    began, rng = bool(seen & {Beginning.RUNNING, Beginning.ENDED}), random.Random()
    if Beginning.ANOTHER in seen and not began:
        return  # that invocation begins the others too, or its own record ends them
    for task, beginning, token in found:
        if beginning is Beginning.NONE and (began or not failure.arrived):
            left = f"{failure.error}; the function had not begun this task" if failure.arrived else failure.error
            yield task, _undelivered(task, left)
        elif beginning is Beginning.NONE or (beginning is Beginning.RUNNING and failure.arrived):
            # The token that was read, and no other: what another invocation begins meanwhile is that one's.
            yield task, _failed(task, failure.error, rng)._replace(token=token)


def _beginning(store: LeaseStore, invocation: str, delivered: Task) -> tuple[Beginning, str]:
    """State of this delivery, and the token under which its lease can be ended."""
    try:
        task = store.get(delivered.queue, delivered.id, delivered.tenant)
    except TaskDamaged:
        return Beginning.NONE, delivered.token
    if task is None:
        return Beginning.NONE, delivered.token
    runs = [one for one in task.log if isinstance(one, Run) and one.run == delivered.run and _is_of(one, delivered)]
    running = task.delivery == delivered.token
    if not running and not runs:
        return Beginning.NONE, delivered.token
    # Of a run that is over, the token is known while the task has no later lease.
    known = running or (runs[-1].fence == task.fence and task.token != delivered.token)
    if known and not was_begun_by(task.token, delivered.token, invocation):
        return Beginning.ANOTHER, ""
    return (Beginning.RUNNING, task.token) if running else (Beginning.ENDED, "")


def _is_of(run: Run, delivered: Task) -> bool:
    """True if the delivery became this run: a begin draws a higher fence, a settle without a begin keeps it."""
    if run.outcome in WORKED:
        return run.fence >= delivered.fence
    return run.outcome in {Ending.RETRY, "lapsed"} and run.fence > delivered.fence


def _failed(task: Task, error: str, rng: random.Random) -> Settlement:
    delay_ms = backoff.delay_ms(task.retry, task.attempt, rng)
    return Settlement.of(task, Ending.RETRY, delay_ms=delay_ms, detail=cut_detail(error))


def _undelivered(task: Task, error: str) -> Settlement:
    return Settlement.of(task, Ending.UNDELIVERED, detail=cut_detail(error))
