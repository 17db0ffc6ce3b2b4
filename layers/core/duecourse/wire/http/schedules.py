"""The requests of `/schedules`."""

from collections.abc import Callable, Mapping
from typing import Annotated, Any, Self

from pydantic import BeforeValidator, ConfigDict, Field, StrictBool, StrictStr, ValidationInfo, model_validator
from pydantic.functional_validators import field_validator

from duecourse.domain.bulk import DEFAULT_BULK, MAX_BULK
from duecourse.domain.schedule import (
    AT_ADD,
    MAX_EXDATES,
    MAX_RULE,
    MIN_EVERY_MS,
    Cron,
    Every,
    Fold,
    Gap,
    Missed,
    Overlap,
    Purge,
    Repeat,
    RRule,
    Rule,
    Schedule,
)
from duecourse.domain.schedule_status import Preview
from duecourse.domain.task import DEFAULT_QUEUE, DEFAULT_TENANT, Json, RetryPolicy, dump_json, load_json, new_id
from duecourse.domain.times import DAY_MS, MAX_DURATION_MS
from duecourse.wire.http.fields import (
    Duration,
    Instant,
    JsonObject,
    Name,
    OpenKind,
    OpenQueue,
    Strict,
    between,
    given,
    read,
    reject_fields,
)
from duecourse.wire.http.kinds import check_payload
from duecourse.wire.http.notify import NotifyDone
from duecourse.wire.http.pages import DEFAULT_PAGE, PageLimit
from duecourse.wire.http.tasks import Retry

EXAMPLE: dict[str, Json] = {
    "id": "daily-report",
    "kind": "webhook",
    "payload": {"url": "https://hooks.example.com/report"},
    "repeat": {"cron": "0 9 * * MON-FRI"},
    "time_zone": "Europe/Vienna",
}
RULE = ("repeat", "time_zone", "starts_at", "until", "gap", "fold")
"""Fields of a request that make the rule of its times."""
AUTO_GAP = (
    "By `auto`, an interval skips: a `cron` whose minute or hour is `*` or has a step, or an hourly or minutely"
    " `rrule`. Other rules shift."
)
AUTO_FOLD = "By `auto`, an interval has both, as for `gap`; other rules have the first."
MAX_PREVIEW = 1_000
MAX_LIMIT = 1_000_000_000


def _word(value: Any) -> Any:
    # An enum writes out in full what it has not: of an object that nests deep, nobody can.
    return value if isinstance(value, str) else None


GapField = Annotated[Gap, BeforeValidator(_word)]
FoldField = Annotated[Fold, BeforeValidator(_word)]
MissedField = Annotated[Missed, BeforeValidator(_word)]
OverlapField = Annotated[Overlap, BeforeValidator(_word)]
Zone = Annotated[StrictStr, Field(max_length=100, examples=["Europe/Vienna"])]
Jitter = Annotated[Duration, between(0, DAY_MS)]
Limit = Annotated[int, Field(ge=1, le=MAX_LIMIT, strict=True)]
RuleText = Annotated[StrictStr, Field(min_length=1, max_length=MAX_RULE)]


