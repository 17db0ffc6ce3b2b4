"""Tasks, queries, queues, schedules and reminders from Python, straight to the ledger, with the checks of HTTP."""

from collections.abc import Callable, Sequence
from datetime import datetime
from functools import partial
from typing import TYPE_CHECKING, Self, Unpack

from duecourse.api.fields import read, read_both
from duecourse.app import PROCESS, App
from duecourse.base.json_text import Json
from duecourse.base.value_classes import brief, value
from duecourse.client.keyword_settings import ClientSettings, read_settings
from duecourse.client.typed_dicts import (
    AddFields,
    BackfillFields,
    CancelFields,
    PurgeFields,
    PurgeSchedulesFields,
    QueryFields,
    QueueFields,
    RateFields,
    ReminderChanges,
    ReminderFields,
    ScheduleChanges,
    ScheduleFields,
    TaskFields,
    TimesFields,
)
from duecourse.errors import ClientClosed
from duecourse.ledger.address import split
from duecourse.ledger.api_query import QueryStatus
from duecourse.ledger.many_tasks import DEFAULT_BULK, Bulk, DeadGroup, Deaths, Replayed, TaskFilter, group_deaths
from duecourse.ledger.operation_types import Move
from duecourse.ledger.queue import QueueStatus
from duecourse.ledger.queue_history import HistorySpan, QueueHistory
from duecourse.ledger.reminder import Made, Moved, ReminderStatus, Shown
from duecourse.ledger.schedule import ScheduleStatus, Upcoming
from duecourse.ledger.task import DEFAULT_QUEUE, DEFAULT_TENANT, AddResult, Item, NewTask, Span, Status, Task
from duecourse.ledger.timeline import Why
from duecourse.queries.http import AskQuery, QueryKey
from duecourse.queries.verbs import Queries
from duecourse.queues import http as queues_http
from duecourse.queues.http import DEFAULT_SPAN, ListDead, QueueHistoryKey, QueueKey, ReplayDead, SetQueue
from duecourse.queues.verbs import Queues
from duecourse.reminders.http import (
    AddReminder,
    CancelOccurrence,
    CancelReminder,
    ChangeReminder,
    MoveOccurrence,
    OccurrenceKey,
    ReminderKey,
)
from duecourse.reminders.verbs import Reminders
from duecourse.schedules.http import (
    AddSchedule,
    BackfillSchedule,
    ChangeSchedule,
    ListSchedules,
    OpenScheduleKey,
    PreviewSchedule,
    PurgeSchedules,
    ScheduleKey,
    ScheduleQueue,
)
from duecourse.schedules.verbs import Schedules
from duecourse.tasks.fast_parse import read_task, read_tasks
from duecourse.tasks.http import (
    DEFAULT_PAGE,
    CancelTask,
    ListTasks,
    MoveTask,
    TaskKey,
    TenantKey,
    WaitTask,
    since_at,
    start_of,
)
from duecourse.tasks.verbs import CLIENT, Tasks
from duecourse.tasks.waiting import CompletionWaiter

if TYPE_CHECKING:
    from duecourse.ledger.operations.ledger import Ledger

# Handle of a client on its App: the verbs until it is closed, and none from then on.

SOURCE = CLIENT
"""Source of tasks added by clients, as `why` shows it."""


class AppHandle:
    """The verbs of an App for one client, until it is closed. None opens the ledger before its first use."""

    def __init__(self, app: App, give_back: Callable[[App], None]) -> None:
        self.app = app
        self._give_back = give_back
        self._is_open = True
        self._tasks: Tasks | None = None

    @property
    def opened(self) -> App:
        """The App. Raises ClientClosed."""
        if not self._is_open:
            raise ClientClosed
        return self.app

    @property
    def tasks(self) -> Tasks:
        """The verbs on tasks. Raises ClientClosed, as each of these does."""
        app = self.opened
        if self._tasks is None:
            self._tasks = app.tasks.with_source(SOURCE)
        return self._tasks

    @property
    def waiting(self) -> CompletionWaiter:
        """The verb that waits for a task."""
        return self.opened.waiting

    @property
    def queues(self) -> Queues:
        """The verbs on queues."""
        return self.opened.queues

    @property
    def bulk(self) -> "Ledger":
        """The verb on many tasks."""
        return self.opened.ledger

    @property
    def queries(self) -> Queries:
        """The verbs on queries."""
        return self.opened.queries.with_source(SOURCE)

    @property
    def reminders(self) -> Reminders:
        """The verbs on reminders."""
        return self.opened.reminders

    @property
    def schedules(self) -> Schedules:
        """The verbs on schedules."""
        return self.opened.schedules

    def close(self) -> None:
        """Give the App back, once; from now on each verb raises ClientClosed."""
        with self.app.building:
            is_open, self._is_open = self._is_open, False
        if is_open:
            self._give_back(self.app)


