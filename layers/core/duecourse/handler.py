"""Public parts for functions of your own: the decorator `task_handler`, `save` and `extend`."""

import logging
from collections.abc import Callable
from contextlib import suppress
from contextvars import ContextVar
from functools import partial, update_wrapper
from typing import Any, TypeAlias

from duecourse.domain.lease import longest_lease
from duecourse.domain.outcomes import Outcome, Span
from duecourse.domain.task import Json, Task, dump_state
from duecourse.domain.times import parse_duration
from duecourse.engine.receive import receive
from duecourse.engine.run import Kind
from duecourse.errors import InvalidInput, LeaseLost, StoreUnavailable
from duecourse.ports.leases import Lease
from duecourse.ports.store import Store
from duecourse.process import PROCESS, Handler
from duecourse.wire.events.invocation import decode_message, decode_tasks
from duecourse.wire.events.messages import Batch, answer, read_batch
from duecourse.wiring import App

log = logging.getLogger("duecourse.handler")

Function: TypeAlias = Callable[[Task], Outcome | None]
Answer: TypeAlias = dict[str, Json]

_runs_with: ContextVar[App] = ContextVar("runs_with")
"""App whose task runs in this context: `save` and `extend` get only the task."""


def task_handler(function: Function) -> Handler[Answer]:
    """Make `function` a Lambda handler for tasks, from the engine (`lambda:`) and from queues (`sqs:`, `amqp:`) alike.

    The function gets one Task and returns Done, Again, Retry or Drop; None counts as Done, an exception as Retry. The
    tasks of one invocation run at the same time, on threads. `task.remaining` is the number of seconds left. Log
    records of a task carry its id as `duecourse_task`.

    A task from the engine is begun here. Its lease is extended up to the function's timeout, and settled with the
    outcome; the handler answers the number of tasks for each effect. For messages of a queue, the handler answers
    those that failed (ReportBatchItemFailures); for RabbitMQ it raises MessagesFailed. Raises InvalidInput for any
    other event.
    """
    handler = app_task_handler(partial(_run, function))
    update_wrapper(handler, function)
    return handler


def app_task_handler(run: Callable[[App, Task], Outcome | None]) -> Handler[Answer]:
    """Make `run` such a handler, for a function of duecourse's own, which is given the App too."""
    return Handler(partial(_serve, run))


def _serve(run: Callable[[App, Task], Outcome | None], app: App, event: Json, context: Any) -> Answer:
    kind = partial(run, app)
    batch, left_ms = read_batch(event), context.get_remaining_time_in_millis
    if batch is not None:
        return _receive(app, kind, batch, left_ms)
    tasks = decode_tasks(event)
    if not tasks:
        with suppress(StoreUnavailable):  # it warms the function some seconds before an event with tasks
            app.store.ping()
    return dict(app.worker(kind, left_ms).work(tasks))


def _run(function: Function, app: App, task: Task) -> Outcome | None:
    before = _runs_with.set(app)
    try:
        return function(task)
    finally:
        _runs_with.reset(before)


def _receive(app: App, kind: Kind, batch: Batch, left_ms: Callable[[], int]) -> Answer:
    tasks, failed = {}, {}
    for message in batch.messages:
        try:
            task = decode_message(message.body)
        except InvalidInput as error:
            failed[message.name] = str(error)
        else:
            deliveries = message.deliveries
            tasks[message.name] = task._replace(run=deliveries, attempt=deliveries, left_ms=left_ms)
    failed |= receive(tasks, app.runner(lambda _name: kind), app.threads, lambda: app.store)
    for name, problem in failed.items():
        log.error("message %s will be delivered again: %s", name, problem)
    return answer(batch, failed)


def save(task: Task, state: Json) -> None:
    """Keep a checkpoint (JSON, at most 4 KiB): the task's next run finds it in `task.state`.

    Raises LeaseLost if another worker has the task: stop the work then.
    """
    store = _store()
    if not store.save(store.shard_of(task.queue, task.id, task.group), Lease.of(task), dump_state(state)):
        raise LeaseLost


def extend(task: Task, time: Span) -> None:
    """Extend the lease to `time` from now, at most to shortly after the function's timeout; a later end stays.

    The lease is extended by itself while a handler runs. Call this only before work that blocks all other threads for
    half a minute or more. Raises LeaseLost if another worker has the task.
    """
    store, lease_ms = _store(), parse_duration(time)
    if task.left_ms is not None:
        lease_ms = min(lease_ms, longest_lease(task.left_ms()))
    shard = store.shard_of(task.queue, task.id, task.group)
    if not all(store.extend(shard, [Lease.of(task)], lease_ms, at_least=True)):
        raise LeaseLost


def _store() -> Store:
    """The ledger of the task that runs here; in a thread that a function started, that of the process."""
    return (_runs_with.get(None) or PROCESS.app()).store