class RepeatField(Strict):
    """Rule by which a schedule comes again: one of `every`, `cron` and `rrule`."""

    model_config = ConfigDict(
        json_schema_extra={
            "oneOf": [given("every"), given("cron"), given("rrule")],
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


class RuleFields(Strict):
    """Fields that make the times of a schedule."""

    repeat: RepeatField = Field(description="Rule by which the schedule comes again.")
    time_zone: Zone = Field("UTC", description="IANA time zone in which `cron` and `rrule` are read; default UTC.")
    starts_at: Instant | None = Field(None, description="No occurrence comes before this time. Default: now.")
    gap: GapField = Field(
        Gap.AUTO,
        description="Treatment of a wall-clock time that a change of the clocks leaves out: `shift` to the first"
        f" instant after it, `skip`, or `auto`. {AUTO_GAP}",
    )
    fold: FoldField = Field(
        Fold.AUTO,
        description="Treatment of a wall-clock time that a change of the clocks repeats: the `first`, the"
        f" `second`, `both`, or `auto`. {AUTO_FOLD}",
    )


class AddSchedule(RuleFields):
    """Body of `POST /schedules`: a task that comes again, and when."""

    model_config = ConfigDict(json_schema_extra={"examples": [EXAMPLE]})

    id: Name = Field(
        default_factory=str,
        description="Id of the schedule, unique within its queue. Default: generated, as for a task.",
        examples=["daily-report"],
    )
    queue: OpenQueue = Field(DEFAULT_QUEUE, description="Queue of the occurrences.")
    kind: OpenKind = Field(description="Kind of the occurrences, as for a task.", examples=["webhook"])
    payload: JsonObject = Field(description="Payload of each occurrence, as for a task, without credentials.")
    until: Instant | None = Field(None, description="No occurrence comes after this time. Default: no end.")
    limit: Limit | None = Field(
        None, description="Number of occurrences after which the schedule ends. Default: no limit."
    )
    jitter: Jitter = Field(
        "PT0S",
        validate_default=True,
        description="Upper bound of a delay that differs between schedules and occurrences; default PT0S, at most P1D.",
    )
    missed: MissedField = Field(
        Missed.LATEST,
        description="Treatment of times that passed while nothing ran, or while the schedule was paused: one"
        " occurrence for the `latest`, `all` within `catch_up`, or `none`.",
    )
    catch_up: Duration = Field(
        "PT1H", validate_default=True, description="Age up to which `missed` = `all` makes up for times; default PT1H."
    )
    overlap: OverlapField = Field(
        Overlap.ALLOW,
        description="Treatment of an occurrence that comes before the one before has ended: `allow` both, `skip` it,"
        " `queue` one of them, or `replace` the running one.",
    )
    retry: Retry = Field(default_factory=Retry, description="Attempts and backoff of an occurrence after failures.")
    deadline: Duration | None = Field(
        None, description="Time from its due time after which an occurrence is dead, as for a task."
    )
    notify_done: NotifyDone | None = Field(
        None, description="Receiver of a completion notification when an occurrence is done or dead."
    )
    paused: StrictBool = Field(False, description="Add the schedule paused: nothing fires. Default: false.")

    @field_validator("payload")
    @classmethod
    def _fits_its_kind(cls, payload: dict[str, Any], info: ValidationInfo) -> dict[str, Any]:
        check_payload(info.data.get("kind", ""), payload)
        return payload

    def schedule(self, tenant: str = DEFAULT_TENANT, name: Callable[[], str] = new_id) -> Schedule:
        """The schedule asked for, with an id of `name` where none was given; its start is AT_ADD for now."""
        start = AT_ADD if self.starts_at is None else self.starts_at
        return Schedule(
            id=self.id or name(),
            rule=Rule(self.repeat.repeat(), start, self.time_zone, self.until, self.gap, self.fold),
            tenant=tenant,
            queue=self.queue,
            **_fields(self, FIELDS),
        )


class ChangeSchedule(Strict):
    """Body of `PATCH /schedules/{id}`: the fields to change, and `if_version` to change no other version."""

    model_config = ConfigDict(json_schema_extra={"minProperties": 1, "examples": [{"paused": True, "if_version": 1}]})

    if_version: Annotated[int, Field(ge=1, strict=True)] | None = Field(
        None, description="Version that the schedule must have; with another, nothing changes (409)."
    )
    payload: JsonObject = Field(default_factory=dict, description="Payload of each further occurrence.")
    repeat: RepeatField | None = Field(None, description="Rule by which the schedule comes again.")
    time_zone: Zone = Field("UTC", description="IANA time zone in which `cron` and `rrule` are read.")
    starts_at: Instant = Field(0, description="No occurrence comes before this time.")
    until: Instant | None = Field(None, description="No occurrence comes after this time; null for no end.")
    gap: GapField = Field(Gap.AUTO, description="Treatment of a time that a change of the clocks leaves out.")
    fold: FoldField = Field(Fold.AUTO, description="Treatment of a time that a change of the clocks repeats.")
    limit: Limit | None = Field(
        None, description="Number of occurrences, those so far counted, after which the schedule ends; null for none."
    )
    jitter: Jitter = Field(0, description="Upper bound of the delay of an occurrence.")
    missed: MissedField = Field(Missed.LATEST, description="Treatment of times that were missed.")
    catch_up: Duration = Field(0, description="Age up to which missed times are made up for.")
    overlap: OverlapField = Field(Overlap.ALLOW, description="Treatment of an occurrence beside a running one.")
    retry: Retry = Field(default_factory=Retry, description="Attempts and backoff of further occurrences.")
    deadline: Duration | None = Field(None, description="Time from its due time after which an occurrence is dead.")
    notify_done: NotifyDone | None = Field(None, description="Receiver of a completion notification; null for none.")
    paused: StrictBool = Field(False, description="Pause the schedule, or resume it.")

    @model_validator(mode="after")
    def _changes_something(self) -> Self:
        if not self.model_fields_set - {"if_version"}:
            raise ValueError("needs a field to change")
        if "repeat" in self.model_fields_set and self.repeat is None:
            raise reject_fields("must be a JSON object", "repeat")
        return self

    def changes(self) -> dict[str, Any]:
        """Fields of Schedule that change, those of its Rule under `rule`."""
        found = _fields(self, {name: one for name, one in FIELDS.items() if name in self.model_fields_set})
        rule = {name: getattr(self, name) for name in RULE if name in self.model_fields_set and name != "repeat"}
        if self.repeat is not None:
            rule["repeat"] = self.repeat.repeat()
        return {**found, "rule": rule} if rule else found


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


class PreviewSchedule(RuleFields):
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
        start = min(now, since) if self.starts_at is None else self.starts_at
        return Preview(Rule(self.repeat.repeat(), start, self.time_zone, None, self.gap, self.fold), since, self.count)


class BackfillSchedule(Strict):
    """Body of `POST /schedules/{id}/backfill`: a past span whose occurrences are added now, some each second."""

    model_config = ConfigDict(
        json_schema_extra={"examples": [{"from": "2026-11-01T00:00:00Z", "to": "2026-11-08T00:00:00Z"}]}
    )

    from_: Instant = Field(alias="from", description="Beginning of the span.")
    to: Instant = Field(
        description="End of the span, which is not part of it. No occurrence in the span may be yet to come."
    )
    overlap: OverlapField | None = Field(
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


def _payload(payload: Mapping[str, Any]) -> str:
    return dump_json(payload)


def _policy(retry: Retry) -> RetryPolicy:
    return retry.policy()


def _notify(notify: NotifyDone | None) -> str:
    return notify.text() if notify else ""


def _as_it_is(value: Any) -> Any:
    return value


FIELDS: dict[str, tuple[str, Callable[[Any], Any]]] = {
    "kind": ("kind", _as_it_is),
    "payload": ("payload", _payload),
    "limit": ("limit", _as_it_is),
    "jitter": ("jitter_ms", _as_it_is),
    "missed": ("missed", _as_it_is),
    "catch_up": ("catch_up_ms", _as_it_is),
    "overlap": ("overlap", _as_it_is),
    "retry": ("retry", _policy),
    "deadline": ("deadline_ms", _as_it_is),
    "notify_done": ("notify", _notify),
    "paused": ("paused", _as_it_is),
}
"""Fields of a request beside those of its rule: their names in Schedule, and how each is read."""


def _fields(request: Strict, wanted: Mapping[str, tuple[str, Callable[[Any], Any]]]) -> dict[str, Any]:
    return {name: read(getattr(request, field)) for field, (name, read) in wanted.items()}
