"""Public parts for functions of your own: the decorator `task_handler`, `save` and `extend`."""

import inspect
import logging
import re
from collections.abc import Callable, Coroutine
from contextlib import suppress
from contextvars import ContextVar
from dataclasses import replace
from functools import partial, update_wrapper
from time import monotonic
from typing import TYPE_CHECKING, Any, TypeAlias, cast, overload

from duecourse.app import PROCESS, App, Handler
from duecourse.base.event_reader import Batch, Received, batch_answer, read_all, read_batch
from duecourse.base.ids import NAME_PATTERN
from duecourse.base.json_text import Json
from duecourse.base.times import parse_duration
from duecourse.errors import InvalidHandler, LeaseLost, StoreMisused, StoreUnavailable
from duecourse.ledger.operation_types import Lease
from duecourse.ledger.task import Outcome, Span, Task, dump_state, lease_within
from duecourse.running.event_loop import LOOP
from duecourse.running.received_tasks import run_messages
from duecourse.running.run import Runner
from duecourse.running.task_event import decode_message, decode_tasks
from duecourse.running.threads import places

if TYPE_CHECKING:
    from duecourse.ledger.operations.ledger import Ledger

log = logging.getLogger("duecourse.task_handlers")

Function: TypeAlias = Callable[[Task], Outcome | None]
AsyncFunction: TypeAlias = Callable[[Task], Coroutine[Any, Any, Outcome | None]]
RunOne: TypeAlias = Callable[[App, Task], Outcome | None]
AwaitOne: TypeAlias = Callable[[App, Task], Coroutine[Any, Any, Outcome | None]]
Answer: TypeAlias = dict[str, Json]

_runs_with: ContextVar[App] = ContextVar("runs_with")
"""App whose task runs in this context: `save` and `extend` get only the task."""


class TaskHandler(Handler[Answer]):
    """A Lambda handler for tasks; `run` works one of them with an App, and answers or raises as the function does.

    `run_async` is None for a plain function. For an async one it does the same on the event loop, and `run` waits for
    that. `kind` is the kind that a worker (`duecourse worker`) runs with it, "" for none. `parallel` bounds the tasks
    that run at the same time.
    """

    def __init__(
        self, run: RunOne, *, kind: str = "", parallel: int | None = None, run_async: AwaitOne | None = None
    ) -> None:
        super().__init__(self._serve)
        self.run = run
        self.run_async = run_async
        self.kind = kind
        self.parallel = parallel

    def _serve(self, app: App, event: Json, context: Any) -> Answer:
        batch, left_ms = read_batch(event), context.get_remaining_time_in_millis
        kind, awaited = partial(self.run, app), partial(self.run_async, app) if self.run_async else None
        runner = app.runner(lambda _name: kind, async_kind_of=lambda _name: awaited)
        at_once = places(app.threads.size, self.parallel, are_async=awaited is not None)
        if batch is not None:
            return _receive(app, runner, at_once, batch, left_ms)
        tasks = decode_tasks(event)
        if not tasks:
            with suppress(StoreUnavailable, StoreMisused):  # it warms the function some seconds before one with tasks
                app.ledger.warmth().get_ready()
        invocation = str(getattr(context, "aws_request_id", ""))
        return dict(app.received_tasks(runner, left_ms, at_once, invocation).work(tasks))


@overload
def task_handler(function: Function | AsyncFunction, /) -> TaskHandler: ...


@overload
def task_handler(
    *, kind: str = "", parallel: int | None = None
) -> Callable[[Function | AsyncFunction], TaskHandler]: ...


def task_handler(
    function: Function | AsyncFunction | None = None, /, *, kind: str = "", parallel: int | None = None
) -> TaskHandler | Callable[[Function | AsyncFunction], TaskHandler]:
    """Make a function a Lambda handler for tasks, from the engine (`lambda:`) and from queues (`sqs:`, `amqp:`) alike.

    The function gets one Task and returns Done, Again, Retry or Drop; None counts as Done, an exception as Retry. The
    tasks of one invocation run at the same time, on threads: at most `parallel`, by default DUECOURSE_PARALLEL. Those
    of an async function run on one event loop: at most `parallel`, by default 100. Use `@task_handler(parallel=1)` for
    code that threads must not share. `@task_handler(kind="report")` names the kind
    that `duecourse worker` runs with the function. `task.remaining` is the number of seconds left. Log records of a
    task carry its id as `duecourse_task`, and its queue, kind and attempt.

    A task from the engine is begun here. Its lease is extended up to the function's timeout, and settled with the
    outcome; the handler answers the number of tasks for each effect. For messages of a queue, the handler answers
    those that failed (ReportBatchItemFailures); for RabbitMQ it raises MessagesFailed. Raises InvalidInput for any
    other event, ValueError for a wrong `kind` or `parallel`, and InvalidHandler for a generator.
    """
    if parallel is not None and parallel < 1:
        raise ValueError(f"parallel must be at least 1, not {parallel}")
    if kind and not re.fullmatch(NAME_PATTERN, kind):
        raise ValueError(f"kind must be 1 to 64 characters of A-Z a-z 0-9 . _ : @ -, not {kind!r}")

    def made(function: Function | AsyncFunction) -> TaskHandler:
        if is_async(function):
            awaited = partial(_run_async, cast(AsyncFunction, function))
            run: RunOne = partial(_run_on_loop, awaited)
            handler = TaskHandler(run, kind=kind, parallel=parallel, run_async=awaited)
        else:
            handler = TaskHandler(partial(_run, cast(Function, function)), kind=kind, parallel=parallel)
        update_wrapper(handler, function)
        return handler

    return made(function) if function else made


