"""Requests and answers of `/schedules`."""

from collections.abc import Callable
from typing import Annotated, Any, NotRequired, Self, cast

from pydantic import ConfigDict, Field, StrictBool, StrictStr, ValidationInfo, model_validator
from pydantic.functional_validators import field_validator
from typing_extensions import TypedDict

from duecourse.api.derived_models import (
    INSTANT,
    OF_ENUM,
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
    Duration,
    Instant,
    JsonObject,
    Name,
    OpenKind,
    OpenQueue,
    ShownInstant,
    Strict,
    about,
    between,
    read,
    reject_fields,
    requires,
)
from duecourse.api.kind_payloads import check_payload
from duecourse.base.ids import new_id
from duecourse.base.json_text import Json, load_json
from duecourse.base.masking import masked_payload
from duecourse.base.times import MAX_DURATION_MS, format_duration, format_instant
from duecourse.ledger.many_tasks import DEFAULT_BULK, MAX_BULK
from duecourse.ledger.schedule import (
    AT_ADD,
    MAX_EXDATES,
    MAX_RULE,
    MIN_EVERY_MS,
    Cron,
    Every,
    Fold,
    Gap,
    Overlap,
    Passed,
    Preview,
    Purge,
    Repeat,
    RRule,
    Rule,
    Schedule,
    ScheduleStatus,
    Upcoming,
)
from duecourse.ledger.task import DEFAULT_QUEUE, DEFAULT_TENANT
from duecourse.tasks.http import DEFAULT_PAGE, NOTIFY_FORM, PAYLOAD_FORM, RETRY_FORM, PageLimit

# The requests of `/schedules`.

EXAMPLE: dict[str, Json] = {
    "id": "daily-report",
    "kind": "webhook",
    "payload": {"url": "https://hooks.example.com/report"},
    "repeat": {"cron": "0 9 * * MON-FRI"},
    "time_zone": "Europe/Vienna",
}
MAX_PREVIEW = 1_000
Zone = Annotated[StrictStr, Field(max_length=100, examples=["Europe/Vienna"])]
RuleText = Annotated[StrictStr, Field(min_length=1, max_length=MAX_RULE)]


class RepeatField(Strict):
    """Rule by which a schedule comes again: one of `every`, `cron` and `rrule`."""

    model_config = ConfigDict(
        json_schema_extra={
            "oneOf": [requires("every"), requires("cron"), requires("rrule")],
            "examples": [{"cron": "0 9 * * MON-FRI"}, {"every": "PT24H"}, {"rrule": "FREQ=MONTHLY;BYDAY=1MO"}],
        }
    )

    every: Annotated[Duration, between(MIN_EVERY_MS, MAX_DURATION_MS)] | None = Field(
        None, description="Elapsed time between two occurrences, counted from `starts_at`; at least PT1S."
    )
    cron: RuleText | None = Field(
        None,
        description="Five fields of cron, read as wall-clock time: minute, hour, day of month, month, day of week."
        " Names, ranges, steps, lists, `L`, `W`, `#` and `@daily` are known.",
        examples=["0 9 * * MON-FRI"],
    )
    rrule: RuleText | None = Field(
        None,
        description="Recurrence rule of RFC 5545, read as wall-clock time from `starts_at` on.",
        examples=["FREQ=MONTHLY;BYDAY=1MO"],
    )
    exdates: Annotated[list[Instant], Field(max_length=MAX_EXDATES)] = Field(
        default_factory=list, description="Times that an `rrule` leaves out."
    )

    @model_validator(mode="after")
    def _one_of_them(self) -> Self:
        if sum(one is not None for one in (self.every, self.cron, self.rrule)) != 1:
            raise reject_fields("give one of every, cron and rrule", "every", "cron", "rrule")
        if self.exdates and self.rrule is None:
            raise reject_fields("goes with an rrule", "exdates")
        return self

    def repeat(self) -> Repeat:
        """The same in the domain's words."""
        if self.every is not None:
            return Every(self.every)
        if self.cron is not None:
            return Cron(self.cron)
        return RRule(self.rrule or "", tuple(self.exdates))


def show_repeat(repeat: Repeat) -> dict[str, Any]:
    """A rule as its request has it."""
    if isinstance(repeat, Every):
        return {"every": format_duration(repeat.every_ms)}
    if isinstance(repeat, Cron):
        return {"cron": repeat.expression}
    exdates = {"exdates": [format_instant(at) for at in repeat.exdates]} if repeat.exdates else {}
    return {"rrule": repeat.rule, **exdates}


