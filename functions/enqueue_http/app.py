"""The HTTP API: each route parses, makes one call of the engine, and shapes the answer."""

import json
from typing import Annotated, Any
from urllib.parse import unquote

from aws_lambda_powertools import Logger, Metrics
from aws_lambda_powertools.event_handler import APIGatewayHttpResolver, Response
from aws_lambda_powertools.event_handler.content_types import APPLICATION_JSON
from aws_lambda_powertools.event_handler.exceptions import NotFoundError
from aws_lambda_powertools.event_handler.openapi.exceptions import RequestValidationError
from aws_lambda_powertools.event_handler.openapi.params import Body, Path, Query
from aws_lambda_powertools.metrics import MetricUnit
from aws_lambda_powertools.utilities.typing import LambdaContext
from pydantic import BeforeValidator

from duecourse import wiring
from duecourse.domain.task import DEFAULT_QUEUE, dump_state
from duecourse.domain.times import format_instant
from duecourse.errors import DuecourseError, InvalidInput, StoreUnavailable
from duecourse.ports.store import Lease, Move
from duecourse.wire import problems
from duecourse.wire.fields import Flag, Name, TaskId, field_errors
from duecourse.wire.http import AddAnswer, AddTask, Health, MoveTask, TaskAnswer, parse_body, show_task
from duecourse.wire.leases import ExtendLease, LeaseAnswer, SaveState, SettleAnswer, SettleTask
from duecourse.wire.reminders import (
    AddReminder,
    AddReminderAnswer,
    MoveReminder,
    MoveReminderAnswer,
    ReminderAnswer,
    show_added,
    show_moved,
    show_reminder,
)

app = APIGatewayHttpResolver(enable_validation=True, json_body_deserializer=parse_body)
logger = Logger()
metrics = Metrics(namespace="duecourse")

# No id holds a percent sign: what a gateway left encoded can be decoded without harm.
Id = Annotated[TaskId, BeforeValidator(unquote), Path()]
ReminderId = Annotated[Name, BeforeValidator(unquote), Path()]
Queue = Annotated[Name, Query()]
Force = Annotated[Flag, Query()]


@app.post("/tasks")
def add_task(body: Annotated[AddTask, Body()]) -> Response[AddAnswer]:
    """Add a task; 201 where this made it, 200 where it stood already."""
    taken = wiring.tasks().add(body.task())
    count_added(int(taken.created))
    return answer(201 if taken.created else 200, {"task": show_task(taken.task), "created": taken.created})


@app.get("/tasks/<id>")
def get_task(id: Id, queue: Queue = DEFAULT_QUEUE) -> TaskAnswer:
    """Show a task."""
    return {"task": show_task(wiring.tasks().get(queue, id))}


@app.patch("/tasks/<id>")
def move_task(id: Id, body: Annotated[MoveTask, Body()], queue: Queue = DEFAULT_QUEUE) -> TaskAnswer:
    """Give a task a new due time."""
    move = Move(id, due_at=body.due_at, delay_ms=body.delay or 0, force=body.force)
    return {"task": show_task(wiring.tasks().move(queue, move))}


@app.delete("/tasks/<id>")
def cancel_task(id: Id, queue: Queue = DEFAULT_QUEUE, force: Force = False) -> Response[None]:
    """Cancel a task, or delete a dead one."""
    wiring.tasks().cancel(queue, id, force=force)
    return Response(204)


@app.post("/tasks/<id>/settle")
def settle_task(id: Id, body: Annotated[SettleTask, Body()], queue: Queue = DEFAULT_QUEUE) -> SettleAnswer:
    """End a lease, for a function that settles by itself."""
    return {"settled": wiring.leases().settle(queue, Lease(id, body.token), body.value())}


@app.post("/tasks/<id>/extend")
def extend_task(id: Id, body: Annotated[ExtendLease, Body()], queue: Queue = DEFAULT_QUEUE) -> LeaseAnswer:
    """Give a lease more time."""
    return {"expires_at": format_instant(wiring.leases().extend(queue, Lease(id, body.token), body.time))}


@app.post("/tasks/<id>/save")
def save_task(id: Id, body: Annotated[SaveState, Body()], queue: Queue = DEFAULT_QUEUE) -> Response[None]:
    """Keep a checkpoint."""
    wiring.leases().save(queue, Lease(id, body.token), dump_state(body.state))
    return Response(204)


@app.post("/reminders")
def add_reminder(body: Annotated[AddReminder, Body()]) -> Response[AddReminderAnswer]:
    """Add a reminder; 201 where this made it, 200 where the same one stood already."""
    made = wiring.reminders().add(body.reminder())
    count_added(len(made.tasks) if made.created else 0)
    return answer(201 if made.created else 200, show_added(body.id, made.tasks))


@app.get("/reminders/<id>")
def get_reminder(id: ReminderId) -> ReminderAnswer:
    """Show a reminder."""
    return show_reminder(wiring.reminders().get(id))


@app.patch("/reminders/<id>")
def move_reminder(id: ReminderId, body: Annotated[MoveReminder, Body()]) -> MoveReminderAnswer:
    """Give a reminder a new start."""
    return show_moved(wiring.reminders().move(id, body.starts_at))


@app.delete("/reminders/<id>")
def cancel_reminder(id: ReminderId, force: Force = False) -> Response[None]:
    """Cancel a reminder."""
    wiring.reminders().cancel(id, force=force)
    return Response(204)


@app.get("/health")
def health() -> Response[Health]:
    """Tell whether tasks can be taken."""
    try:
        wiring.store().ping()
    except StoreUnavailable:
        return answer(503, {"status": "unavailable", "store": "unavailable"}, problems.RETRY_AFTER)
    return answer(200, {"status": "ok", "store": "ok"})


def refuse(error: Exception) -> Response[str]:
    """Answer with a problem document; what is nobody's fault outside goes to the log."""
    problem = problems.describe(translate(error))
    if problem.status >= 500:
        logger.exception("refused", exc_info=error, status=problem.status)
    return Response(problem.status, problems.CONTENT_TYPE, json.dumps(problem.document), problem.headers)


def translate(error: Exception) -> Exception:
    """The router's own refusals in our words; any other error as it is."""
    match error:
        case DuecourseError():
            return error
        case NotFoundError():
            return problems.NoSuchRoute(f"Nothing answers to {app.current_event.http_method} {app.current_event.path}.")
        case _ if not problems.is_json(app.current_event.headers.get("content-type", "")):
            return problems.UnsupportedBody()
        case RequestValidationError():
            return InvalidInput(field_errors(error.errors()))
    return error


app.exception_handler(Exception)(refuse)


def answer(status: int, body: Any, headers: dict[str, str | list[str]] | None = None) -> Response[Any]:
    """A JSON answer that is not a plain 200."""
    return Response(status, APPLICATION_JSON, body, headers)


def count_added(tasks: int) -> None:
    """Count tasks taken, in the log's embedded metric format."""
    metrics.add_metric("Added", MetricUnit.Count, tasks)
    metrics.flush_metrics()


@logger.inject_lambda_context
def handler(event: dict[str, Any], context: LambdaContext) -> dict[str, Any]:
    """Answer one request of the HTTP API (payload format 2.0)."""
    return app.resolve(event, context)
