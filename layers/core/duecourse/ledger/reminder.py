"""Reminder: a start, lead times and recipients; a series of them; and the answers of the verbs."""

import json
from collections.abc import Mapping
from dataclasses import field, fields, replace
from enum import StrEnum
from typing import Annotated, Any, Literal, NamedTuple

from duecourse.base.described_fields import About
from duecourse.base.json_text import Json, dump_json
from duecourse.base.times import MAX_DURATION_MS, MAX_INSTANT, parse_instant
from duecourse.base.value_classes import as_dict, brief, value
from duecourse.errors import TaskDamaged
from duecourse.ledger.schedule import AUTO_FOLD, AUTO_GAP, Missed, Rule, Schedule, Upcoming, occurrence_id
from duecourse.ledger.task import DEFAULT_TENANT, RESERVED, DueTask, NewTask, OnDuplicate, RetryPolicy, Status, Task

# Reminder: a start, lead times and recipients; and the tasks that it becomes.

QUEUE = "reminders"
KIND = "reminder"
MAX_TASKS = 1_000
"""The most messages of one reminder: all are moved in one step."""
MIN_LEAD_MS = 1_000
"""A message that is due as the meeting begins would come too late, and is not sent."""
UTC = "UTC"
TEXTS = ("subject", "message", "html")
"""Fields of a content that are templates."""
CONTENT = (*TEXTS, "data")
"""Fields of a payload that are the same in each message of a reminder."""


class Channel(StrEnum):
    """Channel of a message; a recipient's field of that name holds the address.

    To add a channel, add its word here, and a sender to `services/` that says of each error whether it is permanent.
    `app.py` makes it (`senders`); a setting of the sender belongs to `settings.py`. Person and RecipientView of
    `reminders/http.py` have its field, and the error of `Person._reachable` lists it. The template has its policy,
    `testing/product.py` its fake (`senders`). A rule of its address belongs to `reminders/one_off.py` and `send.py`,
    one of its text to `writer.py`. `duecourse sent` shows it by `cli/stack.py` and `harness/aws/moto_server.py`.
    """

    EMAIL = "email"
    PHONE = "phone"
    WEBHOOK = "webhook"


@value
class Recipient:
    """Recipient of one message, by one channel.

    `address` is an e-mail address, a phone number (E.164) or a URL; `time_zone` is the IANA name in which times are
    shown. `auth` names the credential of a URL, "" for none.
    """

    name: str
    channel: Channel
    address: str
    time_zone: str = UTC
    auth: str = ""

    def __repr__(self) -> str:
        return brief(self, "name", "channel", "time_zone")

    def fields(self) -> dict[str, str]:
        """The same as a payload keeps it."""
        given = as_dict(self)
        return given if self.auth else {name: value for name, value in given.items() if name != "auth"}


@value
class AnyReminder:
    """Fields of a reminder, of one start or of a series: templates, lead times and recipients.

    `subject`, `message` and `html` are templates; "" for what is not given. `data` is for them to speak of. `fields`
    names each recipient's field in the request, for errors.

    A described field is one of requests and of the client, and can be changed. To add a field, add it here, or to
    Series where it goes with a rule, with About if callers see it, and to KEPT or `_payload`. A field of each message
    belongs to CONTENT. Its form and its place in ADDED and CHANGED are in `reminders/http.py`. Then `make reference`.
    """

    id: str
    subject: Annotated[
        str,
        About(
            "Template of the subject.",
            asked="Template of the subject: one line, at most 200 characters when rendered. Other "
            "templates read it as `subject`.",
            example="Stand-up",
            tried="Stand-up in {{ lead }}",
        ),
    ]
    leads_ms: Annotated[
        tuple[int, ...],
        About(
            "Lead times before each start.",
            asked="Lead times before the start, at least PT1S each. Each sends one message to each channel of"
            " each recipient; one that has passed sends at once.",
            name="remind_before",
            low=MIN_LEAD_MS,
            high=MAX_DURATION_MS,
            example=["PT5M"],
            tried=["P1D", "PT5M"],
        ),
    ]
    recipients: Annotated[
        tuple[Recipient, ...],
        About(
            "Recipients, one for each channel.",
            asked="Recipients; the reminder may have at most DUECOURSE_REMINDER_MESSAGES (100) messages in all.",
            changed="Recipients, in place of all there are.",
        ),
    ]
    message: Annotated[
        str,
        About(
            "Template of the text.",
            asked="Template of the text. Default: the text of `html`, or a sentence with the subject and the start.",
            example="",
            tried="{{ recipient.name }}, {{ subject }} is at {{ starts_at.time }}.",
        ),
    ] = ""
    html: Annotated[
        str,
        About(
            "Template of the HTML part.",
            asked="Template of the HTML part of an e-mail; inserted values are escaped. Default: the e-mail "
            "is plain text.",
            example="",
            tried="<p>{{ subject }} is at <b>{{ starts_at.time }}</b>.</p>",
        ),
    ] = ""
    data: Annotated[
        Json,
        About(
            "Data for the templates.",
            asked="Data for the templates, which read it as `data`; at most 16 KiB of JSON.",
            changed="Data for the templates, in place of what there is.",
            example={},
            tried={"room": "4"},
        ),
    ] = None
    fields: tuple[str, ...] = ()


