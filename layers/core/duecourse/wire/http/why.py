"""`GET /tasks/{id}/why`: what happened to a task, and what it waits for."""

from typing import Annotated, NotRequired

from pydantic import Field
from typing_extensions import TypedDict

from duecourse.domain.masking import masked_error
from duecourse.domain.queues import ThrottleReason
from duecourse.domain.task import Status
from duecourse.domain.timeline import Happened, Why
from duecourse.domain.times import format_instant
from duecourse.wire.http.fields import ShownInstant


class HappenedView(TypedDict):
    """Entry of a timeline: `text` for people, the other fields for programs."""

    at: Annotated[ShownInstant, Field(description="Time of the entry.")]
    event: Annotated[str, Field(description="Event, in one word.", examples=["added"])]
    text: Annotated[
        str, Field(description="The same, as a sentence.", examples=["Added by http, due 2026-11-21T09:30:00.000Z."])
    ]
    by: NotRequired[
        Annotated[str, Field(description="Source of the request, such as http, client or message.", examples=["http"])]
    ]
    run: NotRequired[Annotated[int, Field(description="Number of the run, from 1.", examples=[1])]]
    trigger: NotRequired[
        Annotated[
            str,
            Field(description="Trigger of the claim: `ring`, `timer`, `tick`, or `take` for a query's own request."),
        ]
    ]
    late_ms: NotRequired[Annotated[int, Field(description="Time from the due time to the claim, in milliseconds.")]]
    ran_ms: NotRequired[Annotated[int, Field(description="Length of the run, in milliseconds.")]]
    error: NotRequired[Annotated[str, Field(description="Error of the run.")]]
    due_at: NotRequired[Annotated[ShownInstant, Field(description="New due time.")]]
    times: NotRequired[Annotated[int, Field(description="Number of repetitions in a row; absent if it happened once.")]]


WaitsView = TypedDict(
    "WaitsView",
    {
        "for": Annotated[
            str,
            Field(
                description="Event that the task waits for: `due`, `claim`, `lease` or `nothing`. For a "
                f"throttled task, one of {', '.join(f'`{hold}`' for hold in ThrottleReason)}.",
                examples=["due"],
            ),
        ],
        "text": Annotated[
            str,
            Field(
                description="The same, as a sentence.",
                examples=["It is due in 10 minutes, at 2026-11-21T09:30:00.000Z."],
            ),
        ],
        "until": NotRequired[Annotated[ShownInstant, Field(description="End of the wait; absent if unknown.")]],
    },
)
WaitsView.__doc__ = "Reason why a task is not running now, and the end of the wait if it is known."


class WhyAnswer(TypedDict):
    """Timeline of one task, oldest first. `forgotten` counts older entries that were dropped."""

    id: Annotated[str, Field(description="Id of the task.", examples=["order-7"])]
    queue: Annotated[str, Field(description="Name of the queue.", examples=["default"])]
    state: Annotated[Status, Field(description="State of the task.")]
    timeline: Annotated[list[HappenedView], Field(description="Entries, oldest first.")]
    waits: Annotated[WaitsView, Field(description="Reason why the task is not running now.")]
    forgotten: Annotated[int, Field(description="Number of older entries that were dropped.", examples=[0])]


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
    view = HappenedView(at=format_instant(one.at), event=one.event, text=masked_error(one.text))
    if one.by:
        view["by"] = one.by
    if one.run:
        view["run"] = one.run
    if one.trigger:
        view["trigger"] = one.trigger
    if one.late_ms is not None:
        view["late_ms"] = one.late_ms
    if one.ran_ms is not None:
        view["ran_ms"] = one.ran_ms
    if one.error:
        view["error"] = masked_error(one.error)
    if one.due_at:
        view["due_at"] = format_instant(one.due_at)
    if one.times > 1:
        view["times"] = one.times
    return view
