"""The requests and answers of `/tasks` and `/health`."""

import json
from typing import Annotated, Any, NotRequired, Self

from pydantic import Field, StrictBool, ValidationInfo, field_validator, model_validator
from typing_extensions import TypedDict

from duecourse.domain import reminder
from duecourse.domain.task import (
    DEFAULT_QUEUE,
    DEFAULT_TENANT,
    NewTask,
    OnDuplicate,
    RetryPolicy,
    Run,
    Status,
    Task,
    dump_json,
    new_id,
)
from duecourse.domain.times import format_instant
from duecourse.wire.fields import (
    MAX_DEPTH,
    DeadlineField,
    Duration,
    Instant,
    JsonObject,
    Name,
    Strict,
    TaskId,
    deeper_than,
    refuse_fields,
)
from duecourse.wire.kinds import check_payload


class Retry(Strict):
    """How often, and how far apart, a failing task is tried."""

    max_attempts: int = Field(10, ge=1, le=1_000, strict=True)
    backoff: Duration = Field("PT1S", validate_default=True)
    factor: float = Field(2.0, ge=1, le=100, allow_inf_nan=False, strict=True)
    max_backoff: Duration = Field("PT1H", validate_default=True)
    jitter: StrictBool = True

    @model_validator(mode="after")
    def _in_order(self) -> Self:
        if self.max_backoff < self.backoff:
            raise refuse_fields("must not be below backoff", "max_backoff")
        return self

    def policy(self) -> RetryPolicy:
        """The same in the domain's words."""
        return RetryPolicy(self.max_attempts, self.backoff, self.factor, self.max_backoff, self.jitter)


class AddTask(Strict):
    """POST /tasks: what, when and how often; due at once where neither `due_at` nor `delay` is given."""

    id: TaskId = Field(default_factory=new_id)
    queue: Name = DEFAULT_QUEUE
    kind: Name
    payload: JsonObject
    due_at: Instant | None = None
    delay: Duration | None = None
    retry: Retry = Field(default_factory=Retry)
    deadline: DeadlineField | None = None
    on_duplicate: OnDuplicate = OnDuplicate.KEEP
    max_wait: Duration = Field("PT1H", validate_default=True)

    @field_validator("kind")
    @classmethod
    def _not_a_reminder(cls, kind: str) -> str:
        if kind == reminder.KIND:
            raise ValueError(f"{reminder.KIND} is made by POST /reminders")
        return kind

    @field_validator("queue")
    @classmethod
    def _not_the_reminders(cls, queue: str) -> str:
        # A task of another kind under a reminder's id would take its place, or be taken by it.
        if queue == reminder.QUEUE:
            raise ValueError(f"{reminder.QUEUE} holds what POST /reminders makes: choose another")
        return queue

    @field_validator("payload")
    @classmethod
    def _fits_its_kind(cls, payload: dict[str, Any], info: ValidationInfo) -> dict[str, Any]:
        check_payload(info.data.get("kind", ""), payload)
        return payload

    @model_validator(mode="after")
    def _one_due_time(self) -> Self:
        if self.due_at is not None and self.delay is not None:
            raise refuse_fields("give due_at or delay, not both", "due_at", "delay")
        return self

    def task(self, tenant: str = DEFAULT_TENANT) -> NewTask:
        """The task asked for."""
        return NewTask(
            id=self.id,
            tenant=tenant,
            kind=self.kind,
            payload=dump_json(self.payload),
            queue=self.queue,
            due_at=self.due_at,
            delay_ms=self.delay or 0,
            deadline_at=self.deadline.at if self.deadline else None,
            deadline_ms=self.deadline.after_ms if self.deadline else None,
            retry=self.retry.policy(),
            on_duplicate=self.on_duplicate,
            max_wait_ms=self.max_wait,
        )


class TenantKey(Strict):
    """Whose tasks a caller in Python means."""

    tenant: Name


class TaskKey(Strict):
    """What names one task."""

    id: TaskId
    queue: Name = DEFAULT_QUEUE


class MoveTask(Strict):
    """PATCH /tasks/{id}: a new due time; `force` takes a running task from its worker."""

    due_at: Instant | None = None
    delay: Duration | None = None
    force: StrictBool = False

    @model_validator(mode="after")
    def _one_due_time(self) -> Self:
        if (self.due_at is None) == (self.delay is None):
            raise refuse_fields("give either due_at or delay", "due_at", "delay")
        return self


class RunView(TypedDict):
    """One finished run."""

    run: int
    outcome: str
    claimed_at: str | None
    ended_at: str
    detail: NotRequired[str]


class TaskView(TypedDict):
    """A task as it is shown: `result` once it is done, `error` once a run has failed."""

    id: str
    queue: str
    kind: str
    state: Status
    due_at: str
    run: int
    attempt: int
    max_attempts: int
    created_at: str
    payload: Any
    result: NotRequired[Any]
    error: NotRequired[str]
    history: list[RunView]


class TaskAnswer(TypedDict):
    """One task."""

    task: TaskView


class AddAnswer(TaskAnswer):
    """One task, and whether this request made it."""

    created: bool


class Health(TypedDict):
    """Whether the service can take tasks."""

    status: Annotated[str, Field(examples=["ok", "unavailable"])]
    store: Annotated[str, Field(examples=["ok", "unavailable"])]


def show_task(task: Task) -> TaskView:
    """A task in the words of the HTTP API."""
    view = TaskView(
        id=task.id,
        queue=task.queue,
        kind=task.kind,
        state=task.status,
        due_at=format_instant(task.due_at),
        run=task.run,
        attempt=task.attempt,
        max_attempts=task.retry.max_attempts,
        created_at=format_instant(task.created_at),
        payload=_shown(task.payload_json),
        history=[_show_run(run) for run in task.history],
    )
    if task.result_json:
        view["result"] = _shown(task.result_json)
    if task.error:
        view["error"] = task.error
    return view


def _shown(text: str) -> Any:
    # What came by another way than HTTP may nest too deep for the router's serializer: better as text than as a 500.
    value = json.loads(text)
    return text if deeper_than(MAX_DEPTH, value) else value


def _show_run(run: Run) -> RunView:
    claimed = format_instant(run.claimed_at) if run.claimed_at else None
    view = RunView(run=run.run, outcome=run.outcome, claimed_at=claimed, ended_at=format_instant(run.ended_at))
    if run.detail:
        view["detail"] = run.detail
    return view
