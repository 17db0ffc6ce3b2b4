"""`GET /tasks/{id}/why`: what happened to a task, and what it waits for."""

from typing import Annotated, NotRequired, cast

from typing_extensions import TypedDict

from duecourse.domain.masking import masked_error
from duecourse.domain.queues import ThrottleReason
from duecourse.domain.task import Status
from duecourse.domain.timeline import Happened, Why
from duecourse.domain.times import format_instant
from duecourse.wire.http.fields import ShownInstant, about


class HappenedView(TypedDict):
    """Entry of a timeline: `text` for people, the other fields for programs."""

    at: Annotated[ShownInstant, about("Time of the entry.")]
    event: Annotated[str, about("Event, in one word.", "added")]
    text: Annotated[str, about("The same, as a sentence.", "Added by http, due 2026-11-21T09:30:00.000Z.")]
    by: NotRequired[
        Annotated[
            str, about("Source of the request (http, client, message, …), and behind it the caller, if known.", "http")
        ]
    ]
    run: NotRequired[Annotated[int, about("Number of the run, from 1.", 1)]]
    trigger: NotRequired[
        Annotated[str, about("Trigger of the claim: `ring`, `timer`, `tick`, or `take` for a query's own request.")]
    ]
    late_ms: NotRequired[
        Annotated[
            int,
            about(
                "Time from the due time to the first line of the handler, in milliseconds; absent while none has begun."
            ),
        ]
    ]
    ran_ms: NotRequired[Annotated[int, about("Length of the run, in milliseconds.")]]
    error: NotRequired[Annotated[str, about("Error of the run.")]]
    due_at: NotRequired[Annotated[ShownInstant, about("New due time.")]]
    times: NotRequired[Annotated[int, about("Number of repetitions in a row; absent if it happened once.")]]


WaitsView = TypedDict(
    "WaitsView",
    {
        "for": Annotated[
            str,
            about(
                "Event that the task waits for: `due`, `claim`, `lease`, `overlap` (the end of another occurrence) "
                "or `nothing`. For a "
                f"throttled task, one of {', '.join(f'`{hold}`' for hold in ThrottleReason)}.",
                "due",
            ),
        ],
        "text": Annotated[
            str, about("The same, as a sentence.", "It is due in 10 minutes, at 2026-11-21T09:30:00.000Z.")
        ],
        "until": NotRequired[Annotated[ShownInstant, about("End of the wait; absent if unknown.")]],
    },
)
WaitsView.__doc__ = "Reason why a task is not running now, and the end of the wait if it is known."


class WhyAnswer(TypedDict):
    """Timeline of one task, oldest first. `forgotten` counts older entries that were dropped."""

    id: Annotated[str, about("Id of the task.", "order-7")]
    queue: Annotated[str, about("Name of the queue.", "default")]
    state: Annotated[Status, about("State of the task.")]
    timeline: Annotated[list[HappenedView], about("Entries, oldest first.")]
    waits: Annotated[WaitsView, about("Reason why the task is not running now.")]
    forgotten: Annotated[int, about("Number of older entries that were dropped.", 0)]


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
    shown = {
        "at": format_instant(one.at),
        "event": one.event,
        "text": masked_error(one.text),
        "by": one.by or None,
        "run": one.run or None,
        "trigger": one.trigger,
        "late_ms": one.late_ms,
        "ran_ms": one.ran_ms,
        "error": masked_error(one.error) or None,
        "due_at": format_instant(one.due_at) if one.due_at else None,
        "times": one.times if one.times > 1 else None,
    }
    return cast(HappenedView, {name: value for name, value in shown.items() if value is not None})
