"""Verbs of callers on reminders: each is a group of tasks, added, moved and cancelled together."""

import json

from duecourse.domain.reminder import (
    KIND,
    QUEUE,
    Made,
    Moved,
    MovedTask,
    Recipient,
    Reminder,
    ReminderStatus,
    Shown,
    due,
    starting,
)
from duecourse.domain.task import DEFAULT_TENANT, Json, NewTask, Status, Task
from duecourse.engine.tasks import REJECTIONS
from duecourse.errors import FieldError, InvalidInput, ReminderTooLarge, TaskLeased, TaskNotFound, TaskScheduled
from duecourse.ports.sender import Message
from duecourse.ports.tasks import Alone, Move, Reply, TaskStore
from duecourse.ports.writer import Letter, Writer

LIVE = frozenset({Status.SCHEDULED, Status.LEASED})
MOVABLE = LIVE | {Status.DONE}
GONE = frozenset({Reply.ABSENT, Reply.CANCELLED, Reply.DEAD})
CANCELLABLE = LIVE | {Status.DEAD}
MAX_BYTES = 4_000_000
"""The most that a reminder's tasks may weigh: they are added, moved and cancelled in one step of the store."""


class Reminders:
    """The verbs on reminders; each raises StoreUnavailable where the store does not answer."""

    def __init__(self, store: TaskStore, write: Writer) -> None:
        self._store = store
        self._write = write

    def add(self, reminder: Reminder, tenant: str = DEFAULT_TENANT) -> Made:
        """Schedule a reminder's tasks in one step.

        The same reminder again (same start, leads, recipients and words) changes nothing, so that a request whose
        answer was lost can be sent again. Another reminder under a live one's id raises TaskScheduled or TaskLeased;
        once no task of the old one is live, its id is free.

        Raises InvalidInput where the start has passed, or a message cannot be written, and ReminderTooLarge.
        """
        tasks = reminder.tasks(self._now_before(reminder.starts_at))
        wanted = [task._replace(tenant=tenant) for task in tasks]
        if sum(len(task.payload.encode()) for task in wanted) > MAX_BYTES:
            raise ReminderTooLarge
        self._write(Letter(json.loads(task.payload), reminder.starts_at) for task in wanted)
        return self._add(reminder, wanted, tenant)

    def _add(self, reminder: Reminder, wanted: list[NewTask], tenant: str) -> Made:
        standing = self._store.group(QUEUE, reminder.id, tenant)
        if _same(wanted, standing):
            return Made(False, [(task.id, task.due_at) for task in standing])
        _reject_if_live(standing)
        newest = max((task.generation for task in standing), default=0)
        if not self._store.add(wanted, alone=Alone(reminder.id, newest)):
            return self._add(reminder, wanted, tenant)  # another came between the look and the add
        return Made(True, [(task.id, task.due_at or 0) for task in wanted])

    def preview(self, reminder: Reminder) -> list[Shown]:
        """Each message of an add, as its recipient would read it. Raises InvalidInput as `add` does."""
        tasks = reminder.tasks(self._now_before(reminder.starts_at))
        payloads = [json.loads(task.payload) for task in tasks]
        written = self._write(Letter(payload, reminder.starts_at) for payload in payloads)
        return [
            _shown(task.id, task.due_at or 0, payload, message)
            for task, payload, message in zip(tasks, payloads, written, strict=True)
        ]

    def preview_standing(self, id: str, tenant: str = DEFAULT_TENANT) -> list[Shown]:
        """Each message of an existing reminder, as it was or would be sent now.

        Raises TaskNotFound, and InvalidInput where one cannot be written.
        """
        tasks = self._group(id, tenant)
        written = self._write(Letter(task.payload, _start(task)) for task in tasks)
        return [
            _shown(task.id, task.due_at, task.payload, message) for task, message in zip(tasks, written, strict=True)
        ]

    def get(self, id: str, tenant: str = DEFAULT_TENANT) -> ReminderStatus:
        """Status of a reminder. Raises TaskNotFound."""
        tasks = self._group(id, tenant)
        newest = max(tasks, key=lambda task: (task.status is Status.SCHEDULED, task.generation))
        return ReminderStatus(id, _start(newest), tasks)

    def move(self, id: str, starts_at: int, tenant: str = DEFAULT_TENANT) -> Moved:
        """Give every pending task its time before the new start (epoch ms), in one step.

        What was sent for another start is sent again for this one; what is being sent is left alone and named.
        Raises TaskNotFound, TaskCancelled, TaskDead, and InvalidInput where the start has passed, or a message cannot
        be written for it.
        """
        now = self._now_before(starts_at)
        tasks = self._in_state(id, MOVABLE, tenant)
        stale = [task for task in tasks if task.status in LIVE or _start(task) != starts_at]
        self._write(Letter(task.payload, starts_at) for task in stale)
        moves = [_move(task, starts_at, now) for task in stale]
        replies = self._store.move(QUEUE, moves, tenant, group=id)
        _reject_if_gone(replies, id, tenant)
        moved = zip(stale, moves, replies, strict=True)
        return Moved(
            id,
            starts_at,
            tasks=[MovedTask(t.id, move.due_at or 0, t.status) for t, move, reply in moved if reply is Reply.OK],
            leased=[move.id for move, reply in zip(moves, replies, strict=True) if reply is Reply.LEASED],
            sent=[task.id for task in tasks if task.status is Status.DONE],
        )

    def cancel(self, id: str, *, force: bool = False, tenant: str = DEFAULT_TENANT) -> None:
        """Cancel every pending task in one step and delete the dead ones; with `force`, cancel those being sent too.

        Raises TaskNotFound, and TaskDone or TaskCancelled where nothing is pending. Raises TaskLeased, with the ids
        being sent, after all the others are cancelled. A message that is cancelled by force may already be out.
        """
        ids = [task.id for task in self._in_state(id, CANCELLABLE, tenant)]
        replies = self._store.cancel(QUEUE, ids, force=force, tenant=tenant, group=id, by=KIND)
        leased = [task_id for task_id, reply in zip(ids, replies, strict=True) if reply is Reply.LEASED]
        if leased:
            raise TaskLeased(f"Being sent now: {', '.join(leased)}. All others are cancelled.")

    def _now_before(self, starts_at: int) -> int:
        now = self._store.now()
        if starts_at <= now:
            raise InvalidInput([FieldError("starts_at", "must be in the future")])
        return now

    def _group(self, id: str, tenant: str) -> list[Task]:
        tasks = self._store.group(QUEUE, id, tenant)
        if not tasks:
            raise _absent(id, tenant)
        return tasks

    def _in_state(self, id: str, allowed: frozenset[Status], tenant: str) -> list[Task]:
        tasks = self._group(id, tenant)
        fit = [task for task in tasks if task.status in allowed]
        if not fit:
            raise REJECTIONS[Reply(tasks[0].status)](f"All of this reminder is {tasks[0].status}.")
        return fit


