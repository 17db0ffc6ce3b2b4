"""`GET /tasks/{id}/why`: what happened to a task, and what it waits for."""

from typing import Annotated, NotRequired

from pydantic import Field
from typing_extensions import TypedDict

from duecourse.domain.task import Status
from duecourse.domain.timeline import Happened, Why
from duecourse.domain.times import format_instant
from duecourse.wire.fields import Told


class HappenedView(TypedDict):
    """One thing that happened: `text` says it to people, the rest to programs."""

    at: Annotated[Told, Field(description="When.")]
    event: Annotated[str, Field(description="What, in one word.", examples=["added"])]
    text: Annotated[
        str, Field(description="The same in a sentence.", examples=["Added by http, due 2026-11-21T09:30:00.000Z."])
    ]
    by: NotRequired[Annotated[str, Field(description="Who asked for it.", examples=["http"])]]
    run: NotRequired[Annotated[int, Field(description="Which run it was about.", examples=[1])]]
    door: NotRequired[
        Annotated[str, Field(description="What found it: `ring`, `timer`, `tick`, or `take`: a query's own request.")]
    ]
    late_ms: NotRequired[Annotated[int, Field(description="How long after it was due, in milliseconds.")]]
    ran_ms: NotRequired[Annotated[int, Field(description="How long the run took, in milliseconds.")]]
    error: NotRequired[Annotated[str, Field(description="What went wrong.")]]
    due_at: NotRequired[Annotated[Told, Field(description="When it was due from then on.")]]
    times: NotRequired[Annotated[int, Field(description="How often this happened in a row, where more than once.")]]


WaitsView = TypedDict(
    "WaitsView",
    {
        "for": Annotated[
            str,
            Field(
                description="`due`, `claim`, `lease` or `nothing`; of what is due and held back, `pause`, "
                "`max_running`, `tenant_max_running` or `rate`.",
                examples=["due"],
            ),
        ],
        "text": Annotated[str, Field(description="The same in a sentence.", examples=["it is not due yet"])],
        "until": NotRequired[Annotated[Told, Field(description="Until when, where that is known.")]],
    },
)
WaitsView.__doc__ = "What it waits for, and until when where that is known."


class WhyAnswer(TypedDict):
    """The timeline of one task, oldest first, after as many entries as `forgotten` says."""

    id: Annotated[str, Field(description="The id.", examples=["order-7"])]
    queue: Annotated[str, Field(description="The queue.", examples=["default"])]
    state: Annotated[Status, Field(description="Where it stands.")]
    timeline: Annotated[list[HappenedView], Field(description="What happened, oldest first.")]
    waits: Annotated[WaitsView, Field(description="What it waits for now.")]
    forgotten: Annotated[int, Field(description="How many older entries are not kept.", examples=[0])]


def show_why(why: Why) -> WhyAnswer:
    """A timeline in the words of the HTTP API."""
    waits: WaitsView = {"for": why.waits.what, "text": why.waits.text}
    if why.waits.until:
        waits["until"] = format_instant(why.waits.until)
    return {
        "id": why.task.id,
        "queue": why.task.queue,
        "state": why.task.status,
        "timeline": list(map(_show, why.timeline)),
        "waits": waits,
        "forgotten": why.task.forgotten,
    }


def _show(one: Happened) -> HappenedView:
    view = HappenedView(at=format_instant(one.at), event=one.event, text=one.text)
    if one.by:
        view["by"] = one.by
    if one.run:
        view["run"] = one.run
    if one.door:
        view["door"] = one.door
    if one.late_ms is not None:
        view["late_ms"] = one.late_ms
    if one.ran_ms is not None:
        view["ran_ms"] = one.ran_ms
    if one.error:
        view["error"] = one.error
    if one.due_at:
        view["due_at"] = format_instant(one.due_at)
    if one.times > 1:
        view["times"] = one.times
    return view
