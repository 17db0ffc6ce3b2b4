"""What a function of one's own works tasks with: the decorator, a checkpoint, more time."""

import logging
from collections.abc import Callable
from functools import wraps
from typing import Any

from duecourse import wiring
from duecourse.domain.outcomes import Outcome, Span
from duecourse.domain.task import Json, Task, dump_state
from duecourse.domain.times import parse_duration
from duecourse.errors import InvalidInput, LeaseLost
from duecourse.ports.store import Lease
from duecourse.wire.invocation import decode_message, decode_tasks
from duecourse.wire.messages import Batch, answer, read_batch

log = logging.getLogger("duecourse.handler")


def task_handler(function: Callable[[Task], Outcome | None]) -> Callable[[Json, Any], dict[str, Json]]:
    """Make `function` a Lambda handler for tasks, from the engine (`lambda:`) and from queues (`sqs:`, `amqp:`) alike.

    The function gets one Task and returns Done, Again, Retry or Drop; None is Done, an exception a Retry. The tasks of
    one invocation run beside each other. Of the engine's, each is under its lease, which is settled here: the handler
    answers how many ended how. Of a queue's, it answers which messages failed (ReportBatchItemFailures), or raises
    MessagesFailed where the broker is RabbitMQ. Raises InvalidInput for any other event.
    """

    @wraps(function)
    def handler(event: Json, context: Any) -> dict[str, Json]:
        batch = read_batch(event)
        if batch is not None:
            return _receive(function, batch)
        return dict(wiring.worker(function).work(decode_tasks(event), context.get_remaining_time_in_millis))

    return handler


def _receive(function: Callable[[Task], Outcome | None], batch: Batch) -> dict[str, Json]:
    tasks, failed = {}, {}
    for message in batch.messages:
        try:
            task = decode_message(message.body)
        except InvalidInput as error:
            failed[message.name] = str(error)
        else:
            tasks[message.name] = task._replace(run=message.deliveries, attempt=message.deliveries)
    failed |= wiring.receiver(function).work(tasks)
    for name, problem in failed.items():
        log.error("message %s is to be delivered again: %s", name, problem)
    return answer(batch, failed)


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
