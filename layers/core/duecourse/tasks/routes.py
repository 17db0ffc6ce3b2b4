"""`/tasks`: add one or many, list, show, explain, move, replay, cancel."""

from collections.abc import Callable
from typing import Annotated

from aws_lambda_powertools.event_handler import Response
from aws_lambda_powertools.event_handler.openapi.params import Body, Query
from aws_lambda_powertools.event_handler.router import APIGatewayHttpRouter

from duecourse.api.authorization import Role
from duecourse.api.fields import DeadlineField, ErrorText, Name
from duecourse.api.request import app, current_request, request_source, tenant
from duecourse.api.router import Force, Id, Queue, answer, needs, rejects
from duecourse.errors import (
    BeyondQuota,
    ChangedSince,
    PastDeadline,
    QuotaExceeded,
    TaskCancelled,
    TaskDamaged,
    TaskDead,
    TaskDone,
    TaskLeased,
    TaskNotFound,
    TaskScheduled,
)
from duecourse.ledger.many_tasks import TaskFilter
from duecourse.ledger.operation_types import Move
from duecourse.ledger.task import DEFAULT_QUEUE, AddResult, NewTask, Status
from duecourse.tasks.fast_parse import BatchBody, TaskBody
from duecourse.tasks.http import (
    DEFAULT_PAGE,
    ERROR,
    SINCE,
    AddAnswer,
    BatchAnswer,
    Cursor,
    MoveTask,
    PageAnswer,
    PageLimit,
    TaskAnswer,
    WhyAnswer,
    show_batch,
    show_page,
    show_task,
    show_why,
    since_at,
    start_of,
)
from duecourse.tasks.verbs import Tasks

router = APIGatewayHttpRouter()  # type: ignore[no-untyped-call]


def _tasks() -> Tasks:
    """Operations on tasks with the source and the Idempotency-Key of the current request."""
    return app().tasks.with_source(request_source(), current_request().keyed)


def assign_tenant(task: NewTask, tenant: str, name: Callable[[], str]) -> NewTask:
    """The task of a body as its tenant's, with an id of `name` where none was given."""
    return task if task.id and tenant == task.tenant else task._replace(id=task.id or name(), tenant=tenant)


@router.post("/tasks")
@needs(Role.CALLER)
@rejects(TaskScheduled, TaskLeased, TaskDead, PastDeadline, ChangedSince, QuotaExceeded, BeyondQuota)
def add_task(body: Annotated[TaskBody, Body()]) -> Response[AddAnswer]:
    """Add a task; 201 if it is new, 200 if the id already exists."""
    request = current_request()
    task = assign_tenant(body, request.tenant, request.new_id)
    added = _tasks().add(task)
    current_request().measure_added(int(added.created))
    return answer(201 if added.created else 200, {"task": show_task(added.task), "created": added.created})


@router.post("/tasks/batch")
@needs(Role.CALLER)
@rejects()
def add_tasks(body: Annotated[BatchBody, Body()]) -> BatchAnswer:
    """Add up to 1,000 tasks. A wrong field rejects all of them; an id's state or a quota rejects one."""
    request = current_request()
    new_tasks = [assign_tenant(task, request.tenant, request.new_id) for task in body]
    items = _tasks().add_many(new_tasks)
    current_request().measure_added(sum(isinstance(item, AddResult) and item.created for item in items))
    return show_batch([task.id for task in new_tasks], items)


@router.get("/tasks")
@needs(Role.CALLER)
@rejects()
def list_tasks(
    queue: Queue = DEFAULT_QUEUE,
    state: Annotated[Status | None, Query(description="Filter: tasks in this state.")] = None,
    kind: Annotated[Name | None, Query(description="Filter: tasks of this kind.")] = None,
    group: Annotated[Name | None, Query(description="Filter: tasks of this group, such as one reminder's.")] = None,
    error: Annotated[ErrorText | None, Query(description=ERROR)] = None,
    since: Annotated[DeadlineField | None, Query(description=SINCE)] = None,
    cursor: Annotated[Cursor | None, Query(description="Cursor: the `next_cursor` of the previous page.")] = None,
    limit: Annotated[PageLimit, Query(description="Maximum number of tasks.")] = DEFAULT_PAGE,
) -> PageAnswer:
    """List the tasks of a queue, by state and time."""
    wanted = TaskFilter(state, kind or "", group or "", error or "", since_at(since, app().ledger.now))
    return show_page(app().tasks.page(queue, wanted, start_of(cursor, wanted), limit, tenant()))


@router.get("/tasks/<id>")
@needs(Role.CALLER)
@rejects(TaskNotFound, TaskDamaged)
def get_task(id: Id, queue: Queue = DEFAULT_QUEUE) -> TaskAnswer:
    """Show a task."""
    return {"task": show_task(app().tasks.get(queue, id, tenant()))}


@router.patch("/tasks/<id>")
@needs(Role.CALLER)
@rejects(TaskNotFound, TaskLeased, TaskDone, TaskCancelled, TaskDead, PastDeadline, ChangedSince)
def move_task(id: Id, body: MoveTask, queue: Queue = DEFAULT_QUEUE) -> TaskAnswer:
    """Move a task to a new due time."""
    move = Move(id, due_at=body.due_at, delay_ms=body.delay or 0, force=body.force)
    return {"task": show_task(_tasks().move(queue, move, tenant()))}


@router.get("/tasks/<id>/why")
@needs(Role.CALLER)
@rejects(TaskNotFound, TaskDamaged)
def why_task(id: Id, queue: Queue = DEFAULT_QUEUE) -> WhyAnswer:
    """Explain a task: what happened to it, and why it is not running now."""
    return show_why(app().tasks.why(queue, id, tenant()))


@router.post("/tasks/<id>/replay")
@needs(Role.CALLER)
@rejects(TaskNotFound, TaskScheduled, TaskLeased, TaskDone, TaskCancelled, QuotaExceeded)
def replay_task(id: Id, queue: Queue = DEFAULT_QUEUE) -> TaskAnswer:
    """Replay a dead task now, with all its attempts and the full time to its deadline."""
    return {"task": show_task(_tasks().replay(queue, id, tenant()))}


@router.delete("/tasks/<id>")
@needs(Role.CALLER)
@rejects(TaskNotFound, TaskLeased, TaskDone, TaskCancelled)
def cancel_task(id: Id, queue: Queue = DEFAULT_QUEUE, force: Force = False) -> Response[None]:
    """Cancel a task, or delete a dead one."""
    _tasks().cancel(queue, id, force=force, tenant=tenant())
    return Response(204)
