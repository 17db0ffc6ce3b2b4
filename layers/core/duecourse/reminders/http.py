"""Requests and answers of `/reminders`."""

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Annotated, Any, Literal, NotRequired, Self, cast
from zoneinfo import ZoneInfo

from pydantic import AfterValidator, BeforeValidator, ConfigDict, Field, StrictBool, StrictStr, model_validator
from typing_extensions import TypedDict

from duecourse.api.derived_models import (
    INSTANT,
    Form,
    VersionedChange,
    api_fields,
    asked,
    changed_if_version,
    read_fields,
    show_fields,
    shown,
    with_fields,
)
from duecourse.api.fields import (
    Checked,
    Duration,
    Instant,
    Name,
    ShownInstant,
    Strict,
    about,
    between,
    json_of,
    matching,
    reject_fields,
    requires,
)
from duecourse.api.kind_payloads import Auth, Url
from duecourse.base.ids import new_id
from duecourse.base.json_text import Json
from duecourse.base.masking import masked, masked_text
from duecourse.base.times import MAX_DURATION_MS, format_duration, format_instant
from duecourse.ledger.reminder import (
    MAX_ID,
    MAX_TASKS,
    MIN_LEAD_MS,
    RULE_TEXTS,
    Channel,
    Made,
    Moved,
    Recipient,
    Reminder,
    ReminderStatus,
    Series,
    SeriesChange,
    SeriesStatus,
    Shown,
    Standing,
)
from duecourse.ledger.schedule import Rule
from duecourse.ledger.task import Status, Task
from duecourse.reminders import send
from duecourse.schedules.http import REPEAT_FORM, USED, RepeatField, UpcomingView, show_upcoming

# The requests of `/reminders`.

# What SES takes: no other letters before the @, and after it a name as DNS has them.
_LABEL = r"[A-Za-z0-9](?:[A-Za-z0-9-]*[A-Za-z0-9])?"
_EMAIL = rf"[!#-'*+./0-9=?A-Z^-~-]{{1,64}}@(?=.{{1,189}}$){_LABEL}(?:\.{_LABEL})*"

EXAMPLE: dict[str, Json] = {
    "id": "standup",
    "subject": "Stand-up",
    "starts_at": "2100-01-04T09:30:00Z",
    "remind_before": ["PT5M"],
    "recipients": [{"name": "Ada", "email": "ada@example.com"}],
}
MAX_START = 253_370_764_800_000
"""The year 9999: its last hours are in no year at all in the time zones east of Greenwich."""
MAX_DATA_BYTES = 16 * 1024


def _start(value: int) -> int:
    if value >= MAX_START:
        raise ValueError("must be before the year 9999")
    return value


def _time_zone(value: str) -> str:
    try:
        ZoneInfo(value)
    except (KeyError, ValueError, OSError):  # what is not there, no name at all, a folder of zones
        raise ValueError("must be the IANA name of a time zone, such as Europe/Vienna or UTC") from None
    return value


# It becomes a header of the message: a line break would begin another one.
ONE_LINE = matching(r"[^\x00-\x1f\x7f]*", "must be one line")
Line = Annotated[StrictStr, Field(max_length=200), ONE_LINE]
SubjectTemplate = Annotated[StrictStr, Field(min_length=1, max_length=1_000), ONE_LINE]
Start = Annotated[Instant, AfterValidator(_start)]
Lead = Annotated[Duration, between(MIN_LEAD_MS, MAX_DURATION_MS)]
Email = Annotated[StrictStr, matching(_EMAIL, "must be an e-mail address")]
Phone = Annotated[
    StrictStr,
    matching(
        r"\+[1-9][0-9]{6,14}",
        "must be a number in E.164 form: + and the country code, digits alone, such as +436641234567",
    ),
]
TimeZone = Annotated[StrictStr, Field(max_length=100), Checked(_time_zone, {"format": "iana-time-zone"})]
Data = Annotated[dict[str, Any], json_of(MAX_DATA_BYTES)]


class Person(Strict):
    """Recipient, with at least one channel: `email`, `phone` or `webhook`."""

    model_config = ConfigDict(
        json_schema_extra={
            "anyOf": [requires(channel) for channel in Channel],
            "if": requires("auth"),
            "then": requires(Channel.WEBHOOK),
        }
    )

    name: Line = Field(
        "", description="Name of the recipient, which templates read as `recipient.name`.", examples=["Ada"]
    )
    email: Email | None = Field(None, description="E-mail address.", examples=["ada@example.com"])
    phone: Phone | None = Field(
        None, description="Phone number for an SMS, in E.164: + and the country code.", examples=["+436641234567"]
    )
    webhook: Url | None = Field(
        None,
        description="URL that receives a POST, as from a task of the kind `webhook`.",
        examples=["https://example.com/hooks/meetings"],
    )
    auth: Auth = None
    time_zone: TimeZone | None = Field(
        None, description="Time zone for this recipient; defaults to the reminder's.", examples=["Europe/Vienna"]
    )

    @model_validator(mode="after")
    def _reachable(self) -> Self:
        if not self.channels():
            raise ValueError("needs an email, a phone or a webhook")
        if self.auth and not self.webhook:
            raise reject_fields("needs a webhook: other channels carry no credential", "auth")
        return self

    def channels(self) -> dict[Channel, str]:
        """The addresses given, by channel."""
        given = {channel: getattr(self, channel) for channel in Channel}
        return {channel: address for channel, address in given.items() if address is not None}