REPEAT_FORM = Form(RepeatField, dict[str, Any], read=RepeatField.repeat, show=show_repeat, unset=None)
START_FORM = INSTANT._replace(read=lambda at: AT_ADD if at is None else at, default=None, unset=0)
_RULE = api_fields(Rule, repeat=REPEAT_FORM, starts_at=START_FORM, time_zone=Form(Zone, str), until=INSTANT)
REPEAT, START, TIME_ZONE, UNTIL = _RULE["repeat"], _RULE["starts_at"], _RULE["time_zone"], _RULE["until"]
GAP, FOLD = _RULE["gap"], _RULE["fold"]
RULE = [REPEAT, START, TIME_ZONE, UNTIL, GAP, FOLD]
_SCHEDULE = api_fields(Schedule, payload=PAYLOAD_FORM, retry=RETRY_FORM, notify=NOTIFY_FORM)
PAYLOAD, LIMIT = _SCHEDULE["payload"], _SCHEDULE["limit"]
POLICIES = [one for one in _SCHEDULE.values() if one not in (PAYLOAD, LIMIT)]
OWN = [PAYLOAD, LIMIT, *POLICIES]
"""Fields of a schedule beside those of its rule; a further one is among POLICIES, in the order of Schedule."""
TIMES = [REPEAT, TIME_ZONE, START, GAP, FOLD]


@with_fields(asked(TIMES))
class TimesFields(Strict):
    """Fields that make the times of a schedule."""


# Other fields: those that NewTask, Rule and Schedule describe; `derived_models` adds them.
@with_fields(asked([PAYLOAD, UNTIL, LIMIT, *POLICIES]))
class AddSchedule(TimesFields):
    """Body of `POST /schedules`: a task that comes again, and when."""

    model_config = ConfigDict(json_schema_extra={"examples": [EXAMPLE]})

    id: Name = Field(
        default_factory=str,
        description="Id of the schedule, unique within its queue. Default: generated, as for a task.",
        examples=["daily-report"],
    )
    queue: OpenQueue = Field(DEFAULT_QUEUE, description="Queue of the occurrences.")
    kind: OpenKind = Field(description="Kind of the occurrences, as for a task.", examples=["webhook"])

    @field_validator("payload", check_fields=False)
    @classmethod
    def _fits_its_kind(cls, payload: dict[str, Any], info: ValidationInfo) -> dict[str, Any]:
        check_payload(info.data.get("kind", ""), payload)
        return payload

    def schedule(self, tenant: str = DEFAULT_TENANT, name: Callable[[], str] = new_id) -> Schedule:
        """The schedule asked for, with an id of `name` where none was given; its start is AT_ADD for now."""
        return Schedule(
            id=self.id or name(),
            rule=Rule(**read_fields(RULE, self)),
            tenant=tenant,
            queue=self.queue,
            kind=self.kind,
            **read_fields(OWN, self),
        )


@with_fields(
    changed_if_version("the schedule", [PAYLOAD, REPEAT, TIME_ZONE, START, UNTIL, GAP, FOLD, LIMIT, *POLICIES])
)
class ChangeSchedule(VersionedChange):
    """Body of `PATCH /schedules/{id}`: the fields to change, and `if_version` to change no other version."""

    model_config = ConfigDict(json_schema_extra={"minProperties": 1, "examples": [{"paused": True, "if_version": 1}]})

    def changes(self) -> dict[str, Any]:
        """Fields of Schedule that change, those of its Rule under `rule`."""
        own, rule = self.read_given(OWN), self.read_given(RULE)
        return {**own, "rule": rule} if rule else own


class _Payload(Strict):
    """Payload beside the kind that is to run it."""

    kind: str
    payload: JsonObject

    @field_validator("payload")
    @classmethod
    def _fits_its_kind(cls, payload: dict[str, Any], info: ValidationInfo) -> dict[str, Any]:
        check_payload(info.data["kind"], payload)
        return payload


def check_fits(kind: str, payload: str) -> None:
    """Return if a kind could run a payload (JSON text). Raises InvalidInput, which names every wrong field of it."""
    read(_Payload, {"kind": kind, "payload": load_json(payload, "payload")})


class PreviewSchedule(TimesFields):
    """Body of `POST /schedules/preview`: a rule whose times are shown."""

    model_config = ConfigDict(
        json_schema_extra={"examples": [{"repeat": {"cron": "30 2 * * *"}, "time_zone": "Europe/Vienna"}]}
    )

    from_: Instant | None = Field(None, alias="from", description="Time from which on times are shown. Default: now.")
    count: Annotated[int, Field(ge=1, le=MAX_PREVIEW, strict=True)] = Field(
        10, description="Maximum number of times, 1 to 1,000; default 10."
    )

    def preview(self, now: int) -> Preview:
        """The times asked for, by default from now on; a rule without a start begins then, but not later than now."""
        since = now if self.from_ is None else self.from_
        rule = Rule(**read_fields(TIMES, self))
        return Preview(rule.starting(min(now, since)), since, self.count)


