"""Verbs of callers on tasks: add, show, move, cancel, replay."""

import logging
from collections.abc import Callable, Collection, Mapping, Sequence
from functools import cache
from typing import NamedTuple

from duecourse.domain.batches import pieces
from duecourse.domain.notification import Notify, is_url
from duecourse.domain.order import AddResult, Item, Order
from duecourse.domain.pages import MAX_PAGE, Page, Place, Wanted
from duecourse.domain.replay import MAX_LOOKS, Replay, Replayed, deadline_ms
from duecourse.domain.task import DEADLINES_MS, DEFAULT_TENANT, NewTask, Status, Task, dump_json
from duecourse.domain.timeline import Why, timeline, waiting
from duecourse.errors import (
    DuecourseError,
    FieldError,
    InvalidInput,
    Part,
    PartlyAdded,
    PastDeadline,
    TaskCancelled,
    TaskDead,
    TaskDone,
    TaskLeased,
    TaskNotFound,
    TaskScheduled,
    bounded,
)
from duecourse.ports.ledger import Ledger
from duecourse.ports.results import Results
from duecourse.ports.tasks import MAX_ADD, AddReply, Move, Reply, TaskStore

log = logging.getLogger("duecourse.engine")

OWN_KINDS = "For a kind of your own, name its target in DUECOURSE_TARGETS: here, and where the functions are"
REJECTIONS: dict[Reply, type[DuecourseError]] = {
    Reply.SCHEDULED: TaskScheduled,
    Reply.LEASED: TaskLeased,
    Reply.DONE: TaskDone,
    Reply.CANCELLED: TaskCancelled,
    Reply.DEAD: TaskDead,
    Reply.PAST_DEADLINE: PastDeadline,
}


def require(reply: Reply, queue: str, id: str, tenant: str) -> None:
    """Raise the error of a rejection; return for any other reply."""
    if reply is Reply.ABSENT:
        raise TaskNotFound(id, queue, tenant)
    if reply in REJECTIONS:
        raise REJECTIONS[reply]


def stored(ledger: Ledger, queue: str, id: str, tenant: str) -> Task:
    """One task. Raises TaskNotFound."""
    task = ledger.get(queue, id, tenant)
    if task is None:
        raise TaskNotFound(id, queue, tenant)
    return task


def add_all(store: TaskStore, tasks: Sequence[NewTask]) -> list[Reply]:
    """Results of any number of tasks, added as many at a time as a store takes."""
    return [added.reply for batch in pieces(tasks, MAX_ADD) for added in store.add(batch)]


class Filled(NamedTuple):
    """Results of orders: the number of added tasks, and the errors of rejected ones, by the orders' keys."""

    added: int
    rejected: dict[str, str]


