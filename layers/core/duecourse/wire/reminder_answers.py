"""The answers of `/reminders`."""

from typing import Annotated, NotRequired

from pydantic import Field
from typing_extensions import TypedDict

from duecourse.domain import sms
from duecourse.domain.reminder import Channel, Moved, Recipient, Shown, Standing
from duecourse.domain.task import Json, Status, Task
from duecourse.domain.times import format_duration, format_instant
from duecourse.wire.fields import Told

MAX_SHOWN = 2_000_000
"""How many characters of messages one preview shows: a function answers at most 6 MB."""


class TaskDue(TypedDict):
    """One of a reminder's tasks, and when it is due."""

    id: Annotated[str, Field(description="The task's id.", examples=["standup:300:0"])]
    due_at: Annotated[Told, Field(description="When it is due.")]


class TaskMoved(TaskDue):
    """One that was moved, and how it stood before."""

    was: Annotated[Status, Field(description="How it stood before the move.")]


class RecipientView(TypedDict):
    """Who is reminded, by one channel."""

    name: Annotated[str, Field(description="What to call them.", examples=["Ada"])]
    email: NotRequired[Annotated[str, Field(description="Their address.", examples=["ada@example.com"])]]
    phone: NotRequired[Annotated[str, Field(description="Their number.", examples=["+436641234567"])]]
    webhook: NotRequired[Annotated[str, Field(description="Their URL.", examples=["https://example.com/hooks/ada"])]]
    time_zone: Annotated[str, Field(description="For the hours that are told.", examples=["UTC"])]


class TaskStands(TaskDue):
    """One of a reminder's tasks as it stands."""

    state: Annotated[Status, Field(description="Where it stands.")]
    remind_before: Annotated[str, Field(description="How long before the start it is.", examples=["PT300S"])]
    recipient: Annotated[RecipientView, Field(description="Whom it reminds.")]


class AddReminderAnswer(TypedDict):
    """What was made of a reminder."""

    id: Annotated[str, Field(description="The reminder's id.", examples=["standup"])]
    tasks: Annotated[list[TaskDue], Field(description="Its tasks: one for each lead time, recipient and channel.")]


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
    subject: Annotated[str, Field(description="Template of the subject.", examples=["Stand-up"])]
    starts_at: Annotated[Told, Field(description="When it starts.")]
    message: Annotated[str, Field(description="Template of the text.", examples=[""])]
    html: Annotated[str, Field(description="Template of the HTML part.", examples=[""])]
    data: Annotated[Json, Field(description="What templates call `data`.", examples=[{}])]
    tasks: Annotated[list[TaskStands], Field(description="Its tasks as they stand.")]


class MessageView(TaskDue):
    """One message as its recipient reads it; `sms_parts` is how many an SMS is sent, and paid, as."""

    remind_before: Annotated[str, Field(description="How long before the start it is.", examples=["PT300S"])]
    recipient: Annotated[RecipientView, Field(description="Whom it reminds.")]
    subject: Annotated[str, Field(description="The subject, written out.", examples=["Stand-up"])]
    text: Annotated[str, Field(description="The text, written out.", examples=["Stand-up begins soon."])]
    html: NotRequired[Annotated[str, Field(description="The HTML part, written out.")]]
    sms_parts: NotRequired[Annotated[int, Field(description="As how many an SMS is sent, and paid.", examples=[1])]]


class PreviewAnswer(TypedDict):
    """What would be sent; every message was written out, and `left_out` counts those that do not fit the answer."""

    id: Annotated[str, Field(description="The reminder's id.", examples=["standup"])]
    messages: Annotated[list[MessageView], Field(description="The messages, as many as fit one answer.")]
    left_out: Annotated[int, Field(description="How many do not.", examples=[0])]


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
        "html": first["html"],
        "data": first["data"],
        "tasks": [_show_task(task) for task in standing.tasks],
    }


def _show_task(task: Task) -> TaskStands:
    payload = task.payload
    return {
        "id": task.id,
        "due_at": format_instant(task.due_at),
        "state": task.status,
        "remind_before": format_duration(payload["lead_ms"]),
        "recipient": _show_recipient(Recipient(**payload["recipient"])),
    }


def show_preview(id: str, shown: list[Shown]) -> PreviewAnswer:
    """The messages of a reminder, the first of them that fit one answer."""
    messages: list[MessageView] = []
    room = MAX_SHOWN
    for each in shown:
        room -= len(each.subject) + len(each.text) + len(each.html)
        if room < 0 and messages:
            break
        messages.append(_show_message(each))
    return {"id": id, "messages": messages, "left_out": len(shown) - len(messages)}


def _show_message(shown: Shown) -> MessageView:
    view = MessageView(
        id=shown.id,
        due_at=format_instant(shown.due_at),
        remind_before=format_duration(shown.lead_ms),
        recipient=_show_recipient(shown.recipient),
        subject=shown.subject,
        text=shown.text,
    )
    if shown.html:
        view["html"] = shown.html
    if shown.recipient.channel == Channel.PHONE:
        view["sms_parts"] = sms.parts_of(shown.text)
    return view


def _show_recipient(recipient: Recipient) -> RecipientView:
    address = {str(recipient.channel): recipient.address}
    return {"name": recipient.name, "time_zone": recipient.time_zone, **address}  # type: ignore[typeddict-item]
