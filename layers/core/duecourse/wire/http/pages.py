"""`GET /tasks`: which tasks a page has, its cursor, and its answer."""

import re
from base64 import urlsafe_b64decode
from collections.abc import Callable
from typing import Annotated

from pydantic import AfterValidator, Field, StrictStr
from typing_extensions import TypedDict

from duecourse.domain.pages import MAX_PAGE, SECTIONS, Page, Place, Wanted
from duecourse.domain.task import DEFAULT_QUEUE, Status
from duecourse.errors import FieldError, InvalidInput
from duecourse.wire.http.fields import Deadline, DeadlineField, ErrorText, Name, Strict, about
from duecourse.wire.http.tasks import TaskView, show_task

DEFAULT_PAGE = 20
ERROR = "Filter: tasks whose error has this text; `#` matches any text in it. Upper and lower case differ."
SINCE = (
    "Filter: tasks since an instant, or since a duration before now, such as `PT1H`. Counted from the add for "
    "`scheduled` and `leased`, from the end for other states."
)
CURSOR = "Cursor: the `next_cursor` of the previous answer to the same request."
PLACE = re.compile(r"([a-z]{3,6}):([0-9]{1,15}):([A-Za-z0-9._:@~-]{0,200})")
MAX_CURSOR = 400


def _cursor(value: str) -> str:
    decode_cursor(value)
    return value


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
    error: ErrorText | None = None
    since: DeadlineField | None = None
    cursor: Cursor | None = None
    limit: PageLimit = DEFAULT_PAGE


def since_at(since: Deadline | None, now: Callable[[], int]) -> int:
    """Instant (epoch ms) of a beginning: itself, or a time before `now`; 0 for none."""
    if since is None:
        return 0
    return max(0, now() - (since.after_ms or 0)) if since.at is None else since.at


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
    return {"tasks": list(map(show_task, page.tasks)), "next_cursor": page.next and page.next.cursor}
