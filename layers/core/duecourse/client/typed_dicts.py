"""Fields of the verbs from Python, as mypy and editors know them.

Written from the API's document by `make reference`: change the models, or `reference/typed_dicts.py`, not this file.
"""

from collections.abc import Sequence
from datetime import datetime
from typing import Any, Literal, Required, TypedDict

from duecourse.base.json_text import Json
from duecourse.ledger.task import Span


class KindFields(TypedDict, total=False):
    """Optional fields of POST /tasks for a kind that has its queue."""

    id: str
    due_at: datetime | str
    delay: Span
    retry: dict[str, Any]
    deadline: datetime | Span
    on_duplicate: Literal["keep", "replace", "reject", "debounce"]
    max_wait: Span
    notify_done: dict[str, Any]


class AddFields(KindFields, total=False):
    """Optional fields of POST /tasks."""

    queue: str


class TaskFields(AddFields):
    """One task for `add_many`, in the form of POST /tasks."""

    kind: str
    payload: Json


class RateFields(TypedDict):
    """Rate: `count` tasks in each `per`."""

    count: int
    per: Span


class QueueFields(TypedDict, total=False):
    """Fields of PATCH /queues/{queue}: given ones change, None restores the default, others stay."""

    paused: bool | None
    max_running: int | None
    rate: RateFields | str | None
    tenant_max_running: int | None
    priority: int | None
    retention: Span | None
    lease: Span | None
    tenant_max_pending: int | None
    tenant_max_bytes: int | None
    tenant_adds_per_minute: int | None
    tenant_max_schedules: int | None
    create: bool


class QueryFields(TypedDict, total=False):
    """Fields of POST /queries."""

    headers: dict[str, str]
    auth: str
    url: Required[str]
    method: Literal["GET", "HEAD", "POST", "PUT", "PATCH", "DELETE"]
    body: Json
    interval: Required[Span]
    timeout: Span
    until: Required[str]
    failed_when: str
    result: str
    max_age: Span


class ReminderFields(TypedDict, total=False):
    """Fields of POST /reminders; times may be datetime and timedelta too."""

    id: str
    subject: Required[str]
    starts_at: Required[datetime | str]
    remind_before: Required[Sequence[Span]]
    recipients: Required[Sequence[dict[str, Any]]]
    message: str
    html: str
    data: Json
    time_zone: str
    repeat: dict[str, Any]
    until: datetime | str
    limit: int
    gap: Literal["auto", "shift", "skip"]
    fold: Literal["auto", "first", "second", "both"]


class ReminderChanges(TypedDict, total=False):
    """Fields of PATCH /reminders/{id}, all but `starts_at` for one that comes again; None takes an end away."""

    if_version: int
    starts_at: datetime | str
    subject: str
    remind_before: Sequence[Span]
    recipients: Sequence[dict[str, Any]]
    message: str
    html: str
    data: Json
    repeat: dict[str, Any]
    time_zone: str
    until: datetime | str | None
    limit: int | None
    gap: Literal["auto", "shift", "skip"]
    fold: Literal["auto", "first", "second", "both"]


class ScheduleFields(TypedDict, total=False):
    """Fields of POST /schedules; times may be datetime and timedelta too."""

    repeat: Required[dict[str, Any]]
    time_zone: str
    starts_at: datetime | str
    gap: Literal["auto", "shift", "skip"]
    fold: Literal["auto", "first", "second", "both"]
    id: str
    queue: str
    kind: Required[str]
    payload: Required[Json]
    until: datetime | str
    limit: int
    jitter: Span
    missed: Literal["latest", "all", "none"]
    catch_up: Span
    overlap: Literal["allow", "skip", "queue", "replace"]
    retry: dict[str, Any]
    deadline: Span
    notify_done: dict[str, Any]
    paused: bool


class ScheduleChanges(TypedDict, total=False):
    """Fields of PATCH /schedules/{id}; None takes a limit, an end, a deadline or a notification away."""

    if_version: int
    payload: Json
    repeat: dict[str, Any]
    time_zone: str
    starts_at: datetime | str
    until: datetime | str | None
    gap: Literal["auto", "shift", "skip"]
    fold: Literal["auto", "first", "second", "both"]
    limit: int | None
    jitter: Span
    missed: Literal["latest", "all", "none"]
    catch_up: Span
    overlap: Literal["allow", "skip", "queue", "replace"]
    retry: dict[str, Any]
    deadline: Span | None
    notify_done: dict[str, Any] | None
    paused: bool


class TimesFields(TypedDict, total=False):
    """Fields of POST /schedules/preview, beside `since`."""

    repeat: Required[dict[str, Any]]
    time_zone: str
    starts_at: datetime | str
    gap: Literal["auto", "shift", "skip"]
    fold: Literal["auto", "first", "second", "both"]
    count: int


class BackfillFields(TypedDict, total=False):
    """Optional fields of POST /schedules/{id}/backfill."""

    overlap: Literal["allow", "skip", "queue", "replace"]


class PurgeFields(TypedDict, total=False):
    """Fields of POST /queues/{queue}/purge."""

    kind: str
    group: str
    error: str
    limit: int
    dry_run: bool
    cursor: str
    state: Required[Literal["scheduled", "done", "cancelled", "dead"]]
    older_than: Span


class PurgeSchedulesFields(TypedDict, total=False):
    """Fields of POST /schedules/purge: a kind, a beginning of the ids, or all; the others are optional."""

    kind: str
    prefix: str
    all: bool
    limit: int
    dry_run: bool
    after: str


class CancelFields(TypedDict, total=False):
    """Fields of POST /queues/{queue}/cancel."""

    kind: str
    group: str
    error: str
    limit: int
    dry_run: bool
    cursor: str
    state: Literal["scheduled", "leased"]
    force: bool
