"""Operations of callers on tasks, one or many; tasks from watched keys; the content of completion notifications."""

from collections.abc import Callable, Mapping, Sequence
from copy import copy
from dataclasses import replace
from functools import cache
from typing import TYPE_CHECKING, Any, NamedTuple

from duecourse import errors
from duecourse.base.batches import batched
from duecourse.base.json_text import Json, dump_json
from duecourse.base.masking import masked_error
from duecourse.base.times import format_instant
from duecourse.errors import DuecourseError, FieldError, InvalidInput, TaskDamaged, TaskNotFound, bounded
from duecourse.guard.seals import Seals
from duecourse.ledger.api_query import LEAST_INTERVAL_MS
from duecourse.ledger.many_tasks import (
    MAX_LOOKS,
    MAX_PAGE,
    Act,
    Bulk,
    BulkProgress,
    BulkResult,
    Page,
    PagePosition,
    Replay,
    Replayed,
    TaskFilter,
    deadline_ms,
)
from duecourse.ledger.operation_types import (
    BEYOND,
    MAX_ADD,
    QUOTAS,
    AddReply,
    KeyedTry,
    Move,
    Reply,
    Results,
    TaskSnapshot,
    Version,
)
from duecourse.ledger.schedule import Purge, Purged
from duecourse.ledger.task import (
    DEAD,
    DEADLINES_MS,
    DEFAULT_TENANT,
    ON_REQUEST,
    AddResult,
    DueTask,
    Ended,
    Item,
    NewTask,
    Notify,
    Status,
    Task,
    TaskMessage,
    ended_of,
    is_url,
)
from duecourse.ledger.timeline import Why, timeline, waiting
from duecourse.ledger.watched_keys import ExpiredKey, Watch
from duecourse.tasks.kinds import Kinds, UrlPolicy, check_calls

if TYPE_CHECKING:
    from duecourse.ledger.operations.ledger import Ledger

# Verbs of callers on tasks: add, show, move, cancel, replay.

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
    """Raise QuotaExceeded or BeyondQuota if a group of tasks is over a quota of its tenant.

    `fields` are to blame for what is beyond a whole quota.
    """
    for one in added:
        if one.reply in QUOTAS.keys() | BEYOND.keys() and (error := rejection(one.reply, one.wait_ms, fields)):
            raise error


def stored(ledger: "Ledger", queue: str, id: str, tenant: str) -> Task:
    """One task. Raises TaskNotFound."""
    task = ledger.get(queue, id, tenant)
    if task is None:
        raise TaskNotFound(id, queue, tenant)
    return task


def add_all(ledger: "Ledger", tasks: Sequence[NewTask], seals: Seals | None) -> list[Reply]:
    """Replies to any number of tasks, added in parts that the ledger takes; without `seals` they stay in clear."""
    batches = batched(tasks, MAX_ADD)
    return [added.reply for some in batches for added in ledger.add(seals.sealed(some) if seals else some)]


class AddedMessages(NamedTuple):
    """Results of messages: the number of added tasks, and the errors of rejected messages by their names."""

    added: int
    rejected: dict[str, str]


