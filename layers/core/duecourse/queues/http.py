"""Requests and answers of `/queues`."""

import re
from base64 import urlsafe_b64decode, urlsafe_b64encode
from collections.abc import Collection
from typing import TYPE_CHECKING, Annotated, Any, Literal, NotRequired, Self, cast

from pydantic import (
    AfterValidator,
    ConfigDict,
    Field,
    GetCoreSchemaHandler,
    GetJsonSchemaHandler,
    StrictBool,
    StrictStr,
    model_validator,
)
from pydantic_core.core_schema import CoreSchema, no_info_before_validator_function
from typing_extensions import TypedDict

from duecourse.api.derived_models import Change, Form, api_fields, changed, show_fields, shown, with_fields
from duecourse.api.fields import (
    DeadlineField,
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
from duecourse.base.times import DAY_MS, MAX_TEXT, RATE_PATTERN, format_duration, format_instant, split_rate
from duecourse.errors import FieldError, InvalidInput
from duecourse.ledger import queue as queue_values
from duecourse.ledger.many_tasks import (
    DEFAULT_BULK,
    MAX_BULK,
    MAX_REPLAY,
    Act,
    Bulk,
    BulkProgress,
    BulkResult,
    DeadGroup,
    DeadGroups,
    Replay,
    Replayed,
    TaskFilter,
)
from duecourse.ledger.queue import LIMITS, MAX_LIMIT, QueueChanges, QueueSettings, QueueStatus
from duecourse.ledger.queue_history import (
    COUNTS,
    HISTOGRAMS,
    Histogram,
    HistorySpan,
    QueueHistory,
    QueueNumbers,
    duration_quantile,
)
from duecourse.ledger.task import Status
from duecourse.tasks.http import CURSOR, ERROR, MAX_CURSOR, Cursor, start_of

# The requests and answers of `/queues/{queue}/purge` and `/queues/{queue}/cancel`: acts on many tasks at once.

CURSOR_PATTERN = re.compile(r"([0-9]{1,4}):([a-z]{4,9}):([0-9]{1,15}):([A-Za-z0-9._:@~-]{0,200})")


def encode_reached(place: BulkProgress) -> str:
    """A place in the words of a request: opaque."""
    return urlsafe_b64encode(":".join(map(str, place)).encode()).decode().rstrip("=")


def decode_reached(text: str) -> BulkProgress:
    """The place that a cursor names. Raises ValueError."""
    try:
        found = CURSOR_PATTERN.fullmatch(urlsafe_b64decode(text + "=" * (-len(text) % 4)).decode())
    except ValueError:
        found = None
    if not found or found[2] not in {*Status}:
        raise ValueError("must be the next_cursor of an earlier answer, unchanged")
    return BulkProgress(int(found[1]), Status(found[2]), int(found[3]), found[4])


def _cursor(value: str) -> str:
    decode_reached(value)
    return value


BulkCursor = Annotated[StrictStr, Field(max_length=MAX_CURSOR), AfterValidator(_cursor)]


class _Many(Strict):
    """Fields of every request for many tasks."""

    kind: Name | None = Field(None, description="Filter: tasks of this kind.", examples=["report"])
    group: Name | None = Field(None, description="Filter: tasks of this group, such as one reminder's.")
    error: ErrorText | None = Field(None, description=ERROR, examples=["KeyError: 'prize'"])
    limit: int = Field(
        DEFAULT_BULK,
        ge=1,
        le=MAX_BULK,
        strict=True,
        description="Maximum number of tasks of this request, 1 to 10,000; default 1,000.",
    )
    dry_run: StrictBool = Field(False, description="Count the tasks and change nothing. Default: false.")
    cursor: BulkCursor | None = Field(None, description=CURSOR)

    def _bulk(self, act: Act, *statuses: Status, min_age_ms: int = 0) -> Bulk:
        act = Act.COUNT if self.dry_run else act
        return Bulk(act, statuses, self.kind or "", self.group or "", min_age_ms, self.limit, self.error or "")


class PurgeTasks(_Many):
    """Body of `POST /queues/{queue}/purge`: the tasks of one state, with all that the ledger has of them.

    Completion notifications that are scheduled are left out.
    """

    state: Literal["scheduled", "done", "cancelled", "dead"] = Field(
        description="State of the tasks. A task that is running is never purged.", examples=["dead"]
    )
    older_than: Duration | None = Field(
        None,
        description="Filter: minimum age, since the add for `scheduled`, since the end for other states. Default: any.",
        examples=["P7D"],
    )

    def bulk(self) -> Bulk:
        """The same in the domain's words."""
        return self._bulk(Act.DELETE, Status(self.state), min_age_ms=self.older_than or 0)


class CancelTasks(_Many):
    """Body of `POST /queues/{queue}/cancel`: tasks by group, kind, error or state; give one of them at least.

    Completion notifications are left out.
    """

    model_config = ConfigDict(json_schema_extra={"examples": [{"group": "order-7"}]})

    state: Literal["scheduled", "leased"] | None = Field(
        None,
        description="Filter: tasks in this state; `leased` needs `force`. Default: scheduled, with `force` both.",
    )
    force: StrictBool = Field(
        False, description="Cancel running tasks too: their workers lose the leases. Default: false."
    )

    @model_validator(mode="after")
    def _says_which(self) -> Self:
        if not (self.group or self.kind or self.error or self.state):
            raise reject_fields("give group, kind, error or state", "group", "kind", "error", "state")
        if self.state == "leased" and not self.force:
            raise reject_fields("must be true to cancel tasks that are leased", "force")
        return self

    def bulk(self) -> Bulk:
        """The same in the domain's words."""
        if self.state:
            return self._bulk(Act.CANCEL, Status(self.state))
        return self._bulk(Act.CANCEL, Status.SCHEDULED, *((Status.LEASED,) if self.force else ()))


class ManyAnswer(TypedDict):
    """Fields of every answer about many tasks."""

    dry_run: Annotated[bool, about("True if the tasks were only counted.", False)]
    next_cursor: Annotated[
        str | None,
        about("Value of `cursor` for the next request, if tasks may remain; null after the last task.", None),
    ]


class PurgedAnswer(ManyAnswer):
    """Number of tasks that are deleted, or would be in a dry run."""

    purged: Annotated[int, about("Number of tasks of this request.", 40)]


class CancelledAnswer(ManyAnswer):
    """Number of tasks that are cancelled, or would be in a dry run."""

    cancelled: Annotated[int, about("Number of tasks of this request.", 40)]


def start_of_bulk(cursor: str | None, statuses: Collection[Status]) -> BulkProgress | None:
    """Place that a right cursor names. Raises InvalidInput for a cursor of another state's request."""
    place = decode_reached(cursor) if cursor else None
    if place and place.status not in statuses:
        raise InvalidInput([FieldError("cursor", "belongs to a request for another state: start without a cursor")])
    return place


def show_many(result: BulkResult, *, dry_run: bool) -> ManyAnswer:
    """Result of one request, without the number."""
    return {"dry_run": dry_run, "next_cursor": result.next and encode_reached(result.next)}


# `GET /queues/{queue}/dead`: dead tasks by their errors.

NextOfDead = Annotated[
    str | None,
    about("Value of `cursor` for the next request, if dead tasks may remain; null after the last task.", None),
]
DeadLimit = Annotated[int, Field(ge=1, le=MAX_BULK)]


class ListDead(Strict):
    """Fields of GET /queues/{queue}/dead, from Python."""

    kind: Name | None = None
    group: Name | None = None
    error: ErrorText | None = None
    since: DeadlineField | None = None
    cursor: BulkCursor | None = None
    limit: DeadLimit = DEFAULT_BULK


class DeadGroupView(TypedDict):
    """Dead tasks of one kind that died of the same error."""

    error: Annotated[
        str,
        about(
            "Error, with `#` in place of numbers and ids, in which the errors of a group may differ. The filter `error`"
            " takes this text.",
            "KeyError: 'prize' at app.py:9",
        ),
    ]
    kind: Annotated[str, about("Kind of the tasks.", "report")]
    count: Annotated[int, about("Number of tasks.", 50)]
    since: Annotated[ShownInstant, about("Time of the first death.")]
    latest: Annotated[ShownInstant, about("Time of the last death.")]
    example: Annotated[str, about("Id of the task that died last.", "order-7")]


class DeadAnswer(TypedDict):
    """Dead tasks by their errors, at most 100 groups.

    A further request with the cursor looks at further tasks: the same group may come again, and its numbers add up.
    """

    tasks: Annotated[int, about("Number of tasks in these groups.", 50)]
    errors: Annotated[list[DeadGroupView], about("Groups, the largest first.")]
    next_cursor: NextOfDead


def show_dead(found: DeadGroups) -> DeadAnswer:
    """Dead tasks in the words of the HTTP API."""
    return {
        "tasks": sum(one.count for one in found.groups),
        "errors": list(map(_show_group, found.groups)),
        "next_cursor": found.next and encode_reached(found.next),
    }


def _show_group(one: DeadGroup) -> DeadGroupView:
    return {
        "error": one.error,
        "kind": one.kind,
        "count": one.count,
        "since": format_instant(one.first_at),
        "latest": format_instant(one.last_at),
        "example": one.id,
    }


# Settings, numbers and lists of queues.

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


def _read_rate(asked: Rate | None) -> queue_values.Rate | None:
    return None if asked is None else queue_values.Rate(asked.count, asked.per)


class RateView(TypedDict):
    """Rate limit."""

    count: Annotated[int, about("Maximum number of claims in the window.", 5)]
    per: Annotated[str, about("Length of the sliding window.", "PT1S")]


def _show_rate(rate: queue_values.Rate) -> RateView:
    return {"count": rate.most, "per": format_duration(rate.per_ms)}


_SETTINGS = api_fields(QueueSettings, rate=Form(RateField, RateView, _read_rate, _show_rate)).values()
FIELDS = [one._replace(form=one.form._replace(unset=None, shows_null=True)) for one in _SETTINGS]
"""Settings: a change restores the default by null, and an answer has null where that is the value."""
LIMIT_FIELDS = [one for one in FIELDS if one.plain in LIMITS]


_CREATE = Field(False, description="Make the queue if it does not exist; otherwise that is 404. Default: false.")


@with_fields(changed(FIELDS) | {"create": (StrictBool, _CREATE)})
class SetQueue(Change):
    """Body of `PATCH /queues/{queue}`: given fields change, null restores the default, other fields stay."""

    model_config = ConfigDict(json_schema_extra={"examples": [{"max_running": 20, "create": True}]})

    if TYPE_CHECKING:
        create: bool

    def changes(self) -> QueueChanges:
        """Given fields, in the domain's words."""
        return self.read_given(FIELDS)


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
        after = start_of(self.cursor, TaskFilter(Status.DEAD))
        error, start_ms = self.error or "", self.delay or 0
        return Replay(self.limit, self.kind or "", count, per_ms, self.dry_run, error, start_ms, after)


LimitsView = TypedDict("LimitsView", shown(LIMIT_FIELDS))  # type: ignore[misc]
SettingsView = TypedDict("SettingsView", shown(FIELDS))  # type: ignore[misc]


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


class LapsedView(TypedDict):
    """Runs of the last hour that ended without a settle: their lease lapsed, and an attempt was spent."""

    runs: Annotated[int, about("Number of runs.", 2)]
    at_target: Annotated[
        int,
        about(
            "Number of those that a function or a broker's consumer had begun: it returned without a settle, or died "
            "unreported.",
            1,
        ),
    ]


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
    lapsed: NotRequired[
        Annotated[LapsedView, about("Runs of the last hour that ended without a settle; for operators.")]
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


# `GET /queues/{queue}/history`: numbers over time.

DEFAULT_SPAN: HistorySpan = "1h"


class QueueHistoryKey(QueueKey):
    """Fields of GET /queues/{queue}/history, from Python."""

    span: HistorySpan = DEFAULT_SPAN


class DurationsView(TypedDict):
    """Durations, rounded up to less than twice as much; null without any."""

    p50: Annotated[str | None, about("Duration that half of them did not exceed.", "PT0.003S")]
    p99: Annotated[str | None, about("Duration that 99 of 100 did not exceed.", "PT0.015S")]
    counts: Annotated[
        list[int],
        about(
            "Histogram by powers of two, which adds up over lines and queues. Element n counts durations of less than"
            " 2^n ms, and of at least half of that; the last of 32 elements counts longer ones too.",
            [0, 0, 12, 3],
        ),
    ]


class NumbersView(TypedDict):
    """Numbers of a queue in a span of time."""

    added: Annotated[int, about("Number of tasks that were added, replacements and notifications too.", 15)]
    claimed: Annotated[int, about("Number of claims, deliveries to functions and brokers too.", 15)]
    done: Annotated[int, about("Number of tasks that became done.", 12)]
    again: Annotated[int, about("Number of runs that asked to come again.", 3)]
    retried: Annotated[int, about("Number of runs that failed, or whose lease lapsed, and that are retried.", 0)]
    dead: Annotated[int, about("Number of tasks that died.", 0)]
    lateness: Annotated[DurationsView, about("Lateness of runs, from the due time to the first line of the handler.")]
    run_time: Annotated[DurationsView, about("Run time, from the first line of the handler to the settle.")]
    wait: Annotated[DurationsView, about("Wait of claimed tasks, from the claim to the first line of the handler.")]


class HistoryLineView(NumbersView):
    """Numbers of one minute, hour or day."""

    at: Annotated[ShownInstant, about("Beginning of the line, in UTC.")]


class HistoryAnswer(TypedDict):
    """Numbers of a queue over time, over all shards and tenants.

    Sums are exact. In a shard that needs more than 4 KB, old lines are averages over some neighbours.
    """

    queue: Annotated[str, about("Name of the queue.", "default")]
    span: Annotated[HistorySpan, about("Span of the lines.", "1h")]
    step: Annotated[str, about("Length of a line: a minute, an hour or a day.", "PT1M")]
    lines: Annotated[list[HistoryLineView], about("Lines, the oldest first; the last one is not over yet.")]
    total: Annotated[NumbersView, about("Sums of all lines.")]


def show_history(seen: QueueHistory) -> HistoryAnswer:
    """History of a queue in the words of the HTTP API."""
    return {
        "queue": seen.queue,
        "span": seen.span,
        "step": format_duration(seen.unit_ms),
        "lines": [{"at": format_instant(line.at), **_show_numbers(line.numbers)} for line in seen.lines],
        "total": _show_numbers(seen.total),
    }


def _show_numbers(numbers: QueueNumbers) -> NumbersView:
    counts = {name: getattr(numbers, name) for name in COUNTS}
    durations = {name: _show_durations(getattr(numbers, name)) for name in HISTOGRAMS}
    return cast(NumbersView, counts | durations)


def _show_durations(histogram: Histogram) -> DurationsView:
    return {
        "p50": _duration(duration_quantile(histogram, 0.5)),
        "p99": _duration(duration_quantile(histogram, 0.99)),
        "counts": [histogram.get(bucket, 0) for bucket in range(max(histogram, default=-1) + 1)],
    }


def show_queue(seen: QueueStatus) -> QueueView:
    """A queue in the words of the HTTP API; `split` says which shard has which part."""
    view: Any = {
        "queue": seen.name,
        **show_fields(FIELDS, seen.settings),
        "split": [
            {**show_fields(LIMIT_FIELDS, part.settings), "shard": part.number, "running": part.running}
            for part in seen.shards
        ],
        "tasks": {"scheduled": seen.scheduled, "leased": seen.running, "done": seen.done, "dead": seen.dead},
        "oldest_overdue": format_duration(seen.oldest_overdue_ms),
        "lateness": {"p50": _duration(seen.late_p50_ms), "p99": _duration(seen.late_p99_ms)},
    }
    if seen.lagging:
        view["lagging"] = seen.lagging
    if seen.schedules is not None:  # the whole queue's numbers, not one tenant's
        next_at = None if seen.fires_at is None else format_instant(seen.fires_at)
        view["lapsed"] = {"runs": seen.lapsed, "at_target": seen.lapsed_at_target}
        view["schedules"] = {"count": seen.schedules, "next_at": next_at}
    if seen.dead_by_tenant is not None:
        view["dead_by_tenant"] = dict(seen.dead_by_tenant)
    return cast(QueueView, view)


def show_settings(settings: QueueSettings) -> SettingsView:
    """Settings of a queue in the words of the HTTP API."""
    return cast(SettingsView, show_fields(FIELDS, settings))


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
