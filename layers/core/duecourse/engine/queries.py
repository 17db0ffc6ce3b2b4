"""Queries to slow APIs: each is one task, called at once if allowed, and polled until done."""

import time
from collections.abc import Callable
from contextlib import suppress
from copy import copy
from typing import NamedTuple

from duecourse.domain.history import ORIGINS, Change
from duecourse.domain.outcomes import Settlement
from duecourse.domain.polls import LEAST_INTERVAL_MS
from duecourse.domain.query import KIND, KNOWN, Known, Query, QueryState, QueryStatus, queue_of
from duecourse.domain.queues import QueueChanges
from duecourse.domain.seals import hidden_of
from duecourse.domain.task import DEFAULT_TENANT, NewTask, Status, Task
from duecourse.domain.times import MAX_INSTANT
from duecourse.domain.values import replaced
from duecourse.engine.polls import check_interval
from duecourse.engine.reach import Reach, check_place, sent_with
from duecourse.engine.seals import Seals
from duecourse.engine.tasks import require_room
from duecourse.errors import QueryNotFound, StoreUnavailable, TaskDamaged
from duecourse.ports.queues import FORGET_MS
from duecourse.ports.results import PATIENCE_MS, Result, Results
from duecourse.ports.store import Store
from duecourse.ports.tasks import Alone, Move

SETTLE_MS = 1_000
"""Time that the ledger needs after a request's call."""
RESERVE_MS = 2 * PATIENCE_MS + SETTLE_MS
"""Time that a request keeps after its call: for storing the answer, settling, and a last look."""
GRACE_MS = 1_000
"""Time by which a request's lease outlasts the request."""
REMOVED = "it was removed meanwhile"
"""Error of a query whose task was deleted, or forgotten, before its request could look at it again."""
MET = 1_000
"""Maximum number of queues that a process remembers to have set."""
MET_S = FORGET_MS / 1000 / 2
"""Time for which a process remembers that."""


class Asked(NamedTuple):
    """Status of a query, and whether this request made its task."""

    status: QueryStatus
    created: bool


class QueryLimits(NamedTuple):
    """Default limits of a host's queue, by its name, and maximum number of requests of a tenant that wait for a call.

    With 0 there is no maximum; the tenant "-" has none. `least_interval_ms` is the shortest interval of a query.
    """

    of_host: Callable[[str], QueueChanges]
    of_tenant: int = 0
    least_interval_ms: int = LEAST_INTERVAL_MS


