"""`/tasks/{id}/begin`, `/settle`, `/extend`, `/save`: for a worker that settles by itself, in whatever language."""

from aws_lambda_powertools.event_handler import Response
from aws_lambda_powertools.event_handler.router import APIGatewayHttpRouter

from duecourse.api.authorization import Role
from duecourse.api.request import app, current_request, tenant
from duecourse.api.router import Id, Queue, needs, rejects
from duecourse.base.times import format_instant
from duecourse.errors import LeaseLost, TaskNotFound
from duecourse.ledger.operation_types import Lease
from duecourse.ledger.task import DEFAULT_QUEUE, dump_state
from duecourse.running import http

router = APIGatewayHttpRouter()  # type: ignore[no-untyped-call]


@router.post("/tasks/<id>/begin")
@needs(Role.WORKER)
@rejects(TaskNotFound, LeaseLost)
def begin_task(id: Id, body: http.BeginTask, queue: Queue = DEFAULT_QUEUE) -> http.BeginAnswer:
    """Begin a task that was handed over: 409 where another began it, or it was given back; do not run it then."""
    delivery = Lease(id, body.token, tenant())
    task = app().leases.begin(queue, delivery, body.time, body.worker, body.invocation, current_request().keyed)
    expires_at = format_instant(task.lease_expires_at)
    return {"token": task.token, "expires_at": expires_at, "run": task.run, "attempt": task.attempt}


@router.post("/tasks/<id>/settle")
@needs(Role.WORKER)
@rejects(TaskNotFound, LeaseLost)
def settle_task(id: Id, body: http.SettleTask, queue: Queue = DEFAULT_QUEUE) -> http.SettleAnswer:
    """Settle a task, for a function that does so over HTTP."""
    return {"settled": app().leases.settle(queue, Lease(id, body.token, tenant()), body.value())}


@router.post("/tasks/<id>/extend")
@needs(Role.WORKER)
@rejects(TaskNotFound, LeaseLost)
def extend_task(id: Id, body: http.ExtendLease, queue: Queue = DEFAULT_QUEUE) -> http.LeaseAnswer:
    """Extend a lease."""
    end = app().leases.extend(queue, Lease(id, body.token, tenant()), body.time, current_request().keyed)
    return {"expires_at": format_instant(end)}


@router.post("/tasks/<id>/save")
@needs(Role.WORKER)
@rejects(TaskNotFound, LeaseLost)
def save_task(id: Id, body: http.SaveState, queue: Queue = DEFAULT_QUEUE) -> Response[None]:
    """Save a checkpoint."""
    app().leases.save(queue, Lease(id, body.token, tenant()), dump_state(body.state), current_request().keyed)
    return Response(204)
