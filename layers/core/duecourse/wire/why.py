"""`GET /tasks/{id}/why`: what happened to a task, and what it waits for."""

from typing import NotRequired

from typing_extensions import TypedDict

from duecourse.domain.task import Status
from duecourse.domain.timeline import Happened, Why
from duecourse.domain.times import format_instant


class HappenedView(TypedDict):
    """One thing that happened: `text` says it to people, the rest to programs."""

    at: str
    event: str
    text: str
    by: NotRequired[str]
    run: NotRequired[int]
    door: NotRequired[str]
    late_ms: NotRequired[int]
    ran_ms: NotRequired[int]
    error: NotRequired[str]
    due_at: NotRequired[str]
    times: NotRequired[int]


WaitsView = TypedDict("WaitsView", {"for": str, "text": str, "until": NotRequired[str]})
"""What it waits for: `due`, `claim`, `lease` or `nothing`; of what is due and held back, `pause`, `max_running`,
`tenant_max_running` or `rate`; until when, where that is known."""


class WhyAnswer(TypedDict):
    """The timeline of one task, oldest first, after as many entries as `forgotten` says."""

    id: str
    queue: str
    state: Status
    timeline: list[HappenedView]
    waits: WaitsView
    forgotten: int


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