# Schedules from Python: the part `schedules` of a client.


@value
class AddedSchedule:
    """Result of an add: the schedule, and `created`, True if this add made it."""

    schedule: ScheduleStatus
    created: bool


@value
class ListedSchedules:
    """One page of schedules, and the id to give as `after` for the next page; None after the last."""

    schedules: Sequence[ScheduleStatus]
    next_after: str | None

    def __repr__(self) -> str:
        return brief(self, "schedules", "next_after")


@value
class PurgedSchedules:
    """Number of schedules of one call, and the id to give as `after` for the next call; None after the last."""

    schedules: int
    next_after: str | None


class ScheduleClient:
    """Schedules of one tenant, with the verbs of the HTTP API.

    Each verb raises InvalidInput (naming every wrong field), TaskNotFound, a Conflict, QuotaExceeded or
    StoreUnavailable.
    """

    def __init__(self, app_handle: AppHandle, tenant: str) -> None:
        self._app_handle = app_handle
        self._tenant = tenant

    def add(self, **fields: Unpack[ScheduleFields]) -> AddedSchedule:
        """Add a schedule; the same one again changes nothing."""
        status, created = self._app_handle.schedules.add(read(AddSchedule, fields).schedule(self._tenant))
        return AddedSchedule(status, created)

    def get(self, id: str, queue: str = DEFAULT_QUEUE) -> ScheduleStatus:
        """Return a schedule, with its next ten occurrences and its last ten."""
        key = read(ScheduleKey, {"id": id, "queue": queue})
        return self._app_handle.schedules.get(key.queue, key.id, self._tenant)

    def list(
        self, queue: str = DEFAULT_QUEUE, *, after: str | None = None, limit: int = DEFAULT_PAGE
    ) -> ListedSchedules:
        """Return some schedules of a queue, by id, those after an id."""
        asked = read(ListSchedules, {"queue": queue, "after": after, "limit": limit})
        found, following = self._app_handle.schedules.page(asked.queue, asked.after or "", asked.limit, self._tenant)
        return ListedSchedules(found, following or None)

    def change(self, id: str, queue: str = DEFAULT_QUEUE, **changes: Unpack[ScheduleChanges]) -> ScheduleStatus:
        """Change fields of a schedule, or pause or resume it; with `if_version`, if it has that version."""
        key, asked = read_both(OpenScheduleKey, {"id": id, "queue": queue}, ChangeSchedule, changes)
        return self._app_handle.schedules.change(key.queue, key.id, asked.changes(), asked.if_version, self._tenant)

    def delete(self, id: str, queue: str = DEFAULT_QUEUE) -> None:
        """Delete a schedule: no further occurrence comes, and a running one finishes."""
        key = _schedule(id, queue)
        self._app_handle.schedules.delete(key.queue, key.id, self._tenant)

    def purge(self, queue: str = DEFAULT_QUEUE, **fields: Unpack[PurgeSchedulesFields]) -> PurgedSchedules:
        """Delete schedules by kind or by the beginning of their ids; a dry run only counts them."""
        key, asked = read_both(ScheduleQueue, {"queue": queue}, PurgeSchedules, fields)
        done = self._app_handle.bulk.purge_schedules(key.queue, asked.purge(), self._tenant)
        return PurgedSchedules(done.schedules, done.next or None)

    def run(self, id: str, queue: str = DEFAULT_QUEUE) -> str:
        """Add one occurrence now, beside the series; returns its id."""
        key = _schedule(id, queue)
        return self._app_handle.schedules.run(key.queue, key.id, self._tenant)

    def backfill(
        self,
        id: str,
        queue: str = DEFAULT_QUEUE,
        *,
        since: datetime | str,
        to: datetime | str,
        **fields: Unpack[BackfillFields],
    ) -> int:
        """Add the occurrences of a past span now, some each second; returns their number."""
        wanted = {"from": since, "to": to, **fields}
        key, asked = read_both(OpenScheduleKey, {"id": id, "queue": queue}, BackfillSchedule, wanted)
        return self._app_handle.schedules.backfill(
            key.queue, key.id, (asked.from_, asked.to), asked.overlap, self._tenant
        )

    def preview(self, *, since: datetime | str | None = None, **fields: Unpack[TimesFields]) -> Sequence[Upcoming]:
        """Return the times of a rule from `since` on (default: now), at most `count`; nothing is stored."""
        asked = read(PreviewSchedule, {**fields, **({} if since is None else {"from": since})})
        return self._app_handle.schedules.preview(asked.preview(self._app_handle.schedules.now()))


