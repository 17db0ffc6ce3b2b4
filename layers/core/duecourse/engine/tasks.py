"""Verbs of callers on tasks: add, show, move, cancel, replay."""

from collections.abc import Callable, Mapping, Sequence
from copy import copy
from functools import cache
from typing import Any, NamedTuple

from duecourse import errors
from duecourse.domain.batches import pieces
from duecourse.domain.idempotency import KeyedTry
from duecourse.domain.notification import Notify, is_url
from duecourse.domain.order import AddResult, Item, Order
from duecourse.domain.pages import MAX_PAGE, Page, Place, Wanted
from duecourse.domain.polls import LEAST_INTERVAL_MS
from duecourse.domain.replay import MAX_LOOKS, Replay, Replayed, deadline_ms
from duecourse.domain.task import DEADLINES_MS, DEFAULT_TENANT, DueTask, NewTask, Status, Task, dump_json
from duecourse.domain.timeline import Why, timeline, waiting
from duecourse.domain.values import replaced
from duecourse.engine.kinds import Kinds
from duecourse.engine.polls import check_poll
from duecourse.engine.reach import Reach, check_places
from duecourse.errors import DuecourseError, FieldError, InvalidInput, TaskNotFound, bounded
from duecourse.ports.ledger import Ledger
from duecourse.ports.results import Results
from duecourse.ports.tasks import BEYOND, MAX_ADD, QUOTAS, AddReply, Move, Reply, Seen, TaskStore, Version

CLIENT = "client"
"""Source of what a program with a Client asks for; that program knows the store's address."""
REJECTIONS: dict[Reply, type[DuecourseError]] = {
    Reply.SCHEDULED: errors.TaskScheduled,
    Reply.LEASED: errors.TaskLeased,
    Reply.DONE: errors.TaskDone,
    Reply.CANCELLED: errors.TaskCancelled,
    Reply.DEAD: errors.TaskDead,
    Reply.PAST_DEADLINE: errors.PastDeadline,
    Reply.CHANGED: errors.ChangedSince,
}
ENDED_ALREADY = frozenset({Reply.ABSENT, Reply.CANCELLED, Reply.CHANGED})
"""Replies to a repeated cancel of a task that it, or a change that came later, has ended."""


def rejection(reply: Reply, wait_ms: int = 0, fields: Sequence[str] = ("payload",)) -> DuecourseError | None:
    """The error of a rejection, None for any other reply; `fields` are to blame for what is beyond a quota."""
    if reply in QUOTAS:
        return errors.QuotaExceeded(QUOTAS[reply], wait_ms if reply is Reply.OVER_ADDS else 0)
    if reply in BEYOND:
        return errors.BeyondQuota(BEYOND[reply], *fields)
    return REJECTIONS[reply]() if reply in REJECTIONS else None


def require(reply: Reply, queue: str, id: str, tenant: str) -> None:
    """Raise the error of a rejection; return for any other reply."""
    if reply is Reply.ABSENT:
        raise TaskNotFound(id, queue, tenant)
    if error := rejection(reply):
        raise error


