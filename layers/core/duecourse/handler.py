"""What a function of one's own works tasks with: the decorator, a checkpoint, more time."""

import logging
from collections.abc import Callable
from contextlib import suppress
from functools import wraps
from typing import Any

from duecourse import wiring
from duecourse.domain.lease import longest_lease
from duecourse.domain.outcomes import Outcome, Span
from duecourse.domain.task import Json, Task, dump_state
from duecourse.domain.times import parse_duration
from duecourse.errors import InvalidInput, LeaseLost, StoreUnavailable
from duecourse.ports.store import Lease
from duecourse.wire.invocation import decode_message, decode_tasks
from duecourse.wire.messages import Batch, answer, read_batch

log = logging.getLogger("duecourse.handler")


def task_handler(function: Callable[[Task], Outcome | None]) -> Callable[[Json, Any], dict[str, Json]]:
    """Make `function` a Lambda handler for tasks, from the engine (`lambda:`) and from queues (`sqs:`, `amqp:`) alike.

    The function gets one Task and returns Done, Again, Retry or Drop; None is Done, an exception a Retry. The tasks of
    one invocation run beside each other. Of the engine's, each is begun here, its lease is kept alive up to the
    function's timeout and settled at its end: the handler answers how many ended how. `task.remaining` tells the
    seconds that are left. Of a queue's, it answers which messages failed (ReportBatchItemFailures), or raises
    MessagesFailed where the broker is RabbitMQ. Raises InvalidInput for any other event. Log records of a task, by
    whichever logger, carry its id as `duecourse_task`.
    """

    @wraps(function)
    def handler(event: Json, context: Any) -> dict[str, Json]:
        batch, left_ms = read_batch(event), context.get_remaining_time_in_millis
        if batch is not None:
            return _receive(function, batch, left_ms)
        tasks = decode_tasks(event)
        if not tasks:
            _get_ready()
        return dict(wiring.worker(function).work(tasks, left_ms))

    return handler


def _get_ready() -> None:
    """Open the ledger: an event without tasks comes some seconds before one with some, so that this one is quick."""
    with suppress(StoreUnavailable):
        wiring.store().ping()


def _receive(function: Callable[[Task], Outcome | None], batch: Batch, left_ms: Callable[[], int]) -> dict[str, Json]:
    tasks, failed = {}, {}
    for message in batch.messages:
        try:
            task = decode_message(message.body)
        except InvalidInput as error:
            failed[message.name] = str(error)
        else:
            deliveries = message.deliveries
            tasks[message.name] = task._replace(run=deliveries, attempt=deliveries, left_ms=left_ms)
    failed |= wiring.receiver(function).work(tasks)
    for name, problem in failed.items():
        log.error("message %s will be delivered again: %s", name, problem)
    return answer(batch, failed)


def save(task: Task, state: Json) -> None:
    """Keep a checkpoint (JSON, at most 4 KiB): the task's next run finds it in `task.state`.

    Raises LeaseLost where the task has gone to another worker: stop then, for its work is no longer this one's.
    """
    store = wiring.store()
    if not store.save(store.shard_of(task.queue, task.id, task.group), _lease(task), dump_state(state)):
        raise LeaseLost


def extend(task: Task, time: Span) -> None:
    """Let the lease end `time` from now or later, never later than a little after its function's timeout.

    While a handler runs, its lease is kept alive by itself; this is for work that lets no other thread run for as long
    as half a minute. Raises LeaseLost where the task has gone to another worker.
    """
    store, lease_ms = wiring.store(), parse_duration(time)
    if task.left_ms is not None:
        lease_ms = min(lease_ms, longest_lease(task.left_ms()))
    shard = store.shard_of(task.queue, task.id, task.group)
    if not all(store.extend(shard, [_lease(task)], lease_ms, at_least=True)):
        raise LeaseLost


def _lease(task: Task) -> Lease:
    return Lease(task.id, task.token, task.tenant)
