"""`GET /tasks`: which tasks a page has, its cursor, and its answer; `POST /queues/{queue}/dead/replay`."""

import re
from base64 import urlsafe_b64decode, urlsafe_b64encode
from typing import Annotated, Self

from pydantic import AfterValidator, Field, StrictBool, StrictStr, model_validator
from typing_extensions import TypedDict

from duecourse.domain.pages import MAX_PAGE, SECTIONS, Page, Place, Wanted
from duecourse.domain.replay import MAX_REPLAY, Replay, Replayed
from duecourse.domain.task import DEFAULT_QUEUE, Status
from duecourse.domain.times import format_instant
from duecourse.errors import FieldError, InvalidInput
from duecourse.wire.fields import Duration, Name, Strict, Told, between
from duecourse.wire.http import TaskView, show_task

DEFAULT_PAGE = 20
PLACE = re.compile(r"([a-z]{3,6}):([0-9]{1,15}):([A-Za-z0-9._:@~-]{0,200})")
MAX_CURSOR = 400
SPREAD_MS = 7 * 86_400_000


def _cursor(value: str) -> str:
    decode_cursor(value)
    return value


def encode_cursor(place: Place) -> str:
    """A place in the words of a request: opaque, and fit for a URL."""
    return urlsafe_b64encode(":".join(map(str, place)).encode()).decode().rstrip("=")


def decode_cursor(text: str) -> Place:
    """The place that a cursor names. Raises ValueError."""
    try:
        found = PLACE.fullmatch(urlsafe_b64decode(text + "=" * (-len(text) % 4)).decode())
    except ValueError:
        found = None
    if not found or found[1] not in SECTIONS:
        raise ValueError("must be the next_cursor of a page, as it was")
    return Place(found[1], int(found[2]), found[3])


Cursor = Annotated[StrictStr, Field(max_length=MAX_CURSOR), AfterValidator(_cursor)]
PageLimit = Annotated[int, Field(ge=1, le=MAX_PAGE)]


class ListTasks(Strict):
    """GET /tasks: some of a queue's tasks; all states and kinds where none is named."""

    queue: Name = DEFAULT_QUEUE
    state: Status | None = None
    kind: Name | None = None
    group: Name | None = None
    cursor: Cursor | None = None
    limit: PageLimit = DEFAULT_PAGE

    @model_validator(mode="after")
    def _goes_on_with_the_same(self) -> Self:
        if self.cursor and decode_cursor(self.cursor).section not in self.wanted().sections():
            raise InvalidInput([FieldError("cursor", "is of a page of another state: begin without it")])
        return self

    def wanted(self) -> Wanted:
        """Which tasks."""
        return Wanted(self.state, self.kind or "", self.group or "")

    def place(self) -> Place | None:
        """Where the page begins."""
        return decode_cursor(self.cursor) if self.cursor else None


class PageAnswer(TypedDict):
    """Some tasks; `next_cursor` is null after the last. A page may be short, or empty, and still have one."""

    tasks: Annotated[list[TaskView], Field(description="The tasks, in order.")]
    next_cursor: Annotated[
        str | None, Field(description="What the next request gives as `cursor`; null after the last.", examples=[None])
    ]


class Rate(Strict):
    """So many in each time."""

    count: int = Field(ge=1, le=MAX_REPLAY, strict=True, description="How many tasks.", examples=[10])
    per: Annotated[Duration, between(1, 86_400_000)] = Field(description="In how long, at most P1D.", examples=["PT1S"])


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
        if self.rate and self.replay().delay_ms(self.limit) > SPREAD_MS:
            raise ValueError("must not spread over more than 7 days: raise rate, or lower limit")
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


def show_page(page: Page) -> PageAnswer:
    """A page in the words of the HTTP API."""
    return {"tasks": list(map(show_task, page.tasks)), "next_cursor": page.next and encode_cursor(page.next)}


def show_replayed(replayed: Replayed, *, dry_run: bool) -> ReplayedAnswer:
    """What a replay did."""
    tasks: list[ReplayedTask] = [{"id": id, "due_at": format_instant(at)} for id, at in replayed.tasks]
    return {"replayed": len(tasks), "dry_run": dry_run, "more": replayed.more, "tasks": tasks}
