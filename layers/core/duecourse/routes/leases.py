"""`/tasks/{id}/settle`, `/extend`, `/save`: for a worker that settles by itself, in whatever language."""

from typing import Annotated

from aws_lambda_powertools.event_handler import Response
from aws_lambda_powertools.event_handler.openapi.params import Body
from aws_lambda_powertools.event_handler.router import APIGatewayHttpRouter

from duecourse import wiring
from duecourse.domain.task import DEFAULT_QUEUE, dump_state
from duecourse.domain.times import format_instant
from duecourse.errors import LeaseLost, TaskNotFound
from duecourse.ports.store import Lease
from duecourse.routes.parts import Id, Queue, refuses, tenant
from duecourse.wire.leases import ExtendLease, LeaseAnswer, SaveState, SettleAnswer, SettleTask

router = APIGatewayHttpRouter()  # type: ignore[no-untyped-call]


@router.post("/tasks/<id>/settle")
@refuses(TaskNotFound, LeaseLost)
def settle_task(id: Id, body: Annotated[SettleTask, Body()], queue: Queue = DEFAULT_QUEUE) -> SettleAnswer:
    """End a lease, for a function that settles by itself."""
    return {"settled": wiring.leases().settle(queue, Lease(id, body.token, tenant()), body.value())}


@router.post("/tasks/<id>/extend")
@refuses(TaskNotFound, LeaseLost)
def extend_task(id: Id, body: Annotated[ExtendLease, Body()], queue: Queue = DEFAULT_QUEUE) -> LeaseAnswer:
    """Give a lease more time."""
    return {"expires_at": format_instant(wiring.leases().extend(queue, Lease(id, body.token, tenant()), body.time))}


@router.post("/tasks/<id>/save")
@refuses(TaskNotFound, LeaseLost)
def save_task(id: Id, body: Annotated[SaveState, Body()], queue: Queue = DEFAULT_QUEUE) -> Response[None]:
    """Keep a checkpoint."""
    wiring.leases().save(queue, Lease(id, body.token, tenant()), dump_state(body.state))
    return Response(204)