class Tasks:
    """The verbs on tasks; `kinds` are those that something here can run, `results` is the results table or None.

    `handed` are the kinds with a target, which may receive completion notifications. `by` is the source in a task's
    log.
    """

    def __init__(
        self,
        store: TaskStore,
        results: Results | None,
        kinds: Collection[str],
        handed: Collection[str] = (),
        by: str = "http",
    ) -> None:
        self._store = store
        self._results = results
        self._kinds = kinds
        self._handed = handed
        self._by = by

    def speaking_as(self, by: str) -> "Tasks":
        """The same verbs for another source of requests."""
        return Tasks(self._store, self._results, self._kinds, self._handed, by)

    def add(self, task: NewTask, *, since: int = 0) -> AddResult:
        """Schedule one task. Raises InvalidInput, a Conflict or StoreUnavailable.

        `since`: what was added under its id since then (epoch ms), done or dead by now too, is it, and is left alone.
        """
        [item] = self._add([self._prepare(task, self._store.now)], since)
        if isinstance(item, DuecourseError):
            raise item
        return item

    def add_many(self, tasks: Sequence[NewTask], *, since: int = 0) -> list[Item]:
        """Schedule up to MAX_ADD tasks, in one step a shard; returns each one's result, or the error that rejects it.

        A wrong field rejects them all. For `since` see `add`. Raises InvalidInput, with every wrong field, and
        StoreUnavailable: as PartlyAdded, which lists the tasks, where the store has some of them.
        """
        now = cache(self._store.now)  # asked for once, and only where a deadline needs it
        ready, wrong = [], []
        for index, task in enumerate(tasks):
            try:
                ready.append(self._prepare(task, now))
            except InvalidInput as error:
                wrong += [FieldError(f"tasks.{index}.{one.field}", one.problem) for one in error.problems]
        if wrong:
            raise InvalidInput(bounded(wrong))
        return self._add(ready, since)

    def _add(self, ready: Sequence[NewTask], since: int) -> list[Item]:
        found = [self._added(task, since) if since else None for task in ready]
        fresh = [task for task, standing in zip(ready, found, strict=True) if standing is None]
        try:
            added = iter(self._store.add(fresh, echo=True))
        except PartlyAdded as error:
            parts = iter(error.parts)
            raise PartlyAdded([Part(one.id, True) if one else next(parts) for one in found]) from error
        return [AddResult(standing, False) if standing else _result(next(added)) for standing in found]

    def _added(self, task: NewTask, since: int) -> Task | None:
        standing = self._store.get(task.queue, task.id, task.tenant)
        return standing if standing and standing.created_at >= since else None

    def fill(self, orders: Mapping[str, Order]) -> Filled:
        """Add the tasks of messages; rejected ones are left out and returned with their errors.

        Raises StoreUnavailable; the same orders again then add nothing twice.
        """
        ready, rejected = {}, {}
        for name, order in orders.items():
            try:
                task = self._prepare(order.task, self._store.now)._replace(by="message")
            except InvalidInput as error:
                rejected[name] = str(error)
                continue
            if not (order.once and self._store.get(task.queue, task.id)):
                ready[name] = task
        replies = add_all(self._store, list(ready.values()))
        answers = zip(ready, replies, strict=True)
        rejected |= {name: str(REJECTIONS[reply]()) for name, reply in answers if reply in REJECTIONS}
        return Filled(replies.count(Reply.CREATED), rejected)

    def get(self, queue: str, id: str, tenant: str = DEFAULT_TENANT) -> Task:
        """One task with its result, from the ledger or a results table. Raises TaskNotFound and ResultsUnavailable."""
        task = stored(self._store, queue, id, tenant)
        if task.status is not Status.DONE:
            return task
        if self._results is None:
            if self._by == "client" and not task.result_json:
                _hint_at_the_table()
            return task
        result = self._results.get(queue, id, tenant)
        # A result under another fence is an earlier generation's: the newest one had nothing to keep.
        ours = result is not None and result.fence == task.fence
        return task._replace(result_json=dump_json(result.value)) if result and ours else task

    def move(self, queue: str, move: Move, tenant: str = DEFAULT_TENANT) -> Task:
        """Give a scheduled task a new due time, with force also a leased one. Raises TaskNotFound or a Conflict."""
        [reply] = self._store.move(queue, [move._replace(by=self._by)], tenant)
        require(reply, queue, move.id, tenant)
        return self.get(queue, move.id, tenant)

    def cancel(self, queue: str, id: str, *, force: bool = False, tenant: str = DEFAULT_TENANT) -> None:
        """Cancel a scheduled task (with force a leased one), delete a dead one. Raises TaskNotFound or a Conflict."""
        [reply] = self._store.cancel(queue, [id], force=force, tenant=tenant, by=self._by)
        require(reply, queue, id, tenant)

    def replay(self, queue: str, id: str, tenant: str = DEFAULT_TENANT) -> Task:
        """Schedule a dead task for now, with all attempts and as much time as at first. Raises as `cancel` does."""
        dead = stored(self._store, queue, id, tenant)
        [reply] = self._store.replay(queue, [id], tenant, deadlines_ms=[deadline_ms(dead)], by=self._by)
        require(reply, queue, id, tenant)
        return self.get(queue, id, tenant)

    def page(self, queue: str, wanted: Wanted, after: Place | None, limit: int, tenant: str = DEFAULT_TENANT) -> Page:
        """Some of a queue's tasks in their order, those that follow `after`; results that are kept elsewhere aside."""
        return self._store.page(queue, wanted, after, limit, tenant)

    def why(self, queue: str, id: str, tenant: str = DEFAULT_TENANT) -> Why:
        """History and current wait of a task. Raises TaskNotFound."""
        task = stored(self._store, queue, id, tenant)
        throttle = self._store.throttle(self._store.shard_of(queue, id, task.group), tenant, task)
        return Why(task, timeline(task), waiting(task, throttle))

    def replay_dead(self, queue: str, asked: Replay, tenant: str = DEFAULT_TENANT) -> Replayed:
        """Replay a queue's dead tasks, oldest first, spread over time; a dry run only lists them."""
        dead, more = self._dead(queue, asked, tenant)
        delays = [asked.delay_ms(index) for index in range(len(dead))]
        now = self._store.now()
        if asked.dry_run:
            replies = [Reply.OK] * len(dead)
        else:
            ids, ends = [task.id for task in dead], [deadline_ms(task) for task in dead]
            replies = self._store.replay(queue, ids, tenant, delays_ms=delays, deadlines_ms=ends, by=self._by)
        answers = zip(dead, delays, replies, strict=True)
        return Replayed([(task.id, now + delay) for task, delay, reply in answers if reply is Reply.OK], more)

    def _dead(self, queue: str, asked: Replay, tenant: str) -> tuple[list[Task], bool]:
        """The oldest dead tasks, at most as many as asked for, and whether there may be more."""
        wanted, found, after = Wanted(Status.DEAD, asked.kind), list[Task](), None
        for _ in range(MAX_LOOKS):
            page = self._store.page(queue, wanted, after, min(MAX_PAGE, asked.limit - len(found)), tenant)
            found, after = found + page.tasks, page.next
            if after is None or len(found) == asked.limit:
                break
        return found, after is not None

    def _prepare(self, task: NewTask, now: Callable[[], int]) -> NewTask:
        if task.notify and not is_url(task.notify) and Notify.of(task.notify).address not in self._handed:
            known = ", ".join(sorted(self._handed)) or "none"
            problem = f"must be a kind that DUECOURSE_TARGETS hands to a target; known: {known}"
            raise InvalidInput([FieldError("notify_done.target", problem)])
        if task.kind not in self._kinds:
            known = ", ".join(sorted(self._kinds))
            problem = f"no target here runs {task.kind}; known kinds: {known}. {OWN_KINDS}"
            raise InvalidInput([FieldError("kind", problem)])
        if task.deadline_at is None and task.deadline_ms is None:
            deadline_ms = DEADLINES_MS.get(task.kind)
            ready = deadline_ms is None and task.by == self._by
            return task if ready else task._replace(by=self._by, deadline_ms=deadline_ms)
        if _ends_before_due(task, now):
            raise InvalidInput([FieldError("deadline", "must be after the due time")])
        return task._replace(by=self._by)


@cache
def _hint_at_the_table() -> None:
    """Once a process: nothing in the ledger tells a task without a result from one whose result is elsewhere."""
    log.warning(
        "A task is done and the ledger holds no result of it. If your functions keep results in a table (the "
        "template's do), set DUECOURSE_RESULTS_TABLE to its name here too, with AWS's region and credentials, and "
        "install duecourse[aws]."
    )


def _result(added: AddReply) -> Item:
    if added.reply in REJECTIONS:
        return REJECTIONS[added.reply]()
    assert added.task is not None  # noqa: S101 - for the type: what echo answers
    return AddResult(added.task, added.reply is Reply.CREATED)


def _ends_before_due(task: NewTask, now: Callable[[], int]) -> bool:
    if task.deadline_at is None:
        return (task.deadline_ms or 0) <= 0
    due_at = now() + task.delay_ms if task.due_at is None else task.due_at
    return task.deadline_at <= due_at