def _schedule(id: str, queue: str) -> OpenScheduleKey:
    return read(OpenScheduleKey, {"id": id, "queue": queue})


# Reminders from Python: the part `reminders` of a client.


class ReminderClient:
    """Reminders of one tenant, with the verbs of the HTTP API.

    Each verb raises InvalidInput (naming every wrong field), TaskNotFound, a Conflict, or StoreUnavailable. Verbs that
    render messages raise TemplatesMissing without Jinja2 (`duecourse[templates]`).
    """

    def __init__(self, app_handle: AppHandle, tenant: str) -> None:
        self._app_handle = app_handle
        self._tenant = tenant

    def add(self, **fields: Unpack[ReminderFields]) -> Made:
        """Render all messages of a reminder, then schedule them; with `repeat` it comes again."""
        return self._app_handle.reminders.add(read(AddReminder, fields).asked(), self._tenant)

    def preview(self, **fields: Unpack[ReminderFields]) -> list[Shown]:
        """Render each message as its recipient would read it, and send none."""
        return self._app_handle.reminders.preview(read(AddReminder, fields).asked(), self._tenant)

    def preview_standing(self, id: str) -> list[Shown]:
        """Render the messages of an existing reminder, and send none."""
        return self._app_handle.reminders.preview_standing(_id(id), self._tenant)

    def get(self, id: str) -> ReminderStatus:
        """Return a reminder and its tasks."""
        return self._app_handle.reminders.get(_id(id), self._tenant)

    def move(self, id: str, *, starts_at: datetime | str) -> Moved:
        """Render the pending messages for a new start, then move each to its lead time before that."""
        return self.change(id, starts_at=starts_at)

    def change(self, id: str, **changes: Unpack[ReminderChanges]) -> Moved:
        """Move a reminder, or change any field of one that comes again; with `if_version`, if it has that version.

        The occurrences of a series follow, except those that were moved or cancelled alone. Raises VersionConflict.
        """
        key, asked = read_both(ReminderKey, {"id": id}, ChangeReminder, changes)
        return self._app_handle.reminders.change(key.id, asked.change(), self._tenant)

    def move_occurrence(self, id: str, at: datetime | str, *, starts_at: datetime | str) -> Moved:
        """Move the occurrence that starts `at` by the rule, and no other."""
        key, asked = read_both(OccurrenceKey, {"id": id, "at": at}, MoveOccurrence, {"starts_at": starts_at})
        return self._app_handle.reminders.move_occurrence(key.id, key.at, asked.starts_at, self._tenant)

    def cancel_occurrence(self, id: str, at: datetime | str, *, force: bool = False) -> None:
        """Cancel the occurrence that starts `at` by the rule, and no other; with `force`, also messages being sent."""
        asked = read(CancelOccurrence, {"id": id, "at": at, "force": force})
        self._app_handle.reminders.cancel_occurrence(asked.id, asked.at, force=asked.force, tenant=self._tenant)

    def cancel(self, id: str, *, force: bool = False) -> None:
        """Cancel the pending messages of a reminder; with `force`, also those being sent.

        One that comes again does so no more; an occurrence that was moved alone stays.
        """
        asked = read(CancelReminder, {"id": id, "force": force})
        self._app_handle.reminders.cancel(asked.id, force=asked.force, tenant=self._tenant)


