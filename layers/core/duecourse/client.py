"""Tasks, queries and queues from Python, straight to the ledger, with the checks that HTTP makes."""

from collections.abc import Callable, Sequence
from datetime import datetime
from functools import partial
from typing import Self, Unpack

from duecourse.client_fields import (
    AddFields,
    CancelFields,
    PurgeFields,
    QueryFields,
    QueueFields,
    RateFields,
    TaskFields,
)
from duecourse.client_reminders import ReminderClient
from duecourse.client_schedules import ScheduleClient
from duecourse.client_settings import ClientSettings, read_settings
from duecourse.domain.address import split
from duecourse.domain.bulk import DEFAULT_BULK, Bulk
from duecourse.domain.dead import DeadGroup, Deaths, group_deaths
from duecourse.domain.order import AddResult, Item
from duecourse.domain.outcomes import Span
from duecourse.domain.pages import Wanted
from duecourse.domain.query import QueryStatus
from duecourse.domain.queues import QueueStatus
from duecourse.domain.replay import Replayed
from duecourse.domain.task import DEFAULT_QUEUE, DEFAULT_TENANT, Json, Status, Task
from duecourse.domain.timeline import Why
from duecourse.domain.values import brief, value
from duecourse.link import BY, Link
from duecourse.ports.tasks import Move
from duecourse.process import PROCESS
from duecourse.wire.http import bulk
from duecourse.wire.http.dead import ListDead
from duecourse.wire.http.fields import read, read_both
from duecourse.wire.http.pages import DEFAULT_PAGE, ListTasks, since_at, start_of
from duecourse.wire.http.queries import AskQuery, QueryKey
from duecourse.wire.http.queues import QueueKey, ReplayDead, SetQueue
from duecourse.wire.http.tasks import CancelTask, MoveTask, TaskKey, TenantKey, WaitTask
from duecourse.wire.http.usual import read_task, read_tasks
from duecourse.wiring import App


@value(frozen=True, slots=True, repr=False)
class Listed:
    """One page of tasks, and the cursor of the next page; None after the last."""

    tasks: Sequence[Task]
    next_cursor: str | None

    def __repr__(self) -> str:
        return brief(self, "tasks", "next_cursor")


@value(frozen=True, slots=True)
class Many:
    """Number of tasks of one call, and the cursor of the next call; None after the last task."""

    tasks: int
    next_cursor: str | None