def require_room(added: Sequence[AddReply], *fields: str) -> None:
    """Raise QuotaExceeded or BeyondQuota where tasks that were to be added as one are over a quota of their tenant.

    `fields` are to blame for what is beyond a whole quota.
    """
    for one in added:
        if one.reply in QUOTAS.keys() | BEYOND.keys() and (error := rejection(one.reply, one.wait_ms, fields)):
            raise error


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
    """The verbs on tasks; `kinds` says which can be asked for, `results` is the results table or None.

    `results_at` opens the results table that a task names. `reach` says what calls may not reach. `check` rejects a
    task whose credentials cannot be sealed. `by` is the source in a task's log, `least_interval_ms` the shortest
    interval of a poll.
    """

    def __init__(
        self,
        store: TaskStore,
        results: Results | None,
        kinds: Kinds,
        reach: Reach,
        check: Callable[[NewTask], None] | None = None,
        least_interval_ms: int = LEAST_INTERVAL_MS,
        results_at: Callable[[str], Results] | None = None,
    ) -> None:
        self._store = store
        self._results = results
        self._kinds = kinds
        self._reach = reach
        self._by = "http"
        self._check = check
        self._least_interval_ms = least_interval_ms
        self._results_at = results_at
        self._keyed: KeyedTry | None = None

    def speaking_as(self, by: str, keyed: KeyedTry | None = None) -> "Tasks":
        """The same verbs for another source of requests; `keyed` is the try of a request that carries a key."""
        same = copy(self)
        same._by, same._keyed = by, keyed  # noqa: SLF001 - of its own class
        return same

    def add(self, task: NewTask) -> AddResult:
        """Schedule one task. Raises InvalidInput, a Conflict, QuotaExceeded, BeyondQuota or StoreUnavailable.

        At a repeat, what was added under its id since the first try, done or dead by now too, is it, and is left alone.
        """
        [item] = self._add([self._prepare(task, self._store.now)])
        if isinstance(item, DuecourseError):
            raise item
        return item

    def add_many(self, tasks: Sequence[NewTask]) -> list[Item]:
        """Schedule up to MAX_ADD tasks, in one step a shard; returns each one's result, or the error that rejects it.

        A wrong field rejects them all. For a repeat see `add`. Raises InvalidInput, with every wrong field, and
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
        return self._add(ready)

    def _add(self, ready: Sequence[NewTask]) -> list[Item]:
        since = self._keyed.since if self._keyed else 0
        return [_result(one) for one in self._store.add(ready, echo=True, since=since)]

    def runs(self, kind: str) -> bool:
        """True if something is known that runs tasks of this kind."""
        try:
            self._kinds.check(kind, shown=False)
        except InvalidInput:
            return False
        return True

    def prepared(self, task: NewTask) -> NewTask:
        """A task as an add would write it; nothing is added. Raises InvalidInput."""
        return self._prepare(task, self._store.now)

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
        answers = zip(ready, map(rejection, replies), strict=True)
        rejected |= {name: str(error) for name, error in answers if error}
        return Filled(replies.count(Reply.CREATED), rejected)

    def get(self, queue: str, id: str, tenant: str = DEFAULT_TENANT) -> Task:
        """One task with its result, from the ledger or a results table. Raises TaskNotFound and ResultsUnavailable."""
        task = stored(self._store, queue, id, tenant)
        if task.status is not Status.DONE:
            return task
        results = self._results or (self._results_at(task.kept_at) if task.kept_at and self._results_at else None)
        if results is None:
            return task
        result = results.get(queue, id, tenant)
        # A result under another fence is an earlier generation's: the newest one had nothing to keep.
        if result is not None and result.fence == task.fence:
            return replaced(task, result_json=dump_json(result.value))
        return replaced(task, result_json="") if task.kept_at else task

    def move(self, queue: str, move: Move, tenant: str = DEFAULT_TENANT) -> Task:
        """Give a scheduled task a new due time, with force also a leased one. Raises TaskNotFound or a Conflict.

        A repeat moves nothing twice. Raises ChangedSince where another change came, and the first try's is not known.
        """
        move = move._replace(by=self._by)
        if self._keyed:
            seen = self._first_saw(self._keyed, queue, move.id, tenant)
            move = move._replace(mark=self._keyed.mark(move.id), seen=seen.version if self._keyed.is_repeat else None)
        [reply] = self._store.move(queue, [move], tenant)
        require(reply, queue, move.id, tenant)
        return self.get(queue, move.id, tenant)

    def cancel(self, queue: str, id: str, *, force: bool = False, tenant: str = DEFAULT_TENANT) -> None:
        """Cancel a scheduled task (with force a leased one), delete a dead one. Raises TaskNotFound or a Conflict.

        A repeat leaves alone what was added under the id since the first try.
        """
        seen = self._first_saw(self._keyed, queue, id, tenant) if self._keyed else None
        is_repeat = self._keyed is not None and self._keyed.is_repeat
        newest = seen.version.generation if seen and is_repeat else None
        [reply] = self._store.cancel(queue, [id], force=force, tenant=tenant, by=self._by, newest=newest)
        if seen and is_repeat and reply in ENDED_ALREADY:
            may_cancel = seen.status in {Status.SCHEDULED, Status.DEAD} or (force and seen.status is Status.LEASED)
            reply = Reply.OK if may_cancel else Reply(seen.status)
            self._store.confirm(self._store.shard_of(queue, id))
        require(reply, queue, id, tenant)

    def replay(self, queue: str, id: str, tenant: str = DEFAULT_TENANT) -> Task:
        """Schedule a dead task for now, with all attempts and as much time as at first. Raises as `cancel` does.

        A repeat replays no task that was replayed, or added again, since the first try.
        """
        seen = self._first_saw(self._keyed, queue, id, tenant) if self._keyed else None
        dead = stored(self._store, queue, id, tenant)
        again = [seen.version] if seen and self._keyed and self._keyed.is_repeat else []
        [reply] = self._store.replay(queue, [id], tenant, deadlines_ms=[deadline_ms(dead)], by=self._by, seen=again)
        if seen and reply is Reply.CHANGED:
            reply = Reply.OK if seen.status is Status.DEAD else Reply(seen.status)
            self._store.confirm(self._store.shard_of(queue, id, dead.group))
        require(reply, queue, id, tenant)
        return self.get(queue, id, tenant)

    def _first_saw(self, keyed: KeyedTry, queue: str, id: str, tenant: str) -> Seen:
        """The task as the first try of the request saw it. Raises TaskNotFound."""

        def look() -> list[Any]:
            seen = self._store.seen(queue, id, tenant)
            if seen is None:
                raise TaskNotFound(id, queue, tenant)
            return [*seen.version, seen.status]

        generation, due_at, status = keyed.first_saw(look)
        return Seen(Version(generation, due_at), Status(status))

    def page(self, queue: str, wanted: Wanted, after: Place | None, limit: int, tenant: str = DEFAULT_TENANT) -> Page:
        """Some of a queue's tasks in their order, those that follow `after`; results that are kept elsewhere aside."""
        return self._store.page(queue, wanted, after, limit, tenant)

    def why(self, queue: str, id: str, tenant: str = DEFAULT_TENANT) -> Why:
        """History and current wait of a task. Raises TaskNotFound."""
        task = stored(self._store, queue, id, tenant)
        throttle = self._store.throttle(self._store.shard_of(queue, id, task.group), tenant, task)
        return Why(task, timeline(task), waiting(task, throttle))

    def replay_dead(self, queue: str, asked: Replay, tenant: str = DEFAULT_TENANT) -> Replayed:
        """Replay a queue's dead tasks, oldest first, spread over time; a dry run only lists them.

        Raises QuotaExceeded where a quota of the tenant leaves room for none.
        """
        keyed = None if asked.dry_run else self._keyed
        plan = keyed.first_saw(lambda: self._plan(queue, asked, tenant)) if keyed else self._plan(queue, asked, tenant)
        ids, ends = [one[0] for one in plan["dead"]], [one[3] for one in plan["dead"]]
        delays = [asked.delay_ms(index) for index in range(len(ids))]
        replies = [Reply.OK] * len(ids)
        if not asked.dry_run:
            again = [Version(one[1], one[2]) for one in plan["dead"]] if keyed and keyed.is_repeat else []
            replies = self._store.replay(
                queue, ids, tenant, delays_ms=delays, deadlines_ms=ends, by=self._by, seen=again
            )
        replayed = [
            DueTask(id, plan["now"] + delay)
            for id, delay, reply in zip(ids, delays, replies, strict=True)
            if reply in {Reply.OK, Reply.CHANGED}  # changed: by the first try
        ]
        over = [error for reply in replies if reply in QUOTAS and (error := rejection(reply))]
        if over and not replayed:
            raise over[0]
        after = Place(*plan["next"]) if plan["next"] else None
        next = asked.after if over else after  # what is over a quota stays dead, and is asked for again
        return Replayed(replayed, bool(over) or after is not None, next and next.cursor)

    def _plan(self, queue: str, asked: Replay, tenant: str) -> dict[str, Any]:
        """The dead tasks of a replay as JSON: id, version and time to the deadline of each, and the place behind."""
        dead, after = self._dead(queue, asked, tenant)
        rows = [[task.id, task.generation, task.due_at, deadline_ms(task)] for task in dead]
        return {"dead": rows, "next": after, "now": self._store.now()}

    def _dead(self, queue: str, asked: Replay, tenant: str) -> tuple[list[Task], Place | None]:
        """The oldest dead tasks, at most as many as asked for, and the place after which there may be more."""
        wanted, found, after = Wanted(Status.DEAD, asked.kind, error=asked.error), list[Task](), asked.after
        for _ in range(MAX_LOOKS):
            page = self._store.page(queue, wanted, after, min(MAX_PAGE, asked.limit - len(found)), tenant)
            found, after = found + page.tasks, page.next
            if after is None or len(found) == asked.limit:
                break
        return found, after

    def _prepare(self, task: NewTask, now: Callable[[], int]) -> NewTask:
        shown = self._by == CLIENT
        if task.notify and not is_url(task.notify):
            self._kinds.check_receiver(Notify.of(task.notify).address, shown=shown)
        self._kinds.check(task.kind, shown=shown)
        check_places(task, self._reach)
        check_poll(task, self._least_interval_ms, now)
        if self._check:
            self._check(task)
        if task.deadline_at is None and task.deadline_ms is None:
            deadline_ms = DEADLINES_MS.get(task.kind)
            ready = deadline_ms is None and task.by == self._by
            return task if ready else task._replace(by=self._by, deadline_ms=deadline_ms)
        if _ends_before_due(task, now):
            raise InvalidInput([FieldError("deadline", "must be after the due time")])
        return task._replace(by=self._by)


def _result(added: AddReply) -> Item:
    if error := rejection(added.reply, added.wait_ms):
        return error
    assert added.task is not None  # noqa: S101 - for the type: what echo answers
    return AddResult(added.task, added.reply is Reply.CREATED)


def _ends_before_due(task: NewTask, now: Callable[[], int]) -> bool:
    if task.deadline_at is None:
        return (task.deadline_ms or 0) <= 0
    due_at = now() + task.delay_ms if task.due_at is None else task.due_at
    return task.deadline_at <= due_at