class BackfillSchedule(Strict):
    """Body of `POST /schedules/{id}/backfill`: a past span whose occurrences are added now, some each second."""

    model_config = ConfigDict(
        json_schema_extra={"examples": [{"from": "2026-11-01T00:00:00Z", "to": "2026-11-08T00:00:00Z"}]}
    )

    from_: Instant = Field(alias="from", description="Beginning of the span.")
    to: Instant = Field(
        description="End of the span, which is not part of it. No occurrence in the span may be yet to come."
    )
    overlap: Annotated[Overlap, OF_ENUM] | None = Field(
        None,
        description="Treatment of an occurrence beside a running one; `queue` runs all of them one after another. "
        "Default: the schedule's.",
    )

    @model_validator(mode="after")
    def _in_order(self) -> Self:
        if self.to <= self.from_:
            raise reject_fields("must be later than from", "to")
        return self


class PurgeSchedules(Strict):
    """Body of `POST /schedules/purge`: schedules by kind or by the beginning of their ids, or all of them."""

    model_config = ConfigDict(json_schema_extra={"examples": [{"prefix": "import-", "dry_run": True}]})

    kind: Name | None = Field(None, description="Filter: schedules of this kind.", examples=["report"])
    prefix: Name | None = Field(None, description="Filter: schedules whose id begins so.", examples=["import-"])
    all: StrictBool = Field(False, description="All schedules of the queue, without a filter. Default: false.")
    limit: int = Field(
        DEFAULT_BULK,
        ge=1,
        le=MAX_BULK,
        strict=True,
        description="Maximum number of schedules of this request, 1 to 10,000; default 1,000.",
    )
    dry_run: StrictBool = Field(False, description="Count the schedules and change nothing. Default: false.")
    after: Name | None = Field(None, description="Id after which to go on: `next_after` of the answer before.")

    @model_validator(mode="after")
    def _says_which(self) -> Self:
        if self.all is bool(self.kind or self.prefix):
            problem = "leave out with kind or prefix" if self.all else "give kind or prefix, or true for all schedules"
            raise reject_fields(problem, "all")
        return self

    def purge(self) -> Purge:
        """The same in the domain's words."""
        return Purge(self.kind or "", self.prefix or "", self.after or "", self.limit, self.dry_run)


class ListSchedules(Strict):
    """Fields of GET /schedules, from Python."""

    queue: Name = DEFAULT_QUEUE
    after: Name | None = None
    limit: PageLimit = DEFAULT_PAGE


class ScheduleQueue(Strict):
    """Queue whose schedules are changed, from Python."""

    queue: OpenQueue = DEFAULT_QUEUE


class ScheduleKey(Strict):
    """Key of one schedule, from Python."""

    id: Name
    queue: Name = DEFAULT_QUEUE


class OpenScheduleKey(ScheduleKey):
    """Key of one schedule that is changed, from Python."""

    queue: OpenQueue = DEFAULT_QUEUE


# The answers of `/schedules`.


class UpcomingView(TypedDict):
    """Occurrence to come."""

    at: Annotated[ShownInstant, about("Nominal time, in UTC.")]
    local: Annotated[str, about("Nominal time in the schedule's zone.", "2026-11-26T09:00:00+01:00")]
    due_at: NotRequired[Annotated[ShownInstant, about("Due time, if `jitter` delays it.")]]
    clock_change: NotRequired[
        Annotated[bool, about("True if the zone's clocks changed since the time before it.", True)]
    ]


class PassedView(TypedDict):
    """Occurrence that has passed."""

    id: Annotated[str, about("Id of its task.", "daily-report@2026-11-26T08:00:00Z")]
    at: Annotated[ShownInstant, about("Nominal time, in UTC.")]
    state: Annotated[
        str, about("State of its task; `skipped` beside a running one; `missed` if nothing ran for it.", "done")
    ]
    stands_for: NotRequired[
        Annotated[
            int,
            about(
                "Number of times that it makes up for, itself included, if times before it were missed. Above 1,000 of"
                " `cron` or `rrule`, a lower bound.",
                3,
            ),
        ]
    ]


