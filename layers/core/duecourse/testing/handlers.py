"""One handler and one task: no ledger, no settings, nothing that is sent anywhere."""

import inspect
import json
from collections.abc import Callable, Coroutine, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from random import Random
from typing import TYPE_CHECKING, Any, TypeAlias, TypedDict, Unpack, cast

from duecourse.app import App, Parts
from duecourse.base.json_text import Json, dump_json
from duecourse.base.times import parse_duration, parse_instant
from duecourse.ledger.operation_types import Lease
from duecourse.ledger.task import (
    DEFAULT_QUEUE,
    DEFAULT_TENANT,
    Done,
    Ending,
    Outcome,
    RetryPolicy,
    Shard,
    Span,
    Status,
    Task,
)
from duecourse.running.run import Runner
from duecourse.running.task_event import decode_tasks, tasks_event
from duecourse.settings import Settings
from duecourse.task_handlers import TaskHandler, task_handler

if TYPE_CHECKING:
    from duecourse.ledger.operations.ledger import Ledger

START = datetime(2026, 1, 1, tzinfo=UTC)
"""The instant at which time begins in a test that says no other."""
REMAINING_S = 60
"""Seconds that a function has left in a test."""
TOKEN = "0" * 11 + "1" + "0" * 16
LEASE_MS = 90_000

AnyHandler: TypeAlias = (
    Callable[[Task], Outcome | None] | Callable[[Task], Coroutine[Any, Any, Outcome | None]] | Callable[[Any, Any], Any]
)
"""A function made a handler by `@task_handler`, wrapped by other decorators or not; or a function of a Task alone.

An async function is awaited.
"""


class TaskIdentity(TypedDict, total=False):
    """Optional fields of a task that few handlers look at."""

    queue: str
    tenant: str
    group: str
    run: int
    due_at: datetime | str
    max_attempts: int


@dataclass(frozen=True, slots=True)
class Ran:
    """Work of a handler on one task: its outcome, the checkpoints that it saved, and the extensions it asked for."""

    outcome: Outcome
    saved: Sequence[Json] = ()
    extended: Sequence[timedelta] = ()


def make_task(
    *,
    kind: str = "task",
    payload: Any = None,
    state: Json = None,
    attempt: int = 1,
    id: str = "task-1",
    remaining: Span = REMAINING_S,
    **rest: Unpack[TaskIdentity],
) -> Task:
    """Make a task as a function gets it, with `remaining` time left; `payload` may be a pydantic model.

    Raises InvalidInput or TypeError for a field that no task can have.
    """
    task = replace(
        _task(kind, id, attempt, rest),
        payload_json=json.dumps(_as_json({} if payload is None else payload)),
        state_json="" if state is None else json.dumps(state),
    )
    left_ms = parse_duration(remaining)
    return through_event(task, lambda: left_ms)


def through_event(task: Task, left_ms: Callable[[], int]) -> Task:
    """The task by way of the event in which a function gets it: a test sees no more of it than the function will."""
    [read] = decode_tasks(json.loads(dump_json(tasks_event([task]))))
    return replace(read, left_ms=left_ms)


def run(handler: AnyHandler, task: Task) -> Ran:
    """Run a handler on a task, as a function would, and return what it did; an exception of the handler's is raised.

    (In production an exception is Retry. Here it ends the test, at the line that raised it.) Raises TypeError and
    ValueError too for an outcome that duecourse would not take.
    """
    recorder = _Recorder()
    app = App(Settings(), Parts(ledger=cast("Ledger", recorder)))
    outcome = handler_of(handler).run(app, task)
    return Ran(_checked(task, Done() if outcome is None else outcome), tuple(recorder.saved), tuple(recorder.extended))


def handler_of(handler: AnyHandler) -> TaskHandler:
    """The `@task_handler` below other decorators, or one made of a plain function."""
    inner = inspect.unwrap(handler, stop=lambda one: isinstance(one, TaskHandler))
    return inner if isinstance(inner, TaskHandler) else task_handler(cast(Callable[[Task], Outcome | None], handler))


class _Recorder:
    """The part of a ledger that `save` and `extend` call: it notes what they ask for."""

    def __init__(self) -> None:
        self.saved: list[Json] = []
        self.extended: list[timedelta] = []

    def shard_of(self, queue: str, _id: str, _group: str = "") -> Shard:
        return Shard(queue)

    def save(self, _shard: Shard, _lease: Lease, state: str) -> bool:
        self.saved.append(json.loads(state))
        return True

    def extend(self, _shard: Shard, leases: Sequence[Lease], lease_ms: int, *, at_least: bool) -> list[int]:
        self.extended.append(timedelta(milliseconds=lease_ms))
        return [lease_ms + at_least for _ in leases]


def _checked(task: Task, outcome: Outcome) -> Outcome:
    """The outcome, if the engine takes it: the same checks as in production."""
    end = Runner(lambda _name: None, None, lambda: task.due_at, Random(0)).settlement(task, outcome)
    if isinstance(outcome, Done) and end.ending is Ending.DROP:
        raise ValueError(end.detail)
    return outcome


def _as_json(payload: Any) -> Json:
    """A payload as JSON can carry it."""
    dump = getattr(payload, "model_dump", None)
    return dump(mode="json") if callable(dump) else payload


def _task(kind: str, id: str, attempt: int, rest: TaskIdentity) -> Task:
    due_at = parse_instant(rest.get("due_at", START))
    return Task(
        id=id,
        queue=rest.get("queue", DEFAULT_QUEUE),
        tenant=rest.get("tenant", DEFAULT_TENANT),
        kind=kind,
        group=rest.get("group", ""),
        status=Status.LEASED,
        payload_json="",
        state_json="",
        result_json="",
        due_at=due_at,
        created_at=due_at,
        deadline_at=0,
        generation=1,
        run=rest.get("run", attempt),
        attempt=attempt,
        retry=RetryPolicy(max_attempts=rest.get("max_attempts", RetryPolicy().max_attempts)),
        token=TOKEN,
        claimed_at=due_at,
        log=(),
        lease_expires_at=due_at + LEASE_MS,
    )
