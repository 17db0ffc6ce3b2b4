"""The request and answer of `/queues/{queue}/dead/replay`."""

from typing import Annotated, Self

from pydantic import Field, StrictBool, model_validator
from typing_extensions import TypedDict

from duecourse.domain.replay import MAX_REPLAY, Replay, Replayed
from duecourse.domain.times import DAY_MS, format_instant
from duecourse.wire.http.fields import Name, ShownInstant, Strict, refuse_fields
from duecourse.wire.http.rate import Rate

MAX_SPREAD_MS = 7 * DAY_MS
"""Over how long the dead of one replay are spread at most."""


class ReplayDead(Strict):
    """Body of `POST /queues/{queue}/dead/replay`: the oldest dead tasks, spread evenly if a rate is given."""

    limit: int = Field(100, ge=1, le=MAX_REPLAY, strict=True, description="Maximum number of tasks.")
    rate: Rate | None = Field(
        None,
        description="Rate of the replays, spread evenly; `limit` tasks may take at most 7 days. Default: all at once.",
    )
    kind: Name | None = Field(None, description="Filter: tasks of this kind.", examples=["report"])
    dry_run: StrictBool = Field(False, description="List the tasks without a replay. Default: false.")

    @model_validator(mode="after")
    def _ends_in_time(self) -> Self:
        if self.rate and self.replay().delay_ms(self.limit) > MAX_SPREAD_MS:
            raise refuse_fields("must not spread over more than 7 days: raise it, or lower limit", "rate")
        return self

    def replay(self) -> Replay:
        """The same in the domain's words."""
        count, per_ms = (self.rate.count, self.rate.per) if self.rate else (1, 0)
        return Replay(self.limit, self.kind or "", count, per_ms, self.dry_run)


class ReplayedTask(TypedDict):
    """One task, with its new due time."""

    id: Annotated[str, Field(description="Id of the task.", examples=["export-42"])]
    due_at: Annotated[ShownInstant, Field(description="New due time.")]


class ReplayedAnswer(TypedDict):
    """Tasks that are replayed, or would be in a dry run. `more` says whether more dead tasks may remain."""

    replayed: Annotated[int, Field(description="Number of tasks.", examples=[1])]
    dry_run: Annotated[bool, Field(description="True if the tasks were listed without a replay.", examples=[False])]
    more: Annotated[bool, Field(description="True if more dead tasks may remain.", examples=[False])]
    tasks: Annotated[list[ReplayedTask], Field(description="Tasks, in the order in which they died.")]


def show_replayed(replayed: Replayed, *, dry_run: bool) -> ReplayedAnswer:
    """Result of a replay."""
    tasks: list[ReplayedTask] = [{"id": id, "due_at": format_instant(at)} for id, at in replayed.tasks]
    return {"replayed": len(tasks), "dry_run": dry_run, "more": replayed.more, "tasks": tasks}