USED = {
    "gap_used": Annotated[Gap, about("Treatment in use: that of `gap`, or what `auto` means for this rule.", "shift")],
    "fold_used": Annotated[
        Fold, about("Treatment in use: that of `fold`, or what `auto` means for this rule.", "first")
    ],
}
"""Fields of an answer that say how a rule with `auto` is read."""
ScheduleView = TypedDict(
    "ScheduleView",
    {
        "id": Annotated[str, about("Id of the schedule.", "daily-report")],
        "queue": Annotated[str, about("Queue of the occurrences.", "default")],
        "kind": Annotated[str, about("Kind of the occurrences.", "webhook")],
        **shown([PAYLOAD, REPEAT, TIME_ZONE, START, UNTIL, LIMIT, GAP, FOLD]),  # type: ignore[misc]
        **USED,
        **shown(POLICIES),
        "file": NotRequired[Annotated[int, about("Number of the file of schedules that made it; absent for none.", 3)]],
        "version": Annotated[int, about("Version of the schedule: 1, and 1 more for each change by a caller.", 1)],
        "created_at": Annotated[ShownInstant, about("Time of the add.")],
        "fired": Annotated[int, about("Number of times that fired so far, skipped ones too.", 0)],
        "skipped": Annotated[int, about("Number of occurrences skipped beside a running one, or over a quota.", 0)],
        "times_missed": Annotated[
            int,
            about(
                "Number of times without an occurrence of their own. If over 1,000 of `cron` or `rrule` passed at once,"
                " a lower bound.",
                0,
            ),
        ],
        "time_zones": Annotated[str, about("Version of the time zones by which its times are computed.", "2026f")],
        "why": Annotated[str, about("Reason why it fires when it does, or not at all.")],
        "next": Annotated[list[UpcomingView], about("Next ten occurrences; one in a list of schedules.")],
        "recent": Annotated[
            list[PassedView], about("Last ten occurrences, newest first; none in a list of schedules.")
        ],
    },
)
ScheduleView.__doc__ = "Schedule, with its next and its last occurrences."


class ScheduleAnswer(TypedDict):
    """One schedule."""

    schedule: Annotated[ScheduleView, about("The schedule.")]


class AddScheduleAnswer(ScheduleAnswer):
    """One schedule, and a flag that says whether this request added it."""

    created: Annotated[bool, about("True if this request added the schedule; false if it was there already.", True)]


class SchedulesAnswer(TypedDict):
    """Schedules of a queue, by id."""

    schedules: Annotated[list[ScheduleView], about("Schedules of this page.")]
    next_after: NotRequired[Annotated[str, about("Id to give as `after` for the next page.", "daily-report")]]


class TimesAnswer(TypedDict):
    """Times of a rule."""

    times: Annotated[list[UpcomingView], about("Times, the earliest first.")]


class PurgedSchedulesAnswer(TypedDict):
    """Number of schedules that are deleted, or would be in a dry run."""

    purged: Annotated[int, about("Number of schedules of this request.", 40)]
    dry_run: Annotated[bool, about("True if the schedules were only counted.", False)]
    next_after: Annotated[
        str | None,
        about("Value of `after` for the next request, if schedules may remain; null after the last one.", None),
    ]


class RunAnswer(TypedDict):
    """Occurrence that was added."""

    id: Annotated[str, about("Id of its task.", "daily-report@2026-11-26T08:12:03.123Z")]


class BackfillAnswer(TypedDict):
    """Occurrences that are being added."""

    occurrences: Annotated[int, about("Number of occurrences in the span.", 7)]


def show_schedule(status: ScheduleStatus) -> ScheduleView:
    """A schedule in the words of the HTTP API."""
    schedule, progress, rule = status.schedule, status.progress, status.schedule.rule
    view = {
        "id": schedule.id,
        "queue": schedule.queue,
        "kind": schedule.kind,
        **show_fields([PAYLOAD], schedule),
        **show_fields(RULE, rule),
        "gap_used": rule.gap_used,
        "fold_used": rule.fold_used,
        **show_fields([LIMIT, *POLICIES], schedule),
        **({"file": schedule.file} if schedule.file else {}),
        "version": progress.version,
        "created_at": format_instant(status.created_at),
        "fired": progress.fired,
        "skipped": progress.skipped,
        "times_missed": progress.missed,
        "time_zones": progress.zones,
        "why": status.why,
        "next": [show_upcoming(one) for one in status.upcoming],
        "recent": [_show_passed(one) for one in status.recent],
    }
    view["payload"] = masked_payload(schedule.kind, view["payload"])
    return cast(ScheduleView, view)


def show_upcoming(one: Upcoming) -> UpcomingView:
    """An occurrence to come."""
    view = UpcomingView(at=format_instant(one.nominal), local=one.local)
    if one.due_at != one.nominal:
        view["due_at"] = format_instant(one.due_at)
    if one.clock_change:
        view["clock_change"] = True
    return view


def _show_passed(one: Passed) -> PassedView:
    view = PassedView(id=one.id, at=format_instant(one.nominal), state=one.state)
    if one.stands_for > 1:
        view["stands_for"] = one.stands_for
    return view
