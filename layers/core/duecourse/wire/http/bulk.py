"""The requests and answers of `/queues/{queue}/purge` and `/queues/{queue}/cancel`: acts on many tasks at once."""

import re
from base64 import urlsafe_b64decode, urlsafe_b64encode
from collections.abc import Collection
from typing import Annotated, Literal, Self

from pydantic import AfterValidator, ConfigDict, Field, StrictBool, StrictStr, model_validator
from typing_extensions import TypedDict

from duecourse.domain.bulk import DEFAULT_BULK, MAX_BULK, Act, Bulk, BulkResult, Reached
from duecourse.domain.task import Status
from duecourse.errors import FieldError, InvalidInput
from duecourse.wire.http.fields import Duration, ErrorText, Name, Strict, about, reject_fields
from duecourse.wire.http.pages import CURSOR, ERROR, MAX_CURSOR

PLACE = re.compile(r"([0-9]{1,4}):([a-z]{4,9}):([0-9]{1,15}):([A-Za-z0-9._:@~-]{0,200})")


def encode_reached(place: Reached) -> str:
    """A place in the words of a request: opaque."""
    return urlsafe_b64encode(":".join(map(str, place)).encode()).decode().rstrip("=")


def decode_reached(text: str) -> Reached:
    """The place that a cursor names. Raises ValueError."""
    try:
        found = PLACE.fullmatch(urlsafe_b64decode(text + "=" * (-len(text) % 4)).decode())
    except ValueError:
        found = None
    if not found or found[2] not in {*Status}:
        raise ValueError("must be the next_cursor of an earlier answer, unchanged")
    return Reached(int(found[1]), Status(found[2]), int(found[3]), found[4])


def _cursor(value: str) -> str:
    decode_reached(value)
    return value


BulkCursor = Annotated[StrictStr, Field(max_length=MAX_CURSOR), AfterValidator(_cursor)]


class _Many(Strict):
    """Fields of every request for many tasks."""

    kind: Name | None = Field(None, description="Filter: tasks of this kind.", examples=["report"])
    group: Name | None = Field(None, description="Filter: tasks of this group, such as one reminder's.")
    error: ErrorText | None = Field(None, description=ERROR, examples=["KeyError: 'prize'"])
    limit: int = Field(
        DEFAULT_BULK,
        ge=1,
        le=MAX_BULK,
        strict=True,
        description="Maximum number of tasks of this request, 1 to 10,000; default 1,000.",
    )
    dry_run: StrictBool = Field(False, description="Count the tasks and change nothing. Default: false.")
    cursor: BulkCursor | None = Field(None, description=CURSOR)

    def _bulk(self, act: Act, *statuses: Status, min_age_ms: int = 0) -> Bulk:
        act = Act.COUNT if self.dry_run else act
        return Bulk(act, statuses, self.kind or "", self.group or "", min_age_ms, self.limit, self.error or "")


class PurgeTasks(_Many):
    """Body of `POST /queues/{queue}/purge`: the tasks of one state, with all that the ledger has of them.

    Completion notifications that are scheduled are left out.
    """

    state: Literal["scheduled", "done", "cancelled", "dead"] = Field(
        description="State of the tasks. A task that is running is never purged.", examples=["dead"]
    )
    older_than: Duration | None = Field(
        None,
        description="Filter: minimum age, since the add for `scheduled`, since the end for other states. Default: any.",
        examples=["P7D"],
    )

    def bulk(self) -> Bulk:
        """The same in the domain's words."""
        return self._bulk(Act.DELETE, Status(self.state), min_age_ms=self.older_than or 0)


class CancelTasks(_Many):
    """Body of `POST /queues/{queue}/cancel`: tasks by group, kind, error or state; give one of them at least.

    Completion notifications are left out.
    """

    model_config = ConfigDict(json_schema_extra={"examples": [{"group": "order-7"}]})

    state: Literal["scheduled", "leased"] | None = Field(
        None,
        description="Filter: tasks in this state; `leased` needs `force`. Default: scheduled, with `force` both.",
    )
    force: StrictBool = Field(
        False, description="Cancel running tasks too: their workers lose the leases. Default: false."
    )

    @model_validator(mode="after")
    def _says_which(self) -> Self:
        if not (self.group or self.kind or self.error or self.state):
            raise reject_fields("give group, kind, error or state", "group", "kind", "error", "state")
        if self.state == "leased" and not self.force:
            raise reject_fields("must be true to cancel tasks that are leased", "force")
        return self

    def bulk(self) -> Bulk:
        """The same in the domain's words."""
        if self.state:
            return self._bulk(Act.CANCEL, Status(self.state))
        return self._bulk(Act.CANCEL, Status.SCHEDULED, *((Status.LEASED,) if self.force else ()))


class ManyAnswer(TypedDict):
    """Fields of every answer about many tasks."""

    dry_run: Annotated[bool, about("True if the tasks were only counted.", False)]
    next_cursor: Annotated[
        str | None,
        about("Value of `cursor` for the next request, if tasks may remain; null after the last task.", None),
    ]


class PurgedAnswer(ManyAnswer):
    """Number of tasks that are deleted, or would be in a dry run."""

    purged: Annotated[int, about("Number of tasks of this request.", 40)]


class CancelledAnswer(ManyAnswer):
    """Number of tasks that are cancelled, or would be in a dry run."""

    cancelled: Annotated[int, about("Number of tasks of this request.", 40)]


def start_of(cursor: str | None, statuses: Collection[Status]) -> Reached | None:
    """Place that a right cursor names. Raises InvalidInput for a cursor of another state's request."""
    place = decode_reached(cursor) if cursor else None
    if place and place.status not in statuses:
        raise InvalidInput([FieldError("cursor", "belongs to a request for another state: start without a cursor")])
    return place


def show_many(result: BulkResult, *, dry_run: bool) -> ManyAnswer:
    """Result of one request, without the number."""
    return {"dry_run": dry_run, "next_cursor": result.next and encode_reached(result.next)}