class RecipientView(TypedDict):
    """Recipient of one message, by one channel."""

    name: Annotated[str, about("Name of the recipient.", "Ada")]
    email: NotRequired[Annotated[str, about("E-mail address.", "ada@example.com")]]
    phone: NotRequired[Annotated[str, about("Phone number.", "+436641234567")]]
    webhook: NotRequired[Annotated[str, about("URL of the webhook.", "https://example.com/hooks/ada")]]
    auth: NotRequired[Annotated[str, about("Name of the credential that the webhook carries.", "billing")]]
    time_zone: Annotated[str, about("IANA time zone of the hours in messages; default UTC.", "UTC")]


_RULE = api_fields(
    Rule,
    RULE_TEXTS,
    repeat=REPEAT_FORM._replace(default=None),
    starts_at=INSTANT._replace(asked=Start, unset=0),
    time_zone=Form(TimeZone, str),
    until=INSTANT,
)
REPEAT, START, TIME_ZONE, UNTIL = _RULE["repeat"], _RULE["starts_at"], _RULE["time_zone"], _RULE["until"]
GAP, FOLD = _RULE["gap"], _RULE["fold"]
RULE = [REPEAT, START, TIME_ZONE, UNTIL, GAP, FOLD]
_SERIES = api_fields(
    Series,
    subject=Form(SubjectTemplate, str, unset=""),
    leads_ms=Form(
        Annotated[list[Lead], Field(min_length=1, max_length=MAX_TASKS)],
        list[str],
        read=lambda leads: tuple(dict.fromkeys(leads)),
        show=lambda leads: list(map(format_duration, leads)),
        unset=list,
    ),
    recipients=Form(
        Annotated[list[Person], Field(min_length=1, max_length=MAX_TASKS)], list[RecipientView], unset=list
    ),
    message=Form(Annotated[StrictStr, Field(max_length=10_000)], str),
    html=Form(Annotated[StrictStr, Field(max_length=50_000)], str),
    data=Form(Data, Json, default=dict, unset=dict),
)
SUBJECT, LEADS, RECIPIENTS = _SERIES["subject"], _SERIES["leads_ms"], _SERIES["recipients"]
MESSAGE, HTML, DATA, LIMIT = _SERIES["message"], _SERIES["html"], _SERIES["data"], _SERIES["limit"]
CONTENT = [SUBJECT, LEADS, MESSAGE, HTML, DATA]
"""Fields that are the same in the request and in a reminder; `_people` makes its recipients of the request's."""
REPEATED = [UNTIL, LIMIT, GAP, FOLD]
"""Fields that go with `repeat`."""
ADDED = [SUBJECT, START, LEADS, RECIPIENTS, MESSAGE, HTML, DATA, TIME_ZONE, REPEAT, *REPEATED]
CHANGED = [START, SUBJECT, LEADS, RECIPIENTS, MESSAGE, HTML, DATA, REPEAT, TIME_ZONE, *REPEATED]


