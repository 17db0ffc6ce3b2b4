"""The requests and answers of `/queues`."""

from typing import Annotated, Any, cast

from pydantic import ConfigDict, Field, StrictBool, create_model
from typing_extensions import TypedDict

from duecourse.domain import queues as domain
from duecourse.domain.queues import SETTINGS, QueueChanges, QueueSettings, QueueStatus, Setting
from duecourse.domain.times import format_duration
from duecourse.wire.http.fields import Duration, Name, Strict, between
from duecourse.wire.http.rate import Rate


class QueueKey(Strict):
    """Name of a queue."""

    queue: Name = Field(description="Name of the queue.", examples=["default"])


def _asked(one: Setting) -> tuple[Any, Any]:
    """Type and description of a setting in a request; null restores the default."""
    return _type_asked(one) | None, Field(None, description=one.about.meaning)


def _type_asked(one: Setting) -> Any:
    if one.kind is not int:
        return {bool: StrictBool, domain.Rate: Rate}[one.kind]
    low, high = one.about.low, one.about.high
    if one.is_time:
        return Annotated[Duration, between(low, high)]
    return Annotated[int, Field(ge=low, le=high, strict=True)]


ASKED: dict[str, Any] = {one.name: _asked(one) for one in SETTINGS}


class SetQueue(create_model("Settings", __base__=Strict, **ASKED)):  # type: ignore[misc]
    """Body of `PATCH /queues/{queue}`: given fields change, null restores the default, other fields stay."""

    model_config = ConfigDict(json_schema_extra={"examples": [{"max_running": 20}]})

    def changes(self) -> QueueChanges:
        """Given fields, in the domain's words."""
        return {one.field: _value(getattr(self, one.name)) for one in SETTINGS if one.name in self.model_fields_set}


def _value(asked: Any) -> Any:
    return domain.Rate(asked.count, asked.per) if isinstance(asked, Rate) else asked


class RateView(TypedDict):
    """Rate limit."""

    count: Annotated[int, Field(description="Maximum number of claims in the window.", examples=[5])]
    per: Annotated[str, Field(description="Length of the sliding window.", examples=["PT1S"])]


def _shown_type(one: Setting) -> Any:
    """Type and description of a setting in an answer."""
    kind: Any = RateView if one.kind is domain.Rate else str if one.is_time else one.kind
    about = Field(description=one.about.meaning, examples=[one.default])
    return Annotated[kind | None if one.default is None else kind, about]


LimitsView = TypedDict("LimitsView", {one.name: _shown_type(one) for one in SETTINGS if one.about.split})  # type: ignore[misc]
SettingsView = TypedDict("SettingsView", {one.name: _shown_type(one) for one in SETTINGS})  # type: ignore[misc]


class ShardLimitsView(LimitsView):
    """Part of the limits for one shard, and the number of its running tasks."""

    shard: Annotated[int, Field(description="Number of the shard, from 0.", examples=[0])]
    running: Annotated[int, Field(description="Number of tasks that are running in the shard.", examples=[3])]


class CountsView(TypedDict):
    """Number of tasks in each state; `done` includes cancelled tasks."""

    scheduled: Annotated[
        int, Field(description="Number of tasks that wait for their due time or for a claim.", examples=[12])
    ]
    leased: Annotated[int, Field(description="Number of tasks that are running, under a lease.", examples=[3])]
    done: Annotated[
        int, Field(description="Number of tasks that are done or cancelled, until their retention ends.", examples=[40])
    ]
    dead: Annotated[int, Field(description="Number of dead tasks.", examples=[0])]


class LatenessView(TypedDict):
    """Lateness of the claims of the last hour, rounded up by at most 12 %; null without claims."""

    p50: Annotated[
        str | None, Field(description="Lateness that half of the tasks did not exceed.", examples=["PT0.002S"])
    ]
    p99: Annotated[
        str | None, Field(description="Lateness that 99 of 100 tasks did not exceed.", examples=["PT0.005S"])
    ]


class QueueView(SettingsView):
    """Settings and figures of a queue."""

    queue: Annotated[str, Field(description="Name of the queue.", examples=["default"])]
    split: Annotated[list[ShardLimitsView], Field(description="Part of the limits for each shard.")]
    tasks: Annotated[CountsView, Field(description="Number of tasks in each state.")]
    oldest_overdue: Annotated[str, Field(description="Waiting time of the oldest due task.", examples=["PT0S"])]
    lateness: Annotated[LatenessView, Field(description="Lateness of the claims of the last hour.")]


class QueueAnswer(TypedDict):
    """One queue."""

    queue: Annotated[QueueView, Field(description="The queue.")]


class QueuesAnswer(TypedDict):
    """All queues, by name. A queue whose shard count differs from DUECOURSE_SHARDS is reported in the log instead."""

    queues: Annotated[list[QueueView], Field(description="Queues, by name.")]


def show_queue(seen: QueueStatus) -> QueueView:
    """A queue in the words of the HTTP API; `split` says which shard has which part."""
    return {
        "queue": seen.name,
        **_shown(seen.settings),
        "split": [
            {**_shown_limits(part.settings), "shard": part.number, "running": part.running} for part in seen.shards
        ],
        "tasks": {"scheduled": seen.scheduled, "leased": seen.running, "done": seen.done, "dead": seen.dead},
        "oldest_overdue": format_duration(seen.oldest_overdue_ms),
        "lateness": {"p50": _duration(seen.late_p50_ms), "p99": _duration(seen.late_p99_ms)},
    }


def _shown(settings: QueueSettings) -> SettingsView:
    shown = {one.name: _word(one, getattr(settings, one.field)) for one in SETTINGS}
    return cast(SettingsView, shown)


def _shown_limits(settings: QueueSettings) -> LimitsView:
    shown = {one.name: _word(one, getattr(settings, one.field)) for one in SETTINGS if one.about.split}
    return cast(LimitsView, shown)


def _word(one: Setting, value: Any) -> Any:
    if isinstance(value, domain.Rate):
        return {"count": value.most, "per": format_duration(value.per_ms)}
    return _duration(value) if one.is_time else value


def _duration(ms: int | None) -> str | None:
    return None if ms is None else format_duration(ms)
