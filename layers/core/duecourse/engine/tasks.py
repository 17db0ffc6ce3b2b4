"""What callers do to tasks: add, look at, move, cancel, replay."""

from collections.abc import Callable, Collection, Mapping, Sequence
from functools import cache
from typing import TypeAlias

from duecourse.domain.order import Filled, Item, Order, Taken
from duecourse.domain.task import DEFAULT_TENANT, NewTask, Status, Task, dump_json
from duecourse.errors import (
    DuecourseError,
    FieldError,
    InvalidInput,
    TaskCancelled,
    TaskDead,
    TaskDone,
    TaskLeased,
    TaskNotFound,
    TaskScheduled,
    bounded,
)
from duecourse.ports.results import Results
from duecourse.ports.store import MAX_ADD, Added, Move, Reply, Store

REFUSALS: dict[Reply, type[DuecourseError]] = {
    Reply.ABSENT: TaskNotFound,
    Reply.SCHEDULED: TaskScheduled,
    Reply.LEASED: TaskLeased,
    Reply.DONE: TaskDone,
    Reply.CANCELLED: TaskCancelled,
    Reply.DEAD: TaskDead,
}

DEADLINES_MS = {"poll": 86_400_000}
"""How long after its due time a task of a kind is given up, where it does not say itself."""


def require(reply: Reply) -> None:
    """Raise the error of a refusal; return for the rest."""
    if reply in REFUSALS:
        raise REFUSALS[reply]


Named: TypeAlias = Callable[[int, str], str]
"""What a wrong field of the task at an index is called."""


def in_a_list(index: int, field: str) -> str:
    """As in the body of POST /tasks/batch."""
    return f"tasks.{index}.{field}"


class Tasks:
    """The verbs on tasks; `kinds` are those that something here can run, `results` where results are, if anywhere."""

    def __init__(self, store: Store, results: Results | None, kinds: Collection[str]) -> None:
        self._store = store
        self._results = results
        self._kinds = kinds

    def add(self, task: NewTask, *, once: bool = False) -> Taken:
        """Schedule one task. Raises InvalidInput, a Conflict or StoreUnavailable.

        `once`: where its id stands already, done or dead too, it was added before and is left alone.
        """
        [taken] = self.add_many([task], once=once, named=lambda _index, field: field)
        if isinstance(taken, DuecourseError):
            raise taken
        return taken

    def add_many(self, tasks: Sequence[NewTask], *, once: bool = False, named: Named = in_a_list) -> list[Item]:
        """Schedule up to MAX_ADD tasks, in one step a shard, all of them fit or none: each one's refusal is its answer.

        For `once` see `add`. Raises InvalidInput, naming every wrong field (by `named`), and StoreUnavailable.
        """
        ready = self._prepare_all(tasks, named)
        found = [self._store.get(task.queue, task.id, task.tenant) if once else None for task in ready]
        fresh = [task for task, standing in zip(ready, found, strict=True) if standing is None]
        added = iter(self._store.add(fresh, echo=True))
        return [Taken(standing, False) if standing else _taken(next(added)) for standing in found]

    def fill(self, orders: Mapping[str, Order]) -> Filled:
        """Add the tasks that messages ask for, those that are refused left out.

        Raises StoreUnavailable; the same orders again then add nothing twice.
        """
        ready, refused = {}, {}
        for name, order in orders.items():
            try:
                task = self._prepare(order.task, self._store.now)
            except InvalidInput as error:
                refused[name] = str(error)
                continue
            if not (order.once and self._store.get(task.queue, task.id)):
                ready[name] = task
        tasks = list(ready.values())
        batches = [tasks[first : first + MAX_ADD] for first in range(0, len(tasks), MAX_ADD)]
        replies = [added.reply for batch in batches for added in self._store.add(batch)]
        told = zip(ready, replies, strict=True)
        refused |= {name: str(REFUSALS[reply]()) for name, reply in told if reply in REFUSALS}
        return Filled(replies.count(Reply.CREATED), refused)

    def get(self, queue: str, id: str, tenant: str = DEFAULT_TENANT) -> Task:
        """One task with its result, wherever that is kept. Raises TaskNotFound, also ResultsUnavailable."""
        task = self._store.get(queue, id, tenant)
        if task is None:
            raise TaskNotFound
        if self._results is None or task.status is not Status.DONE:
            return task
        result = self._results.get(queue, id, tenant)
        # A result under another fence is an earlier generation's: the newest one had nothing to keep.
        ours = result is not None and result.fence == task.fence
        return task._replace(result_json=dump_json(result.value)) if result and ours else task

    def move(self, queue: str, move: Move, tenant: str = DEFAULT_TENANT) -> Task:
        """Give a scheduled task a new due time, with force also a leased one. Raises TaskNotFound or a Conflict."""
        [reply] = self._store.move(queue, [move], tenant)
        require(reply)
        return self.get(queue, move.id, tenant)

    def cancel(self, queue: str, id: str, *, force: bool = False, tenant: str = DEFAULT_TENANT) -> None:
        """Cancel a scheduled task (with force a leased one), delete a dead one. Raises TaskNotFound or a Conflict."""
        [reply] = self._store.cancel(queue, [id], force=force, tenant=tenant)
        require(reply)

    def replay(self, queue: str, id: str, tenant: str = DEFAULT_TENANT) -> Task:
        """Schedule a dead task for now with a fresh set of attempts. Raises TaskNotFound or a Conflict."""
        [reply] = self._store.replay(queue, [id], tenant)
        require(reply)
        return self.get(queue, id, tenant)

    def _prepare_all(self, tasks: Sequence[NewTask], named: Named) -> list[NewTask]:
        now = cache(self._store.now)  # asked for once, and only where a deadline needs it
        ready, wrong = [], []
        for index, task in enumerate(tasks):
            try:
                ready.append(self._prepare(task, now))
            except InvalidInput as error:
                wrong += [FieldError(named(index, problem.field), problem.problem) for problem in error.problems]
        if wrong:
            raise InvalidInput(bounded(wrong))
        return ready

    def _prepare(self, task: NewTask, now: Callable[[], int]) -> NewTask:
        if task.kind not in self._kinds:
            known = ", ".join(sorted(self._kinds))
            raise InvalidInput([FieldError("kind", f"nothing here runs {task.kind}; known kinds: {known}")])
        if task.deadline_at is None and task.deadline_ms is None:
            return task._replace(deadline_ms=DEADLINES_MS.get(task.kind))
        if _ends_before_due(task, now):
            raise InvalidInput([FieldError("deadline", "must be after the task is due")])
        return task


def _taken(added: Added) -> Item:
    if added.reply in REFUSALS:
        return REFUSALS[added.reply]()
    assert added.task is not None  # noqa: S101 - for the type: what echo answers
    return Taken(added.task, added.reply is Reply.CREATED)


def _ends_before_due(task: NewTask, now: Callable[[], int]) -> bool:
    if task.deadline_at is None:
        return (task.deadline_ms or 0) <= 0
    due_at = now() + task.delay_ms if task.due_at is None else task.due_at
    return task.deadline_at <= due_at
