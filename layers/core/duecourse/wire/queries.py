"""The requests and answers of `/queries`."""

import re
from typing import Annotated, Any, NotRequired

from pydantic import ConfigDict, Field, StrictStr, WithJsonSchema
from typing_extensions import TypedDict

from duecourse.domain.query import DEADLINE_MS, ID_PATTERN, IDENTITY, Query, QueryStanding, QueryStatus
from duecourse.domain.task import MAX_PAYLOAD_BYTES, Json
from duecourse.domain.times import DAY_MS, format_duration, format_instant
from duecourse.wire.fields import Duration, Strict, Told, between, json_of, written_as
from duecourse.wire.kinds import MIN_INTERVAL_MS, PollPayload

QUERY_ID = "q-5d1c7a2f9be04e36a7c1f0d2934b8e65@api.example.com"
EXAMPLE: dict[str, Json] = {
    "url": "https://api.example.com/reports?month=2026-10",
    "interval": "PT10S",
    "until": "status == 'ready'",
    "result": "report",
    "max_age": "PT1H",
}
REPORT: Json = {"rows": 1204, "total": "98123.40"}
ANSWERED: Json = {
    "data": REPORT,
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
    written_as(re.compile(ID_PATTERN), "must be a query's id, as POST /queries answers it: q-…@<host>"),
    WithJsonSchema(ID_SCHEMA),
]


class AskQuery(PollPayload):
    """POST /queries: ask `url` now, and each `interval` from then on until its JSON answer makes `until` true."""

    model_config = ConfigDict(json_schema_extra={"examples": [EXAMPLE]})

    interval: Annotated[Duration, between(MIN_INTERVAL_MS, DEADLINE_MS)] = Field(
        description="How long between two requests, PT0.1S to PT24H; a longer Retry-After wins.", examples=["PT30S"]
    )
    body: Annotated[Any, json_of(MAX_PAYLOAD_BYTES)] = Field(
        None, description="The request's body: text goes out as it stands (text/plain), all else as JSON."
    )
    max_age: Annotated[Duration, between(0, 366 * DAY_MS)] = Field(
        "PT1M",
        validate_default=True,
        description="How old an answer may be that is told without asking again; 0: ask anew each time.",
    )

    def query(self) -> Query:
        """The query asked for."""
        asked = {name: getattr(self, name) for name in IDENTITY}
        spans = {"interval": self.interval, "timeout": self.timeout}
        given = asked | {name: format_duration(span) for name, span in spans.items() if span is not None}
        return Query({name: value for name, value in given.items() if value is not None}, self.max_age)


class QueryKey(Strict):
    """What names a query."""

    id: QueryId


class QueryView(TypedDict):
    """A query as it stands: its answer, or what was known before while it is asked."""

    data: Annotated[
        Any, Field(description="The newest answer there is, or what `result` picks of it; null before the first.")
    ]
    status: Annotated[
        QueryStatus,
        Field(
            description="`done`: `data` answers it. `processing`: it is asked until it is. `failed`: it is given up."
        ),
    ]
    fetched_at: Annotated[Told | None, Field(description="When `data` came; null before the first answer.")]
    task: Annotated[
        str, Field(description="Its id: of the query, and of the task that asks within `queue`.", examples=[QUERY_ID])
    ]
    queue: Annotated[str, Field(description="The queue of all that ask this host.", examples=["query:api.example.com"])]
    due_at: NotRequired[Annotated[Told, Field(description="While it is processing: when it is asked next.")]]
    error: NotRequired[Annotated[str, Field(description="Why the last call that failed did so.")]]


def show_query(seen: QueryStanding) -> QueryView:
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
        view["error"] = seen.error
    return view
