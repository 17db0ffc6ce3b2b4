"""The requests and answers of `/tasks`."""

from collections.abc import Callable
from contextlib import suppress
from typing import Annotated, Any, NotRequired, Self

from pydantic import BeforeValidator, ConfigDict, Field, StrictBool, ValidationInfo, field_validator, model_validator
from typing_extensions import TypedDict

from duecourse.domain.history import Run
from duecourse.domain.masking import MASK, is_suspect, masked_error, masked_payload
from duecourse.domain.task import (
    DEFAULT_QUEUE,
    DEFAULT_TENANT,
    MAX_DEPTH,
    SEALED,
    Json,
    NewTask,
    OnDuplicate,
    RetryPolicy,
    Status,
    Task,
    deeper_than,
    dump_json,
    load_json,
    new_id,
)
from duecourse.domain.times import DAY_MS, format_instant
from duecourse.errors import TaskDamaged
from duecourse.wire.http.fields import (
    AnyTaskId,
    Deadline,
    DeadlineField,
    Duration,
    Instant,
    JsonObject,
    Name,
    OpenKind,
    OpenQueue,
    ShownInstant,
    Strict,
    TaskId,
    about,
    between,
    given,
    reject_fields,
)
from duecourse.wire.http.kinds import check_payload
from duecourse.wire.http.notify import NotifyDone, NotifyView, show_notify

EXAMPLE: dict[str, Json] = {
    "id": "order-7",
    "kind": "webhook",
    "delay": "PT10M",
    "payload": {"url": "https://hooks.example.com/orders", "body": {"order": 7}},
}

MAX_BACKOFF_MS = 49 * DAY_MS
"""A task's record has 32 bits for it."""
Backoff = Annotated[Duration, between(0, MAX_BACKOFF_MS)]


def _word(value: Any) -> Any:
    # An enum writes out in full what it has not: of an object that nests deep, nobody can.
    return value if isinstance(value, str) else None


Mode = Annotated[OnDuplicate, BeforeValidator(_word)]


class Retry(Strict):
    """Attempts and backoff of a failing task."""

    max_attempts: int = Field(
        10,
        ge=1,
        le=1_000,
        strict=True,
        description="Maximum attempts, 1 to 1,000; a failure on the last one makes the task dead.",
    )
    backoff: Backoff = Field("PT1S", validate_default=True, description="Delay after the first failure; at most P49D.")
    factor: float = Field(
        2.0,
        ge=1,
        le=100,
        allow_inf_nan=False,
        strict=True,
        description="Multiplier applied to the delay after each failure, 1 to 100.",
    )
    max_backoff: Backoff = Field("PT1H", validate_default=True, description="Upper bound for the delay; at most P49D.")
    jitter: StrictBool = Field(
        True, description="Randomise the delay (full jitter) so that clients do not retry in step."
    )

    @model_validator(mode="after")
    def _in_order(self) -> Self:
        if self.max_backoff < self.backoff:
            raise reject_fields("must not be below backoff", "max_backoff")
        return self

    def policy(self) -> RetryPolicy:
        """The same in the domain's words."""
        factor = round(self.factor, 2)  # which is what a record keeps
        return RetryPolicy(self.max_attempts, self.backoff, factor, self.max_backoff, self.jitter)


