"""The requests and answers of `/reminders`."""

import re
from typing import Annotated, Self

from pydantic import AfterValidator, ConfigDict, Field, StrictStr, model_validator
from typing_extensions import TypedDict

from duecourse.domain.reminder import MAX_TASKS, Moved, Recipient, Reminder, Standing
from duecourse.domain.task import Json, Status, Task, new_id
from duecourse.domain.times import MAX_DURATION_MS, format_duration, format_instant
from duecourse.wire.fields import Duration, Instant, Name, Strict, Told, between, refuse_fields

_EMAIL = re.compile(r"[^\s@<>()\[\],;:\\\"\x00-\x1f\x7f]{1,64}@[A-Za-z0-9.-]{1,189}")
_CONTROL = re.compile(r"[\x00-\x1f\x7f]")

EXAMPLE: dict[str, Json] = {
    "id": "standup",
    "subject": "Stand-up",
    "starts_at": "2100-01-04T09:30:00Z",
    "remind_before": ["PT5M"],
    "recipients": [{"name": "Ada", "email": "ada@example.com"}],
}
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

    name: Line = Field(description="What to call them.", examples=["Ada"])
    email: Email = Field(
        description="Their address; one that comes twice is reminded once.", examples=["ada@example.com"]
    )


class AddReminder(Strict):
    """POST /reminders: one message to each recipient at each time before the start; repeated ones are folded."""

    model_config = ConfigDict(json_schema_extra={"examples": [EXAMPLE]})

    id: Name = Field(
        default_factory=new_id,
        description="The reminder's id. Without one it is made, as a task's is.",
        examples=["standup"],
    )
    subject: Line = Field(description="What it is about: one line.", examples=["Stand-up"])
    starts_at: Instant = Field(description="When it starts; must be ahead.")
    remind_before: Annotated[list[Lead], Field(min_length=1, max_length=MAX_TASKS)] = Field(
        description="How long before the start to remind, PT1S at least: a message to each recipient at each. One "
        "whose time has passed goes out at once.",
        examples=[["PT5M"]],
    )
    recipients: Annotated[list[Person], Field(min_length=1, max_length=MAX_TASKS)] = Field(
        description="Whom to remind: at most 1,000 messages in all."
    )
    message: Annotated[StrictStr, Field(max_length=10_000)] = Field("", description="The text below the subject.")

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

    model_config = ConfigDict(json_schema_extra={"examples": [{"starts_at": "2100-01-05T09:30:00Z"}]})

    starts_at: Instant = Field(description="The new start; must be ahead.")


class TaskDue(TypedDict):
    """One of a reminder's tasks, and when it is due."""

    id: Annotated[str, Field(description="The task's id.", examples=["standup:300:0"])]
    due_at: Annotated[Told, Field(description="When it is due.")]


class TaskMoved(TaskDue):
    """One that was moved, and how it stood before."""

    was: Annotated[Status, Field(description="How it stood before the move.")]


class TaskStands(TaskDue):
    """One of a reminder's tasks as it stands."""

    state: Annotated[Status, Field(description="Where it stands.")]
    remind_before: Annotated[str, Field(description="How long before the start it is.", examples=["PT300S"])]
    recipient: Annotated[
        dict[str, str],
        Field(description="Whom it reminds.", examples=[{"name": "Ada", "email": "ada@example.com"}]),
    ]


class AddReminderAnswer(TypedDict):
    """What was made of a reminder."""

    id: Annotated[str, Field(description="The reminder's id.", examples=["standup"])]
    tasks: Annotated[list[TaskDue], Field(description="Its tasks: one for each lead time and recipient.")]


class MoveReminderAnswer(TypedDict):
    """What was moved; `leased` were being sent and stay as they were, `sent` had gone out for the old start."""

    id: Annotated[str, Field(description="The reminder's id.", examples=["standup"])]
    starts_at: Annotated[Told, Field(description="The new start.")]
    tasks: Annotated[list[TaskMoved], Field(description="The tasks that were moved.")]
    leased: Annotated[list[str], Field(description="Ids of those being sent: they stay as they are.", examples=[[]])]
    sent: Annotated[list[str], Field(description="Ids of those that had gone out for the old start.", examples=[[]])]


class ReminderAnswer(TypedDict):
    """A reminder as it stands."""

    id: Annotated[str, Field(description="The reminder's id.", examples=["standup"])]
    subject: Annotated[str, Field(description="What it is about.", examples=["Stand-up"])]
    starts_at: Annotated[Told, Field(description="When it starts.")]
    message: Annotated[str, Field(description="The text below the subject.", examples=[""])]
    tasks: Annotated[list[TaskStands], Field(description="Its tasks as they stand.")]


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
