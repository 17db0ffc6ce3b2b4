"""`/tasks`: add, list, show, explain, move, replay, cancel."""

from typing import Annotated

from aws_lambda_powertools.event_handler import Response
from aws_lambda_powertools.event_handler.openapi.params import Body, Query
from aws_lambda_powertools.event_handler.router import APIGatewayHttpRouter

from duecourse.domain.access import Role
from duecourse.domain.order import AddResult
from duecourse.domain.pages import Wanted
from duecourse.domain.task import DEFAULT_QUEUE, Status
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
from duecourse.ports.tasks import Move
from duecourse.routes.parts import Force, Id, Queue, answer, count_added, needs, rejects
from duecourse.routes.request import app, by, served, tenant
from duecourse.wire.http.batch import MAX_BATCH_BYTES, BatchAnswer, show_batch
from duecourse.wire.http.fields import DeadlineField, ErrorText, Name
from duecourse.wire.http.pages import (
    DEFAULT_PAGE,
    ERROR,
    SINCE,
    Cursor,
    PageAnswer,
    PageLimit,
    show_page,
    since_at,
    start_of,
)
from duecourse.wire.http.tasks import AddAnswer, MoveTask, TaskAnswer, show_task
from duecourse.wire.http.usual import AskedBatch, AskedTask, owned
from duecourse.wire.http.why import WhyAnswer, show_why

BODY_BYTES = {"/tasks/batch": MAX_BATCH_BYTES}
"""Routes whose body may be larger than elsewhere, with the limit."""

router = APIGatewayHttpRouter()  # type: ignore[no-untyped-call]


@router.post("/tasks")
@needs(Role.CALLER)
@rejects(TaskScheduled, TaskLeased, TaskDead, PastDeadline, QuotaExceeded, BeyondQuota)
def add_task(body: Annotated[AskedTask, Body()]) -> Response[AddAnswer]:
    """Add a task; 201 if it is new, 200 if the id already exists."""
    taken = app().tasks.speaking_as(by(), served().keyed).add(owned(body, tenant(), served().new_id))
    count_added(int(taken.created))
    return answer(201 if taken.created else 200, {"task": show_task(taken.task), "created": taken.created})


@router.post("/tasks/batch")
@needs(Role.CALLER)
@rejects()
def add_tasks(body: Annotated[AskedBatch, Body()]) -> BatchAnswer:
    """Add up to 1,000 tasks. A wrong field rejects all of them; an id's state or a quota rejects one."""
    asked = [owned(task, tenant(), served().new_id) for task in body]
    items = app().tasks.speaking_as(by(), served().keyed).add_many(asked)
    count_added(sum(isinstance(item, AddResult) and item.created for item in items))
    return show_batch([task.id for task in asked], items)


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
    wanted = Wanted(state, kind or "", group or "", error or "", since_at(since, app().store.now))
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
    return {"task": show_task(app().tasks.speaking_as(by(), served().keyed).move(queue, move, tenant()))}


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
    return {"task": show_task(app().tasks.speaking_as(by(), served().keyed).replay(queue, id, tenant()))}


@router.delete("/tasks/<id>")
@needs(Role.CALLER)
@rejects(TaskNotFound, TaskLeased, TaskDone, TaskCancelled)
def cancel_task(id: Id, queue: Queue = DEFAULT_QUEUE, force: Force = False) -> Response[None]:
    """Cancel a task, or delete a dead one."""
    app().tasks.speaking_as(by(), served().keyed).cancel(queue, id, force=force, tenant=tenant())
    return Response(204)