@value
class Reminder(AnyReminder):
    """A reminder of one start (epoch ms), as asked for."""

    starts_at: int = field(kw_only=True)

    def __repr__(self) -> str:
        return brief(self, "id", "starts_at")

    @property
    def content(self) -> dict[str, Json]:
        """Templates and data, the same for each message."""
        return {"subject": self.subject, "message": self.message, "html": self.html, "data": self.data or {}}

    def tasks(self, now: int, tenant: str = DEFAULT_TENANT, by: str = KIND) -> list[NewTask]:
        """One task a lead time and recipient; one whose time has passed is due at once."""
        messages = [(lead, index) for lead in self.leads_ms for index in range(len(self.recipients))]
        return [self._task(lead, index, now)._replace(tenant=tenant, by=by) for lead, index in messages]

    def _task(self, lead_ms: int, index: int, now: int) -> NewTask:
        recipient = self.recipients[index].fields()
        payload = {"reminder": self.id, **self.content, "recipient": recipient, "lead_ms": lead_ms}
        return NewTask(
            id=f"{self.id}:{_short(lead_ms)}:{index}",
            kind=KIND,
            payload=dump_json(payload),
            queue=QUEUE,
            group=self.id,
            state=starting(self.starts_at),
            due_at=due(self.starts_at, lead_ms, now),
            on_duplicate=OnDuplicate.REPLACE,
        )


def is_sound(message: Task) -> bool:
    """True if a message is as duecourse writes it: another program may have put anything in its place."""
    try:
        payload, state = message.payload, message.state
        Recipient(**payload["recipient"])
        texts = [*payload["recipient"].values(), *map(payload.get, TEXTS)]
        numbers = payload["lead_ms"], state["starts_at"]
        Channel(payload["recipient"]["channel"])
    except (TaskDamaged, TypeError, LookupError, ValueError):
        return False
    is_shown = all(isinstance(number, int) and 0 <= number <= MAX_INSTANT for number in numbers)
    return isinstance(payload.get("data"), dict) and is_shown and all(isinstance(text, str) for text in texts)


def due(starts_at: int, lead_ms: int, now: int) -> int:
    """Due time of the message `lead_ms` before the start: now, if that has passed."""
    return max(starts_at - lead_ms, now)


def starting(starts_at: int) -> str:
    """The state that a reminder's task carries: JSON text; the start may change, the payload never does."""
    return dump_json({"starts_at": starts_at})


