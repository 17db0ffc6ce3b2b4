"""`/health`: whether tasks can be taken."""

from aws_lambda_powertools.event_handler import Response
from aws_lambda_powertools.event_handler.router import APIGatewayHttpRouter

from duecourse import wiring
from duecourse.errors import StoreUnavailable
from duecourse.routes.parts import answer
from duecourse.wire import problems
from duecourse.wire.http import Health

router = APIGatewayHttpRouter()  # type: ignore[no-untyped-call]


@router.get("/health")
def health() -> Response[Health]:
    """Tell whether tasks can be taken."""
    try:
        wiring.store().ping()
    except StoreUnavailable:
        return answer(503, {"status": "unavailable", "store": "unavailable"}, problems.RETRY_AFTER)
    return answer(200, {"status": "ok", "store": "ok"})