# Other fields: those that AnyReminder and Series describe (ledger/reminder.py); `derived_models` adds them.
@with_fields(asked(ADDED))
class AddReminder(Strict):
    """Body of `POST /reminders`: one message to each channel of each recipient at each lead time.

    Equal messages are sent once.

    `subject`, `message` and `html` are Jinja2 templates.
    """

    model_config = ConfigDict(json_schema_extra={"examples": [EXAMPLE]})

    if TYPE_CHECKING:
        remind_before: list[int]
        recipients: list[Person]
        repeat: RepeatField | None
        time_zone: str
        starts_at: int

    id: Name = Field(
        default_factory=str,
        description="Id of the reminder, unique. Default: generated, as for a task.",
        examples=["standup"],
    )

    @model_validator(mode="after")
    def _not_too_many(self) -> Self:
        messages = len(self.remind_before) * sum(len(person.channels()) for person in self.recipients)
        if messages > MAX_TASKS:
            raise reject_fields(f"at most {MAX_TASKS} messages in all", "remind_before", "recipients")
        return self

    @model_validator(mode="after")
    def _comes_again(self) -> Self:
        extra = [one.name for one in REPEATED if one.name in self.model_fields_set]
        if self.repeat is None and extra:
            raise reject_fields("goes with repeat", *extra)
        if self.repeat is not None and len(self.id) > MAX_ID:
            raise reject_fields(f"at most {MAX_ID} characters, for a reminder that comes again", "id")
        return self

    def asked(self, name: Callable[[], str] = new_id) -> Reminder | Series:
        """The reminder or the series asked for, with an id of `name` where none was given."""
        return self.reminder(name) if self.repeat is None else self._series(name)

    def _series(self, name: Callable[[], str]) -> Series:
        rule = Rule(**read_fields(RULE, self))
        return Series(**self._asked(name, ""), **read_fields([LIMIT], self), rule=rule)

    def reminder(self, name: Callable[[], str] = new_id) -> Reminder:
        """The reminder asked for, with an id of `name` where none was given."""
        return Reminder(**self._asked(name, self.time_zone), starts_at=self.starts_at)

    def _asked(self, name: Callable[[], str], time_zone: str) -> dict[str, Any]:
        """Fields of AnyReminder; `time_zone` is that of recipients without their own."""
        fields, recipients = _people(self.recipients, time_zone)
        return {"id": self.id or name(), "recipients": recipients, "fields": fields, **read_fields(CONTENT, self)}


def _people(people: Sequence[Person], time_zone: str) -> tuple[tuple[str, ...], tuple[Recipient, ...]]:
    """Recipients of messages, each once, and the field of each; `time_zone` is that of those without their own."""
    found: dict[tuple[Channel, str], tuple[str, Recipient]] = {}
    for index, person in enumerate(people):
        zone = person.time_zone or time_zone
        for channel, address in person.channels().items():
            same = address.lower() if channel is Channel.EMAIL else address
            auth = person.auth if channel is Channel.WEBHOOK else None
            recipient = Recipient(person.name, channel, address, zone, auth or "")
            found.setdefault((channel, same), (f"recipients.{index}.{channel}", recipient))
    fields, recipients = zip(*found.values(), strict=True)
    return fields, recipients


@with_fields(changed_if_version("a reminder that comes again", CHANGED))
class ChangeReminder(VersionedChange):
    """Body of `PATCH /reminders/{id}`: a new start, or any field of a reminder that comes again."""

    model_config = ConfigDict(
        json_schema_extra={"minProperties": 1, "examples": [{"starts_at": "2100-01-05T09:30:00Z"}]}
    )

    if TYPE_CHECKING:
        recipients: list[Person]

    def change(self) -> SeriesChange:
        """Fields of Series that change, those of its Rule under `rule`."""
        fields, rule = self.read_given([*CONTENT, LIMIT]), self.read_given(RULE)
        if self.recipients:
            fields["fields"], fields["recipients"] = _people(self.recipients, "")
        return SeriesChange({**fields, "rule": rule} if rule else fields, self.named, self.if_version)


class MoveOccurrence(Strict):
    """Body of `PATCH /reminders/{id}/occurrences/{at}`: a new start."""

    model_config = ConfigDict(json_schema_extra={"examples": [{"starts_at": "2100-01-05T09:30:00Z"}]})

    starts_at: Start = Field(description="New start of this occurrence; must be in the future.")


class ReminderKey(Strict):
    """Id of a reminder."""

    id: Name = Field(description="Id of an existing reminder.", examples=["standup"])


class OccurrenceKey(ReminderKey):
    """Key of one occurrence, from Python."""

    at: Instant


class CancelOccurrence(OccurrenceKey):
    """Key of one occurrence to cancel, from Python."""

    force: StrictBool = False


class CancelReminder(ReminderKey):
    """Key of a reminder to cancel, from Python."""

    force: StrictBool = False


def _by_id_or_whole(value: Any) -> Any:
    by_id = isinstance(value, dict) and value.keys() == {"id"}
    return (ReminderKey if by_id else AddReminder).model_validate(value)


PreviewReminder = Annotated[AddReminder | ReminderKey, BeforeValidator(_by_id_or_whole)]
"""The body of an add, or the id alone of an existing reminder."""


# The answers of `/reminders`.

MAX_SHOWN = 2_000_000
"""Maximum number of characters that one preview shows: a function answers at most 6 MB."""


class TaskDue(TypedDict):
    """Task of a reminder, with its due time."""

    id: Annotated[str, about("Id of the task.", "standup:300:0")]
    due_at: Annotated[ShownInstant, about("Due time.")]


class TaskMoved(TaskDue):
    """Task that was moved, with its state before the move."""

    was: Annotated[Status, about("State before the move.")]


class _StateOfTask(TaskDue):
    """Task with its state."""

    state: Annotated[Status, about("State of the task.")]


LEAD = api_fields(Shown)["lead_ms"]
_SentTo = TypedDict(
    "_SentTo",
    {**shown([LEAD]), "recipient": Annotated[RecipientView, about("Recipient of the message.")]},  # type: ignore[misc]
)


