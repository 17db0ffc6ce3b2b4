"""Operations on one-off reminders: each is a group of tasks, added, moved and cancelled together."""

import json
import logging
from collections.abc import Iterable, Mapping, Sequence
from copy import copy
from typing import TYPE_CHECKING

from duecourse.base.json_text import Json, dump_json
from duecourse.errors import (
    ChangedSince,
    FieldError,
    InvalidInput,
    SealBroken,
    TaskCancelled,
    TaskDone,
    TaskLeased,
    TaskNotFound,
    TaskScheduled,
)
from duecourse.guard.seals import Seals
from duecourse.ledger.operation_types import AddReply, KeyedTry, Move, Reply, TaskSnapshot, UniqueCondition, Version
from duecourse.ledger.reminder import (
    CONTENT,
    KIND,
    MAX_TASKS,
    QUEUE,
    SERIES_KIND,
    Channel,
    Made,
    Moved,
    MovedTask,
    Recipient,
    Reminder,
    ReminderStatus,
    Shown,
    due,
    is_sound,
    starting,
)
from duecourse.ledger.task import DEFAULT_TENANT, DueTask, NewTask, Status, Task
from duecourse.reminders.send import Letter, Message, Write
from duecourse.tasks.kinds import NumberPolicy, UrlPolicy, check_number, check_url, known_headers
from duecourse.tasks.verbs import REJECTIONS, require_room

if TYPE_CHECKING:
    from duecourse.ledger.operations.ledger import Ledger

# Messages of a reminder in the ledger, without damaged ones.

log = logging.getLogger("duecourse.reminders")


def sound(messages: Sequence[Task]) -> list[Task]:
    """The messages that can be read; logs each of the others."""
    found = []
    for message in messages:
        if is_sound(message):
            found.append(message)
        else:
            log.warning("task %s of reminder %s is left out because it is damaged", message.id, message.group)
    return found


LIVE = frozenset({Status.SCHEDULED, Status.LEASED})
MOVABLE = LIVE | {Status.DONE}
GONE = frozenset({Reply.ABSENT, Reply.CANCELLED, Reply.DEAD})
CANCELLABLE = LIVE | {Status.DEAD}
MAX_BYTES = 10_000_000
"""Maximum size of a reminder's messages in all: each has the content, and one step of the store adds them."""


