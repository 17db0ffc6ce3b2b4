"""Queries to slow APIs: each is one task, called at once if allowed, and polled until done."""

import time
from collections.abc import Callable
from contextlib import suppress
from copy import copy
from dataclasses import replace
from typing import TYPE_CHECKING, NamedTuple

from duecourse.base.times import MAX_INSTANT
from duecourse.errors import QueryNotFound, StoreMisused, StoreUnavailable, TaskDamaged
from duecourse.guard.seals import Seals, hidden_of
from duecourse.ledger.api_query import KIND, KNOWN, LEAST_INTERVAL_MS, Known, Query, QueryState, QueryStatus, queue_of
from duecourse.ledger.operation_types import FORGET_MS, PATIENCE_MS, KeyedTry, Move, Result, Results, UniqueCondition
from duecourse.ledger.queue import QueueChanges
from duecourse.ledger.task import DEFAULT_TENANT, ORIGINS, Change, NewTask, Settlement, Status, Task
from duecourse.tasks.kinds import UrlPolicy, check_interval, check_url, known_headers
from duecourse.tasks.verbs import require_room

if TYPE_CHECKING:
    from duecourse.ledger.operations.ledger import Ledger

SETTLE_MS = 1_000
"""Time that the ledger needs after a request's call."""
RESERVE_MS = 2 * PATIENCE_MS + SETTLE_MS
"""Time that a request keeps after its call: for storing the answer, settling, and a last look."""
GRACE_MS = 1_000
"""Time by which a request's lease outlasts the request."""
REMOVED = "it was removed meanwhile"
"""Error of a query whose task was deleted, or forgotten, before its request could look at it again."""
MAX_REMEMBERED_QUEUES = 1_000
"""Maximum number of queues that a process remembers to have set."""
REMEMBERED_S = FORGET_MS / 1000 / 2
"""Time for which a process remembers that."""


