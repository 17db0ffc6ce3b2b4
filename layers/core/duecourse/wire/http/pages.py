"""`GET /tasks`: which tasks a page has, its cursor, and its answer."""

import re
from base64 import urlsafe_b64decode, urlsafe_b64encode
from typing import Annotated

from pydantic import AfterValidator, Field, StrictStr
from typing_extensions import TypedDict

from duecourse.domain.pages import MAX_PAGE, SECTIONS, Page, Place, Wanted
from duecourse.domain.task import DEFAULT_QUEUE, Status
from duecourse.errors import FieldError, InvalidInput
from duecourse.wire.http.fields import Name, Strict, about
from duecourse.wire.http.tasks import TaskView, show_task

DEFAULT_PAGE = 20
PLACE = re.compile(r"([a-z]{3,6}):([0-9]{1,15}):([A-Za-z0-9._:@~-]{0,200})")
MAX_CURSOR = 400


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
        raise ValueError("must be the next_cursor of an earlier page, unchanged")
    return Place(found[1], int(found[2]), found[3])


Cursor = Annotated[StrictStr, Field(max_length=MAX_CURSOR), AfterValidator(_cursor)]
PageLimit = Annotated[int, Field(ge=1, le=MAX_PAGE)]


class ListTasks(Strict):
    """Fields of GET /tasks, from Python: all states and kinds where none is named."""

    queue: Name = DEFAULT_QUEUE
    state: Status | None = None
    kind: Name | None = None
    group: Name | None = None
    cursor: Cursor | None = None
    limit: PageLimit = DEFAULT_PAGE


def start_of(cursor: str | None, wanted: Wanted) -> Place | None:
    """Start of the page that a right cursor names. Raises InvalidInput for a cursor of another state's page."""
    place = decode_cursor(cursor) if cursor else None
    if place and place.section not in wanted.sections():
        raise InvalidInput([FieldError("cursor", "belongs to a page of another state: start without a cursor")])
    return place


class PageAnswer(TypedDict):
    """Page of tasks. A page may be short or empty; `next_cursor` is null after the last page."""

    tasks: Annotated[list[TaskView], about("Tasks of this page, in order.")]
    next_cursor: Annotated[str | None, about("Value of `cursor` for the next page; null after the last page.", None)]


def show_page(page: Page) -> PageAnswer:
    """A page in the words of the HTTP API."""
    return {"tasks": list(map(show_task, page.tasks)), "next_cursor": page.next and encode_cursor(page.next)}
