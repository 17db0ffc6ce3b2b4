"""Tasks and reminders from Python, straight to the ledger, with the checks that HTTP makes."""

from collections.abc import Sequence
from datetime import datetime
from typing import Any, Literal, NamedTuple, Required, Self, TypedDict, Unpack

from duecourse.domain.order import AddResult, Item
from duecourse.domain.outcomes import Span
from duecourse.domain.query import QueryStatus
from duecourse.domain.queues import QueueStatus
from duecourse.domain.reminder import Made, Moved, ReminderStatus, Shown
from duecourse.domain.replay import Replayed
from duecourse.domain.task import DEFAULT_QUEUE, DEFAULT_TENANT, Json, Task
from duecourse.domain.timeline import Why
from duecourse.engine.queries import Queries
from duecourse.engine.queues import Queues
from duecourse.engine.reminders import Reminders
from duecourse.engine.tasks import Tasks
from duecourse.ports.tasks import Move
from duecourse.process import PROCESS
from duecourse.wire.http.fields import read, read_both
from duecourse.wire.http.pages import DEFAULT_PAGE, ListTasks, encode_cursor
from duecourse.wire.http.queries import AskQuery, QueryKey
from duecourse.wire.http.queues import QueueKey, ReplayDead, SetQueue
from duecourse.wire.http.reminders import AddReminder, CancelReminder, MoveReminder, ReminderKey
from duecourse.wire.http.tasks import CancelTask, MoveTask, TaskKey, TenantKey
from duecourse.wire.http.usual import read_task, read_tasks


class AddFields(TypedDict, total=False):
    """Optional fields of POST /tasks."""

    id: str
    queue: str
    due_at: datetime | str
    delay: Span
    retry: dict[str, Any]
    deadline: datetime | Span
    on_duplicate: Literal["keep", "replace", "reject", "debounce"]
    max_wait: Span
    notify_done: dict[str, Any]


class Listed(NamedTuple):
    """One page of tasks, and the cursor of the next page; None after the last."""

    tasks: Sequence[Task]
    next_cursor: str | None


class TaskFields(AddFields):
    """One task for `add_many`, in the form of POST /tasks."""

    kind: Required[str]
    payload: Required[Json]


class RateFields(TypedDict):
    """Rate: `count` tasks in each `per`."""

    count: int
    per: Span


class QueueFields(TypedDict, total=False):
    """Fields of PATCH /queues/{queue}: given ones change, None restores the default, others stay."""

    paused: bool | None
    max_running: int | None
    tenant_max_running: int | None
    rate: RateFields | None
    priority: int | None
    retention: Span | None
    lease: Span | None


class QueryFields(TypedDict, total=False):
    """Optional fields of POST /queries."""

    method: str
    headers: dict[str, str]
    body: Json
    timeout: Span
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


BY = "client"
"""Source of tasks added here, as `why` shows it."""
QUERY_MS = 30_000
"""Time for a query from Python: 26 s of it are for the call, more than any call may ask for."""