class Tasks:
    """Operations on tasks; `kinds` are the kinds that may be added, `results` is the results table or None.

    `results_at` opens the results table that a task names. `url_policy` names the reason why a URL may not be called.
    `seals` seals the credentials of tasks, or rejects them. `by` is the source in a task's log,
    `least_interval_ms` the shortest interval of a poll.
    """

    def __init__(
        self,
        ledger: "Ledger",
        results: Results | None,
        kinds: Kinds,
        url_policy: UrlPolicy,
        seals: Seals,
        least_interval_ms: int = LEAST_INTERVAL_MS,
        results_at: Callable[[str], Results] | None = None,
    ) -> None:
        self._ledger = ledger
        self._results = results
        self._kinds = kinds
        self._url_policy = url_policy
        self._by = "http"
        self._seals = seals
        self._least_interval_ms = least_interval_ms
        self._results_at = results_at
        self._keyed: KeyedTry | None = None

    def with_source(self, by: str, keyed: KeyedTry | None = None) -> "Tasks":
        """A copy for another source of requests; `keyed` is the try of a request with an Idempotency-Key."""
        same = copy(self)
        same._by, same._keyed = by, keyed  # noqa: SLF001 - of its own class
        return same

    def add(self, task: NewTask) -> AddResult:
        """Schedule one task. Raises InvalidInput, a Conflict, QuotaExceeded, BeyondQuota or StoreUnavailable.

        A repeat adds nothing where an earlier try did, and has the same answer. It leaves alone tasks that were added
        since the first try; a task with `on_duplicate` reject then raises ChangedSince.
        """
        [item] = self._add([self._prepare(task, self._ledger.now)])
        if isinstance(item, DuecourseError):
            raise item
        return item

    def add_many(self, tasks: Sequence[NewTask]) -> list[Item]:
        """Schedule up to MAX_ADD tasks, in one step a shard; returns each one's result, or the error that rejects it.

        A wrong field rejects them all. For a repeat see `add`. Raises InvalidInput, with every wrong field, and
        StoreUnavailable: as PartlyAdded, which lists the tasks, where the store has some of them.
        """
        now = cache(self._ledger.now)  # asked for once, and only where a deadline needs it
        ready, wrong = [], []
        for index, task in enumerate(tasks):
            try:
                ready.append(self._prepare(task, now))
            except InvalidInput as error:
                wrong += [FieldError(f"tasks.{index}.{one.field}", one.problem) for one in error.problems]
        if wrong:
            raise InvalidInput(bounded(wrong))
        return self._add(ready)

    def add_each(self, tasks: Sequence[NewTask]) -> list[Item]:
        """Schedule tasks of separate callers: for each the result of an `add` of its own, or that one's error.

        They are as many as Ledger.add_each takes.
        """
        found, ready = dict[int, Item](), dict[int, NewTask]()
        now = cache(self._ledger.now)
        try:
            for place, task in enumerate(tasks):
                try:
                    ready[place] = self._prepare(task, now)
                except InvalidInput as error:
                    found[place] = error
        except DuecourseError as error:  # of the store
            return [found.get(place) or copy(error) for place in range(len(tasks))]
        # Apart, for they alone need the key: without one there are none.
        hiding = {place: task for place, task in ready.items() if self._seals.hides(task)}
        try:
            ready |= zip(hiding, self._seals.sealed([*hiding.values()]), strict=True)
        except DuecourseError as error:
            ready = {place: task for place, task in ready.items() if place not in hiding}
            found |= {place: copy(error) for place in hiding}
        replies = self._ledger.add_each([*ready.values()])
        found |= {
            place: one if isinstance(one, DuecourseError) else _result(one)
            for place, one in zip(ready, replies, strict=True)
        }
        return [found[place] for place in range(len(tasks))]

    def _add(self, ready: Sequence[NewTask]) -> list[Item]:
        since, mark = (self._keyed.since, self._keyed.mark()) if self._keyed else (0, b"")
        # Without a key there is nothing to seal: `_prepare` has rejected each credential.
        sealed = self._seals.sealed(ready) if self._seals.are_possible else ready
        return [_result(one) for one in self._ledger.add(sealed, echo=True, since=since, mark=mark)]

    def runs(self, kind: str) -> bool:
        """True if a function or worker is known to run tasks of this kind."""
        try:
            self._kinds.check(kind, shown=False)
        except InvalidInput:
            return False
        return True

    def prepared(self, task: NewTask) -> NewTask:
        """A task as an add would write it; nothing is added. Raises InvalidInput."""
        return self._prepare(task, self._ledger.now)

    def add_messages(self, messages: Mapping[str, TaskMessage]) -> AddedMessages:
        """Add the tasks of messages; rejected ones are left out and returned with their errors.

        Raises StoreUnavailable; the same messages again then add nothing twice.
        """
        ready, rejected = {}, {}
        for name, message in messages.items():
            try:
                task = self._prepare(message.task, self._ledger.now)._replace(by="message")
            except InvalidInput as error:
                rejected[name] = str(error)
                continue
            if not (message.once and self._ledger.get(task.queue, task.id)):
                ready[name] = task
        replies = add_all(self._ledger, list(ready.values()), self._seals)
        answers = zip(ready, map(rejection, replies), strict=True)
        rejected |= {name: str(error) for name, error in answers if error}
        return AddedMessages(replies.count(Reply.CREATED), rejected)

    def get(self, queue: str, id: str, tenant: str = DEFAULT_TENANT) -> Task:
        """One task with its result, from the ledger or a results table. Raises TaskNotFound and ResultsUnavailable."""
        task = stored(self._ledger, queue, id, tenant)
        if task.status is not Status.DONE:
            return task
        results = self._results or (self._results_at(task.kept_at) if task.kept_at and self._results_at else None)
        if results is None:
            return task
        result = results.get(queue, id, tenant)
        # A result under another fence is an earlier generation's: the newest one had nothing to keep.
        if result is not None and result.fence == task.fence:
            return replace(task, result_json=dump_json(result.value))
        return replace(task, result_json="") if task.kept_at else task

    def move(self, queue: str, move: Move, tenant: str = DEFAULT_TENANT) -> Task:
        """Give a scheduled task a new due time, with force also a leased one. Raises TaskNotFound or a Conflict.

        A repeat moves nothing twice. Raises ChangedSince where another change came, and the first try's is not known.
        """
        move = move._replace(by=self._by)
        if self._keyed:
            seen = self._first_saw(self._keyed, queue, move.id, tenant)
            move = move._replace(mark=self._keyed.mark(move.id), seen=seen.version if self._keyed.is_repeat else None)
        [reply] = self._ledger.move(queue, [move], tenant)
        require(reply, queue, move.id, tenant)
        return self.get(queue, move.id, tenant)

    def cancel(self, queue: str, id: str, *, force: bool = False, tenant: str = DEFAULT_TENANT) -> None:
        """Cancel a scheduled task (with force a leased one), delete a dead one. Raises TaskNotFound or a Conflict.

        A repeat leaves alone what was added under the id since the first try.
        """
        seen = self._first_saw(self._keyed, queue, id, tenant) if self._keyed else None
        is_repeat = self._keyed is not None and self._keyed.is_repeat
        newest = seen.version.generation if seen and is_repeat else None
        [reply] = self._ledger.cancel(queue, [id], force=force, tenant=tenant, by=self._by, newest=newest)
        if seen and is_repeat and reply in ENDED_ALREADY:
            may_cancel = seen.status in {Status.SCHEDULED, Status.DEAD} or (force and seen.status is Status.LEASED)
            reply = Reply.OK if may_cancel else Reply(seen.status)
            self._ledger.confirm(self._ledger.shard_of(queue, id))
        require(reply, queue, id, tenant)

    def replay(self, queue: str, id: str, tenant: str = DEFAULT_TENANT) -> Task:
        """Schedule a dead task for now, with all attempts and as much time as at first. Raises as `cancel` does.

        A repeat replays no task that was replayed, or added again, since the first try.
        """
        seen = self._first_saw(self._keyed, queue, id, tenant) if self._keyed else None
        dead = stored(self._ledger, queue, id, tenant)
        again = [seen.version] if seen and self._keyed and self._keyed.is_repeat else []
        [reply] = self._ledger.replay(queue, [id], tenant, deadlines_ms=[deadline_ms(dead)], by=self._by, seen=again)
        if seen and reply is Reply.CHANGED:
            reply = Reply.OK if seen.status is Status.DEAD else Reply(seen.status)
            self._ledger.confirm(self._ledger.shard_of(queue, id, dead.group))
        require(reply, queue, id, tenant)
        return self.get(queue, id, tenant)

    def _first_saw(self, keyed: KeyedTry, queue: str, id: str, tenant: str) -> TaskSnapshot:
        """The task as the first try of the request saw it. Raises TaskNotFound."""

        def look() -> list[Any]:
            seen = self._ledger.seen(queue, id, tenant)
            if seen is None:
                raise TaskNotFound(id, queue, tenant)
            return [*seen.version, seen.status]

        generation, due_at, status = keyed.first_saw(look)
        return TaskSnapshot(Version(generation, due_at), Status(status))

    def page(
        self, queue: str, wanted: TaskFilter, after: PagePosition | None, limit: int, tenant: str = DEFAULT_TENANT
    ) -> Page:
        """A page of a queue's tasks after `after`, without results that are kept in a results table."""
        return self._ledger.page(queue, wanted, after, limit, tenant)

    def why(self, queue: str, id: str, tenant: str = DEFAULT_TENANT) -> Why:
        """History and current wait of a task. Raises TaskNotFound."""
        task = stored(self._ledger, queue, id, tenant)
        throttle = self._ledger.throttle(self._ledger.shard_of(queue, id, task.group), tenant, task)
        return Why(task, timeline(task), waiting(task, throttle))

    def replay_dead(self, queue: str, request: Replay, tenant: str = DEFAULT_TENANT) -> Replayed:
        """Replay a queue's dead tasks, oldest first, spread over time; a dry run only lists them.

        Raises QuotaExceeded where a quota of the tenant leaves room for none.
        """
        keyed = None if request.dry_run else self._keyed
        plan = (
            keyed.first_saw(lambda: self._plan(queue, request, tenant)) if keyed else self._plan(queue, request, tenant)
        )
        ids, ends = [one[0] for one in plan["dead"]], [one[3] for one in plan["dead"]]
        delays = [request.delay_ms(index) for index in range(len(ids))]
        replies = [Reply.OK] * len(ids)
        if not request.dry_run:
            again = [Version(one[1], one[2]) for one in plan["dead"]] if keyed and keyed.is_repeat else []
            replies = self._ledger.replay(
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
        after = PagePosition(*plan["next"]) if plan["next"] else None
        next = request.after if over else after  # what is over a quota stays dead, and is asked for again
        return Replayed(replayed, bool(over) or after is not None, next and next.cursor)

    def _plan(self, queue: str, request: Replay, tenant: str) -> dict[str, Any]:
        """The dead tasks of a replay as JSON: id, version and time to the deadline of each, and the place behind."""
        dead, after = self._dead(queue, request, tenant)
        rows = [[task.id, task.generation, task.due_at, deadline_ms(task)] for task in dead]
        return {"dead": rows, "next": after, "now": self._ledger.now()}

    def _dead(self, queue: str, request: Replay, tenant: str) -> tuple[list[Task], PagePosition | None]:
        """The oldest dead tasks, at most as many as asked for, and the place after which there may be more."""
        wanted, found, after = TaskFilter(Status.DEAD, request.kind, error=request.error), list[Task](), request.after
        for _ in range(MAX_LOOKS):
            page = self._ledger.page(queue, wanted, after, min(MAX_PAGE, request.limit - len(found)), tenant)
            found, after = found + page.tasks, page.next
            if after is None or len(found) == request.limit:
                break
        return found, after

    def _prepare(self, task: NewTask, now: Callable[[], int]) -> NewTask:
        shown = self._by == CLIENT
        if task.notify and not is_url(task.notify):
            self._kinds.check_receiver(Notify.of(task.notify).address, shown=shown)
        self._kinds.check(task.kind, shown=shown)
        check_calls(task, self._url_policy, self._least_interval_ms, now)
        if not self._seals.are_possible:  # else `_add` seals each credential
            self._seals.check_task(task)
        if task.deadline_at is None and task.deadline_ms is None:
            deadline_ms = DEADLINES_MS.get(task.kind)
            ready = deadline_ms is None and task.by == self._by
            return task if ready else task._replace(by=self._by, deadline_ms=deadline_ms)
        if _ends_before_due(task, now):
            raise InvalidInput([FieldError("deadline", "must be after the due time")])
        return task._replace(by=self._by)


def _result(added: AddReply) -> Item:
    if added.echo:  # which a rejection has not
        return AddResult.deferred(added, created=added.reply is Reply.CREATED)
    error = rejection(added.reply, added.wait_ms)
    assert error is not None  # noqa: S101 - for the type: there is one where nothing is echoed
    return error


def _ends_before_due(task: NewTask, now: Callable[[], int]) -> bool:
    if task.deadline_at is None:
        return (task.deadline_ms or 0) <= 0
    due_at = now() + task.delay_ms if task.due_at is None else task.due_at
    return task.deadline_at <= due_at


# Operations of callers on many tasks, or schedules, of a queue at once.


class BulkActions:
    """Operations on many tasks or schedules of a queue."""

    def __init__(self, ledger: "Ledger") -> None:
        self._ledger = ledger

    def act(
        self, queue: str, request: Bulk, after: BulkProgress | None, tenant: str, by: str, keyed: KeyedTry | None = None
    ) -> BulkResult:
        """Count, delete or cancel tasks, as Ledger.bulk does.

        A request with a key counts first, and notes the place that it will reach. Each try then acts up to that place,
        on tasks that were there when the first try counted: a repeat takes no others.
        """
        if keyed is None or request.act is Act.COUNT:
            return self._ledger.bulk(queue, request, after, tenant, by=by)

        def look() -> list[Any]:
            now = self._ledger.now()
            found = self._ledger.bulk(queue, request._replace(act=Act.COUNT, before=now), after, tenant)
            return [now, *found]

        before, count, reached = keyed.first_saw(look)
        until = BulkProgress(reached[0], Status(reached[1]), *reached[2:]) if reached else None
        request, acted, place = request._replace(before=before, until=until), 0, after
        while acted < count:
            done = self._ledger.bulk(queue, request._replace(limit=count - acted), place, tenant, by=by)
            acted, place = acted + done.tasks, done.next
            if place in {None, until}:
                break
        return BulkResult(count if keyed.is_repeat else acted, until)

    def purge_schedules(
        self, queue: str, request: Purge, tenant: str = DEFAULT_TENANT, keyed: KeyedTry | None = None
    ) -> Purged:
        """Delete schedules, as Ledger.purge_schedules does; a repeat of a request with a key deletes no others."""
        if keyed is None or request.dry_run:
            return self._ledger.purge_schedules(queue, request, tenant)

        def look() -> list[Any]:
            now = self._ledger.now()
            return [now, *self._ledger.purge_schedules(queue, request._replace(dry_run=True), tenant)]

        before, count, until = keyed.first_saw(look)
        purged = 0
        if count:
            again = request._replace(limit=count, until=until, before=before)
            purged = self._ledger.purge_schedules(queue, again, tenant).schedules
        return Purged(count if keyed.is_repeat else purged, until)


# Watched keys: the expiry of a key that any program set becomes a task, once however many heard it.


class ExpiryResult(NamedTuple):
    """Results of expiries: the number of new tasks, and the keys that no pattern matches."""

    added: int
    unknown: list[bytes]


class Watches:
    """Tasks from expired keys; if several watches match a key, the first counts.

    Credentials in tasks are in clear without `seals`.
    """

    def __init__(self, ledger: "Ledger", namespace: str, watches: Sequence[Watch], seals: Seals | None) -> None:
        self._ledger = ledger
        self._seals = seals
        self._namespace = namespace
        self._watches = watches

    def note(self, expired: Sequence[ExpiredKey]) -> ExpiryResult:
        """Add a task for each expiry, unless its key already has one within its watch's window.

        Raises StoreUnavailable; the same expiries again then make nothing twice.
        """
        made = [(one, self._task(one)) for one in expired]
        replies = add_all(self._ledger, [task for _, task in made if task], self._seals)
        return ExpiryResult(replies.count(Reply.CREATED), [one.key for one, task in made if not task])

    def _task(self, expired: ExpiredKey) -> NewTask | None:
        for watch in self._watches:
            parts = watch.pattern.match(expired.key)
            if parts is not None:
                task = watch.task(self._namespace, expired, parts)
                return task._replace(deadline_ms=DEADLINES_MS.get(watch.kind))
        return None


# Content of a completion notification: the ended task, in place of the reference that it carries.

MAX_NOTIFICATION_BYTES = 200_000
"""Maximum size of a notification: an asynchronous invocation takes 256 KiB."""

OMITTED_FIRST = (*ON_REQUEST, "history")
"""Fields that a longer notification omits, in turn."""

ShowTask = Callable[[Task], dict[str, Json]]
"""Puts a task in the words of the HTTP API."""


def with_content(task: Task, tasks: Tasks, show: ShowTask) -> Task:
    """The task as its worker gets it: a completion notification with its content, any other task unchanged.

    The payload becomes {type: task.done or task.dead, timestamp, data: the ended task as it is shown}. For a URL
    that is the body of a webhook's payload. Raises StoreUnavailable, ResultsUnavailable and TaskDamaged.
    """
    ended = ended_of(task.payload)
    if ended is None:
        return task
    data = {
        **_ended_task(task, ended, tasks, show),
        "state": ended.state,
        "tenant": task.tenant,
        "generation": ended.generation,
    }
    if ended.error:
        data["error"] = masked_error(ended.error)
    body = {"type": f"task.{ended.state}", "timestamp": format_instant(ended.at), "data": _shortened(data)}
    call = {"url": ended.url, "body": body, **({"auth": ended.auth} if ended.auth else {})}
    return replace(task, payload_json=dump_json(call if ended.url else body))


def _ended_task(task: Task, ended: Ended, tasks: Tasks, show: ShowTask) -> dict[str, Json]:
    """The ended task; only its reference, if the task is gone or has a new generation."""
    reference = {"id": ended.id, "queue": task.queue, "run": ended.run}
    try:
        ended_task = tasks.get(task.queue, ended.id, task.tenant)
    except (TaskNotFound, TaskDamaged):
        return reference
    if ended_task.generation != ended.generation:
        return reference
    shown = show(ended_task)
    # Notifications of every death go to the operator's own target; others may go to anybody.
    if task.kind != DEAD:
        include = Notify.of(ended_task.notify).include
        for part in ON_REQUEST:
            if part not in include:
                shown.pop(part, None)
    return shown


def _shortened(data: dict[str, Json]) -> dict[str, Json]:
    left_out: list[str] = []
    for field in OMITTED_FIRST:
        if len(dump_json(data).encode()) <= MAX_NOTIFICATION_BYTES:
            break
        if data.pop(field, None) is not None:
            left_out.append(field)
    return {**data, "left_out": left_out} if left_out else data
