"""The requests and answers of `/reminders`."""

import re
from typing import Annotated, Self

from pydantic import AfterValidator, Field, StrictStr, model_validator
from typing_extensions import TypedDict

from duecourse.domain.reminder import MAX_TASKS, Moved, Recipient, Reminder, Standing
from duecourse.domain.task import Status, Task, new_id
from duecourse.domain.times import MAX_DURATION_MS, format_duration, format_instant
from duecourse.wire.fields import Duration, Instant, Name, Strict, between, refuse_fields

_EMAIL = re.compile(r"[^\s@<>()\[\],;:\\\"\x00-\x1f\x7f]{1,64}@[A-Za-z0-9.-]{1,189}")
_CONTROL = re.compile(r"[\x00-\x1f\x7f]")

MIN_LEAD_MS = 1_000
"""A message that is due as the meeting begins would come too late, and is not sent."""


def _email(value: str) -> str:
    if not _EMAIL.fullmatch(value):
        raise ValueError("must be an e-mail address")
    return value


def _one_line(value: str) -> str:
    # It becomes a header of the message: a line break would begin another one.
    if _CONTROL.search(value):
        raise ValueError("must be one line")
    return value


Line = Annotated[StrictStr, Field(min_length=1, max_length=200), AfterValidator(_one_line)]
Lead = Annotated[Duration, between(MIN_LEAD_MS, MAX_DURATION_MS)]
Email = Annotated[StrictStr, AfterValidator(_email)]


class Person(Strict):
    """Who is reminded."""

    name: Line
    email: Email


class AddReminder(Strict):
    """POST /reminders: one message to each recipient at each time before the start; repeated ones are folded."""

    id: Name = Field(default_factory=new_id)
    subject: Line
    starts_at: Instant
    remind_before: Annotated[list[Lead], Field(min_length=1, max_length=MAX_TASKS)]
    recipients: Annotated[list[Person], Field(min_length=1, max_length=MAX_TASKS)]
    message: Annotated[StrictStr, Field(max_length=10_000)] = ""

    @model_validator(mode="after")
    def _not_too_many(self) -> Self:
        if len(self.remind_before) * len(self.recipients) > MAX_TASKS:
            raise refuse_fields(f"at most {MAX_TASKS} messages in all", "remind_before", "recipients")
        return self

    def reminder(self) -> Reminder:
        """The reminder asked for."""
        people: dict[str, Recipient] = {}
        for person in self.recipients:
            people.setdefault(person.email.lower(), Recipient(person.name, person.email))
        return Reminder(
            id=self.id,
            subject=self.subject,
            starts_at=self.starts_at,
            leads_ms=tuple(dict.fromkeys(self.remind_before)),
            recipients=tuple(people.values()),
            message=self.message,
        )


class MoveReminder(Strict):
    """PATCH /reminders/{id}: a new start."""

    starts_at: Instant


class TaskDue(TypedDict):
    """One of a reminder's tasks, and when it is due."""

    id: str
    due_at: str


class TaskMoved(TaskDue):
    """One that was moved, and how it stood before."""

    was: Status


class TaskStands(TaskDue):
    """One of a reminder's tasks as it stands."""

    state: Status
    remind_before: str
    recipient: dict[str, str]


class AddReminderAnswer(TypedDict):
    """What was made of a reminder."""

    id: str
    tasks: list[TaskDue]


class MoveReminderAnswer(TypedDict):
    """What was moved; `leased` were being sent and stay as they were, `sent` had gone out for the old start."""

    id: str
    starts_at: str
    tasks: list[TaskMoved]
    leased: list[str]
    sent: list[str]


class ReminderAnswer(TypedDict):
    """A reminder as it stands."""

    id: str
    subject: str
    starts_at: str
    message: str
    tasks: list[TaskStands]


def show_added(id: str, tasks: list[tuple[str, int]]) -> AddReminderAnswer:
    """A reminder's tasks by id and due time (epoch ms)."""
    return {"id": id, "tasks": [{"id": task_id, "due_at": format_instant(due)} for task_id, due in tasks]}


def show_moved(moved: Moved) -> MoveReminderAnswer:
    """What a move did."""
    return {
        "id": moved.id,
        "starts_at": format_instant(moved.starts_at),
        "tasks": [{"id": t.id, "due_at": format_instant(t.due_at), "was": t.was} for t in moved.tasks],
        "leased": moved.leased,
        "sent": moved.sent,
    }


def show_reminder(standing: Standing) -> ReminderAnswer:
    """A reminder and each of its tasks."""
    first = standing.tasks[0].payload
    return {
        "id": standing.id,
        "subject": first["subject"],
        "starts_at": format_instant(standing.starts_at),
        "message": first["message"],
        "tasks": [_show_task(task) for task in standing.tasks],
    }


def _show_task(task: Task) -> TaskStands:
    payload = task.payload
    return {
        "id": task.id,
        "due_at": format_instant(task.due_at),
        "state": task.status,
        "remind_before": format_duration(payload["lead_ms"]),
        "recipient": payload["recipient"],
    }
