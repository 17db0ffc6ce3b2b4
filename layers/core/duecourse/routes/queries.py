"""`/queries`: ask a slow API, and look at what is known of its answer."""

from typing import Annotated, Any
from urllib.parse import unquote

from aws_lambda_powertools.event_handler import Response
from aws_lambda_powertools.event_handler.content_types import APPLICATION_JSON
from aws_lambda_powertools.event_handler.openapi.params import Body, Path
from aws_lambda_powertools.event_handler.openapi.types import OpenAPIResponse
from aws_lambda_powertools.event_handler.router import APIGatewayHttpRouter
from pydantic import BeforeValidator

from duecourse import wiring
from duecourse.domain.query import QueryStatus
from duecourse.errors import QueryFailed, QueryNotFound
from duecourse.routes import request
from duecourse.routes.parts import answer, count_added, refusal, refuses, tenant
from duecourse.wire import problems
from duecourse.wire.queries import ANSWERED, PROCESSING, AskQuery, QueryId, QueryView, show_query

router = APIGatewayHttpRouter()  # type: ignore[no-untyped-call]

Id = Annotated[QueryId, BeforeValidator(unquote), Path(description="The query's id.")]


def _with(description: str, example: Any) -> OpenAPIResponse:
    content = {APPLICATION_JSON: {"model": QueryView, "examples": {"answer": {"value": example}}}}
    return {"description": description, "content": content}  # type: ignore[typeddict-item]


ANSWERS: dict[int, OpenAPIResponse] = {
    200: _with("The answer.", ANSWERED),
    202: _with("Not answered yet: it is asked until it is.", PROCESSING),
}
STATUS = {QueryStatus.DONE: 200, QueryStatus.PROCESSING: 202}


@router.post("/queries", responses=ANSWERS)
@refuses(QueryFailed)
def query(body: Annotated[AskQuery, Body()]) -> Response[Any]:
    """Ask a slow API now, and on until it has answered; the same query under way is not asked twice.

    Stop one that is under way by DELETE /tasks/{id} with its task and queue.
    """
    asked = wiring.queries().ask(body.query(), request.remaining_ms, tenant(), since=request.since())
    count_added(int(asked.created))
    seen = asked.standing
    if seen.status is QueryStatus.FAILED:
        return refusal(problems.describe(QueryFailed(seen.id, seen.queue, seen.error)))
    return answer(STATUS[seen.status], show_query(seen))


@router.get("/queries/<id>")
@refuses(QueryNotFound)
def get_query(id: Id) -> QueryView:
    """Show a query: its answer, or what is known while it is asked."""
    return show_query(wiring.queries().get(id, tenant()))
