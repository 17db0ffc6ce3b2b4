"""What a function of one's own works tasks with: the decorator, a checkpoint, more time."""

from collections.abc import Callable
from functools import wraps
from typing import Any

from duecourse import wiring
from duecourse.domain.outcomes import Outcome, Span
from duecourse.domain.task import Json, Task, dump_state
from duecourse.domain.times import parse_duration
from duecourse.errors import LeaseLost
from duecourse.ports.store import Lease
from duecourse.wire.invocation import decode_tasks


def task_handler(function: Callable[[Task], Outcome | None]) -> Callable[[Json, Any], dict[str, int]]:
    """Make `function` a Lambda handler for the engine's invocations: `lambda:<its name>` in DUECOURSE_TARGETS.

    The function gets one Task and returns Done, Again, Retry or Drop; None is Done, an exception a Retry. The tasks of
    one invocation run beside each other, each under its lease, which is settled here. The handler answers how many
    tasks ended how, and raises InvalidInput for an event that is not the engine's.
    """

    @wraps(function)
    def handler(event: Json, context: Any) -> dict[str, int]:
        return wiring.worker(function).work(decode_tasks(event), context.get_remaining_time_in_millis)

    return handler


def save(task: Task, state: Json) -> None:
    """Keep a checkpoint (JSON, at most 4 KiB): the task's next run finds it in `task.state`.

    Raises LeaseLost where the task has gone to another worker: stop then, for its work is no longer this one's.
    """
    store = wiring.store()
    if not store.save(store.shard_of(task.queue, task.id, task.group), _lease(task), dump_state(state)):
        raise LeaseLost


def extend(task: Task, time: Span) -> None:
    """Let the lease end `time` from now, for work that takes longer than its function's timeout said.

    Raises LeaseLost where the task has gone to another worker.
    """
    store, lease_ms = wiring.store(), parse_duration(time)
    if not all(store.extend(store.shard_of(task.queue, task.id, task.group), [_lease(task)], lease_ms)):
        raise LeaseLost


def _lease(task: Task) -> Lease:
    return Lease(task.id, task.token, task.tenant)
