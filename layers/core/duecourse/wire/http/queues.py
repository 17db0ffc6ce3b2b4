"""The requests and answers of `/queues`."""

from collections.abc import Iterable
from typing import Annotated, Any, NotRequired, Self, cast

from pydantic import (
    ConfigDict,
    Field,
    GetCoreSchemaHandler,
    GetJsonSchemaHandler,
    StrictBool,
    create_model,
    model_validator,
)
from pydantic_core.core_schema import CoreSchema, no_info_before_validator_function
from typing_extensions import TypedDict

from duecourse.domain import queues as domain
from duecourse.domain.pages import Wanted
from duecourse.domain.queues import MAX_LIMIT, SETTINGS, QueueChanges, QueueSettings, QueueStatus, Setting
from duecourse.domain.replay import MAX_REPLAY, Replay, Replayed
from duecourse.domain.task import Status
from duecourse.domain.times import DAY_MS, MAX_TEXT, RATE_PATTERN, format_duration, format_instant, split_rate
from duecourse.wire.http.dead import NextOfDead
from duecourse.wire.http.fields import (
    Duration,
    ErrorText,
    Name,
    Schema,
    ShownInstant,
    Strict,
    about,
    between,
    reject_fields,
)
from duecourse.wire.http.pages import CURSOR, ERROR, Cursor, start_of

MAX_SPREAD_MS = 7 * DAY_MS
"""Over how long the dead of one replay are spread at most."""
RATE_SCHEMA: Schema = {"type": "string", "pattern": RATE_PATTERN, "maxLength": MAX_TEXT, "examples": ["10/s"]}


class QueueKey(Strict):
    """Name of a queue."""

    queue: Name = Field(description="Name of the queue.", examples=["default"])


class Rate(Strict):
    """Rate: at most `count` tasks in any window of the length `per`; or a text such as `10/s` or `10/PT1S`."""

    count: int = Field(
        ge=1, le=MAX_LIMIT, strict=True, description="Maximum number of tasks in the window.", examples=[5]
    )
    per: Annotated[Duration, between(100, DAY_MS)] = Field(
        description="Length of the sliding window, PT0.1S to PT24H.", examples=["PT1S"]
    )


class RateText:
    """Annotation of a rate that may also be a text, for requests and for the OpenAPI document."""

    def __get_pydantic_core_schema__(self, source: Any, handler: GetCoreSchemaHandler) -> CoreSchema:
        return no_info_before_validator_function(_object, handler(source))

    def __get_pydantic_json_schema__(self, schema: CoreSchema, handler: GetJsonSchemaHandler) -> Schema:
        return {"anyOf": [handler(schema), RATE_SCHEMA]}


def _object(rate: Any) -> Any:
    return dict(zip(("count", "per"), split_rate(rate), strict=True)) if isinstance(rate, str) else rate


RateField = Annotated[Rate, RateText()]


def _asked(one: Setting) -> tuple[Any, Any]:
    """Type and description of a setting in a request; null restores the default."""
    return _type_asked(one) | None, Field(None, description=one.about.meaning)


def _type_asked(one: Setting) -> Any:
    if one.kind is not int:
        return {bool: StrictBool, domain.Rate: RateField}[one.kind]
    low, high = one.about.low, one.about.high
    if one.is_time:
        return Annotated[Duration, between(low, high)]
    return Annotated[int, Field(ge=low, le=high, strict=True)]


ASKED: dict[str, Any] = {one.name: _asked(one) for one in SETTINGS}


class SetQueue(create_model("Settings", __base__=Strict, **ASKED)):  # type: ignore[misc]
    """Body of `PATCH /queues/{queue}`: given fields change, null restores the default, other fields stay."""

    model_config = ConfigDict(json_schema_extra={"examples": [{"max_running": 20, "create": True}]})

    create: StrictBool = Field(
        False, description="Make the queue if it does not exist; otherwise that is 404. Default: false."
    )

    def changes(self) -> QueueChanges:
        """Given fields, in the domain's words."""
        return {one.field: _value(getattr(self, one.name)) for one in SETTINGS if one.name in self.model_fields_set}


def _value(asked: Any) -> Any:
    return domain.Rate(asked.count, asked.per) if isinstance(asked, Rate) else asked