class AddTask(Strict):
    """Body of `POST /tasks`: the work, its due time and its retries.

    Without `due_at` and `delay` the task is due at once.
    """

    model_config = ConfigDict(json_schema_extra={"examples": [EXAMPLE], "not": given("due_at", "delay")})

    id: TaskId = Field(
        default_factory=str,
        description="Id of the task, unique within its queue. Default: derived from the Idempotency-Key, or "
        "random without one.",
        examples=["export-42"],
    )
    queue: OpenQueue = Field(
        DEFAULT_QUEUE,
        description="Queue of the task. `reminders` is reserved for `/reminders`, and `query:…` for `/queries`.",
    )
    kind: OpenKind = Field(
        description="Kind of the task: `poll`, `webhook`, or a kind of your own from DUECOURSE_TARGETS.",
        examples=["webhook"],
    )
    payload: JsonObject = Field(
        description="Payload of the task: a JSON object of at most 256 KiB. `poll` and `webhook` define their "
        "own fields."
    )
    due_at: Instant | None = Field(None, description="Due time. Default: now. Give `due_at` or `delay`, not both.")
    delay: Duration | None = Field(
        None, description="Delay from now to the due time. Give `due_at` or `delay`, not both."
    )
    retry: Retry = Field(default_factory=Retry, description="Attempts and backoff after failures.")
    deadline: DeadlineField | None = Field(
        None,
        description="Time after which the task is dead: an instant, or a duration from the due time. Default: "
        "PT24H for `poll`, which has at most P366D, and none for other kinds.",
    )
    on_duplicate: Mode = Field(
        OnDuplicate.KEEP,
        description="Effect if the id already exists. `keep` the old task, `replace` it, `reject` this request,"
        " or `debounce`: take the new content and postpone the due time.",
    )
    max_wait: Duration = Field(
        "PT1H",
        validate_default=True,
        description="Upper bound for the delay by `debounce`, counted from the first add.",
    )
    notify_done: NotifyDone | None = Field(
        None, description="Receiver of a completion notification when the task is done or dead."
    )

    @field_validator("payload")
    @classmethod
    def _fits_its_kind(cls, payload: dict[str, Any], info: ValidationInfo) -> dict[str, Any]:
        check_payload(info.data.get("kind", ""), payload)
        return payload

    @model_validator(mode="after")
    def _one_due_time(self) -> Self:
        if self.due_at is not None and self.delay is not None:
            raise reject_fields("give due_at or delay, not both", "due_at", "delay")
        return self

    def task(self, tenant: str = DEFAULT_TENANT, name: Callable[[], str] = new_id) -> NewTask:
        """The task asked for, with an id of `name` where none was given."""
        deadline = self.deadline or Deadline()
        return NewTask(
            id=self.id or name(),
            tenant=tenant,
            kind=self.kind,
            payload=dump_json(self.payload),
            queue=self.queue,
            due_at=self.due_at,
            delay_ms=self.delay or 0,
            deadline_at=deadline.at,
            deadline_ms=deadline.after_ms,
            retry=self.retry.policy(),
            on_duplicate=self.on_duplicate,
            max_wait_ms=self.max_wait,
            notify=self.notify_done.text() if self.notify_done else "",
        )


class MoveTask(Strict):
    """Body of `PATCH /tasks/{id}`: a new due time. `force` moves a running task too, whose worker loses the lease."""

    model_config = ConfigDict(
        json_schema_extra={"examples": [{"delay": "PT1H"}], "oneOf": [given("due_at"), given("delay")]}
    )

    due_at: Instant | None = Field(None, description="New due time. Give `due_at` or `delay`.")
    delay: Duration | None = Field(None, description="Delay from now to the new due time. Give `due_at` or `delay`.")
    force: StrictBool = Field(False, description="Move a running task too: its worker loses the lease. Default: false.")

    @model_validator(mode="after")
    def _one_due_time(self) -> Self:
        if (self.due_at is None) == (self.delay is None):
            raise reject_fields("give either due_at or delay", "due_at", "delay")
        return self


class WaitTask(Strict):
    """Time that a caller in Python waits for a task."""

    timeout: Duration | None = None

    @property
    def timeout_s(self) -> float | None:
        """Seconds; None for no end."""
        return None if self.timeout is None else self.timeout / 1_000


class TenantKey(Strict):
    """Tenant of a caller in Python."""

    tenant: Name


class TaskKey(Strict):
    """Key of one task, from Python: a user's, or a completion notification."""

    id: AnyTaskId
    queue: Name = DEFAULT_QUEUE