class OneOffReminders:
    """Operations on one-off reminders; each raises StoreUnavailable where the store does not answer.

    `write` writes messages out, and `seals` opens credentials in tasks. A reminder has at most `most` messages. `by` is
    the source in the log of a reminder's tasks.
    """

    def __init__(
        self,
        ledger: "Ledger",
        write: Write,
        url_policy: UrlPolicy,
        seals: Seals,
        number_policy: NumberPolicy,
        most: int = MAX_TASKS,
        by: str = KIND,
    ) -> None:
        self._ledger = ledger
        self._write = write
        self._url_policy = url_policy
        self._seals = seals
        self._number_policy = number_policy
        self._most = most
        self._by = by

    def with_source(self, by: str) -> "OneOffReminders":
        """A copy for another source of requests."""
        same = copy(self)
        same._by = by  # noqa: SLF001 - of its own class
        return same

    def add(self, reminder: Reminder, tenant: str = DEFAULT_TENANT, keyed: KeyedTry | None = None) -> Made:
        """Schedule a reminder's tasks in one step.

        The same reminder again (same start, leads, recipients and words) changes nothing, so that a request whose
        answer was lost can be sent again. Another reminder under a live one's id raises TaskScheduled or TaskLeased;
        once no task of the old one is live, its id is free. A repeat of a request with a key finds what its first try
        added. Raises ChangedSince where another request added one since that try.

        Raises InvalidInput where the start has passed, a message cannot be written, or the messages are over MAX_BYTES.
        The same where a webhook must not be called, or a credential cannot be sealed. Raises QuotaExceeded and
        BeyondQuota.
        """
        self._check(reminder)
        wanted = self._tasks(reminder, tenant)
        self._write(Letter(json.loads(task.payload), reminder.starts_at, tenant) for task in wanted)  # a check alone
        return self._add(reminder, wanted, tenant, keyed=keyed)

    def add_checked(self, reminder: Reminder, tenant: str = DEFAULT_TENANT) -> Made:
        """Schedule the tasks of a reminder whose messages were written out before, without credentials.

        Messages that were sent at other lead times make it no other reminder. Raises as `add` does for what is in the
        ledger, QuotaExceeded and BeyondQuota.
        """
        return self._add(reminder, reminder.tasks(self._ledger.now(), tenant, self._by), tenant, sent_besides=True)

    def check_free(self, id: str, tenant: str = DEFAULT_TENANT) -> None:
        """Return if no reminder has messages under an id. Raises TaskScheduled or TaskLeased."""
        _reject_if_live(self._messages(id, tenant))

    def starts(self, id: str, tenant: str = DEFAULT_TENANT) -> set[int]:
        """Starts (epoch ms) of the messages of a reminder that are pending or sent; none for no such reminder."""
        return {_start(task) for task in sound(self._messages(id, tenant)) if task.status in MOVABLE}

    def _add(
        self,
        reminder: Reminder,
        wanted: list[NewTask],
        tenant: str,
        *,
        sent_besides: bool = False,
        keyed: KeyedTry | None = None,
    ) -> Made:
        group = self._ledger.group(QUEUE, reminder.id, tenant)
        existing = _without_occurrences(group)
        if keyed and any(task.is_of(keyed.mark()) for task in existing):
            self._confirm(reminder.id)
            return Made(True, [DueTask(task.id, task.due_at) for task in existing])
        if self._is_same(wanted, _to_compare(existing, wanted, sent_besides=sent_besides)):
            self._confirm(reminder.id)
            return Made(False, [DueTask(task.id, task.due_at) for task in existing])
        if keyed and any(keyed.may_be_newer(task.created_at) for task in existing):
            raise ChangedSince
        _reject_if_live(existing)
        newest = max((task.generation for task in group), default=0)
        mark = keyed.mark() if keyed else b""
        added = self._ledger.add(self._seals.sealed(wanted), unique=UniqueCondition(reminder.id, newest), mark=mark)
        require_room(added, "remind_before", "recipients")
        if not added:
            return self._add(
                reminder, wanted, tenant, sent_besides=sent_besides, keyed=keyed
            )  # another came between the look and the add
        return Made(True, [DueTask(task.id, task.due_at or 0) for task in wanted])

    def _is_same(self, wanted: list[NewTask], existing: list[Task]) -> bool:
        try:
            return len(sound(existing)) == len(existing) and _same(wanted, map(self._seals.opened, existing))
        except SealBroken:
            return False  # somebody has changed what was sealed

    def preview(self, reminder: Reminder, tenant: str = DEFAULT_TENANT) -> list[Shown]:
        """Each message of an add, as its recipient would read it. Raises InvalidInput as `add` does."""
        tasks = self._tasks(reminder, tenant)
        payloads = [json.loads(task.payload) for task in tasks]
        written = self._write(Letter(payload, reminder.starts_at, tenant) for payload in payloads)
        return [
            _shown_message(task.id, task.due_at or 0, payload, message)
            for task, payload, message in zip(tasks, payloads, written, strict=True)
        ]

    def preview_standing(self, id: str, tenant: str = DEFAULT_TENANT) -> list[Shown]:
        """Each message of an existing reminder, as it was or would be sent now.

        Raises TaskNotFound, and InvalidInput where one cannot be written.
        """
        tasks = self._opened(self._group(id, tenant))
        written = self._write(_letter(task, _start(task)) for task in tasks)
        return [
            _shown_message(task.id, task.due_at, task.payload, message)
            for task, message in zip(tasks, written, strict=True)
        ]

    def get(self, id: str, tenant: str = DEFAULT_TENANT) -> ReminderStatus:
        """Status of a reminder. Raises TaskNotFound."""
        tasks = sound(self._group(id, tenant))
        if not tasks:
            raise _absent(id, tenant)
        newest = max(tasks, key=lambda task: (task.status is Status.SCHEDULED, task.generation))
        return ReminderStatus(id, _start(newest), tasks, {field: newest.payload[field] for field in CONTENT})

    def seen(self, id: str, tenant: str = DEFAULT_TENANT) -> dict[str, TaskSnapshot]:
        """Each message as it is now, by its id. Raises TaskNotFound."""
        messages = self._group(id, tenant)
        return {one.id: TaskSnapshot(Version(one.generation, one.due_at), one.status) for one in messages}

    def move(
        self,
        id: str,
        starts_at: int,
        tenant: str = DEFAULT_TENANT,
        *,
        checked: bool = False,
        keyed: KeyedTry | None = None,
        saw: Mapping[str, TaskSnapshot] | None = None,
    ) -> Moved:
        """Give every pending task its time before the new start (epoch ms), in one step.

        The messages are written out to check them, unless that was `checked` before. A message that was sent for
        another start is sent again. A message that is being sent is left alone, and its id is in `leased`.
        Raises TaskNotFound, TaskCancelled, TaskDead, and InvalidInput where the start has passed, or a message cannot
        be written for it. Raises QuotaExceeded where a quota of the tenant leaves no room for what is sent again.

        A repeat of a request with a key moves nothing twice: `saw` is what `seen` answered its first try. Raises
        ChangedSince where another change came, and that of the first try is not known.
        """
        now = self._now_before(starts_at)
        tasks = sound(self._in_state(id, MOVABLE, tenant))
        stale = [task for task in tasks if task.status in LIVE or _start(task) != starts_at]
        if not checked:
            self._write(_letter(task, starts_at) for task in self._opened(stale))
        moves = [self._move(task, starts_at, now, keyed, saw) for task in stale]
        replies = self._ledger.move(QUEUE, moves, tenant, group=id)
        if Reply.CHANGED in replies and Reply.OK not in replies:
            raise ChangedSince
        require_room([AddReply(id, reply) for reply in replies], "starts_at")
        _reject_if_gone(replies, id, tenant)
        moved = zip(stale, moves, replies, strict=True)
        return Moved(
            id,
            starts_at,
            tasks=[MovedTask(t.id, move.due_at or 0, t.status) for t, move, reply in moved if reply is Reply.OK],
            leased=[move.id for move, reply in zip(moves, replies, strict=True) if reply is Reply.LEASED],
            sent=[task.id for task in tasks if task.status is Status.DONE],
        )

    def _move(
        self,
        task: Task,
        starts_at: int,
        now: int,
        keyed: KeyedTry | None,
        saw: Mapping[str, TaskSnapshot] | None,
    ) -> Move:
        moved = _move(task, starts_at, now)._replace(by=self._by, mark=keyed.mark(task.id) if keyed else b"")
        if saw is None:
            return moved
        return moved._replace(seen=saw[task.id].version if task.id in saw else Version(0, 0))

    def cancel(
        self,
        id: str,
        *,
        force: bool = False,
        tenant: str = DEFAULT_TENANT,
        saw: Mapping[str, TaskSnapshot] | None = None,
    ) -> None:
        """Cancel every pending task in one step and delete the dead ones; with `force`, cancel those being sent too.

        Raises TaskNotFound, and TaskDone or TaskCancelled where nothing is pending. Raises TaskLeased, with the ids
        being sent, after all the others are cancelled. A message that is cancelled by force may already be out.

        With `saw`, what `seen` answered the first try of a request, nothing is cancelled that was added since.
        """
        newest, was_pending = None, False
        if saw is not None:
            newest = max(one.version.generation for one in saw.values())
            was_pending = any(one.status in CANCELLABLE for one in saw.values())
        try:
            tasks = self._in_state(id, CANCELLABLE, tenant)
        except (TaskNotFound, TaskDone, TaskCancelled):
            if was_pending:
                self._confirm(id)
                return
            raise
        ids = [task.id for task in tasks]
        replies = self._ledger.cancel(QUEUE, ids, force=force, tenant=tenant, group=id, by=self._by, newest=newest)
        leased = [task_id for task_id, reply in zip(ids, replies, strict=True) if reply is Reply.LEASED]
        if leased:
            raise TaskLeased(f"Being sent now: {', '.join(leased)}. All others are cancelled.")

    def _opened(self, messages: list[Task]) -> list[Task]:
        """The messages with their credentials; leaves out each that cannot be opened, whose own run reports that."""
        found = []
        for message in sound(messages):
            try:
                found.append(self._seals.opened(message))
            except SealBroken as error:
                log.warning("task %s of reminder %s is left out: %s", message.id, message.group, error)
        return found

    def _tasks(self, reminder: Reminder, tenant: str) -> list[NewTask]:
        now = self._now_before(reminder.starts_at)
        self._check_count(len(reminder.leads_ms) * len(reminder.recipients))
        for index, recipient in enumerate(reminder.recipients):
            field = reminder.fields[index] if reminder.fields else "recipients"
            if recipient.channel is Channel.WEBHOOK:
                check_url(field, recipient.address, known_headers({"auth": recipient.auth}), self._url_policy)
            elif recipient.channel is Channel.PHONE:
                check_number(field, recipient.address, self._number_policy)
        tasks = reminder.tasks(now, tenant, self._by)
        _check_size(reminder, tasks)
        return tasks

    def _check_count(self, messages: int) -> None:
        if messages > self._most:
            problem = (
                f"{messages} messages in all are over the quota of {self._most} (DUECOURSE_REMINDER_MESSAGES): "
                "make several reminders, or ask the operator for more"
            )
            raise InvalidInput([FieldError("remind_before", problem), FieldError("recipients", problem)])

    def _check(self, reminder: Reminder) -> None:
        """Return if the credentials in a reminder can be sealed. Raises InvalidInput."""
        self._seals.check("", reminder.content)
        for index, recipient in enumerate(reminder.recipients):
            field = reminder.fields[index] if reminder.fields else f"recipients.{index}"
            self._seals.check(field, recipient.address)

    def _now_before(self, starts_at: int) -> int:
        now = self._ledger.now()
        if starts_at <= now:
            raise InvalidInput([FieldError("starts_at", "must be in the future")])
        return now

    def _group(self, id: str, tenant: str) -> list[Task]:
        tasks = self._messages(id, tenant)
        if not tasks:
            raise _absent(id, tenant)
        return tasks

    def _confirm(self, id: str) -> None:
        self._ledger.confirm(self._ledger.shard_of(QUEUE, "", id))

    def _messages(self, id: str, tenant: str) -> list[Task]:
        return _without_occurrences(self._ledger.group(QUEUE, id, tenant))

    def _in_state(self, id: str, allowed: frozenset[Status], tenant: str) -> list[Task]:
        tasks = self._group(id, tenant)
        fit = [task for task in tasks if task.status in allowed]
        if not fit:
            raise REJECTIONS[Reply(tasks[0].status)](f"All of this reminder is {tasks[0].status}.")
        return fit


