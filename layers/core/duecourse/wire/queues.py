"""The requests and answers of `/queues`."""

from typing import Annotated, cast

from pydantic import ConfigDict, Field, StrictBool
from typing_extensions import TypedDict

from duecourse.domain import queues
from duecourse.domain.queues import DEFAULT_PRIORITY, MAX_PRIORITY, QueueChanges, QueueSettings, QueueStanding
from duecourse.domain.times import DAY_MS, format_duration
from duecourse.wire.fields import Duration, Name, Strict, between
from duecourse.wire.rate import Count, Rate


class QueueKey(Strict):
    """What names a queue."""

    queue: Name = Field(description="The queue.", examples=["default"])


class SetQueue(Strict):
    """PATCH /queues/{queue}: what is given changes, null goes back to the default, the rest stays."""

    model_config = ConfigDict(json_schema_extra={"examples": [{"max_running": 20}]})

    paused: StrictBool | None = Field(None, description="True: nothing is handed out, and what runs goes on.")
    max_running: Count | None = Field(None, description="How many tasks may run at a time; null: any number.")
    tenant_max_running: Count | None = Field(
        None, description="How many tasks of one tenant may run at a time; null: any number."
    )
    rate: Rate | None = Field(
        None,
        description="How many tasks may be claimed how fast, in a window that slides; each shard gets its part. "
        "null: any number.",
    )
    priority: Annotated[int, Field(ge=0, le=MAX_PRIORITY, strict=True)] | None = Field(
        None, description=f"A drain claims from the queues of the highest first, 0 to 9; null: {DEFAULT_PRIORITY}."
    )
    retention: Annotated[Duration, between(0, 366 * DAY_MS)] | None = Field(
        None,
        description="How long a finished task can be asked for, at most P366D; null: DUECOURSE_RETENTION.",
        examples=["PT24H"],
    )
    lease: Annotated[Duration, between(1_000, DAY_MS)] | None = Field(
        None,
        description="How long a claimed task is its worker's, PT1S to P1D; longer than its target may take; "
        "null: DUECOURSE_LEASE.",
        examples=["PT90S"],
    )

    def changes(self) -> QueueChanges:
        """What was given, in the domain's words."""
        rate = self.rate and queues.Rate(self.rate.count, self.rate.per)
        values = {
            "paused": self.paused,
            "max_running": self.max_running,
            "tenant_max_running": self.tenant_max_running,
            "rate": rate,
            "priority": self.priority,
            "retention": self.retention,
            "lease": self.lease,
        }
        given = {IN_MS.get(name, name): value for name, value in values.items() if name in self.model_fields_set}
        return cast(QueueChanges, given)


IN_MS = {"retention": "retention_ms", "lease": "lease_ms"}


class RateView(TypedDict):
    """A rate as it is set."""

    count: Annotated[int, Field(description="How many tasks.", examples=[5])]
    per: Annotated[str, Field(description="In any time of this length.", examples=["PT1S"])]


class LimitsView(TypedDict):
    """How much of a queue may run, null for any number."""

    max_running: Annotated[int | None, Field(description="How many tasks may run at a time.", examples=[20])]
    tenant_max_running: Annotated[int | None, Field(description="How many of one tenant.", examples=[None])]
    rate: Annotated[RateView | None, Field(description="How many may be claimed how fast.", examples=[None])]


class ShardLimitsView(LimitsView):
    """One shard's part of its queue's limits, and how many tasks run in it."""

    shard: Annotated[int, Field(description="Its number.", examples=[0])]
    running: Annotated[int, Field(description="How many tasks run in it.", examples=[3])]


class CountsView(TypedDict):
    """Tasks by state; `done` counts the cancelled too."""

    scheduled: Annotated[int, Field(description="How many wait for their time, or for a claim.", examples=[12])]
    leased: Annotated[int, Field(description="How many run.", examples=[3])]
    done: Annotated[int, Field(description="How many are done, and not yet forgotten.", examples=[40])]
    dead: Annotated[int, Field(description="How many are dead.", examples=[0])]


class LatenessView(TypedDict):
    """How late the tasks of the last hour were claimed; null where none was. Rounded up by 12 % at most."""

    p50: Annotated[str | None, Field(description="Half were claimed at most so late.", examples=["PT0.002S"])]
    p99: Annotated[str | None, Field(description="99 of 100 were claimed at most so late.", examples=["PT0.005S"])]


class QueueView(LimitsView):
    """A queue as it is set, and in numbers."""

    queue: Annotated[str, Field(description="Its name.", examples=["default"])]
    paused: Annotated[bool, Field(description="Whether nothing is handed out.", examples=[False])]
    priority: Annotated[int, Field(description="A drain claims from the highest first.", examples=[5])]
    retention: Annotated[
        str | None,
        Field(description="How long a finished task can be asked for; null: DUECOURSE_RETENTION.", examples=[None]),
    ]
    lease: Annotated[
        str | None,
        Field(description="How long a claimed task is its worker's; null: DUECOURSE_LEASE.", examples=[None]),
    ]
    split: Annotated[list[ShardLimitsView], Field(description="Each shard's part of the limits.")]
    tasks: Annotated[CountsView, Field(description="How many there are, by state.")]
    oldest_overdue: Annotated[str, Field(description="How long the oldest due task waits.", examples=["PT0S"])]
    lateness: Annotated[LatenessView, Field(description="How late tasks were claimed.")]


class QueueAnswer(TypedDict):
    """One queue."""

    queue: Annotated[QueueView, Field(description="The queue.")]


class QueuesAnswer(TypedDict):
    """All queues, by name; one of another number of shards than DUECOURSE_SHARDS says is told in the log instead."""

    queues: Annotated[list[QueueView], Field(description="The queues.")]


def show_queue(seen: QueueStanding) -> QueueView:
    """A queue in the words of the HTTP API; `split` says which shard has which part."""
    settings: QueueSettings = seen.settings
    return {
        "queue": seen.name,
        "paused": settings.paused,
        "priority": settings.priority,
        "retention": _duration(settings.retention_ms),
        "lease": _duration(settings.lease_ms),
        **_limits(settings),
        "split": [{**_limits(part.settings), "shard": part.number, "running": part.running} for part in seen.shards],
        "tasks": {"scheduled": seen.scheduled, "leased": seen.running, "done": seen.done, "dead": seen.dead},
        "oldest_overdue": format_duration(seen.oldest_overdue_ms),
        "lateness": {"p50": _duration(seen.late_p50_ms), "p99": _duration(seen.late_p99_ms)},
    }


def _limits(settings: QueueSettings) -> LimitsView:
    rate = settings.rate
    return {
        "max_running": settings.max_running,
        "tenant_max_running": settings.tenant_max_running,
        "rate": {"count": rate.most, "per": format_duration(rate.per_ms)} if rate else None,
    }


def _duration(ms: int | None) -> str | None:
    return None if ms is None else format_duration(ms)