def _same(wanted: list[NewTask], standing: list[Task]) -> bool:
    asked = {task.id: (task.payload, task.state) for task in wanted}
    kept = {task.id: (task.payload_json, task.state_json) for task in standing if task.status in MOVABLE}
    return asked == kept


def _reject_if_live(standing: list[Task]) -> None:
    live = {task.status for task in standing} & LIVE
    if live:
        error = TaskLeased if Status.LEASED in live else TaskScheduled
        raise error("Another reminder stands under this id: move or delete it.")


def _reject_if_gone(replies: list[Reply], id: str, tenant: str) -> None:
    """All was cancelled, or died, between being looked at and being moved."""
    if replies and GONE.issuperset(replies):
        if replies[0] is Reply.ABSENT:
            raise _absent(id, tenant)
        raise REJECTIONS[replies[0]](f"All of this reminder is {replies[0]}.")


def _absent(id: str, tenant: str) -> TaskNotFound:
    return TaskNotFound(id, QUEUE, tenant, what="reminder")


def _move(task: Task, starts_at: int, now: int) -> Move:
    again = _start(task) != starts_at
    due_at = due(starts_at, task.payload["lead_ms"], now)
    return Move(task.id, due_at=due_at, state=starting(starts_at), revive=again, by=KIND)


def _shown(id: str, due_at: int, payload: Json, message: Message) -> Shown:
    recipient = Recipient(**payload["recipient"])
    return Shown(id, due_at, payload["lead_ms"], recipient, message.subject, message.text, message.html)


def _start(task: Task) -> int:
    return int(task.state["starts_at"])