class ReplayDead(Strict):
    """Body of `POST /queues/{queue}/dead/replay`: the oldest dead tasks, spread evenly if a rate is given."""

    limit: int = Field(100, ge=1, le=MAX_REPLAY, strict=True, description="Maximum number of tasks.")
    rate: RateField | None = Field(
        None,
        description="Rate of the replays, spread evenly; `limit` tasks may take at most 7 days. Default: all at once.",
    )
    delay: Duration | None = Field(
        None, description="Delay from now to the due time of the first task, from which the rate counts. Default: none."
    )
    kind: Name | None = Field(None, description="Filter: tasks of this kind.", examples=["report"])
    error: ErrorText | None = Field(None, description=ERROR, examples=["KeyError: 'prize'"])
    dry_run: StrictBool = Field(False, description="List the tasks without a replay. Default: false.")
    cursor: Cursor | None = Field(None, description=CURSOR)

    @model_validator(mode="after")
    def _ends_in_time(self) -> Self:
        if self.replay().delay_ms(self.limit) > MAX_SPREAD_MS:
            problem = "must not spread over more than 7 days: raise it, or lower limit"
            raise reject_fields(problem, "rate") if self.rate else reject_fields("must be at most P7D", "delay")
        return self

    def replay(self) -> Replay:
        """The same in the domain's words."""
        count, per_ms = (self.rate.count, self.rate.per) if self.rate else (1, 0)
        after = start_of(self.cursor, Wanted(Status.DEAD))
        error, start_ms = self.error or "", self.delay or 0
        return Replay(self.limit, self.kind or "", count, per_ms, self.dry_run, error, start_ms, after)


class RateView(TypedDict):
    """Rate limit."""

    count: Annotated[int, about("Maximum number of claims in the window.", 5)]
    per: Annotated[str, about("Length of the sliding window.", "PT1S")]


def _shown_type(one: Setting) -> Any:
    """Type and description of a setting in an answer."""
    kind: Any = RateView if one.kind is domain.Rate else str if one.is_time else one.kind
    return Annotated[kind | None if one.default is None else kind, about(one.about.meaning, one.default)]


LIMITS = [one for one in SETTINGS if one.about.split]
LimitsView = TypedDict("LimitsView", {one.name: _shown_type(one) for one in LIMITS})  # type: ignore[misc]
SettingsView = TypedDict("SettingsView", {one.name: _shown_type(one) for one in SETTINGS})  # type: ignore[misc]


class ShardLimitsView(LimitsView):
    """Part of the limits for one shard, and the number of its running tasks."""

    shard: Annotated[int, about("Number of the shard, from 0.", 0)]
    running: Annotated[int, about("Number of tasks that are running in the shard.", 3)]


class CountsView(TypedDict):
    """Number of tasks in each state; `done` includes cancelled tasks."""

    scheduled: Annotated[int, about("Number of tasks that wait for their due time or for a claim.", 12)]
    leased: Annotated[int, about("Number of tasks that are running, under a lease.", 3)]
    done: Annotated[int, about("Number of tasks that are done or cancelled, until their retention ends.", 40)]
    dead: Annotated[int, about("Number of dead tasks.", 0)]


class LatenessView(TypedDict):
    """Lateness of the last hour's runs, from due time to handler, rounded up by at most 12 %; null without runs."""

    p50: Annotated[str | None, about("Lateness that half of the tasks did not exceed.", "PT0.002S")]
    p99: Annotated[str | None, about("Lateness that 99 of 100 tasks did not exceed.", "PT0.005S")]


class SchedulesOfQueueView(TypedDict):
    """Schedules of a queue, of all tenants."""

    count: Annotated[int, about("Number of schedules, paused ones and those that are over too.", 2)]
    next_at: Annotated[ShownInstant | None, about("Time at which the next one fires; null for none.")]


