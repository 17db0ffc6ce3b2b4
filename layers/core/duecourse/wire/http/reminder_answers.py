"""The answers of `/reminders`."""

from typing import Annotated, Any, Literal, NotRequired

from typing_extensions import TypedDict

from duecourse.domain import sms
from duecourse.domain.masking import masked, masked_text
from duecourse.domain.reminder import Channel, Recipient
from duecourse.domain.reminder_status import Made, Moved, ReminderStatus, Shown
from duecourse.domain.schedule import Fold, Gap
from duecourse.domain.series import SeriesStatus, Standing
from duecourse.domain.task import Json, Status, Task
from duecourse.domain.times import format_duration, format_instant
from duecourse.wire.http.fields import ShownInstant, about
from duecourse.wire.http.schedule_answers import UpcomingView, show_repeat, show_upcoming

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
    remind_before: Annotated[str, about("Lead time before the start.", "PT5M")]
    recipient: Annotated[RecipientView, about("Recipient of the message.")]


class StandingView(TypedDict):
    """Occurrence with messages, or one that was changed by hand."""

    id: Annotated[str, about("Id of its reminder, which `GET /reminders/{id}` shows.", "standup@2100-01-11T09:30:00Z")]
    at: Annotated[ShownInstant, about("Start by the rule, which names the occurrence.")]
    starts_at: Annotated[ShownInstant, about("Start that it has.")]
    state: Annotated[
        Literal["standing", "moved", "cancelled"], about("State: `standing` as the rule says, `moved` or `cancelled`.")
    ]


class SeriesView(TypedDict):
    """Rule by which a reminder comes again, and its occurrences."""

    repeat: Annotated[dict[str, Any], about("Rule of the starts.", {"rrule": "FREQ=WEEKLY"})]
    time_zone: Annotated[str, about("IANA time zone in which the rule is read.", "Europe/Vienna")]
    starts_at: Annotated[ShownInstant, about("First start by the rule.")]
    until: NotRequired[Annotated[ShownInstant, about("Last start at the latest.")]]
    limit: NotRequired[Annotated[int, about("Number of starts.", 10)]]
    gap: Annotated[Gap, about("Treatment of a time that a change of the clocks leaves out.")]
    fold: Annotated[Fold, about("Treatment of a time that a change of the clocks repeats.")]
    gap_used: Annotated[Gap, about("Treatment in use: that of `gap`, or what `auto` means for this rule.", "shift")]
    fold_used: Annotated[Fold, about("Treatment in use: that of `fold`, or what `auto` means for this rule.", "first")]
    remind_before: Annotated[list[str], about("Lead times before each start.", ["PT5M"])]
    recipients: Annotated[list[RecipientView], about("Recipients, one for each channel.")]
    version: Annotated[int, about("Version of the series: 1, and 1 more for each change.", 1)]
    created_at: Annotated[ShownInstant, about("Time of the add.")]
    next: Annotated[list[UpcomingView], about("Next ten starts by the rule; those changed by hand are left out.")]
    occurrences: Annotated[
        list[StandingView], about("Occurrences that have messages, and those moved or cancelled by hand.")
    ]


class AddReminderAnswer(TypedDict):
    """Reminder that was added, with its tasks."""

    id: Annotated[str, about("Id of the reminder.", "standup")]
    tasks: Annotated[
        list[TaskDue],
        about("Tasks of the reminder: one for each lead time, recipient and channel; none of one that comes again."),
    ]
    series: NotRequired[Annotated[SeriesView, about("Rule and occurrences, if the reminder comes again.")]]


class MoveReminderAnswer(TypedDict):
    """Tasks that were moved; those in `leased` and `sent` were not."""

    id: Annotated[str, about("Id of the reminder.", "standup")]
    starts_at: Annotated[ShownInstant, about("New start of the meeting; next start of one that comes again.")]
    tasks: Annotated[list[TaskMoved], about("Tasks that were moved.")]
    leased: Annotated[list[str], about("Ids of tasks that were being sent and were not moved.", [])]
    sent: Annotated[list[str], about("Ids of tasks that were already sent for the old start.", [])]
    series: NotRequired[Annotated[SeriesView, about("Rule and occurrences, if the reminder comes again.")]]


class ReminderAnswer(TypedDict):
    """Reminder, with its tasks."""

    id: Annotated[str, about("Id of the reminder.", "standup")]
    subject: Annotated[str, about("Template of the subject.", "Stand-up")]
    starts_at: Annotated[ShownInstant, about("Start of the meeting; next start of one that comes again.")]
    message: Annotated[str, about("Template of the text.", "")]
    html: Annotated[str, about("Template of the HTML part.", "")]
    data: Annotated[Json, about("Data for the templates.", {})]
    tasks: Annotated[list[ReminderTaskView], about("Tasks of the reminder; none of one that comes again.")]
    series: NotRequired[Annotated[SeriesView, about("Rule and occurrences, if the reminder comes again.")]]


class MessageView(TaskDue):
    """Message as its recipient reads it."""

    remind_before: Annotated[str, about("Lead time before the start.", "PT5M")]
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


def show_added(id: str, made: Made) -> AddReminderAnswer:
    """A reminder's tasks by id and due time."""
    tasks: list[TaskDue] = [{"id": task.id, "due_at": format_instant(task.due_at)} for task in made.tasks]
    return {"id": id, "tasks": tasks, **_series(made.series)}  # type: ignore[typeddict-item]


def show_moved(moved: Moved) -> MoveReminderAnswer:
    """Result of a move."""
    return {
        "id": moved.id,
        "starts_at": format_instant(moved.starts_at),
        "tasks": [{"id": t.id, "due_at": format_instant(t.due_at), "was": t.was} for t in moved.tasks],
        "leased": moved.leased,
        "sent": moved.sent,
        **_series(moved.series),  # type: ignore[typeddict-item]
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
        **_series(reminder.series),  # type: ignore[typeddict-item]
    }


def _series(status: SeriesStatus | None) -> dict[str, SeriesView]:
    return {"series": _show_series(status)} if status else {}


def _show_series(status: SeriesStatus) -> SeriesView:
    series, rule = status.series, status.series.rule
    view = SeriesView(
        repeat=show_repeat(rule.repeat),
        time_zone=rule.time_zone,
        starts_at=format_instant(rule.starts_at),
        gap=rule.gap,
        fold=rule.fold,
        gap_used=rule.gap_used,
        fold_used=rule.fold_used,
        remind_before=[format_duration(lead) for lead in series.leads_ms],
        recipients=[_show_recipient(one) for one in series.reminder(rule.starts_at, rule.starts_at).recipients],
        version=status.version,
        created_at=format_instant(status.created_at),
        next=[show_upcoming(one) for one in status.upcoming],
        occurrences=[_show_standing(one) for one in status.occurrences],
    )
    if rule.until is not None:
        view["until"] = format_instant(rule.until)
    if series.limit is not None:
        view["limit"] = series.limit
    return view


def _show_standing(one: Standing) -> StandingView:
    return {
        "id": one.id,
        "at": format_instant(one.nominal),
        "starts_at": format_instant(one.starts_at),
        "state": one.state,
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