def _id(id: str) -> str:
    return read(ReminderKey, {"id": id}).id


# The client of one tenant: tasks, queries and queues.


@value
class Listed:
    """One page of tasks, and the cursor of the next page; None after the last."""

    tasks: Sequence[Task]
    next_cursor: str | None

    def __repr__(self) -> str:
        return brief(self, "tasks", "next_cursor")


@value
class Many:
    """Number of tasks of one call, and the cursor of the next call; None after the last task."""

    tasks: int
    next_cursor: str | None


@value
class ListedDead:
    """Dead tasks by kind and error, and the cursor of the next call; None after the last task."""

    groups: Sequence[DeadGroup]
    next_cursor: str | None

    def __repr__(self) -> str:
        return brief(self, "groups", "next_cursor")


QUERY_MS = 30_000
"""Time for a query from Python: 26 s of it are for the call, more than any call may ask for."""


class Client:
    """Tasks and queries of one tenant, and queues, with the verbs of the HTTP API.

    `reminders` and `schedules` have the verbs on those. Each verb raises InvalidInput (naming every wrong field),
    TaskNotFound and the like, a Conflict, or StoreUnavailable. Verbs that add or replay raise QuotaExceeded. Those that
    add also raise BeyondQuota, which is an InvalidInput. Verbs that show a task or a query also raise
    ResultsUnavailable.
    """

    def __init__(self, store: str, *, tenant: str = DEFAULT_TENANT, **settings: Unpack[ClientSettings]) -> None:
        """Make a client of the ledger at a store's URL, which the first verb opens.

        The client sees the tasks of `tenant` only. Clients with the same settings share connections. Raises
        InvalidSettings, naming every wrong one, and InvalidInput for a wrong `tenant`.
        """
        app_of = partial(PROCESS.opened, read_settings(store, settings))
        self._begin(tenant, app_of, PROCESS.closed)

    @classmethod
    def from_env(cls, tenant: str = DEFAULT_TENANT) -> Self:
        """Make a client for the ledger that the environment's DUECOURSE_ settings name.

        The client sees the tasks of `tenant` only. It shares the connections of its process's handlers, which stay
        open when it is closed. Raises InvalidSettings, and InvalidInput for a wrong `tenant`.
        """
        client = cls.__new__(cls)
        client._begin(tenant, PROCESS.app, lambda _app: None)  # noqa: SLF001 - of its own class
        return client

    def _begin(self, tenant: str, app_of: Callable[[], App], give_back: Callable[[App], None]) -> None:
        self._tenant = read(TenantKey, {"tenant": tenant}).tenant
        self._app_handle = AppHandle(app_of(), give_back)
        self.reminders = ReminderClient(self._app_handle, self._tenant)
        self.schedules = ScheduleClient(self._app_handle, self._tenant)

    def close(self) -> None:
        """End the connections and threads that no other client uses; each later verb raises ClientClosed."""
        self._app_handle.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    def __repr__(self) -> str:
        place = split(self._app_handle.app.settings.store).place
        return f"{type(self).__name__}({place!r}, tenant={self._tenant!r})"

    def add(self, kind: str, payload: Json, **fields: Unpack[AddFields]) -> AddResult:
        """Schedule a task; `fields` are those of POST /tasks, and times may be datetime and timedelta too.

        An omitted id is generated, so two calls add two tasks.
        """
        return self._app_handle.tasks.add(read_task({"kind": kind, "payload": payload, **fields}, self._tenant, SOURCE))

    def _add_each(self, tasks: Sequence[NewTask]) -> Sequence[Item]:
        """Results of adds of separate coroutines, or their errors, for AsyncClient."""
        return self._app_handle.tasks.add_each(tasks)

    def add_many(self, tasks: Sequence[TaskFields]) -> Sequence[Item]:
        """Schedule up to 1,000 tasks at once; a wrong field rejects all of them.

        Returns for each task, in order, an AddResult, or the Conflict, QuotaExceeded or BeyondQuota of `add`. Raises
        PartlyAdded if the store took only a part.
        """
        return self._app_handle.tasks.add_many(read_tasks({"tasks": tasks}, self._tenant, SOURCE))

    def get(self, id: str, queue: str = DEFAULT_QUEUE) -> Task:
        """Return one task."""
        key = _key(id, queue)
        return self._app_handle.tasks.get(key.queue, key.id, self._tenant)

    def wait(self, id: str, queue: str = DEFAULT_QUEUE, *, timeout: Span | None = None) -> Task:
        """Return a task once it is done, dead or cancelled; the ledger publishes when, so that nothing is polled.

        Raises WaitTimedOut, a TimeoutError, after `timeout`; without one, there is no limit.
        """
        return self._app_handle.waiting.wait(*self._wait_for(id, queue, timeout))

    def _wait_for(self, id: str, queue: str, timeout: Span | None) -> tuple[str, str, str, float | None]:
        """Arguments of a wait, checked."""
        key, asked = read_both(TaskKey, {"id": id, "queue": queue}, WaitTask, {"timeout": timeout})
        return key.queue, key.id, self._tenant, asked.timeout_s

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
        return self._app_handle.tasks.move(key.queue, asked, self._tenant)

    def cancel(self, id: str, queue: str = DEFAULT_QUEUE, *, force: bool = False) -> None:
        """Cancel a scheduled task, with `force` a running one too; or delete a dead one."""
        asked = read(CancelTask, {"id": id, "queue": queue, "force": force})
        self._app_handle.tasks.cancel(asked.queue, asked.id, force=asked.force, tenant=self._tenant)

    def replay(self, id: str, queue: str = DEFAULT_QUEUE) -> Task:
        """Schedule a dead task for now, with all its attempts; its deadline is as far away as it was at first."""
        key = _key(id, queue)
        return self._app_handle.tasks.replay(key.queue, key.id, self._tenant)

    def replay_dead(
        self,
        queue: str = DEFAULT_QUEUE,
        *,
        limit: int = 100,
        rate: RateFields | str | None = None,
        delay: Span | None = None,
        kind: str | None = None,
        error: str | None = None,
        dry_run: bool = False,
        cursor: str | None = None,
    ) -> Replayed:
        """Schedule a queue's dead tasks again, oldest first, at most `limit` (up to 1,000); a dry run only lists them.

        All are due now or after `delay`, or with `rate` (`10/s`) spread evenly from then on: `count` tasks in each
        `per`. In `error`, a part of the tasks' errors, `#` matches any text.
        """
        wanted = {"limit": limit, "rate": rate, "delay": delay, "kind": kind, "error": error, "dry_run": dry_run}
        wanted["cursor"] = cursor
        key, asked = read_both(QueueKey, {"queue": queue}, ReplayDead, wanted)
        return self._app_handle.tasks.replay_dead(key.queue, asked.replay(), self._tenant)

    def list_dead(
        self,
        queue: str = DEFAULT_QUEUE,
        *,
        kind: str | None = None,
        group: str | None = None,
        error: str | None = None,
        since: datetime | Span | None = None,
        cursor: str | None = None,
        limit: int = DEFAULT_BULK,
    ) -> ListedDead:
        """Return a queue's dead tasks by kind and error, and the cursor for the next call, whose numbers add up.

        `since` is an instant, or a duration before now. In `error`, a part of the errors, `#` matches any text.
        """
        wanted = {"kind": kind, "group": group, "error": error, "since": since, "cursor": cursor, "limit": limit}
        key, asked = read_both(QueueKey, {"queue": queue}, ListDead, wanted)
        ledger = self._app_handle.bulk
        since_ms, after = since_at(asked.since, ledger.now), queues_http.start_of_bulk(asked.cursor, (Status.DEAD,))
        deaths = Deaths(asked.kind or "", asked.group or "", asked.error or "", since_ms, asked.limit)
        found = group_deaths(ledger.deaths(key.queue, deaths, after, self._tenant))
        return ListedDead(found.groups, found.next and queues_http.encode_reached(found.next))

    def purge(self, queue: str = DEFAULT_QUEUE, **fields: Unpack[PurgeFields]) -> Many:
        """Delete the tasks of one state, with all that the ledger has of them; a dry run only counts them."""
        key, asked = read_both(QueueKey, {"queue": queue}, queues_http.PurgeTasks, fields)
        return self._many(key.queue, asked.bulk(), asked.cursor)

    def cancel_many(self, queue: str = DEFAULT_QUEUE, **fields: Unpack[CancelFields]) -> Many:
        """Cancel tasks by group, kind or state, running ones with `force`; a dry run only counts them."""
        key, asked = read_both(QueueKey, {"queue": queue}, queues_http.CancelTasks, fields)
        return self._many(key.queue, asked.bulk(), asked.cursor)

    def _many(self, queue: str, asked: Bulk, cursor: str | None) -> Many:
        done = self._app_handle.bulk.bulk(
            queue, asked, queues_http.start_of_bulk(cursor, asked.statuses), self._tenant, by=SOURCE
        )
        return Many(done.tasks, done.next and queues_http.encode_reached(done.next))

    def why(self, id: str, queue: str = DEFAULT_QUEUE) -> Why:
        """Return what happened to a task, oldest first, and what it waits for."""
        key = _key(id, queue)
        return self._app_handle.tasks.why(key.queue, key.id, self._tenant)

    def list(
        self,
        queue: str = DEFAULT_QUEUE,
        *,
        state: str | None = None,
        kind: str | None = None,
        group: str | None = None,
        error: str | None = None,
        since: datetime | Span | None = None,
        cursor: str | None = None,
        limit: int = DEFAULT_PAGE,
    ) -> Listed:
        """Return one page of a queue's tasks, by state and time, and the cursor for the next call.

        `since` is an instant, or a duration before now; of a task that ended, its end counts, else its add. `error` is
        a part of the errors, in which `#` matches any text.
        """
        fields = {"queue": queue, "state": state, "kind": kind, "group": group, "error": error, "since": since}
        asked = read(ListTasks, {**fields, "cursor": cursor, "limit": limit})
        since_ms = since_at(asked.since, self._app_handle.bulk.now)
        wanted = TaskFilter(asked.state, asked.kind or "", asked.group or "", asked.error or "", since_ms)
        page = self._app_handle.tasks.page(
            asked.queue, wanted, start_of(asked.cursor, wanted), asked.limit, self._tenant
        )
        return Listed(page.tasks, page.next and page.next.cursor)

    def list_queues(self) -> Sequence[QueueStatus]:
        """Return all queues, by name, with their settings and numbers of tasks."""
        return self._app_handle.queues.every()

    def get_queue(self, queue: str) -> QueueStatus:
        """Return one queue, with its settings and numbers of tasks."""
        return self._app_handle.queues.get(read(QueueKey, {"queue": queue}).queue)

    def queue_history(self, queue: str, *, span: HistorySpan = DEFAULT_SPAN) -> QueueHistory:
        """Return the numbers of a queue over an hour, a day, 7 or 90 days up to now, of all tenants."""
        asked = read(QueueHistoryKey, {"queue": queue, "span": span})
        return self._app_handle.queues.history(asked.queue, asked.span)

    def set_queue(self, queue: str, **fields: Unpack[QueueFields]) -> QueueStatus:
        """Change the given settings of a queue; with `create` the queue need not exist yet. Raises QueueNotFound."""
        key, asked = read_both(QueueKey, {"queue": queue}, SetQueue, fields)
        return self._app_handle.queues.configure(key.queue, asked.changes(), create=asked.create)

    def query(self, **fields: Unpack[QueryFields]) -> QueryStatus:
        """Ask a slow API now, and keep asking until it answers; see `status`."""
        asked = read(AskQuery, fields).query()
        return self._app_handle.queries.ask(asked, lambda: QUERY_MS, self._tenant).status

    def get_query(self, id: str) -> QueryStatus:
        """Return a query: its answer, or the newest known data."""
        return self._app_handle.queries.get(read(QueryKey, {"id": id}).id, self._tenant)


def _key(id: str, queue: str) -> TaskKey:
    return read(TaskKey, {"id": id, "queue": queue})