class QueueView(SettingsView):
    """Settings and figures of a queue."""

    queue: Annotated[str, about("Name of the queue.", "default")]
    split: Annotated[list[ShardLimitsView], about("Part of the limits for each shard.")]
    lagging: NotRequired[
        Annotated[
            list[int],
            about(
                "Shards that do not have these settings yet; absent for none. The next tick gives them to these.", [2]
            ),
        ]
    ]
    tasks: Annotated[CountsView, about("Number of tasks in each state.")]
    oldest_overdue: Annotated[str, about("Waiting time of the oldest due task.", "PT0S")]
    lateness: Annotated[
        LatenessView,
        about("Lateness of the runs of the last hour, from the due time to the first line of the handler."),
    ]
    schedules: NotRequired[Annotated[SchedulesOfQueueView, about("Schedules of the queue; for operators.")]]
    dead_by_tenant: NotRequired[
        Annotated[
            dict[str, int],
            about(
                "Number of dead tasks of each tenant, among the newest 1,000 of each shard; for operators.", {"acme": 1}
            ),
        ]
    ]


class QueueAnswer(TypedDict):
    """One queue."""

    queue: Annotated[QueueView, about("The queue.")]


MAX_PAGE = 1_000
"""Maximum number of queues of one page."""
PageLimit = Annotated[int, Field(ge=1, le=MAX_PAGE)]


class QueuesAnswer(TypedDict):
    """Page of queues. A queue whose shard count differs from DUECOURSE_SHARDS is reported in the log instead."""

    queues: Annotated[list[QueueView], about("Queues of this page.")]
    next_after: NotRequired[
        Annotated[str, about("Name to give as `after` for the next page; absent after the last page.", "reports")]
    ]


class ReplayedTask(TypedDict):
    """One task, with its new due time."""

    id: Annotated[str, about("Id of the task.", "export-42")]
    due_at: Annotated[ShownInstant, about("New due time.")]


class ReplayedAnswer(TypedDict):
    """Tasks that are replayed, or would be in a dry run. `more` says whether more dead tasks may remain."""

    replayed: Annotated[int, about("Number of tasks.", 1)]
    dry_run: Annotated[bool, about("True if the tasks were listed without a replay.", False)]
    more: Annotated[bool, about("True if more dead tasks may remain.", False)]
    tasks: Annotated[list[ReplayedTask], about("Tasks, in the order in which they died.")]
    next_cursor: NextOfDead


def show_queue(seen: QueueStatus) -> QueueView:
    """A queue in the words of the HTTP API; `split` says which shard has which part."""
    view: Any = {
        "queue": seen.name,
        **_shown(seen.settings, SETTINGS),
        "split": [
            {**_shown(part.settings, LIMITS), "shard": part.number, "running": part.running} for part in seen.shards
        ],
        "tasks": {"scheduled": seen.scheduled, "leased": seen.running, "done": seen.done, "dead": seen.dead},
        "oldest_overdue": format_duration(seen.oldest_overdue_ms),
        "lateness": {"p50": _duration(seen.late_p50_ms), "p99": _duration(seen.late_p99_ms)},
    }
    if seen.lagging:
        view["lagging"] = seen.lagging
    if seen.schedules is not None:
        next_at = None if seen.fires_at is None else format_instant(seen.fires_at)
        view["schedules"] = {"count": seen.schedules, "next_at": next_at}
    if seen.dead_by_tenant is not None:
        view["dead_by_tenant"] = dict(seen.dead_by_tenant)
    return cast(QueueView, view)


def show_settings(settings: QueueSettings) -> SettingsView:
    """Settings of a queue in the words of the HTTP API."""
    return cast(SettingsView, _shown(settings, SETTINGS))


def _shown(settings: QueueSettings, chosen: Iterable[Setting]) -> Any:
    return {one.name: _word(one, getattr(settings, one.field)) for one in chosen}


def _word(one: Setting, value: Any) -> Any:
    if isinstance(value, domain.Rate):
        return {"count": value.most, "per": format_duration(value.per_ms)}
    return _duration(value) if one.is_time else value


def _duration(ms: int | None) -> str | None:
    return None if ms is None else format_duration(ms)


def show_replayed(replayed: Replayed, *, dry_run: bool) -> ReplayedAnswer:
    """Result of a replay."""
    tasks: list[ReplayedTask] = [{"id": one.id, "due_at": format_instant(one.due_at)} for one in replayed.tasks]
    return {
        "replayed": len(tasks),
        "dry_run": dry_run,
        "more": replayed.more,
        "tasks": tasks,
        "next_cursor": replayed.next_cursor,
    }