@value(frozen=True, slots=True, repr=False)
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
        self._link = Link(app_of(), give_back)
        self.reminders = ReminderClient(self._link, self._tenant)
        self.schedules = ScheduleClient(self._link, self._tenant)

    def close(self) -> None:
        """End the connections and threads that no other client uses; each later verb raises ClientClosed."""
        self._link.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    def __repr__(self) -> str:
        place = split(self._link.app.settings.store).place
        return f"{type(self).__name__}({place!r}, tenant={self._tenant!r})"

    def add(self, kind: str, payload: Json, **fields: Unpack[AddFields]) -> AddResult:
        """Schedule a task; `fields` are those of POST /tasks, and times may be datetime and timedelta too.

        An omitted id is generated, so two calls add two tasks.
        """
        return self._link.tasks.add(read_task({"kind": kind, "payload": payload, **fields}, self._tenant, BY))

    def add_many(self, tasks: Sequence[TaskFields]) -> Sequence[Item]:
        """Schedule up to 1,000 tasks at once; a wrong field rejects all of them.

        Returns for each task, in order, an AddResult, or the Conflict, QuotaExceeded or BeyondQuota of `add`. Raises
        PartlyAdded if the store took only a part.
        """
        return self._link.tasks.add_many(read_tasks({"tasks": tasks}, self._tenant, BY))

    def get(self, id: str, queue: str = DEFAULT_QUEUE) -> Task:
        """Return one task."""
        key = _key(id, queue)
        return self._link.tasks.get(key.queue, key.id, self._tenant)

    def wait(self, id: str, queue: str = DEFAULT_QUEUE, *, timeout: Span | None = None) -> Task:
        """Return a task once it is done, dead or cancelled; the ledger publishes when, so that nothing is polled.

        Raises WaitTimedOut, a TimeoutError, after `timeout`; without one, there is no limit.
        """
        return self._link.waiting.wait(*self._wait_for(id, queue, timeout))

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
        return self._link.tasks.move(key.queue, asked, self._tenant)

    def cancel(self, id: str, queue: str = DEFAULT_QUEUE, *, force: bool = False) -> None:
        """Cancel a scheduled task, with `force` a running one too; or delete a dead one."""
        asked = read(CancelTask, {"id": id, "queue": queue, "force": force})
        self._link.tasks.cancel(asked.queue, asked.id, force=asked.force, tenant=self._tenant)

    def replay(self, id: str, queue: str = DEFAULT_QUEUE) -> Task:
        """Schedule a dead task for now, with all its attempts; its deadline is as far away as it was at first."""
        key = _key(id, queue)
        return self._link.tasks.replay(key.queue, key.id, self._tenant)

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
        return self._link.tasks.replay_dead(key.queue, asked.replay(), self._tenant)

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
        store = self._link.many
        since_ms, after = since_at(asked.since, store.now), bulk.start_of(asked.cursor, (Status.DEAD,))
        deaths = Deaths(asked.kind or "", asked.group or "", asked.error or "", since_ms, asked.limit)
        found = group_deaths(store.deaths(key.queue, deaths, after, self._tenant))
        return ListedDead(found.groups, found.next and bulk.encode_reached(found.next))

    def purge(self, queue: str = DEFAULT_QUEUE, **fields: Unpack[PurgeFields]) -> Many:
        """Delete the tasks of one state, with all that the ledger has of them; a dry run only counts them."""
        key, asked = read_both(QueueKey, {"queue": queue}, bulk.PurgeTasks, fields)
        return self._many(key.queue, asked.bulk(), asked.cursor)

    def cancel_many(self, queue: str = DEFAULT_QUEUE, **fields: Unpack[CancelFields]) -> Many:
        """Cancel tasks by group, kind or state, running ones with `force`; a dry run only counts them."""
        key, asked = read_both(QueueKey, {"queue": queue}, bulk.CancelTasks, fields)
        return self._many(key.queue, asked.bulk(), asked.cursor)

    def _many(self, queue: str, asked: Bulk, cursor: str | None) -> Many:
        done = self._link.many.bulk(queue, asked, bulk.start_of(cursor, asked.statuses), self._tenant, by=BY)
        return Many(done.tasks, done.next and bulk.encode_reached(done.next))

    def why(self, id: str, queue: str = DEFAULT_QUEUE) -> Why:
        """Return what happened to a task, oldest first, and what it waits for."""
        key = _key(id, queue)
        return self._link.tasks.why(key.queue, key.id, self._tenant)

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
        since_ms = since_at(asked.since, self._link.many.now)
        wanted = Wanted(asked.state, asked.kind or "", asked.group or "", asked.error or "", since_ms)
        page = self._link.tasks.page(asked.queue, wanted, start_of(asked.cursor, wanted), asked.limit, self._tenant)
        return Listed(page.tasks, page.next and page.next.cursor)

    def list_queues(self) -> Sequence[QueueStatus]:
        """Return all queues, by name, with their settings and numbers of tasks."""
        return self._link.queues.every()

    def get_queue(self, queue: str) -> QueueStatus:
        """Return one queue, with its settings and numbers of tasks."""
        return self._link.queues.get(read(QueueKey, {"queue": queue}).queue)

    def set_queue(self, queue: str, **fields: Unpack[QueueFields]) -> QueueStatus:
        """Change the given settings of a queue; with `create` the queue need not exist yet. Raises QueueNotFound."""
        key, asked = read_both(QueueKey, {"queue": queue}, SetQueue, fields)
        return self._link.queues.configure(key.queue, asked.changes(), create=asked.create)

    def query(self, *, url: str, interval: Span, until: str, **fields: Unpack[QueryFields]) -> QueryStatus:
        """Ask a slow API now, and keep asking until it answers; see `status`."""
        asked = read(AskQuery, {"url": url, "interval": interval, "until": until, **fields}).query()
        return self._link.queries.ask(asked, lambda: QUERY_MS, self._tenant).status

    def get_query(self, id: str) -> QueryStatus:
        """Return a query: its answer, or the newest known data."""
        return self._link.queries.get(read(QueryKey, {"id": id}).id, self._tenant)


def _key(id: str, queue: str) -> TaskKey:
    return read(TaskKey, {"id": id, "queue": queue})
