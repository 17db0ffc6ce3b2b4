"""The requests and answers of `/queues`."""

from typing import Annotated, cast

from pydantic import ConfigDict, Field, StrictBool
from typing_extensions import TypedDict

from duecourse.domain import queues
from duecourse.domain.queues import DEFAULT_PRIORITY, MAX_PRIORITY, QueueChanges, QueueSettings, QueueStatus
from duecourse.domain.times import DAY_MS, format_duration
from duecourse.wire.http.fields import Duration, Name, Strict, between
from duecourse.wire.http.rate import Count, Rate


class QueueKey(Strict):
    """Name of a queue."""

    queue: Name = Field(description="Name of the queue.", examples=["default"])


class SetQueue(Strict):
    """Body of `PATCH /queues/{queue}`: given fields change, null restores the default, other fields stay."""

    model_config = ConfigDict(json_schema_extra={"examples": [{"max_running": 20}]})

    paused: StrictBool | None = Field(
        None, description="Pause the queue: no task is claimed, and running tasks continue. Default: false."
    )
    max_running: Count | None = Field(
        None, description="Maximum number of tasks that run at the same time, 1 to 1,000,000; null removes the limit."
    )
    tenant_max_running: Count | None = Field(
        None,
        description="Maximum number of tasks of one tenant that run at the same time, 1 to 1,000,000; "
        "null removes the limit.",
    )
    rate: Rate | None = Field(
        None,
        description="Maximum number of claims in a sliding window, divided among the shards; null removes the limit.",
    )
    priority: Annotated[int, Field(ge=0, le=MAX_PRIORITY, strict=True)] | None = Field(
        None, description=f"Priority, 0 to 9; a drain claims from the highest first. null means {DEFAULT_PRIORITY}."
    )
    retention: Annotated[Duration, between(0, 366 * DAY_MS)] | None = Field(
        None,
        description="Time for which a finished task is kept, at most P366D; null means DUECOURSE_RETENTION.",
        examples=["PT24H"],
    )
    lease: Annotated[Duration, between(1_000, DAY_MS)] | None = Field(
        None,
        description="Length of an inline task's lease, PT1S to P1D, longer than the timeout of on_expired; "
        "null means DUECOURSE_LEASE.",
        examples=["PT90S"],
    )

    def changes(self) -> QueueChanges:
        """Given fields, in the domain's words."""
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
    """Rate limit."""

    count: Annotated[int, Field(description="Maximum number of claims in the window.", examples=[5])]
    per: Annotated[str, Field(description="Length of the sliding window.", examples=["PT1S"])]


class LimitsView(TypedDict):
    """Limits of a queue; null means no limit."""

    max_running: Annotated[
        int | None,
        Field(description="Maximum number of tasks that run at the same time; null means no limit.", examples=[20]),
    ]
    tenant_max_running: Annotated[
        int | None,
        Field(
            description="Maximum number of tasks of one tenant that run at the same time; null means no limit.",
            examples=[None],
        ),
    ]
    rate: Annotated[
        RateView | None, Field(description="Maximum number of claims in a time; null means no limit.", examples=[None])
    ]


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


class QueueView(LimitsView):
    """Settings and figures of a queue."""

    queue: Annotated[str, Field(description="Name of the queue.", examples=["default"])]
    paused: Annotated[bool, Field(description="True while no task is claimed.", examples=[False])]
    priority: Annotated[
        int, Field(description="Priority, 0 to 9; a drain claims from the highest first.", examples=[5])
    ]
    retention: Annotated[
        str | None,
        Field(description="Time for which a finished task is kept; null means DUECOURSE_RETENTION.", examples=[None]),
    ]
    lease: Annotated[
        str | None,
        Field(description="Length of a lease; null means DUECOURSE_LEASE.", examples=[None]),
    ]
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