def _check_size(reminder: Reminder, tasks: list[NewTask]) -> None:
    """Return if the messages are small enough for one step. Raises InvalidInput, which names the largest field."""
    size = sum(len(task.payload.encode()) for task in tasks)
    if size > MAX_BYTES:
        sizes = {field: len(dump_json(value).encode()) for field, value in reminder.content.items()}
        sizes["recipients"] = size // len(tasks) - sum(sizes.values())
        largest = max(sizes, key=sizes.__getitem__)
        problem = (
            f"{sizes[largest]:,} bytes in each of {len(tasks):,} messages, which have {size:,} bytes in all, over "
            f"{MAX_BYTES:,}: shorten it, or make several reminders"
        )
        raise InvalidInput([FieldError(largest, problem)])


def _to_compare(existing: list[Task], wanted: list[NewTask], *, sent_besides: bool) -> list[Task]:
    """The messages that are compared to tell whether a reminder is the same."""
    ids = {task.id for task in wanted}
    return [
        task
        for task in existing
        if task.status in MOVABLE and (task.status in LIVE or task.id in ids or not sent_besides)
    ]


def _without_occurrences(group: list[Task]) -> list[Task]:
    """A group without the tasks of occurrences of a series with its id."""
    return [task for task in group if task.kind != SERIES_KIND]