class ReminderTaskView(_StateOfTask, _SentTo):
    """Task of a reminder."""


class StandingView(TypedDict):
    """Occurrence with messages, or one that was changed by hand."""

    id: Annotated[str, about("Id of its reminder, which `GET /reminders/{id}` shows.", "standup@2100-01-11T09:30:00Z")]
    at: Annotated[ShownInstant, about("Start by the rule, which names the occurrence.")]
    starts_at: Annotated[ShownInstant, about("Start that it has.")]
    state: Annotated[
        Literal["standing", "moved", "cancelled"], about("State: `standing` as the rule says, `moved` or `cancelled`.")
    ]


SeriesView = TypedDict(
    "SeriesView",
    {
        **shown([REPEAT, TIME_ZONE, START, *REPEATED]),  # type: ignore[misc]
        **USED,
        **shown([LEADS, RECIPIENTS]),
        "version": Annotated[int, about("Version of the series: 1, and 1 more for each change.", 1)],
        "created_at": Annotated[ShownInstant, about("Time of the add.")],
        "next": Annotated[
            list[UpcomingView], about("Next ten starts by the rule; those changed by hand are left out.")
        ],
        "occurrences": Annotated[
            list[StandingView], about("Occurrences that have messages, and those moved or cancelled by hand.")
        ],
    },
)
SeriesView.__doc__ = "Rule by which a reminder comes again, and its occurrences."


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


ReminderAnswer = TypedDict(
    "ReminderAnswer",
    {
        "id": Annotated[str, about("Id of the reminder.", "standup")],
        **shown([SUBJECT]),  # type: ignore[misc]
        "starts_at": Annotated[ShownInstant, about("Start of the meeting; next start of one that comes again.")],
        **shown([MESSAGE, HTML, DATA]),
        "tasks": Annotated[list[ReminderTaskView], about("Tasks of the reminder; none of one that comes again.")],
        "series": NotRequired[Annotated[SeriesView, about("Rule and occurrences, if the reminder comes again.")]],
    },
)
ReminderAnswer.__doc__ = "Reminder, with its tasks."


class MessageView(TaskDue, _SentTo):
    """Message as its recipient reads it."""

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
    recipients = series.reminder(rule.starts_at, rule.starts_at).recipients
    view = {
        **show_fields([REPEAT, TIME_ZONE, START, UNTIL], rule),
        **show_fields([LIMIT], series),
        **show_fields([GAP, FOLD], rule),
        "gap_used": rule.gap_used,
        "fold_used": rule.fold_used,
        **show_fields([LEADS], series),
        "recipients": list(map(_show_recipient, recipients)),
        "version": status.version,
        "created_at": format_instant(status.created_at),
        "next": list(map(show_upcoming, status.upcoming)),
        "occurrences": list(map(_show_standing, status.occurrences)),
    }
    return cast(SeriesView, view)


def _show_standing(one: Standing) -> StandingView:
    return {
        "id": one.id,
        "at": format_instant(one.nominal),
        "starts_at": format_instant(one.starts_at),
        "state": one.state,
    }


def _show_task(task: Task) -> ReminderTaskView:
    payload = task.payload
    view = {
        "id": task.id,
        "due_at": format_instant(task.due_at),
        "state": task.status,
        LEAD.name: LEAD.form.show(payload["lead_ms"]),
        "recipient": _show_recipient(Recipient(**payload["recipient"])),
    }
    return cast(ReminderTaskView, view)


def show_preview(id: str, previewed: list[Shown]) -> PreviewAnswer:
    """The messages of a reminder, the first of them that fit one answer."""
    messages: list[MessageView] = []
    room = MAX_SHOWN
    for each in previewed:
        room -= len(each.subject) + len(each.text) + len(each.html)
        if room < 0 and messages:
            break
        messages.append(_show_message(each))
    return {"id": id, "messages": messages, "left_out": len(previewed) - len(messages)}


def _show_message(one: Shown) -> MessageView:
    view: Any = {
        "id": one.id,
        "due_at": format_instant(one.due_at),
        **show_fields([LEAD], one),
        "recipient": _show_recipient(one.recipient),
        "subject": one.subject,
        "text": one.text,
    }
    if one.html:
        view["html"] = one.html
    if one.recipient.channel == Channel.PHONE:
        view["sms_parts"] = send.sms_parts(one.text)
    return cast(MessageView, view)


def _show_recipient(recipient: Recipient) -> RecipientView:
    address = {str(recipient.channel): masked_text(recipient.address)} | (
        {"auth": recipient.auth} if recipient.auth else {}
    )
    return {"name": recipient.name, "time_zone": recipient.time_zone, **address}  # type: ignore[typeddict-item]
