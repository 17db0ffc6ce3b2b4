"""Requests and answers of `/queries`."""

from typing import Annotated, Any, NotRequired

from pydantic import ConfigDict, Field, StrictStr, WithJsonSchema
from typing_extensions import TypedDict

from duecourse.api.fields import Duration, ShownInstant, Strict, about, between, json_of, matching
from duecourse.api.kind_payloads import PollPayload
from duecourse.base.json_text import Json
from duecourse.base.masking import masked_error
from duecourse.base.times import DAY_MS, format_duration, format_instant
from duecourse.ledger.api_query import (
    DEADLINE_MS,
    ID_PATTERN,
    IDENTITY,
    MIN_INTERVAL_MS,
    Query,
    QueryState,
    QueryStatus,
)
from duecourse.ledger.task import MAX_PAYLOAD_BYTES

QUERY_ID = "q-5d1c7a2f9be04e36a7c1f0d2934b8e65@api.example.com"
EXAMPLE: dict[str, Json] = {
    "url": "https://api.example.com/reports?month=2026-10",
    "interval": "PT10S",
    "until": "status == 'ready'",
    "result": "report",
    "max_age": "PT1H",
}
ANSWERED: Json = {
    "data": {"rows": 1204, "total": "98123.40"},
    "status": "done",
    "fetched_at": "2026-11-21T09:30:00.000Z",
    "task": QUERY_ID,
    "queue": "query:api.example.com",
}
PROCESSING: Json = {
    **ANSWERED,
    "data": None,
    "status": "processing",
    "fetched_at": None,
    "due_at": "2026-11-21T09:30:10.000Z",
}
ID_SCHEMA = {"type": "string", "pattern": ID_PATTERN, "maxLength": 93, "examples": [QUERY_ID]}
QueryId = Annotated[
    StrictStr,
    matching(ID_PATTERN, "must be the id of a query, as in the answer of POST /queries: q-…@<host>"),
    WithJsonSchema(ID_SCHEMA),
]


class AskQuery(PollPayload):
    """Body of `POST /queries`: request `url` now, then at each `interval`, until the JSON answer makes `until` true."""

    model_config = ConfigDict(json_schema_extra={"examples": [EXAMPLE]})

    interval: Annotated[Duration, between(MIN_INTERVAL_MS, DEADLINE_MS)] = Field(
        description="Interval between two requests, PT0.1S to PT24H, and at least DUECOURSE_POLL_INTERVAL (PT1S). "
        "A longer Retry-After takes precedence.",
        examples=["PT30S"],
    )
    body: Annotated[Any, json_of(MAX_PAYLOAD_BYTES)] = Field(
        None, description="Body of the request. A string is sent as text/plain, any other value as JSON."
    )
    max_age: Annotated[Duration, between(0, 366 * DAY_MS)] = Field(
        "PT1M",
        validate_default=True,
        description="Maximum age of a stored answer that is returned without a new request; 0 always sends one.",
    )

    def query(self) -> Query:
        """The query asked for."""
        asked = {name: getattr(self, name) for name in (*IDENTITY, "auth")}
        spans = {"interval": self.interval, "timeout": self.timeout}
        given = asked | {name: format_duration(span) for name, span in spans.items() if span is not None}
        return Query({name: value for name, value in given.items() if value is not None}, self.max_age)


class QueryKey(Strict):
    """Id of a query."""

    id: QueryId


class QueryView(TypedDict):
    """Query: its answer, or the newest known data while duecourse keeps asking."""

    data: Annotated[Any, about("Newest answer, or the part that `result` selects; null before the first answer.")]
    status: Annotated[
        QueryState,
        about(
            "State of the query. `done`: `data` is the answer. `processing`: duecourse keeps "
            "asking. `failed`: duecourse has stopped."
        ),
    ]
    fetched_at: Annotated[ShownInstant | None, about("Time at which `data` was fetched; null before the first answer.")]
    task: Annotated[str, about("Id of the query, and of its task in `queue`.", QUERY_ID)]
    queue: Annotated[str, about("Queue of all queries to this host.", "query:api.example.com")]
    due_at: NotRequired[
        Annotated[ShownInstant, about("Time of the next request; present while the query is processing.")]
    ]
    error: NotRequired[Annotated[str, about("Error of the newest call that failed.")]]


def show_query(seen: QueryStatus) -> QueryView:
    """A query in the words of the HTTP API."""
    view: QueryView = {
        "data": seen.known.data if seen.known else None,
        "status": seen.status,
        "fetched_at": format_instant(seen.known.fetched_at) if seen.known else None,
        "task": seen.id,
        "queue": seen.queue,
    }
    if seen.due_at:
        view["due_at"] = format_instant(seen.due_at)
    if seen.error:
        view["error"] = masked_error(seen.error)
    return view