class Client:
    """Tasks and queries of one tenant, and queues, with the verbs of the HTTP API; `reminders` has those on reminders.

    Each verb raises InvalidInput (naming every wrong field), TaskNotFound and the like, a Conflict, or
    StoreUnavailable. Verbs that show a task or a query also raise ResultsUnavailable.
    """

    def __init__(self, tasks: Tasks, reminders: Reminders, queues: Queues, queries: Queries, tenant: str) -> None:
        self._tasks = tasks.speaking_as(BY)
        self._tenant = read(TenantKey, {"tenant": tenant}).tenant
        self._queues = queues
        self._queries = queries.speaking_as(BY)
        self.reminders = ReminderClient(reminders, self._tenant)

    @classmethod
    def from_env(cls, tenant: str = DEFAULT_TENANT) -> Self:
        """Make a client for the ledger that the environment's DUECOURSE_ settings name.

        The client sees the tasks of `tenant` only. Raises InvalidSettings, and InvalidInput for a wrong `tenant`.
        """
        app = PROCESS.app()
        return cls(app.tasks, app.reminders, app.queues, app.queries, tenant)

    def add(self, *, kind: str, payload: Json, **fields: Unpack[AddFields]) -> AddResult:
        """Schedule a task; `fields` are those of POST /tasks, and times may be datetime and timedelta too.

        An omitted id is generated, so two calls add two tasks.
        """
        return self._tasks.add(read_task({"kind": kind, "payload": payload, **fields}, self._tenant, BY))

    def add_many(self, tasks: Sequence[TaskFields]) -> list[Item]:
        """Schedule up to 1,000 tasks at once; a wrong field rejects all of them.

        Returns for each task, in order, an AddResult, or the Conflict that `add` would have raised. Raises PartlyAdded
        if the store took only a part.
        """
        return self._tasks.add_many(read_tasks({"tasks": tasks}, self._tenant, BY))

    def get(self, id: str, queue: str = DEFAULT_QUEUE) -> Task:
        """Return one task."""
        key = _key(id, queue)
        return self._tasks.get(key.queue, key.id, self._tenant)

    def move(
        self,
        id: str,
        queue: str = DEFAULT_QUEUE,
        *,
        due_at: datetime | str | None = None,
        delay: Span | None = None,
        force: bool = False,
    ) -> Task:
        """Give a task a new due time: an instant, or a delay from now. `force` takes a running task from its worker."""
        wanted = {"due_at": due_at, "delay": delay, "force": force}
        key, move = read_both(TaskKey, {"id": id, "queue": queue}, MoveTask, wanted)
        asked = Move(key.id, move.due_at, move.delay or 0, force=move.force)
        return self._tasks.move(key.queue, asked, self._tenant)

    def cancel(self, id: str, queue: str = DEFAULT_QUEUE, *, force: bool = False) -> None:
        """Cancel a scheduled task, with `force` a running one too; or delete a dead one."""
        asked = read(CancelTask, {"id": id, "queue": queue, "force": force})
        self._tasks.cancel(asked.queue, asked.id, force=asked.force, tenant=self._tenant)

    def replay(self, id: str, queue: str = DEFAULT_QUEUE) -> Task:
        """Schedule a dead task for now, with all its attempts; its deadline is as far away as it was at first."""
        key = _key(id, queue)
        return self._tasks.replay(key.queue, key.id, self._tenant)

    def replay_dead(
        self,
        queue: str = DEFAULT_QUEUE,
        *,
        limit: int = 100,
        rate: RateFields | None = None,
        kind: str | None = None,
        dry_run: bool = False,
    ) -> Replayed:
        """Schedule a queue's dead tasks again, oldest first, at most `limit` (up to 1,000); a dry run only lists them.

        All are due now, or with `rate` spread evenly: `count` tasks in each `per`.
        """
        wanted = {"limit": limit, "rate": rate, "kind": kind, "dry_run": dry_run}
        key, asked = read_both(QueueKey, {"queue": queue}, ReplayDead, wanted)
        return self._tasks.replay_dead(key.queue, asked.replay(), self._tenant)

    def why(self, id: str, queue: str = DEFAULT_QUEUE) -> Why:
        """Return what happened to a task, oldest first, and what it waits for."""
        key = _key(id, queue)
        return self._tasks.why(key.queue, key.id, self._tenant)

    def list(
        self,
        queue: str = DEFAULT_QUEUE,
        *,
        state: str | None = None,
        kind: str | None = None,
        group: str | None = None,
        cursor: str | None = None,
        limit: int = DEFAULT_PAGE,
    ) -> Listed:
        """Return one page of a queue's tasks, by state and time, and the cursor for the next call."""
        fields = {"queue": queue, "state": state, "kind": kind, "group": group, "cursor": cursor, "limit": limit}
        asked = read(ListTasks, fields)
        page = self._tasks.page(asked.queue, asked.wanted(), asked.place(), asked.limit, self._tenant)
        return Listed(page.tasks, page.next and encode_cursor(page.next))

    def list_queues(self) -> Sequence[QueueStatus]:
        """Return all queues, by name, with their settings and numbers of tasks."""
        return self._queues.every()

    def get_queue(self, queue: str) -> QueueStatus:
        """Return one queue, with its settings and numbers of tasks."""
        return self._queues.get(read(QueueKey, {"queue": queue}).queue)

    def set_queue(self, queue: str, **fields: Unpack[QueueFields]) -> QueueStatus:
        """Change the given settings of a queue, which need not have a task yet."""
        key, asked = read_both(QueueKey, {"queue": queue}, SetQueue, fields)
        return self._queues.configure(key.queue, asked.changes())

    def query(self, *, url: str, interval: Span, until: str, **fields: Unpack[QueryFields]) -> QueryStatus:
        """Ask a slow API now, and keep asking until it answers; see `status`."""
        asked = read(AskQuery, {"url": url, "interval": interval, "until": until, **fields}).query()
        return self._queries.ask(asked, lambda: QUERY_MS, self._tenant).standing

    def get_query(self, id: str) -> QueryStatus:
        """Return a query: its answer, or the newest known data."""
        return self._queries.get(read(QueryKey, {"id": id}).id, self._tenant)


class ReminderClient:
    """Reminders of one tenant, with the verbs of the HTTP API.

    Each verb raises InvalidInput (naming every wrong field), TaskNotFound, a Conflict, or StoreUnavailable. Verbs that
    render messages raise TemplatesMissing without Jinja2 (`duecourse[templates]`).
    """

    def __init__(self, reminders: Reminders, tenant: str) -> None:
        self._reminders = reminders
        self._tenant = tenant

    def add(self, **fields: Unpack[ReminderFields]) -> Made:
        """Render all messages of a reminder, then schedule them."""
        return self._reminders.add(read(AddReminder, fields).reminder(), self._tenant)

    def preview(self, **fields: Unpack[ReminderFields]) -> list[Shown]:
        """Render each message as its recipient would read it, and send none."""
        return self._reminders.preview(read(AddReminder, fields).reminder())

    def preview_standing(self, id: str) -> list[Shown]:
        """Render the messages of an existing reminder, and send none."""
        return self._reminders.preview_standing(_id(id), self._tenant)

    def get(self, id: str) -> ReminderStatus:
        """Return a reminder and its tasks."""
        return self._reminders.get(_id(id), self._tenant)

    def move(self, id: str, *, starts_at: datetime | str) -> Moved:
        """Render the pending messages for a new start, then move each to its lead time before that."""
        key, asked = read_both(ReminderKey, {"id": id}, MoveReminder, {"starts_at": starts_at})
        return self._reminders.move(key.id, asked.starts_at, self._tenant)

    def cancel(self, id: str, *, force: bool = False) -> None:
        """Cancel the pending messages of a reminder; with `force`, also those being sent."""
        asked = read(CancelReminder, {"id": id, "force": force})
        self._reminders.cancel(asked.id, force=asked.force, tenant=self._tenant)


def _id(id: str) -> str:
    return read(ReminderKey, {"id": id}).id


def _key(id: str, queue: str) -> TaskKey:
    return read(TaskKey, {"id": id, "queue": queue})
