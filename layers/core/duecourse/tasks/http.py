"""Requests and answers of `/tasks`, and tasks in messages of brokers."""

import re
from base64 import urlsafe_b64decode
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import MISSING, replace
from typing import TYPE_CHECKING, Annotated, Any, NotRequired, Self, cast

from pydantic import (
    AfterValidator,
    ConfigDict,
    Field,
    StrictBool,
    StrictStr,
    ValidationInfo,
    field_validator,
    model_validator,
)
from typing_extensions import TypedDict

from duecourse.api.derived_models import (
    INSTANT,
    Form,
    api_fields,
    asked,
    read_fields,
    show_fields,
    shown,
    with_fields,
)
from duecourse.api.fields import (
    AnyTaskId,
    Deadline,
    DeadlineField,
    Duration,
    ErrorText,
    Instant,
    JsonObject,
    Name,
    OpenKind,
    OpenQueue,
    ShownInstant,
    Strict,
    TaskId,
    about,
    read,
    reject_fields,
    requires,
)
from duecourse.api.kind_payloads import NotifyDone, NotifyView, check_payload, show_notify
from duecourse.api.request import parse_body
from duecourse.base.event_reader import Received
from duecourse.base.ids import new_id
from duecourse.base.json_text import Json, dump_json, is_too_deep, load_json
from duecourse.base.masking import MASK, is_suspect, masked_error, masked_payload
from duecourse.base.times import format_instant
from duecourse.errors import BeyondQuota, Conflict, FieldError, InvalidInput, QuotaExceeded, TaskDamaged
from duecourse.ledger.many_tasks import MAX_PAGE, SECTIONS, Page, PagePosition, TaskFilter
from duecourse.ledger.queue import ThrottleReason
from duecourse.ledger.task import (
    DEFAULT_QUEUE,
    DEFAULT_TENANT,
    SEALED,
    AddResult,
    Item,
    NewTask,
    RetryPolicy,
    Run,
    Status,
    Task,
    TaskMessage,
)
from duecourse.ledger.timeline import Happened, Why

EXAMPLE: dict[str, Json] = {
    "id": "order-7",
    "kind": "webhook",
    "delay": "PT10M",
    "payload": {"url": "https://hooks.example.com/orders", "body": {"order": 7}},
}

RETRY = tuple(api_fields(RetryPolicy).values())


@with_fields(asked(RETRY))
class Retry(Strict):
    """Attempts and backoff of a failing task."""

    if TYPE_CHECKING:
        backoff: int
        max_backoff: int

    @model_validator(mode="after")
    def _in_order(self) -> Self:
        if self.max_backoff < self.backoff:
            raise reject_fields("must not be below backoff", "max_backoff")
        return self

    def policy(self) -> RetryPolicy:
        """The RetryPolicy of these fields."""
        policy = RetryPolicy(**read_fields(RETRY, self))
        return replace(policy, factor=round(policy.factor, 2))  # which is what a record keeps


RetryView = TypedDict("RetryView", shown(RETRY))  # type: ignore[misc]
RetryView.__doc__ = "Attempts and backoff, as they were asked for."


def show_retry(policy: RetryPolicy) -> RetryView:
    """Attempts and backoff in the words of the HTTP API."""
    return cast(RetryView, show_fields(RETRY, policy))


RETRY_FORM = Form(Retry, RetryView, read=Retry.policy, show=show_retry, default=Retry, unset=Retry)
PAYLOAD_FORM = Form(
    JsonObject, Any, read=dump_json, show=lambda text: load_json(text, "payload"), default=MISSING, unset=dict
)
NOTIFY_FORM = Form(
    NotifyDone, NotifyView, read=lambda asked: asked.text() if asked else "", show=show_notify, default=None, unset=None
)
DEADLINE_FORM = Form(DeadlineField, str, read=lambda asked: asked.after_ms if asked else None)
"""A deadline that is an instant is `deadline_at` of the task."""
_DESCRIBED = api_fields(
    NewTask,
    payload=PAYLOAD_FORM,
    due_at=INSTANT,
    delay_ms=Form(Duration, str, read=lambda asked: asked or 0, default=None),
    retry=RETRY_FORM,
    deadline_ms=DEADLINE_FORM,
    notify=NOTIFY_FORM,
)
_FIRST = ("payload", "due_at", "delay_ms", "retry")
FIELDS = [_DESCRIBED[name] for name in dict.fromkeys((*_FIRST, *_DESCRIBED))]
"""Fields of a new task that NewTask describes, in the order of the API's document."""


