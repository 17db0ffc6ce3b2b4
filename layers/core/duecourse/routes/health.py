"""`/health`: whether tasks can be taken."""

from aws_lambda_powertools.event_handler import Response
from aws_lambda_powertools.event_handler.openapi.types import OpenAPIResponse
from aws_lambda_powertools.event_handler.router import APIGatewayHttpRouter

from duecourse.errors import StoreUnavailable
from duecourse.routes.parts import answer, described, needs
from duecourse.routes.request import app
from duecourse.wire.http import problems
from duecourse.wire.http.health import Health

router = APIGatewayHttpRouter()  # type: ignore[no-untyped-call]


AWAY: Health = {"status": "unavailable", "store": "unavailable"}
ANSWERS: dict[int, OpenAPIResponse] = {
    200: {"description": "The service accepts tasks."},
    503: described("The store does not answer.", Health, AWAY),
}


@router.get("/health", responses=ANSWERS)
@needs(None)
def health() -> Response[Health]:
    """Report whether the service accepts tasks."""
    try:
        app().store.ping()
    except StoreUnavailable:
        return answer(503, AWAY, problems.RETRY_AFTER)
    return answer(200, {"status": "ok", "store": "ok"})