class AskResult(NamedTuple):
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
    """Operations on queries.

    `call` runs a task within so many milliseconds. `results` None keeps answers in the ledger.
    `url_policy` names the reason why a URL may not be called. `seals` seals credentials, or rejects them.
    `by` is the source of requests in a query's log.
    `results_named` returns the results table that the ledger names, for a program whose settings name none.
    """

    def __init__(
        self,
        ledger: "Ledger",
        results: Results | None,
        call: Callable[[Task, int], Settlement],
        limits: QueryLimits,
        url_policy: UrlPolicy,
        seals: Seals,
        by: str = "http",
        results_named: Callable[[], Results | None] = lambda: None,
    ) -> None:
        self._ledger = ledger
        self._results = results
        self._call = call
        self._limits = limits
        self._url_policy = url_policy
        self._seals = seals
        self._by = by
        self._remembered: dict[str, float] = {}
        self._results_named = results_named

    def with_source(self, by: str) -> "Queries":
        """The same verbs for another source of requests."""
        same = copy(self)  # what is known of queues is shared
        same._by = by  # noqa: SLF001 - of its own class
        return same

    def ask(
        self,
        query: Query,
        remaining_ms: Callable[[], int],
        tenant: str = DEFAULT_TENANT,
        keyed: KeyedTry | None = None,
    ) -> AskResult:
        """Answer a query: from a known answer that is young enough, else by one call now, within the time left.

        A query in progress is not called again; a caller whom the known answer satisfies gets it all the same. A repeat
        of a request with a key takes the query of its first try for its own. A later query is as good, however it
        ended.

        Raises InvalidInput where no call may go, QuotaExceeded, StoreUnavailable and ResultsUnavailable.
        """
        check_interval("interval", query.payload, self._limits.least_interval_ms)
        check_url("url", query.payload["url"], known_headers(query.payload), self._url_policy)
        if hidden_of(query.payload, KIND):
            self._seals.check("", query.payload, KIND)
            query = query._replace(digest=self._seals.digest())
        id = query.id
        task, found = self._look(id, tenant)
        if found and task and keyed and (task.is_of(keyed.mark()) or keyed.may_be_newer(task.created_at)):
            self._confirm(task)
            return AskResult(found, created=False)
        if found and found.status is not QueryState.FAILED:
            if found.known and self._is_young(found.known, query.max_age_ms):
                return AskResult(QueryStatus(id, found.queue, QueryState.DONE, found.known), created=False)
            if task and found.status is QueryState.PROCESSING:
                self._confirm(task)
                return AskResult(found, created=False)
        self._limit(queue_of(id), tenant)
        new_task = query.task(tenant, found.known if found and self._results is None else None, self._by)
        # None is added where another request was quicker: the task that it made is this query's too.
        unique, mark = UniqueCondition(new_task.group, task.generation if task else 0), keyed.mark() if keyed else b""
        added = self._ledger.add(self._seals.sealed([new_task]), unique=unique, mark=mark)
        require_room(added, "body")
        if added:
            self._try(new_task, remaining_ms())
        _, now = self._look(id, tenant)
        return AskResult(now or QueryStatus(id, queue_of(id), QueryState.FAILED, None, REMOVED), bool(added))

    def get(self, id: str, tenant: str = DEFAULT_TENANT) -> QueryStatus:
        """Status of one query. Raises QueryNotFound, StoreUnavailable and ResultsUnavailable."""
        _, found = self._look(id, tenant)
        if found is None:
            raise QueryNotFound(id)
        return found

    def _is_young(self, known: Known, max_age_ms: int) -> bool:
        # A clock that was set back must not keep an answer young until it has caught up.
        return abs(self._ledger.now() - known.fetched_at) < max_age_ms

    def _limit(self, queue: str, tenant: str) -> None:
        """Bound a host's calls if nobody has set its queue; an operator's settings stay.

        The default is set again now and then: an unused queue is forgotten, and its default with it.
        """
        now = time.time()  # not the monotonic clock, which stands still while a process is frozen
        if abs(now - self._remembered.get(queue, 0)) < REMEMBERED_S:
            return
        self._ledger.configure(queue, self._limits.of_host(queue), default=True, tenant=tenant)
        if len(self._remembered) >= MAX_REMEMBERED_QUEUES:
            self._remembered.clear()
        self._remembered[queue] = now

    def _try(self, new_task: NewTask, remaining_ms: int) -> None:
        """Call now if the limits of host and tenant, and the time left, allow it; else make the task due at once."""
        lease_ms, left_ms = remaining_ms + GRACE_MS, remaining_ms - RESERVE_MS
        bound = self._limits.of_tenant if new_task.tenant != DEFAULT_TENANT else 0
        entry = (
            self._ledger.in_flight().admit(new_task.tenant, new_task.id, bound, lease_ms)
            if bound and left_ms > 0
            else ""
        )
        was_called = left_ms > 0 and bool(entry or not bound) and self._take(new_task, lease_ms, left_ms)
        if entry:
            with suppress(StoreUnavailable, StoreMisused):  # it ends by itself
                self._ledger.in_flight().dismiss(new_task.tenant, entry)
        if not was_called:
            self._ledger.move(new_task.queue, [Move(new_task.id, by=self._by)], new_task.tenant, group=new_task.group)

    def _take(self, new_task: NewTask, lease_ms: int, left_ms: int) -> bool:
        """Call if the host's limit allows it."""
        id, queue, group = new_task.id, new_task.queue, new_task.group
        task = self._ledger.take(queue, id, new_task.tenant, lease_ms=lease_ms, group=group)
        if task is None:
            return False
        self._ledger.settle(self._ledger.shard_of(queue, id, group), [self._call(task, left_ms)])
        return True

    def _confirm(self, task: Task) -> None:
        self._ledger.confirm(self._ledger.shard_of(task.queue, task.id, task.group))

    def _look(self, id: str, tenant: str) -> tuple[Task | None, QueryStatus | None]:
        queue = queue_of(id)
        task = self._ledger.get(queue, id, tenant)
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
    return replace(task, log=task.log[begun[-1] :] if begun else task.log).error