# Other fields: those that NewTask describes (ledger/task.py); `derived_models` adds them.
@with_fields(asked(FIELDS))
class AddTask(Strict):
    """Body of `POST /tasks`: the work, its due time and its retries.

    Without `due_at` and `delay` the task is due at once.
    """

    model_config = ConfigDict(json_schema_extra={"examples": [EXAMPLE], "not": requires("due_at", "delay")})

    if TYPE_CHECKING:
        due_at: int | None
        delay: int | None
        deadline: Deadline | None

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

    @field_validator("payload", check_fields=False)
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
        return NewTask(
            id=self.id or name(),
            tenant=tenant,
            kind=self.kind,
            queue=self.queue,
            deadline_at=self.deadline.at if self.deadline else None,
            **read_fields(FIELDS, self),
        )


class MoveTask(Strict):
    """Body of `PATCH /tasks/{id}`: a new due time. `force` moves a running task too, whose worker loses the lease."""

    model_config = ConfigDict(
        json_schema_extra={"examples": [{"delay": "PT1H"}], "oneOf": [requires("due_at"), requires("delay")]}
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
    payload, history, error = show_payload(task), [_show_run(run) for run in task.history], task.error
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
        payload=payload,
        history=history,
    )
    if task.notify:
        view["notify_done"] = show_notify(task.notify)
    if task.result_json and not task.kept_at:
        view["result"] = _shown(task.result_json)
    if error:
        view["error"] = masked_error(error)
    return view


def show_payload(task: Task) -> Any:
    """A payload without a caller's credentials; a damaged one, or one that nests too deep, as text or not at all."""
    with suppress(TaskDamaged):
        if not is_too_deep(task.payload_json, value := task.payload):
            return masked_payload(task.kind, value)
    return MASK if task.payload_json.startswith(SEALED) or is_suspect(task.payload_json) else task.payload_json


def _shown(text: str) -> Any:
    # What came by another way may nest too deep for the router's serializer: better as text than as a 500.
    with suppress(TaskDamaged):
        if not is_too_deep(text, value := load_json(text, "result")):
            return value
    return text


def _show_run(run: Run) -> RunView:
    claimed_at = format_instant(run.claimed_at) if run.claimed_at else None
    view = RunView(run=run.run, outcome=run.outcome, claimed_at=claimed_at, ended_at=format_instant(run.ended_at))
    return {**view, "detail": masked_error(run.detail)} if run.detail else view


# The request and answer of `/tasks/batch`.

MAX_BATCH = 1_000


class AddBatch(Strict):
    """Body of `POST /tasks/batch`: up to 1,000 tasks in at most 3 MB, or up to 6 MiB where Lambda's limit allows it.

    Lambda counts each quote and each backslash of the body twice. A body has at most 400,000 values.
    """

    model_config = ConfigDict(json_schema_extra={"examples": [{"tasks": [EXAMPLE]}]})

    tasks: list[AddTask] = Field(
        min_length=1, max_length=MAX_BATCH, description="The tasks, each in the form of `POST /tasks`; at most 1,000."
    )

    def new_tasks(self, tenant: str = DEFAULT_TENANT, name: Callable[[], str] = new_id) -> list[NewTask]:
        """The tasks asked for, with ids of `name` where none were given."""
        return [task.task(tenant, name) for task in self.tasks]


class BatchItem(TypedDict):
    """Result for one task: added, already there, or rejected with its reason in `refused`."""

    id: Annotated[str, about("Id of the task.", "order-7")]
    created: Annotated[
        bool,
        about("True if this request added the task; false if the id already existed or the task was rejected.", True),
    ]
    due_at: NotRequired[Annotated[ShownInstant, about("Due time; absent if the task was rejected.")]]
    refused: NotRequired[
        Annotated[str, about("Reason of the rejection: the state of the task that has this id, or `quota`.")]
    ]
    quota: NotRequired[
        Annotated[str, about("Name of the tenant's quota that is used up, or too small.", "tenant_max_pending")]
    ]
    detail: NotRequired[Annotated[str, about("The rejection in words.")]]


