"""The requests and answers of `/tasks`."""

import json
from typing import Annotated, Any, NotRequired, Self

from pydantic import ConfigDict, Field, StrictBool, ValidationInfo, field_validator, model_validator
from typing_extensions import TypedDict

from duecourse.domain.history import Run
from duecourse.domain.task import (
    DEFAULT_QUEUE,
    DEFAULT_TENANT,
    MAX_DEPTH,
    Json,
    NewTask,
    OnDuplicate,
    Status,
    Task,
    deeper_than,
    dump_json,
    new_id,
)
from duecourse.domain.times import format_instant
from duecourse.wire.fields import (
    DeadlineField,
    Duration,
    Instant,
    JsonObject,
    OpenKind,
    OpenQueue,
    Strict,
    TaskId,
    Told,
    given,
    refuse_fields,
)
from duecourse.wire.kinds import check_payload
from duecourse.wire.notify import NotifyDone, show_notify
from duecourse.wire.retry import Retry

EXAMPLE: dict[str, Json] = {
    "id": "order-7",
    "kind": "webhook",
    "delay": "PT10M",
    "payload": {"url": "https://hooks.example.com/orders", "body": {"order": 7}},
}


class AddTask(Strict):
    """POST /tasks: what, when and how often; due at once where neither `due_at` nor `delay` is given."""

    model_config = ConfigDict(json_schema_extra={"examples": [EXAMPLE], "not": given("due_at", "delay")})

    id: TaskId = Field(
        default_factory=new_id,
        description="Unique within the queue. Without one it is made: of the Idempotency-Key where there is one, else "
        "at random, so that two requests make two tasks.",
        examples=["export-42"],
    )
    queue: OpenQueue = Field(
        DEFAULT_QUEUE, description="The queue; `reminders` is for /reminders alone, `query:…` for /queries."
    )
    kind: OpenKind = Field(
        description="What it is: `poll`, `webhook`, or a kind of yours (DUECOURSE_TARGETS).", examples=["webhook"]
    )
    payload: JsonObject = Field(
        description="What it carries, at most 256 KiB of JSON: for `poll` and `webhook` what these kinds take."
    )
    due_at: Instant | None = Field(None, description="When it is due. Neither this nor `delay`: now.")
    delay: Duration | None = Field(None, description="How long from now it is due; not beside `due_at`.")
    retry: Retry = Field(default_factory=Retry, description="How often, and how far apart, it is tried.")
    deadline: DeadlineField | None = Field(
        None,
        description="When it is given up: an instant, or a duration from its due time. For `poll` PT24H, else never.",
    )
    on_duplicate: OnDuplicate = Field(
        OnDuplicate.KEEP,
        description="Where a task with this id stands: keep it, replace it, reject this one, or debounce (this one's "
        "content, the due time pushed back).",
    )
    max_wait: Duration = Field(
        "PT1H", validate_default=True, description="How far `debounce` pushes the due time at most, from the first add."
    )
    notify_done: NotifyDone | None = Field(None, description="Who is told once it is done or dead.")

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
            notify=self.notify_done.text() if self.notify_done else "",
        )


class MoveTask(Strict):
    """PATCH /tasks/{id}: a new due time; `force` takes a running task from its worker."""

    model_config = ConfigDict(
        json_schema_extra={"examples": [{"delay": "PT1H"}], "oneOf": [given("due_at"), given("delay")]}
    )

    due_at: Instant | None = Field(None, description="When it is due from now on: this, or `delay`.")
    delay: Duration | None = Field(None, description="How long from now it is due: this, or `due_at`.")
    force: StrictBool = Field(False, description="Whether a running task is taken from its worker.")

    @model_validator(mode="after")
    def _one_due_time(self) -> Self:
        if (self.due_at is None) == (self.delay is None):
            raise refuse_fields("give either due_at or delay", "due_at", "delay")
        return self


class RunView(TypedDict):
    """One finished run."""

    run: Annotated[int, Field(description="Which run it was, from 1.", examples=[1])]
    outcome: Annotated[
        str,
        Field(
            description="How it ended: done, again, retry, drop, lapsed, taken (by force) or expired.",
            examples=["done"],
        ),
    ]
    claimed_at: Annotated[Told | None, Field(description="When it was claimed.")]
    ended_at: Annotated[Told, Field(description="When it ended.")]
    detail: NotRequired[Annotated[str, Field(description="The error or reason, its first 400 bytes.")]]


class TaskView(TypedDict):
    """A task as it is shown: `result` once it is done, `error` once a run has failed."""

    id: Annotated[str, Field(description="The id.", examples=["order-7"])]
    queue: Annotated[str, Field(description="The queue.", examples=["default"])]
    kind: Annotated[str, Field(description="What it is.", examples=["webhook"])]
    state: Annotated[Status, Field(description="Where it stands.")]
    due_at: Annotated[Told, Field(description="When it may next run.")]
    run: Annotated[int, Field(description="How often it was claimed.", examples=[0])]
    attempt: Annotated[int, Field(description="1 and the failures since it last asked to come again.", examples=[1])]
    max_attempts: Annotated[int, Field(description="At which attempt a failure is its end.", examples=[10])]
    created_at: Annotated[Told, Field(description="When it was added.")]
    payload: Annotated[Any, Field(description="What it carries.", examples=[EXAMPLE["payload"]])]
    result: NotRequired[Annotated[Any, Field(description="What it came to, once it is done.")]]
    error: NotRequired[Annotated[str, Field(description="Why the last run that failed did so.")]]
    notify_done: NotRequired[Annotated[dict[str, str], Field(description="Who is told once it is done or dead.")]]
    history: Annotated[list[RunView], Field(description="Its newest runs.", examples=[[]])]


class TaskAnswer(TypedDict):
    """One task."""

    task: Annotated[TaskView, Field(description="The task as it stands.")]


class AddAnswer(TaskAnswer):
    """One task, and whether this request made it."""

    created: Annotated[bool, Field(description="Whether this request made it; false where it stood.", examples=[True])]


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
    if task.notify:
        view["notify_done"] = show_notify(task.notify)
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
