"""`GET /queues/{queue}/dead`: dead tasks by their errors."""

from typing import Annotated

from pydantic import Field
from typing_extensions import TypedDict

from duecourse.domain.bulk import DEFAULT_BULK, MAX_BULK
from duecourse.domain.dead import DeadGroup, DeadGroups
from duecourse.domain.times import format_instant
from duecourse.wire.http.bulk import BulkCursor, encode_reached
from duecourse.wire.http.fields import DeadlineField, ErrorText, Name, ShownInstant, Strict, about

NextOfDead = Annotated[
    str | None,
    about("Value of `cursor` for the next request, if dead tasks may remain; null after the last task.", None),
]
DeadLimit = Annotated[int, Field(ge=1, le=MAX_BULK)]


class ListDead(Strict):
    """Fields of GET /queues/{queue}/dead, from Python."""

    kind: Name | None = None
    group: Name | None = None
    error: ErrorText | None = None
    since: DeadlineField | None = None
    cursor: BulkCursor | None = None
    limit: DeadLimit = DEFAULT_BULK


class DeadGroupView(TypedDict):
    """Dead tasks of one kind that died of the same error."""

    error: Annotated[
        str,
        about(
            "Error, with `#` in place of numbers and ids, in which the errors of a group may differ. The filter `error`"
            " takes this text.",
            "KeyError: 'prize' at app.py:9",
        ),
    ]
    kind: Annotated[str, about("Kind of the tasks.", "report")]
    count: Annotated[int, about("Number of tasks.", 50)]
    since: Annotated[ShownInstant, about("Time of the first death.")]
    latest: Annotated[ShownInstant, about("Time of the last death.")]
    example: Annotated[str, about("Id of the task that died last.", "order-7")]


class DeadAnswer(TypedDict):
    """Dead tasks by their errors, at most 100 groups.

    A further request with the cursor looks at further tasks: the same group may come again, and its numbers add up.
    """

    tasks: Annotated[int, about("Number of tasks in these groups.", 50)]
    errors: Annotated[list[DeadGroupView], about("Groups, the largest first.")]
    next_cursor: NextOfDead


def show_dead(found: DeadGroups) -> DeadAnswer:
    """Dead tasks in the words of the HTTP API."""
    return {
        "tasks": sum(one.count for one in found.groups),
        "errors": list(map(_show_group, found.groups)),
        "next_cursor": found.next and encode_reached(found.next),
    }


def _show_group(one: DeadGroup) -> DeadGroupView:
    return {
        "error": one.error,
        "kind": one.kind,
        "count": one.count,
        "since": format_instant(one.first_at),
        "latest": format_instant(one.last_at),
        "example": one.id,
    }