def _letter(task: Task, starts_at: int) -> Letter:
    return Letter(task.payload, starts_at, task.tenant)


def _same(wanted: list[NewTask], existing: Iterable[Task]) -> bool:
    asked = {task.id: (json.loads(task.payload), task.state) for task in wanted}
    kept = {task.id: (task.payload, task.state_json) for task in existing}
    return asked == kept


def _reject_if_live(existing: list[Task]) -> None:
    live = {task.status for task in existing} & LIVE
    if live:
        error = TaskLeased if Status.LEASED in live else TaskScheduled
        raise error("Another reminder stands under this id: move or delete it.")


def _reject_if_gone(replies: list[Reply], id: str, tenant: str) -> None:
    """Raise if all messages were cancelled or died between the read and the move."""
    if replies and GONE.issuperset(replies):
        if replies[0] is Reply.ABSENT:
            raise _absent(id, tenant)
        raise REJECTIONS[replies[0]](f"All of this reminder is {replies[0]}.")


def _absent(id: str, tenant: str) -> TaskNotFound:
    return TaskNotFound(id, QUEUE, tenant, what="reminder")


def _move(task: Task, starts_at: int, now: int) -> Move:
    again = _start(task) != starts_at
    due_at = due(starts_at, task.payload["lead_ms"], now)
    return Move(task.id, due_at=due_at, state=starting(starts_at), revive=again)


def _shown_message(id: str, due_at: int, payload: Json, message: Message) -> Shown:
    recipient = Recipient(**payload["recipient"])
    return Shown(id, due_at, payload["lead_ms"], recipient, message.subject, message.text, message.html)


def _start(task: Task) -> int:
    return int(task.state["starts_at"])
