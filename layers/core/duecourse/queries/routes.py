"""`/queries`: ask a slow API, and look at what is known of its answer."""

from typing import Annotated, Any
from urllib.parse import unquote

from aws_lambda_powertools.event_handler import Response
from aws_lambda_powertools.event_handler.openapi.params import Path
from aws_lambda_powertools.event_handler.router import APIGatewayHttpRouter
from pydantic import BeforeValidator

from duecourse.api import problems
from duecourse.api.authorization import Role
from duecourse.api.request import app, current_request, request_source, tenant
from duecourse.api.router import answer, described, needs, problem_response, rejects
from duecourse.base.masking import masked_error
from duecourse.errors import BeyondQuota, QueryFailed, QueryNotFound, QuotaExceeded
from duecourse.ledger.api_query import QueryState
from duecourse.queries.http import ANSWERED, PROCESSING, AskQuery, QueryId, QueryView, show_query

router = APIGatewayHttpRouter()  # type: ignore[no-untyped-call]

Id = Annotated[QueryId, BeforeValidator(unquote), Path(description="Id of the query.")]


ANSWERS = {
    200: described("The answer.", QueryView, ANSWERED),
    202: described("No answer yet: duecourse keeps asking.", QueryView, PROCESSING),
}
STATUS = {QueryState.DONE: 200, QueryState.PROCESSING: 202}


@router.post("/queries", responses=ANSWERS)
@needs(Role.CALLER)
@rejects(QueryFailed, QuotaExceeded, BeyondQuota)
def query(body: AskQuery) -> Response[Any]:
    """Ask a slow API now, and keep asking until it answers; equal queries share one call.

    To stop a query, send `DELETE /tasks/{id}` with its task and queue.
    """
    result = (
        app()
        .queries.with_source(request_source())
        .ask(body.query(), current_request().remaining_ms, tenant(), current_request().keyed)
    )
    current_request().measure_added(int(result.created))
    seen = result.status
    if seen.status is QueryState.FAILED:
        return problem_response(problems.problem_of(QueryFailed(seen.id, seen.queue, masked_error(seen.error))))
    return answer(STATUS[seen.status], show_query(seen))


@router.get("/queries/<id>")
@needs(Role.CALLER)
@rejects(QueryNotFound)
def get_query(id: Id) -> QueryView:
    """Show a query: its answer, or the newest known data."""
    return show_query(app().queries.get(id, tenant()))
