"""`/tasks/{id}/begin`, `/settle`, `/extend`, `/save`: for a worker that settles by itself, in whatever language."""

from aws_lambda_powertools.event_handler import Response
from aws_lambda_powertools.event_handler.router import APIGatewayHttpRouter

from duecourse.domain.access import Role
from duecourse.domain.task import DEFAULT_QUEUE, dump_state
from duecourse.domain.times import format_instant
from duecourse.errors import LeaseLost, TaskNotFound
from duecourse.ports.leases import Lease
from duecourse.routes.parts import Id, Queue, needs, rejects
from duecourse.routes.request import app, tenant
from duecourse.wire.http import leases

router = APIGatewayHttpRouter()  # type: ignore[no-untyped-call]


@router.post("/tasks/<id>/begin")
@needs(Role.WORKER)
@rejects(TaskNotFound, LeaseLost)
def begin_task(id: Id, body: leases.BeginTask, queue: Queue = DEFAULT_QUEUE) -> leases.BeginAnswer:
    """Begin a task that was handed over: 409 where another began it, or it was given back; do not run it then."""
    task = app().leases.begin(queue, Lease(id, body.token, tenant()), body.time, body.worker, body.invocation)
    expires_at = format_instant(task.lease_expires_at)
    return {"token": task.token, "expires_at": expires_at, "run": task.run, "attempt": task.attempt}


@router.post("/tasks/<id>/settle")
@needs(Role.WORKER)
@rejects(TaskNotFound, LeaseLost)
def settle_task(id: Id, body: leases.SettleTask, queue: Queue = DEFAULT_QUEUE) -> leases.SettleAnswer:
    """Settle a task, for a function that does so over HTTP."""
    return {"settled": app().leases.settle(queue, Lease(id, body.token, tenant()), body.value())}


@router.post("/tasks/<id>/extend")
@needs(Role.WORKER)
@rejects(TaskNotFound, LeaseLost)
def extend_task(id: Id, body: leases.ExtendLease, queue: Queue = DEFAULT_QUEUE) -> leases.LeaseAnswer:
    """Extend a lease."""
    return {"expires_at": format_instant(app().leases.extend(queue, Lease(id, body.token, tenant()), body.time))}


@router.post("/tasks/<id>/save")
@needs(Role.WORKER)
@rejects(TaskNotFound, LeaseLost)
def save_task(id: Id, body: leases.SaveState, queue: Queue = DEFAULT_QUEUE) -> Response[None]:
    """Save a checkpoint."""
    app().leases.save(queue, Lease(id, body.token, tenant()), dump_state(body.state))
    return Response(204)