def _short(lead_ms: int) -> str:
    return f"{lead_ms}ms" if lead_ms % 1000 else str(lead_ms // 1000)


# Reminder that comes again: a schedule whose occurrences are reminders of their own, and what was changed by hand.

SERIES_KIND = f"{RESERVED}series"
"""Kind of the tasks that keep the occurrences as their series says: one for each occurrence, until its start."""
MAX_ID = 39
"""Maximum length of a series' id: with a start, it is a reminder's id of at most 64 characters."""
MAX_STANDING = 100
"""Most occurrences whose largest lead time has begun and whose start has not."""
MAX_LIMIT = 10_000
AHEAD_MS = 60_000
"""Time from the add of an occurrence to its first message."""
SERIES_POLICY = RetryPolicy(max_attempts=1_000, backoff_ms=1_000, max_backoff_ms=AHEAD_MS)


RULE_TEXTS = {
    "repeat": About(
        "Rule of the starts.",
        asked="Rule by which the meeting comes again, from `starts_at` on, which is its first start. The"
        " messages of each start are added a minute before the largest lead time. The reminder's id then has at most"
        f" {MAX_ID} characters, and credentials are given by name. Default: one start.",
        changed="Rule by which the meeting comes again.",
        example={"rrule": "FREQ=WEEKLY"},
    ),
    "starts_at": About(
        "First start by the rule.",
        asked="Start of the meeting; must be in the future.",
        changed="New start of the meeting, or of its series by the rule; must be in the future.",
    ),
    "time_zone": About(
        "IANA time zone in which the rule is read.",
        asked="IANA time zone of the hours in messages, and of the times of `repeat`; default UTC.",
        changed="IANA time zone of the rule and of the hours in messages.",
        example="Europe/Vienna",
        tried="Europe/Vienna",
    ),
    "until": About(
        "Last start at the latest.",
        asked="Last start at the latest, with `repeat`. Default: no end.",
        changed="Last start at the latest; null for no end.",
    ),
    "gap": About(
        "Treatment of a time that a change of the clocks leaves out.",
        asked="Treatment, with `repeat`, of a wall-clock time that a change of the clocks leaves out: `shift` to the"
        f" first instant after it, `skip`, or `auto`. {AUTO_GAP}",
    ),
    "fold": About(
        "Treatment of a time that a change of the clocks repeats.",
        asked="Treatment, with `repeat`, of a wall-clock time that a change of the clocks repeats: the `first`, the"
        f" `second`, `both`, or `auto`. {AUTO_FOLD}",
    ),
}
"""Descriptions of a rule's fields, where it is a reminder's."""


@value
class Series(AnyReminder):
    """A reminder that comes again, as asked for, by the rule of its starts.

    A recipient whose time zone is "" has that of the rule. `limit` is the number of starts, counted from the rule's
    first; None for no limit. `since` is when it was last changed (epoch ms), another one with each change. A lead time
    that had passed by then is not made up for, but of the start `first`.
    """

    rule: Rule = field(kw_only=True)
    limit: Annotated[
        int | None,
        About(
            "Number of starts.",
            asked="Number of starts, with `repeat`, counted from `starts_at`. Default: no limit.",
            changed="Number of starts, counted from `starts_at`; null for no limit.",
            low=1,
            high=MAX_LIMIT,
            example=10,
        ),
    ] = None
    since: int = 0
    first: int = 0

    def __repr__(self) -> str:
        return brief(self, "id", "rule")

    @classmethod
    def of(cls, schedule: Schedule) -> "Series":
        """The series in its schedule. Raises TaskDamaged."""
        try:
            found = json.loads(schedule.payload)
            people = tuple(Recipient(**one) for one in found["recipients"])
            rule = replace(schedule.rule, until=found["until"])
            kept = {name: found[name] for name in KEPT}
            return cls(schedule.id, rule=rule, recipients=people, leads_ms=tuple(found["leads_ms"]), **kept)
        except (ValueError, LookupError, TypeError) as error:
            raise TaskDamaged(f"the record of reminder {schedule.id} cannot be read: {error}") from error

    @property
    def lead_ms(self) -> int:
        """Time before a start at which the occurrence is added."""
        return max(self.leads_ms) + AHEAD_MS

    def schedule(self, until: int | None, tenant: str = DEFAULT_TENANT) -> Schedule:
        """The schedule that adds the occurrences, the last at `until`."""
        return Schedule(
            id=self.id,
            kind=SERIES_KIND,
            rule=replace(self.rule, until=until),
            payload=dump_json(self._payload()),
            queue=QUEUE,
            tenant=tenant,
            missed=Missed.ALL,
            catch_up_ms=0,  # those whose start is still to come
            lead_ms=self.lead_ms,
            retry=SERIES_POLICY,
        )

    def _payload(self) -> dict[str, Json]:
        kept = {name: getattr(self, name) for name in KEPT}
        people = [one.fields() for one in self.recipients]
        return {
            **kept,
            "data": self.data or {},
            "until": self.rule.until,
            "leads_ms": self.leads_ms,
            "recipients": people,
        }

    def reminder(self, nominal: int, starts_at: int) -> Reminder:
        """The reminder of one start, with all its lead times; `starts_at` is another one where it is moved."""
        zone = self.rule.time_zone
        recipients = tuple(one if one.time_zone else replace(one, time_zone=zone) for one in self.recipients)
        asked = {one.name: getattr(self, one.name) for one in fields(AnyReminder)}
        named = {"id": occurrence_id(self.id, nominal), "recipients": recipients, "starts_at": starts_at}
        return Reminder(**asked | named)

    def leads_of(self, nominal: int) -> tuple[int, ...]:
        """Lead times of a start that its messages are added for."""
        return tuple(lead for lead in self.leads_ms if nominal == self.first or nominal - lead > self.since)

    def matches(self, request: "Series") -> bool:
        """True if a request describes this series as it is, so that nothing is to change."""
        again = replace(request, rule=request.rule.as_stored(self.rule))
        return self._asked() == again._asked()  # noqa: SLF001 - of its own class

    def _asked(self) -> "Series":
        return replace(self, since=0, first=0, fields=(), data=self.data or {})


KEPT = ("subject", "message", "html", "data", "limit", "since", "first")
"""Fields that a payload keeps as they are."""


@value
class Mark:
    """State of an occurrence's task: the change of the series that it follows, or what was done by hand.

    `starts_at` is the start to which it was moved by hand (epoch ms), None for none.
    """

    since: int = 0
    starts_at: int | None = None
    cancelled: bool = False

    @classmethod
    def of(cls, task: Task) -> "Mark":
        """The state of a task. Raises TaskDamaged."""
        state = task.state or {}
        if not isinstance(state, Mapping):
            raise TaskDamaged(f"the state of {task.id} cannot be read")
        return cls(state.get("since", 0), state.get("starts_at"), bool(state.get("cancelled")))

    @property
    def by_hand(self) -> bool:
        """True if the series has no say in this occurrence."""
        return self.cancelled or self.starts_at is not None

    def state(self) -> dict[str, Json]:
        """The same as JSON."""
        fields = {"since": self.since or None, "starts_at": self.starts_at, "cancelled": self.cancelled or None}
        return {name: one for name, one in fields.items() if one is not None}

    def task(self, id: str, nominal: int, now: int, tenant: str, by: str) -> NewTask:
        """The task of an occurrence with this mark, due now: it looks at once if all is as the mark says."""
        return NewTask(
            id=occurrence_id(id, nominal),
            kind=SERIES_KIND,
            queue=QUEUE,
            tenant=tenant,
            group=id,
            state=dump_json(self.state()),
            due_at=now,
            retry=SERIES_POLICY,
            on_duplicate=OnDuplicate.REPLACE,
            by=by,
        )


class Name(NamedTuple):
    """Series and start (epoch ms) of an occurrence, as its id names them."""

    series: str
    nominal: int

    @classmethod
    def of(cls, id: str) -> "Name":
        """Read an occurrence's id. Raises TaskDamaged."""
        series, _, start = id.rpartition("@")
        try:
            return cls(series, parse_instant(start))
        except ValueError as error:
            raise TaskDamaged(f"{id} names no occurrence: {error}") from error


@value
class Standing:
    """An occurrence with messages, or one that was changed by hand; `state` is `standing`, `moved` or `cancelled`.

    `id` is that of its reminder, `nominal` its start by the rule, `starts_at` the start that it has (epoch ms).
    """

    id: str
    nominal: int
    starts_at: int
    state: Literal["standing", "moved", "cancelled"]


@value
class SeriesStatus:
    """A series as the ledger has it: its next starts but for those changed by hand, and occurrences with messages."""

    series: Series
    version: int
    created_at: int
    upcoming: tuple[Upcoming, ...]
    occurrences: tuple[Standing, ...]

    @property
    def next_start(self) -> int:
        """The next start, or the first one where none is to come."""
        return self.upcoming[0].nominal if self.upcoming else self.series.rule.starts_at

    def __repr__(self) -> str:
        return brief(self, "series", "version")


class SeriesChange(NamedTuple):
    """Fields of Series to change, those of its Rule under `rule`; `named` are the fields of the request.

    Another version than `if_version` is not changed.
    """

    fields: dict[str, Any]
    named: tuple[str, ...]
    if_version: int | None = None


# Answers of the verbs on reminders: what was made and moved, each message as it is read, and a reminder's status.


@value
class Made:
    """Result of an add: `created`, and the tasks; none of a `series`, whose occurrences are added in their time."""

    created: bool
    tasks: list[DueTask]
    series: SeriesStatus | None = None

    def __repr__(self) -> str:
        return brief(self, "created", "tasks")


@value
class MovedTask:
    """One task that was moved: its new due time (epoch ms), and its state before."""

    id: str
    due_at: int
    was: Status


@value
class Moved:
    """Result of a move: the tasks moved, the ids that were leased, and the ids sent for the old start.

    Of a `series` that was changed, `starts_at` is the next start, and no task is named.
    """

    id: str
    starts_at: int
    tasks: list[MovedTask]
    leased: list[str]
    sent: list[str]
    series: SeriesStatus | None = None

    def __repr__(self) -> str:
        return brief(self, "id", "starts_at", "tasks", "leased", "sent")


@value
class Shown:
    """One message as its recipient reads it, and when it is due (epoch ms); `html` is "" for none."""

    id: str
    due_at: int
    lead_ms: Annotated[int, About("Lead time before the start.", name="remind_before", example="PT5M")]
    recipient: Recipient
    subject: str
    text: str
    html: str

    def __repr__(self) -> str:
        return brief(self, "id", "due_at", "recipient")


@value
class ReminderStatus:
    """A reminder as the ledger has it, with at least one task, and the content of its newest one.

    Of a `series`, `starts_at` is the next start, and there is no task.
    """

    id: str
    starts_at: int
    tasks: list[Task]
    content: dict[str, Json]
    series: SeriesStatus | None = None

    def __repr__(self) -> str:
        return brief(self, "id", "starts_at", "tasks")