class CancelTask(TaskKey):
    """Key of a task to cancel, from Python."""

    force: StrictBool = False


class RunView(TypedDict):
    """One finished run."""

    run: Annotated[int, about("Number of the run, from 1.", 1)]
    outcome: Annotated[
        str, about("Outcome of the run: done, again, retry, drop, lapsed, taken (by force) or expired.", "done")
    ]
    claimed_at: Annotated[
        ShownInstant | None, about("Time at which the handler began; null if the task was never claimed.")
    ]
    ended_at: Annotated[ShownInstant, about("End of the run.")]
    detail: NotRequired[Annotated[str, about("Error or reason, its first 400 bytes.")]]


class TaskView(TypedDict):
    """Task, with `result` once it is done and `error` after a failed run."""

    id: Annotated[str, about("Id of the task.", "order-7")]
    queue: Annotated[str, about("Name of the queue.", "default")]
    kind: Annotated[str, about("Kind of the task.", "webhook")]
    state: Annotated[Status, about("State of the task.")]
    due_at: Annotated[
        ShownInstant,
        about(
            "Due time of the current or next run. An occurrence that waits for the end of another has "
            "`9999-12-31T23:59:59.999Z`."
        ),
    ]
    run: Annotated[int, about("Number of runs so far; a delivery that was not begun does not count.", 0)]
    attempt: Annotated[int, about("Current attempt: 1 plus the failures since the last `Again`.", 1)]
    max_attempts: Annotated[int, about("Maximum attempts; a failure on the last one makes the task dead.", 10)]
    created_at: Annotated[ShownInstant, about("Time of the add.")]
    payload: Annotated[
        Any,
        about(
            "Payload of the task. Headers and fields named as credentials are shown as `•••`. So are user, "
            "password and query values of a URL.",
            EXAMPLE["payload"],
        ),
    ]
    result: NotRequired[Annotated[Any, about("Result; present once the task is done.")]]
    error: NotRequired[
        Annotated[
            str,
            about(
                "Error of the newest failed run; a done task has none. An exception in Python ends with file and line "
                "of your code.",
                "KeyError: 'prize' at app.py:9",
            ),
        ]
    ]
    notify_done: NotRequired[
        Annotated[NotifyView, about("Receiver of a completion notification when the task is done or dead.")]
    ]
    history: Annotated[list[RunView], about("Newest runs, oldest first.", [])]


class TaskAnswer(TypedDict):
    """One task."""

    task: Annotated[TaskView, about("The task.")]


class AddAnswer(TaskAnswer):
    """One task, and a flag that says whether this request added it."""

    created: Annotated[bool, about("True if this request added the task; false if the id already existed.", True)]


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
        payload=show_payload(task),
        history=[_show_run(run) for run in task.history],
    )
    if task.notify:
        view["notify_done"] = show_notify(task.notify)
    if task.result_json and not task.kept_at:
        view["result"] = _shown(task.result_json)
    if task.error:
        view["error"] = masked_error(task.error)
    return view


def show_payload(task: Task) -> Any:
    """A payload without a caller's credentials; a damaged one, or one that nests too deep, as text or not at all."""
    with suppress(TaskDamaged):
        if not deeper_than(MAX_DEPTH, value := task.payload):
            return masked_payload(task.kind, value)
    return MASK if task.payload_json.startswith(SEALED) or is_suspect(task.payload_json) else task.payload_json


def _shown(text: str) -> Any:
    # What came by another way may nest too deep for the router's serializer: better as text than as a 500.
    with suppress(TaskDamaged):
        if not deeper_than(MAX_DEPTH, value := load_json(text, "result")):
            return value
    return text


def _show_run(run: Run) -> RunView:
    claimed_at = format_instant(run.claimed_at) if run.claimed_at else None
    view = RunView(run=run.run, outcome=run.outcome, claimed_at=claimed_at, ended_at=format_instant(run.ended_at))
    return {**view, "detail": masked_error(run.detail)} if run.detail else view
