"""`/queues/{queue}`: what is done to a queue as a whole."""

from typing import Annotated

from aws_lambda_powertools.event_handler.openapi.params import Body
from aws_lambda_powertools.event_handler.router import APIGatewayHttpRouter

from duecourse import wiring
from duecourse.routes.parts import NameInPath, refuses, tenant
from duecourse.wire.pages import ReplayDead, ReplayedAnswer, show_replayed

router = APIGatewayHttpRouter()  # type: ignore[no-untyped-call]


@router.post("/queues/<id>/dead/replay")
@refuses()
def replay_dead(id: NameInPath, body: Annotated[ReplayDead, Body()]) -> ReplayedAnswer:
    """Schedule a queue's dead tasks again, oldest first; a dry run only tells which."""
    return show_replayed(wiring.tasks().replay_dead(id, body.replay(), tenant()), dry_run=body.dry_run)
