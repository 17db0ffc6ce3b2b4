"""The requests of `/reminders`."""

from collections.abc import Callable, Sequence
from typing import Annotated, Any, Self
from zoneinfo import ZoneInfo

from pydantic import AfterValidator, BeforeValidator, ConfigDict, Field, StrictBool, StrictStr, model_validator

from duecourse.domain.reminder import MAX_TASKS, UTC, Channel, Recipient, Reminder
from duecourse.domain.schedule import Fold, Gap, Rule
from duecourse.domain.series import MAX_ID, MAX_LIMIT, Series, SeriesChange
from duecourse.domain.task import Json, new_id
from duecourse.domain.times import MAX_DURATION_MS
from duecourse.wire.http.fields import (
    Checked,
    Duration,
    Instant,
    Name,
    Strict,
    between,
    given,
    json_of,
    matching,
    reject_fields,
)
from duecourse.wire.http.kinds import Auth, Url
from duecourse.wire.http.schedules import AUTO_FOLD, AUTO_GAP, FoldField, GapField, RepeatField

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
MIN_LEAD_MS = 1_000
"""A message that is due as the meeting begins would come too late, and is not sent."""
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
Limit = Annotated[int, Field(ge=1, le=MAX_LIMIT, strict=True)]
Data = Annotated[dict[str, Any], json_of(MAX_DATA_BYTES)]


