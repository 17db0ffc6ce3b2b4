"""The answers of `/reminders`."""

from typing import NotRequired

from typing_extensions import TypedDict

from duecourse.domain import sms
from duecourse.domain.reminder import Channel, Moved, Recipient, Shown, Standing
from duecourse.domain.task import Json, Status, Task
from duecourse.domain.times import format_duration, format_instant

MAX_SHOWN = 2_000_000
"""How many characters of messages one preview shows: a function answers at most 6 MB."""


class TaskDue(TypedDict):
    """One of a reminder's tasks, and when it is due."""

    id: str
    due_at: str


class TaskMoved(TaskDue):
    """One that was moved, and how it stood before."""

    was: Status


class RecipientView(TypedDict):
    """Who is reminded, by one channel."""

    name: str
    email: NotRequired[str]
    phone: NotRequired[str]
    webhook: NotRequired[str]
    time_zone: str


class TaskStands(TaskDue):
    """One of a reminder's tasks as it stands."""

    state: Status
    remind_before: str
    recipient: RecipientView


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
    html: str
    data: Json
    tasks: list[TaskStands]


class MessageView(TaskDue):
    """One message as its recipient reads it; `sms_parts` is how many an SMS is sent, and paid, as."""

    remind_before: str
    recipient: RecipientView
    subject: str
    text: str
    html: NotRequired[str]
    sms_parts: NotRequired[int]


class PreviewAnswer(TypedDict):
    """What would be sent; every message was written out, and `left_out` counts those that do not fit the answer."""

    id: str
    messages: list[MessageView]
    left_out: int


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