class BatchAnswer(TypedDict):
    """Result for each task, in the order of the request."""

    tasks: Annotated[list[BatchItem], about("Result for each task, in the order of the request.")]


def show_batch(ids: Sequence[str], items: Sequence[Item]) -> BatchAnswer:
    """Results for the tasks of these ids."""
    return {"tasks": [_show_item(id, item) for id, item in zip(ids, items, strict=True)]}


def _show_item(id: str, item: Item) -> BatchItem:
    if isinstance(item, AddResult):
        return {"id": id, "created": item.created, "due_at": format_instant(item.task.due_at)}
    if isinstance(item, QuotaExceeded | BeyondQuota):
        return {"id": id, "created": False, "refused": "quota", "quota": item.quota, "detail": str(item)}
    return {
        "id": id,
        "created": False,
        "refused": item.reason if isinstance(item, Conflict) else "refused",
        "detail": str(item),
    }


# `GET /tasks`: which tasks a page has, its cursor, and its answer.

DEFAULT_PAGE = 20
ERROR = "Filter: tasks whose error has this text; `#` matches any text in it. Upper and lower case differ."
SINCE = (
    "Filter: tasks since an instant, or since a duration before now, such as `PT1H`. Counted from the add for "
    "`scheduled` and `leased`, from the end for other states."
)
CURSOR = "Cursor: the `next_cursor` of the previous answer to the same request."
CURSOR_PATTERN = re.compile(r"([a-z]{3,6}):([0-9]{1,15}):([A-Za-z0-9._:@~-]{0,200})")
MAX_CURSOR = 400


def _cursor(value: str) -> str:
    decode_cursor(value)
    return value


def decode_cursor(text: str) -> PagePosition:
    """The place that a cursor names. Raises ValueError."""
    try:
        found = CURSOR_PATTERN.fullmatch(urlsafe_b64decode(text + "=" * (-len(text) % 4)).decode())
    except ValueError:
        found = None
    if not found or found[1] not in SECTIONS:
        raise ValueError("must be the next_cursor of an earlier page, unchanged")
    return PagePosition(found[1], int(found[2]), found[3])


Cursor = Annotated[StrictStr, Field(max_length=MAX_CURSOR), AfterValidator(_cursor)]
PageLimit = Annotated[int, Field(ge=1, le=MAX_PAGE)]


class ListTasks(Strict):
    """Fields of GET /tasks, from Python: all states and kinds where none is named."""

    queue: Name = DEFAULT_QUEUE
    state: Status | None = None
    kind: Name | None = None
    group: Name | None = None
    error: ErrorText | None = None
    since: DeadlineField | None = None
    cursor: Cursor | None = None
    limit: PageLimit = DEFAULT_PAGE


def since_at(since: Deadline | None, now: Callable[[], int]) -> int:
    """Instant (epoch ms) of a beginning: itself, or a time before `now`; 0 for none."""
    if since is None:
        return 0
    return max(0, now() - (since.after_ms or 0)) if since.at is None else since.at


def start_of(cursor: str | None, wanted: TaskFilter) -> PagePosition | None:
    """Start of the page that a right cursor names. Raises InvalidInput for a cursor of another state's page."""
    place = decode_cursor(cursor) if cursor else None
    if place and place.section not in wanted.sections():
        raise InvalidInput([FieldError("cursor", "belongs to a page of another state: start without a cursor")])
    return place


class PageAnswer(TypedDict):
    """Page of tasks. A page may be short or empty; `next_cursor` is null after the last page."""

    tasks: Annotated[list[TaskView], about("Tasks of this page, in order.")]
    next_cursor: Annotated[str | None, about("Value of `cursor` for the next page; null after the last page.", None)]


def show_page(page: Page) -> PageAnswer:
    """A page in the words of the HTTP API."""
    return {"tasks": list(map(show_task, page.tasks)), "next_cursor": page.next and page.next.cursor}


# Messages that are new tasks: each body is that of POST /tasks.