class Person(Strict):
    """Recipient, with at least one channel: `email`, `phone` or `webhook`."""

    model_config = ConfigDict(
        json_schema_extra={
            "anyOf": [given(channel) for channel in Channel],
            "if": given("auth"),
            "then": given(Channel.WEBHOOK),
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


class AddReminder(Strict):
    """Body of `POST /reminders`: one message to each channel of each recipient at each lead time.

    Equal messages are sent once.

    `subject`, `message` and `html` are Jinja2 templates.
    """

    model_config = ConfigDict(json_schema_extra={"examples": [EXAMPLE]})

    id: Name = Field(
        default_factory=str,
        description="Id of the reminder, unique. Default: generated, as for a task.",
        examples=["standup"],
    )
    subject: SubjectTemplate = Field(
        description="Template of the subject: one line, at most 200 characters when rendered. Other "
        "templates read it as `subject`.",
        examples=["Stand-up in {{ lead }}"],
    )
    starts_at: Start = Field(description="Start of the meeting; must be in the future.")
    remind_before: Annotated[list[Lead], Field(min_length=1, max_length=MAX_TASKS)] = Field(
        description="Lead times before the start, at least PT1S each. Each sends one message to each channel of"
        " each recipient; one that has passed sends at once.",
        examples=[["P1D", "PT5M"]],
    )
    recipients: Annotated[list[Person], Field(min_length=1, max_length=MAX_TASKS)] = Field(
        description="Recipients; the reminder may have at most DUECOURSE_REMINDER_MESSAGES (100) messages in all."
    )
    message: Annotated[StrictStr, Field(max_length=10_000)] = Field(
        "",
        description="Template of the text. Default: the text of `html`, or a sentence with the subject and the start.",
        examples=["{{ recipient.name }}, {{ subject }} is at {{ starts_at.time }}."],
    )
    html: Annotated[StrictStr, Field(max_length=50_000)] = Field(
        "",
        description="Template of the HTML part of an e-mail; inserted values are escaped. Default: the e-mail "
        "is plain text.",
        examples=["<p>{{ subject }} is at <b>{{ starts_at.time }}</b>.</p>"],
    )
    data: Data = Field(
        default_factory=dict,
        description="Data for the templates, which read it as `data`; at most 16 KiB of JSON.",
        examples=[{"room": "4"}],
    )
    time_zone: TimeZone = Field(
        UTC,
        description="IANA time zone of the hours in messages, and of the times of `repeat`; default UTC.",
        examples=["Europe/Vienna"],
    )
    repeat: RepeatField | None = Field(
        None,
        description="Rule by which the meeting comes again, from `starts_at` on, which is its first start. The"
        " messages of each start are added a minute before the largest lead time. The reminder's id then has at most"
        f" {MAX_ID} characters, and credentials are given by name. Default: one start.",
    )
    until: Instant | None = Field(None, description="Last start at the latest, with `repeat`. Default: no end.")
    limit: Limit | None = Field(
        None, description="Number of starts, with `repeat`, counted from `starts_at`. Default: no limit."
    )
    gap: GapField = Field(
        Gap.AUTO,
        description="Treatment, with `repeat`, of a wall-clock time that a change of the clocks leaves out: `shift` to"
        f" the first instant after it, `skip`, or `auto`. {AUTO_GAP}",
    )
    fold: FoldField = Field(
        Fold.AUTO,
        description="Treatment, with `repeat`, of a wall-clock time that a change of the clocks repeats: the `first`,"
        f" the `second`, `both`, or `auto`. {AUTO_FOLD}",
    )

    @model_validator(mode="after")
    def _not_too_many(self) -> Self:
        messages = len(self.remind_before) * sum(len(person.channels()) for person in self.recipients)
        if messages > MAX_TASKS:
            raise reject_fields(f"at most {MAX_TASKS} messages in all", "remind_before", "recipients")
        return self

    @model_validator(mode="after")
    def _comes_again(self) -> Self:
        extra = [name for name in ("until", "limit", "gap", "fold") if name in self.model_fields_set]
        if self.repeat is None and extra:
            raise reject_fields("goes with repeat", *extra)
        if self.repeat is not None and len(self.id) > MAX_ID:
            raise reject_fields(f"at most {MAX_ID} characters, for a reminder that comes again", "id")
        return self

    def asked(self, name: Callable[[], str] = new_id) -> Reminder | Series:
        """The reminder or the series asked for, with an id of `name` where none was given."""
        return self.reminder(name) if self.repeat is None else self._series(self.repeat, name)

    def _series(self, repeat: RepeatField, name: Callable[[], str]) -> Series:
        fields, recipients = _people(self.recipients, "")
        return Series(
            id=self.id or name(),
            rule=Rule(repeat.repeat(), self.starts_at, self.time_zone, self.until, self.gap, self.fold),
            subject=self.subject,
            leads_ms=tuple(dict.fromkeys(self.remind_before)),
            recipients=recipients,
            message=self.message,
            html=self.html,
            data=self.data,
            limit=self.limit,
            fields=fields,
        )

    def reminder(self, name: Callable[[], str] = new_id) -> Reminder:
        """The reminder asked for, with an id of `name` where none was given."""
        fields, recipients = _people(self.recipients, self.time_zone)
        return Reminder(
            id=self.id or name(),
            subject=self.subject,
            starts_at=self.starts_at,
            leads_ms=tuple(dict.fromkeys(self.remind_before)),
            recipients=recipients,
            fields=fields,
            message=self.message,
            html=self.html,
            data=self.data,
        )


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


class ChangeReminder(Strict):
    """Body of `PATCH /reminders/{id}`: a new start, or any field of a reminder that comes again."""

    model_config = ConfigDict(
        json_schema_extra={"minProperties": 1, "examples": [{"starts_at": "2100-01-05T09:30:00Z"}]}
    )

    if_version: Annotated[int, Field(ge=1, strict=True)] | None = Field(
        None, description="Version that a reminder that comes again must have; with another, nothing changes (409)."
    )
    starts_at: Start = Field(
        0, description="New start of the meeting, or of its series by the rule; must be in the future."
    )
    subject: SubjectTemplate = Field("", description="Template of the subject.")
    remind_before: Annotated[list[Lead], Field(min_length=1, max_length=MAX_TASKS)] = Field(
        default_factory=list, description="Lead times before each start."
    )
    recipients: Annotated[list[Person], Field(min_length=1, max_length=MAX_TASKS)] = Field(
        default_factory=list, description="Recipients, in place of all there are."
    )
    message: Annotated[StrictStr, Field(max_length=10_000)] = Field("", description="Template of the text.")
    html: Annotated[StrictStr, Field(max_length=50_000)] = Field("", description="Template of the HTML part.")
    data: Data = Field(default_factory=dict, description="Data for the templates, in place of what there is.")
    repeat: RepeatField | None = Field(None, description="Rule by which the meeting comes again.")
    time_zone: TimeZone = Field(UTC, description="IANA time zone of the rule and of the hours in messages.")
    until: Instant | None = Field(None, description="Last start at the latest; null for no end.")
    limit: Limit | None = Field(None, description="Number of starts, counted from `starts_at`; null for no limit.")
    gap: GapField = Field(Gap.AUTO, description="Treatment of a time that a change of the clocks leaves out.")
    fold: FoldField = Field(Fold.AUTO, description="Treatment of a time that a change of the clocks repeats.")

    @model_validator(mode="after")
    def _changes_something(self) -> Self:
        if not self.model_fields_set - {"if_version"}:
            raise ValueError("needs a field to change")
        if "repeat" in self.model_fields_set and self.repeat is None:
            raise reject_fields("must be a JSON object", "repeat")
        return self

    def change(self) -> SeriesChange:
        """Fields of Series that change, those of its Rule under `rule`."""
        named = tuple(name for name in type(self).model_fields if name in self.model_fields_set - {"if_version"})
        fields = {name: getattr(self, name) for name in named if name in CONTENT}
        rule = {name: getattr(self, name) for name in named if name in IN_RULE}
        if self.repeat is not None:
            rule["repeat"] = self.repeat.repeat()
        if self.remind_before:
            fields["leads_ms"] = tuple(dict.fromkeys(self.remind_before))
        if self.recipients:
            fields["fields"], fields["recipients"] = _people(self.recipients, "")
        return SeriesChange({**fields, "rule": rule} if rule else fields, named, self.if_version)


CONTENT = ("subject", "message", "html", "data", "limit")
IN_RULE = ("starts_at", "time_zone", "until", "gap", "fold")
"""Fields of a request that are the same in Series, and in its Rule."""


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
