"""The answers of `/reminders`."""

from typing import Annotated, NotRequired

from typing_extensions import TypedDict

from duecourse.domain import sms
from duecourse.domain.masking import masked, masked_text
from duecourse.domain.reminder import Channel, Moved, Recipient, ReminderStatus, Shown
from duecourse.domain.task import DueTask, Json, Status, Task
from duecourse.domain.times import format_duration, format_instant
from duecourse.wire.http.fields import ShownInstant, about

MAX_SHOWN = 2_000_000
"""Maximum number of characters that one preview shows: a function answers at most 6 MB."""


class TaskDue(TypedDict):
    """Task of a reminder, with its due time."""

    id: Annotated[str, about("Id of the task.", "standup:300:0")]
    due_at: Annotated[ShownInstant, about("Due time.")]


class TaskMoved(TaskDue):
    """Task that was moved, with its state before the move."""

    was: Annotated[Status, about("State before the move.")]


class RecipientView(TypedDict):
    """Recipient of one message, by one channel."""

    name: Annotated[str, about("Name of the recipient.", "Ada")]
    email: NotRequired[Annotated[str, about("E-mail address.", "ada@example.com")]]
    phone: NotRequired[Annotated[str, about("Phone number.", "+436641234567")]]
    webhook: NotRequired[Annotated[str, about("URL of the webhook.", "https://example.com/hooks/ada")]]
    auth: NotRequired[Annotated[str, about("Name of the credential that the webhook carries.", "billing")]]
    time_zone: Annotated[str, about("IANA time zone of the hours in messages; default UTC.", "UTC")]


class ReminderTaskView(TaskDue):
    """Task of a reminder."""

    state: Annotated[Status, about("State of the task.")]
    remind_before: Annotated[str, about("Lead time before the start.", "PT300S")]
    recipient: Annotated[RecipientView, about("Recipient of the message.")]


class AddReminderAnswer(TypedDict):
    """Reminder that was added, with its tasks."""

    id: Annotated[str, about("Id of the reminder.", "standup")]
    tasks: Annotated[list[TaskDue], about("Tasks of the reminder: one for each lead time, recipient and channel.")]


class MoveReminderAnswer(TypedDict):
    """Tasks that were moved; those in `leased` and `sent` were not."""

    id: Annotated[str, about("Id of the reminder.", "standup")]
    starts_at: Annotated[ShownInstant, about("New start of the meeting.")]
    tasks: Annotated[list[TaskMoved], about("Tasks that were moved.")]
    leased: Annotated[list[str], about("Ids of tasks that were being sent and were not moved.", [])]
    sent: Annotated[list[str], about("Ids of tasks that were already sent for the old start.", [])]


class ReminderAnswer(TypedDict):
    """Reminder, with its tasks."""

    id: Annotated[str, about("Id of the reminder.", "standup")]
    subject: Annotated[str, about("Template of the subject.", "Stand-up")]
    starts_at: Annotated[ShownInstant, about("Start of the meeting.")]
    message: Annotated[str, about("Template of the text.", "")]
    html: Annotated[str, about("Template of the HTML part.", "")]
    data: Annotated[Json, about("Data for the templates.", {})]
    tasks: Annotated[list[ReminderTaskView], about("Tasks of the reminder.")]


class MessageView(TaskDue):
    """Message as its recipient reads it."""

    remind_before: Annotated[str, about("Lead time before the start.", "PT300S")]
    recipient: Annotated[RecipientView, about("Recipient of the message.")]
    subject: Annotated[str, about("Rendered subject.", "Stand-up")]
    text: Annotated[str, about("Rendered text.", "Stand-up begins soon.")]
    html: NotRequired[Annotated[str, about("Rendered HTML part.")]]
    sms_parts: NotRequired[Annotated[int, about("Number of parts in which the SMS is sent and billed.", 1)]]


class PreviewAnswer(TypedDict):
    """Messages that the reminder would send. `left_out` counts those that do not fit in the answer."""

    id: Annotated[str, about("Id of the reminder.", "standup")]
    messages: Annotated[list[MessageView], about("Messages, as many as fit in one answer.")]
    left_out: Annotated[int, about("Number of messages that do not fit in the answer.", 0)]


def show_added(id: str, tasks: list[DueTask]) -> AddReminderAnswer:
    """A reminder's tasks by id and due time."""
    return {"id": id, "tasks": [{"id": task.id, "due_at": format_instant(task.due_at)} for task in tasks]}


def show_moved(moved: Moved) -> MoveReminderAnswer:
    """Result of a move."""
    return {
        "id": moved.id,
        "starts_at": format_instant(moved.starts_at),
        "tasks": [{"id": t.id, "due_at": format_instant(t.due_at), "was": t.was} for t in moved.tasks],
        "leased": moved.leased,
        "sent": moved.sent,
    }


def show_reminder(reminder: ReminderStatus) -> ReminderAnswer:
    """A reminder and each of its tasks."""
    content = reminder.content
    return {
        "id": reminder.id,
        "subject": masked_text(content["subject"]),
        "starts_at": format_instant(reminder.starts_at),
        "message": masked_text(content["message"]),
        "html": masked_text(content["html"]),
        "data": masked(content["data"]),
        "tasks": [_show_task(task) for task in reminder.tasks],
    }


def _show_task(task: Task) -> ReminderTaskView:
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
    address = {str(recipient.channel): masked_text(recipient.address)} | (
        {"auth": recipient.auth} if recipient.auth else {}
    )
    return {"name": recipient.name, "time_zone": recipient.time_zone, **address}  # type: ignore[typeddict-item]