def parse_message(message: Received) -> TaskMessage:
    """The task that a message asks for. Raises DuecourseError where it cannot be read."""
    body = parse_body(_text(message.body))
    if "id" in body:
        return TaskMessage(read(AddTask, body).task(), once=False)
    if not message.id:
        problem = "is required in a message that has no message id: else one delivered twice would be two tasks"
        raise InvalidInput([FieldError("id", problem)])
    return TaskMessage(read(AddTask, body | {"id": message.id}).task(), once=True)


def _text(body: bytes) -> str:
    try:
        return body.decode()
    except UnicodeDecodeError:
        raise InvalidInput([FieldError("body", "must be UTF-8 text")]) from None


# `GET /tasks/{id}/why`: what happened to a task, and what it waits for.


class HappenedView(TypedDict):
    """Entry of a timeline: `text` for people, the other fields for programs."""

    at: Annotated[ShownInstant, about("Time of the entry.")]
    event: Annotated[str, about("Event, in one word.", "added")]
    text: Annotated[str, about("The same, as a sentence.", "Added by http, due 2026-11-21T09:30:00.000Z.")]
    by: NotRequired[
        Annotated[
            str, about("Source of the request (http, client, message, …), and behind it the caller, if known.", "http")
        ]
    ]
    run: NotRequired[Annotated[int, about("Number of the run, from 1.", 1)]]
    trigger: NotRequired[
        Annotated[str, about("Trigger of the claim: `ring`, `timer`, `tick`, or `take` for a query's own request.")]
    ]
    late_ms: NotRequired[
        Annotated[
            int,
            about(
                "Time from the due time to the first line of the handler, in milliseconds; absent while none has begun."
            ),
        ]
    ]
    ran_ms: NotRequired[Annotated[int, about("Length of the run, in milliseconds.")]]
    error: NotRequired[Annotated[str, about("Error of the run.")]]
    due_at: NotRequired[Annotated[ShownInstant, about("New due time.")]]
    times: NotRequired[Annotated[int, about("Number of repetitions in a row; absent if it happened once.")]]


WaitsView = TypedDict(
    "WaitsView",
    {
        "for": Annotated[
            str,
            about(
                "Event that the task waits for: `due`, `claim`, `lease`, `overlap` (the end of another occurrence) "
                "or `nothing`. For a "
                f"throttled task, one of {', '.join(f'`{hold}`' for hold in ThrottleReason)}.",
                "due",
            ),
        ],
        "text": Annotated[
            str, about("The same, as a sentence.", "It is due in 10 minutes, at 2026-11-21T09:30:00.000Z.")
        ],
        "until": NotRequired[Annotated[ShownInstant, about("End of the wait; absent if unknown.")]],
    },
)
WaitsView.__doc__ = "Reason why a task is not running now, and the end of the wait if it is known."


class WhyAnswer(TypedDict):
    """Timeline of one task, oldest first. `forgotten` counts older entries that were dropped."""

    id: Annotated[str, about("Id of the task.", "order-7")]
    queue: Annotated[str, about("Name of the queue.", "default")]
    state: Annotated[Status, about("State of the task.")]
    timeline: Annotated[list[HappenedView], about("Entries, oldest first.")]
    waits: Annotated[WaitsView, about("Reason why the task is not running now.")]
    forgotten: Annotated[int, about("Number of older entries that were dropped.", 0)]


def show_why(why: Why) -> WhyAnswer:
    """A timeline in the words of the HTTP API."""
    waits: WaitsView = {"for": why.waits.what, "text": why.waits.text}
    if why.waits.until:
        waits["until"] = format_instant(why.waits.until)
    return {
        "id": why.task.id,
        "queue": why.task.queue,
        "state": why.task.status,
        "timeline": list(map(_show_step, why.timeline)),
        "waits": waits,
        "forgotten": why.task.forgotten,
    }


def _show_step(one: Happened) -> HappenedView:
    shown = {
        "at": format_instant(one.at),
        "event": one.event,
        "text": masked_error(one.text),
        "by": one.by or None,
        "run": one.run or None,
        "trigger": one.trigger,
        "late_ms": one.late_ms,
        "ran_ms": one.ran_ms,
        "error": masked_error(one.error) or None,
        "due_at": format_instant(one.due_at) if one.due_at else None,
        "times": one.times if one.times > 1 else None,
    }
    return cast(HappenedView, {name: value for name, value in shown.items() if value is not None})
