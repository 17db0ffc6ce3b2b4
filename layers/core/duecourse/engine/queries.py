"""What callers ask of slow APIs: each query is one task, called at once where it may be, and polled on until done."""

import json
from collections.abc import Callable
from typing import NamedTuple

from duecourse.domain.outcomes import Settlement
from duecourse.domain.query import KNOWN, Known, Query, QueryStanding, QueryStatus, queue_of
from duecourse.domain.task import DEFAULT_TENANT, Status, Task
from duecourse.errors import QueryNotFound
from duecourse.ports.results import Result, Results
from duecourse.ports.store import Alone, Move, Store

RESERVE_MS = 4_000
"""What is left of a request's time when its call must have ended: for keeping the result and settling."""
GRACE_MS = 1_000
"""By how much a request's lease outlasts the request."""
MET = 1_000
"""How many queues a process remembers to have set."""


class Asked(NamedTuple):
    """A query as it stands now, and whether this request made its task."""

    standing: QueryStanding
    created: bool


class Queries:
    """The verbs on queries.

    `call` does a task's work within so many milliseconds. At most `parallel` calls to one host run at a time, where
    nobody set its queue otherwise. `results` None keeps answers in the ledger.
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
        self._met: set[str] = set()

    def speaking_as(self, by: str) -> "Queries":
        """The same verbs for another door."""
        return Queries(self._store, self._results, self._call, self._parallel, by)

    def ask(self, query: Query, remaining_ms: Callable[[], int], tenant: str = DEFAULT_TENANT) -> Asked:
        """Answer a query: of what is known where that is young enough, else by one call now, within the time left.

        One that is under way is not called again. Raises StoreUnavailable and ResultsUnavailable.
        """
        id = query.id
        task, standing = self._look(id, tenant)
        if standing and (standing.status is QueryStatus.PROCESSING or self._is_young(standing, query.max_age_ms)):
            return Asked(standing, created=False)
        self._limit(queue_of(id))
        added = self._add(query, tenant, standing, task.generation if task else 0)
        if added:
            self._try(query, remaining_ms, tenant)
        return Asked(self.get(id, tenant), added)

    def get(self, id: str, tenant: str = DEFAULT_TENANT) -> QueryStanding:
        """One query as it stands. Raises QueryNotFound, StoreUnavailable and ResultsUnavailable."""
        _, standing = self._look(id, tenant)
        if standing is None:
            raise QueryNotFound
        return standing

    def _is_young(self, standing: QueryStanding, max_age_ms: int) -> bool:
        if standing.status is not QueryStatus.DONE or standing.known is None:
            return False
        return self._store.now() - standing.known.fetched_at < max_age_ms

    def _limit(self, queue: str) -> None:
        """Bound a host's calls when this process first meets it; what an operator has set stays."""
        if queue in self._met:
            return
        if self._store.settings(queue).max_running is None:
            self._store.configure(queue, {"max_running": self._parallel})
        if len(self._met) >= MET:
            self._met.clear()
        self._met.add(queue)

    def _add(self, query: Query, tenant: str, standing: QueryStanding | None, since: int) -> bool:
        """Add the task, in place of one that ended; False where another request added it since this one looked."""
        known = standing.known if standing and self._results is None else None
        task = query.task(tenant, known, self._by)
        return bool(self._store.add([task], alone=Alone(query.group, since)))

    def _try(self, query: Query, remaining_ms: Callable[[], int], tenant: str) -> None:
        """Call now if the host's limit and the time left allow it; else it is due at once, for whoever has room."""
        id, queue = query.id, queue_of(query.id)
        lease_ms, left_ms = remaining_ms() + GRACE_MS, remaining_ms() - RESERVE_MS
        task = self._store.take(queue, id, tenant, lease_ms=lease_ms, group=query.group) if left_ms > 0 else None
        if task is None:
            self._store.move(queue, [Move(id, by=self._by)], tenant, group=query.group)
            return
        self._store.settle(self._store.shard_of(queue, id, query.group), [self._call(task, left_ms)])

    def _look(self, id: str, tenant: str) -> tuple[Task | None, QueryStanding | None]:
        queue = queue_of(id)
        task = self._store.get(queue, id, tenant)
        known = _known(task, self._results.get(queue, id, tenant) if self._results else None)
        if task:
            return task, _standing(task, known)
        return None, QueryStanding(id, queue, QueryStatus.DONE, known) if known else None


def _known(task: Task | None, kept: Result | None) -> Known | None:
    """The newest answer: of the finished task, unless the database has it; else the database's; else what it carries.

    A result under another fence than a finished task's is an earlier one's: the newest had nothing to keep.
    """
    if task and task.status is Status.DONE and not (kept and kept.fence == task.fence):
        return Known(task.result, task.history[-1].ended_at)
    if kept:
        return Known(kept.value, kept.stored_at)
    carried = json.loads(task.payload_json).get(KNOWN) if task else None
    return Known(**carried) if carried else None


def _standing(task: Task, known: Known | None) -> QueryStanding:
    match task.status:
        case Status.DONE:
            return QueryStanding(task.id, task.queue, QueryStatus.DONE, known)
        case Status.SCHEDULED | Status.LEASED:
            return QueryStanding(task.id, task.queue, QueryStatus.PROCESSING, known, task.error, task.due_at)
        case Status.CANCELLED:
            return QueryStanding(task.id, task.queue, QueryStatus.FAILED, known, "it was cancelled")
    return QueryStanding(task.id, task.queue, QueryStatus.FAILED, known, task.error)
