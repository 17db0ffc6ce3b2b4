"""The request and answer of `/queues/{queue}/dead/replay`."""

from typing import Annotated, Self

from pydantic import Field, StrictBool, model_validator
from typing_extensions import TypedDict

from duecourse.domain.replay import MAX_REPLAY, Replay, Replayed
from duecourse.domain.times import DAY_MS, format_instant
from duecourse.wire.fields import Name, Strict, Told, refuse_fields
from duecourse.wire.rate import Rate

MAX_SPREAD_MS = 7 * DAY_MS
"""Over how long the dead of one replay are spread at most."""


class ReplayDead(Strict):
    """POST /queues/{queue}/dead/replay: the oldest dead tasks, spread evenly where a rate is given."""

    limit: int = Field(100, ge=1, le=MAX_REPLAY, strict=True, description="How many tasks at most.")
    rate: Rate | None = Field(
        None, description="How fast; all at once without it. Not so slowly that `limit` tasks take over 7 days."
    )
    kind: Name | None = Field(None, description="Only tasks of this kind.", examples=["report"])
    dry_run: StrictBool = Field(False, description="Only tell which tasks these would be.")

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
    """One task, and when it is due now."""

    id: Annotated[str, Field(description="The id.", examples=["export-42"])]
    due_at: Annotated[Told, Field(description="When it is due now.")]


class ReplayedAnswer(TypedDict):
    """Which tasks are replayed, or would be; `more` where there may be more of the dead."""

    replayed: Annotated[int, Field(description="How many.", examples=[1])]
    dry_run: Annotated[bool, Field(description="Whether it was only asked which.", examples=[False])]
    more: Annotated[bool, Field(description="Whether there may be more of the dead.", examples=[False])]
    tasks: Annotated[list[ReplayedTask], Field(description="Which, oldest death first.")]


def show_replayed(replayed: Replayed, *, dry_run: bool) -> ReplayedAnswer:
    """What a replay did."""
    tasks: list[ReplayedTask] = [{"id": id, "due_at": format_instant(at)} for id, at in replayed.tasks]
    return {"replayed": len(tasks), "dry_run": dry_run, "more": replayed.more, "tasks": tasks}