def is_async(function: object) -> bool:
    """True for an async function, False for a plain one. Raises InvalidHandler for a generator, or no function."""
    inner = function
    while isinstance(inner, partial):
        inner = inner.func
    name, place = getattr(inner, "__name__", type(inner).__name__), ""
    # Not what functools.wraps names: a plain function may wrap an async one.
    if callable(inner) and not inspect.isroutine(inner):
        inner = type(inner).__call__
    if code := getattr(inner, "__code__", None):
        place = f"{code.co_filename}, line {code.co_firstlineno}: "
    if inspect.isgeneratorfunction(inner) or inspect.isasyncgenfunction(inner):
        raise InvalidHandler(f"{place}{name} is a generator: return one outcome, and yield nothing")
    if not callable(function):
        raise InvalidHandler(f'{function!r} is no function: write @task_handler(kind="report") above a def')
    return inspect.iscoroutinefunction(inner)


def app_task_handler(run: RunOne) -> TaskHandler:
    """Make `run` such a handler, for a function of duecourse's own, which is given the App too."""
    return TaskHandler(run)


def _run(function: Function, app: App, task: Task) -> Outcome | None:
    before = _runs_with.set(app)
    try:
        return function(task)
    finally:
        _runs_with.reset(before)


async def _run_async(function: AsyncFunction, app: App, task: Task) -> Outcome | None:
    _runs_with.set(app)  # in the context of this run alone
    return await LOOP.handle(function(task), task.lost)


def _run_on_loop(awaited: AwaitOne, app: App, task: Task) -> Outcome | None:
    return LOOP.run(partial(awaited, app, task))


def _receive(app: App, runner: Runner, at_once: int, batch: Batch, left_ms: Callable[[], int]) -> Answer:
    def decode(message: Received) -> Task:
        task, deliveries = decode_message(message.body), message.deliveries
        return replace(task, run=deliveries, attempt=deliveries, left_ms=left_ms)

    _, tasks, failed = read_all(batch, decode)
    failed |= run_messages(tasks, runner, app.threads, lambda: app.ledger, app.seals.sealed, at_once)
    for name, problem in failed.items():
        log.error("message %s will be delivered again: %s", name, problem)
    return batch_answer(batch, failed)


def save(task: Task, state: Json) -> None:
    """Keep a checkpoint (JSON, at most 4 KiB): the task's next run finds it in `task.state`.

    An async handler calls it on a thread, which does not block the loop: `await asyncio.to_thread(save, task, state)`.

    Raises LeaseLost if another worker has the task: stop the work then.
    """
    ledger = _ledger()
    if not ledger.save(ledger.shard_of(task.queue, task.id, task.group), Lease.of(task), dump_state(state)):
        task.lost.set()
        raise LeaseLost


def extend(task: Task, time: Span) -> None:
    """Extend the lease to `time` from now, at most to shortly after the function's timeout; a later end stays.

    The lease is extended by itself while a handler runs. Call this only before work that blocks all other threads for
    half a minute or more. An async handler calls it on a thread, as `save`. Raises LeaseLost if another worker has the
    task.
    """
    ledger, lease_ms = _ledger(), parse_duration(time)
    if task.left_ms is not None:
        lease_ms = lease_within(lease_ms, task.left_ms())
    shard, began = ledger.shard_of(task.queue, task.id, task.group), monotonic()
    if not all(ledger.extend(shard, [Lease.of(task)], lease_ms, at_least=True)):
        task.lost.set()
        raise LeaseLost
    task.lost.keep(began + lease_ms / 1_000)


def _ledger() -> "Ledger":
    """The ledger of the task that runs here; in a thread that a function started, that of the process."""
    return (_runs_with.get(None) or PROCESS.app()).ledger