class Queries:
    """The verbs on queries.

    `call` does a task's work within so many milliseconds. `results` None keeps answers in the ledger.
    `reach` says what calls may not reach. `seals` rejects credentials that cannot be sealed.
    `by` is what a query's log says of who asked.
    `results_named` answers the table that the ledger names, for a program without a table that looks for an answer.
    """

    def __init__(
        self,
        store: Store,
        results: Results | None,
        call: Callable[[Task, int], Settlement],
        limits: QueryLimits,
        reach: Reach,
        seals: Seals,
        by: str = "http",
        results_named: Callable[[], Results | None] = lambda: None,
    ) -> None:
        self._store = store
        self._results = results
        self._call = call
        self._limits = limits
        self._reach = reach
        self._seals = seals
        self._by = by
        self._met: dict[str, float] = {}
        self._results_named = results_named

    def speaking_as(self, by: str) -> "Queries":
        """The same verbs for another source of requests."""
        same = copy(self)  # what is known of queues is shared
        same._by = by  # noqa: SLF001 - of its own class
        return same

    def ask(
        self, query: Query, remaining_ms: Callable[[], int], tenant: str = DEFAULT_TENANT, *, since: int = 0
    ) -> Asked:
        """Answer a query: from a known answer that is young enough, else by one call now, within the time left.

        A query in progress is not called again; a caller whom the known answer satisfies gets it all the same. With
        `since` (epoch ms), a query that was asked since then is this one, however it ended.

        Raises InvalidInput where no call may go, QuotaExceeded, StoreUnavailable and ResultsUnavailable.
        """
        check_interval("interval", query.payload, self._limits.least_interval_ms)
        check_place("url", query.payload["url"], sent_with(query.payload), self._reach)
        if hidden_of(query.payload, KIND):
            self._seals.check("", query.payload, KIND)
            query = query._replace(digest=self._seals.digest())
        id = query.id
        task, found = self._look(id, tenant)
        if found and task and 0 < since <= task.created_at:
            self._store.confirm(self._store.shard_of(task.queue, task.id, task.group))
            return Asked(found, created=False)
        if found and found.status is not QueryState.FAILED:
            if found.known and self._is_young(found.known, query.max_age_ms):
                return Asked(QueryStatus(id, found.queue, QueryState.DONE, found.known), created=False)
            if found.status is QueryState.PROCESSING:
                return Asked(found, created=False)
        self._limit(queue_of(id), tenant)
        asked = query.task(tenant, found.known if found and self._results is None else None, self._by)
        # None is added where another request was quicker: the task that it made is this query's too.
        added = self._store.add([asked], alone=Alone(asked.group, task.generation if task else 0))
        require_room(added, "body")
        if added:
            self._try(asked, remaining_ms())
        _, now = self._look(id, tenant)
        return Asked(now or QueryStatus(id, queue_of(id), QueryState.FAILED, None, REMOVED), bool(added))

    def get(self, id: str, tenant: str = DEFAULT_TENANT) -> QueryStatus:
        """Status of one query. Raises QueryNotFound, StoreUnavailable and ResultsUnavailable."""
        _, found = self._look(id, tenant)
        if found is None:
            raise QueryNotFound(id)
        return found

    def _is_young(self, known: Known, max_age_ms: int) -> bool:
        # A clock that was set back must not keep an answer young until it has caught up.
        return abs(self._store.now() - known.fetched_at) < max_age_ms

    def _limit(self, queue: str, tenant: str) -> None:
        """Bound a host's calls if nobody has set its queue; an operator's settings stay.

        The default is set again now and then: an unused queue is forgotten, and its default with it.
        """
        now = time.time()  # not the monotonic clock, which stands still while a process is frozen
        if abs(now - self._met.get(queue, 0)) < MET_S:
            return
        self._store.configure(queue, self._limits.of_host(queue), default=True, tenant=tenant)
        if len(self._met) >= MET:
            self._met.clear()
        self._met[queue] = now

    def _try(self, asked: NewTask, remaining_ms: int) -> None:
        """Call now if the limits of host and tenant, and the time left, allow it; else make the task due at once."""
        lease_ms, left_ms = remaining_ms + GRACE_MS, remaining_ms - RESERVE_MS
        bound = self._limits.of_tenant if asked.tenant != DEFAULT_TENANT else 0
        entry = self._store.in_flight().admit(asked.tenant, asked.id, bound, lease_ms) if bound and left_ms > 0 else ""
        was_called = left_ms > 0 and bool(entry or not bound) and self._take(asked, lease_ms, left_ms)
        if entry:
            with suppress(StoreUnavailable):  # it ends by itself
                self._store.in_flight().dismiss(asked.tenant, entry)
        if not was_called:
            self._store.move(asked.queue, [Move(asked.id, by=self._by)], asked.tenant, group=asked.group)

    def _take(self, asked: NewTask, lease_ms: int, left_ms: int) -> bool:
        """Call if the host's limit allows it."""
        id, queue, group = asked.id, asked.queue, asked.group
        task = self._store.take(queue, id, asked.tenant, lease_ms=lease_ms, group=group)
        if task is None:
            return False
        self._store.settle(self._store.shard_of(queue, id, group), [self._call(task, left_ms)])
        return True

    def _look(self, id: str, tenant: str) -> tuple[Task | None, QueryStatus | None]:
        queue = queue_of(id)
        task = self._store.get(queue, id, tenant)
        is_away = bool(task and task.status is Status.DONE and not (task.result_json or self._results))
        results = self._results_named() if is_away else self._results
        known = self._known(task, results.get(queue, id, tenant) if results else None)
        if task and task.status is not Status.DONE:
            return task, _status(task, known)
        return task, QueryStatus(id, queue, QueryState.DONE, known) if known else None

    def _known(self, task: Task | None, kept: Result | None) -> Known | None:
        """The newest answer: of the finished task, where the ledger keeps it; else the database's; else the carried.

        The database's may be newer than the task that was looked at before it. Where it has none of a finished task,
        the answer's time is over.
        """
        is_theirs = bool(task and kept and kept.fence == task.fence)  # of functions that keep answers in a table
        if task and task.status is Status.DONE and (task.result_json or not self._results) and not is_theirs:
            return _answered(task)
        if kept:
            return Known(kept.value, kept.stored_at)
        return _carried(task) if task and task.status is not Status.DONE else None


def _answered(task: Task) -> Known | None:
    """The answer that a finished task has; None where that is damaged, or its time unknown."""
    try:
        return Known(task.result, task.history[-1].ended_at) if task.history else None
    except TaskDamaged:
        return None


def _carried(task: Task) -> Known | None:
    """The earlier answer that a task carries; None without one, and where that is damaged."""
    try:
        known = Known(**task.payload[KNOWN])
    except (TaskDamaged, TypeError, LookupError):
        return None
    return known if isinstance(known.fetched_at, int) and 0 <= known.fetched_at <= MAX_INSTANT else None


def _status(task: Task, known: Known | None) -> QueryStatus:
    """Status of a query whose task is not done."""
    if task.status in {Status.SCHEDULED, Status.LEASED}:
        return QueryStatus(task.id, task.queue, QueryState.PROCESSING, known, _error(task), task.due_at)
    error = "it was cancelled" if task.status is Status.CANCELLED else _error(task)
    return QueryStatus(task.id, task.queue, QueryState.FAILED, known, error)


def _error(task: Task) -> str:
    """Error of the last failed call, without those of a dead task whose place this one took."""
    begun = [at for at, entry in enumerate(task.log) if isinstance(entry, Change) and entry.action in ORIGINS]
    return replaced(task, log=task.log[begun[-1] :] if begun else task.log).error
