"""Queries to slow APIs: each is one task, called at once if allowed, and polled until done."""

import time
from collections.abc import Callable
from typing import NamedTuple

from duecourse.domain.history import ORIGINS, Change
from duecourse.domain.outcomes import Settlement
from duecourse.domain.query import KNOWN, Known, Query, QueryState, QueryStatus, queue_of
from duecourse.domain.task import DEFAULT_TENANT, NewTask, Status, Task
from duecourse.errors import QueryNotFound
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

    standing: QueryStatus
    created: bool


class Queries:
    """The verbs on queries.

    `call` does a task's work within so many milliseconds. At most `parallel` calls to one host run at a time, where
    nobody set its queue otherwise. `results` None keeps answers in the ledger. `by` is what a query's log says of who
    asked.
    """

    def __init__(
        self,
        store: Store,
        results: Results | None,
        call: Callable[[Task, int], Settlement],
        parallel: int,
        by: str = "http",
    ) -> None:
        self._store = store
        self._results = results
        self._call = call
        self._parallel = parallel
        self._by = by
        self._met: dict[str, float] = {}

    def speaking_as(self, by: str) -> "Queries":
        """The same verbs for another source of requests."""
        return Queries(self._store, self._results, self._call, self._parallel, by)

    def ask(
        self, query: Query, remaining_ms: Callable[[], int], tenant: str = DEFAULT_TENANT, *, since: int = 0
    ) -> Asked:
        """Answer a query: from a known answer that is young enough, else by one call now, within the time left.

        A query in progress is not called again; a caller whom the known answer satisfies gets it all the same. With
        `since` (epoch ms), a query that was asked since then is this one, however it ended.

        Raises StoreUnavailable and ResultsUnavailable.
        """
        id = query.id
        task, standing = self._look(id, tenant)
        if standing and task and 0 < since <= task.created_at:
            return Asked(standing, created=False)
        if standing and standing.status is not QueryState.FAILED:
            if standing.known and self._is_young(standing.known, query.max_age_ms):
                return Asked(QueryStatus(id, standing.queue, QueryState.DONE, standing.known), created=False)
            if standing.status is QueryState.PROCESSING:
                return Asked(standing, created=False)
        self._limit(queue_of(id))
        asked = query.task(tenant, standing.known if standing and self._results is None else None, self._by)
        # None is added where another request was quicker: the task that it made is this query's too.
        added = bool(self._store.add([asked], alone=Alone(asked.group, task.generation if task else 0)))
        if added:
            self._try(asked, remaining_ms())
        _, now = self._look(id, tenant)
        return Asked(now or QueryStatus(id, queue_of(id), QueryState.FAILED, None, REMOVED), added)

    def get(self, id: str, tenant: str = DEFAULT_TENANT) -> QueryStatus:
        """Status of one query. Raises QueryNotFound, StoreUnavailable and ResultsUnavailable."""
        _, standing = self._look(id, tenant)
        if standing is None:
            raise QueryNotFound
        return standing

    def _is_young(self, known: Known, max_age_ms: int) -> bool:
        # A clock that was set back must not keep an answer young until it has caught up.
        return abs(self._store.now() - known.fetched_at) < max_age_ms

    def _limit(self, queue: str) -> None:
        """Bound a host's calls if nobody has set its queue; an operator's settings stay.

        The default is set again now and then: an unused queue is forgotten, and its default with it.
        """
        now = time.time()  # not the monotonic clock, which stands still while a process is frozen
        if abs(now - self._met.get(queue, 0)) < MET_S:
            return
        self._store.configure(queue, {"max_running": self._parallel}, default=True)
        if len(self._met) >= MET:
            self._met.clear()
        self._met[queue] = now

    def _try(self, asked: NewTask, remaining_ms: int) -> None:
        """Call now if the host's limit and the time left allow it; else make the task due at once, for any drain."""
        id, queue, tenant, group = asked.id, asked.queue, asked.tenant, asked.group
        lease_ms, left_ms = remaining_ms + GRACE_MS, remaining_ms - RESERVE_MS
        task = self._store.take(queue, id, tenant, lease_ms=lease_ms, group=group) if left_ms > 0 else None
        if task is None:
            self._store.move(queue, [Move(id, by=self._by)], tenant, group=group)
            return
        self._store.settle(self._store.shard_of(queue, id, group), [self._call(task, left_ms)])

    def _look(self, id: str, tenant: str) -> tuple[Task | None, QueryStatus | None]:
        queue = queue_of(id)
        task = self._store.get(queue, id, tenant)
        known = self._known(task, self._results.get(queue, id, tenant) if self._results else None)
        if task and task.status is not Status.DONE:
            return task, _standing(task, known)
        return task, QueryStatus(id, queue, QueryState.DONE, known) if known else None

    def _known(self, task: Task | None, kept: Result | None) -> Known | None:
        """The newest answer: of the finished task, where the ledger keeps it; else the database's; else the carried.

        The database's may be newer than the task that was looked at before it. Where it has none of a finished task,
        the answer's time is over.
        """
        if task and task.status is Status.DONE and (task.result_json or not self._results):
            return Known(task.result, task.history[-1].ended_at)
        if kept:
            return Known(kept.value, kept.stored_at)
        carried = task.payload.get(KNOWN) if task and task.status is not Status.DONE else None
        return Known(**carried) if carried else None


def _standing(task: Task, known: Known | None) -> QueryStatus:
    """Status of a query whose task is not done."""
    match task.status:
        case Status.SCHEDULED | Status.LEASED:
            return QueryStatus(task.id, task.queue, QueryState.PROCESSING, known, _error(task), task.due_at)
        case Status.CANCELLED:
            return QueryStatus(task.id, task.queue, QueryState.FAILED, known, "it was cancelled")
    return QueryStatus(task.id, task.queue, QueryState.FAILED, known, _error(task))


def _error(task: Task) -> str:
    """Error of the last failed call, without those of a dead task whose place this one took."""
    begun = [at for at, entry in enumerate(task.log) if isinstance(entry, Change) and entry.action in ORIGINS]
    return task._replace(log=task.log[begun[-1] :] if begun else task.log).error
