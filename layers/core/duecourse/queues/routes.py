"""`/queues`: show, set, dead by their errors, replay, purge and cancel."""

from typing import Annotated

from aws_lambda_powertools.event_handler.openapi.params import Query
from aws_lambda_powertools.event_handler.router import APIGatewayHttpRouter

from duecourse.api.authorization import Role
from duecourse.api.fields import DeadlineField, ErrorText, Name
from duecourse.api.request import app, current_request, request_source, tenant
from duecourse.api.router import QueueInPath, needs, rejects
from duecourse.errors import ChangedSince, QueueNotFound, QuotaExceeded
from duecourse.ledger.many_tasks import DEFAULT_BULK, Bulk, BulkResult, Deaths, group_deaths
from duecourse.ledger.queue_history import HistorySpan
from duecourse.ledger.task import Status
from duecourse.queues import http
from duecourse.tasks import http as tasks_http

SINCE = "Filter: tasks that died since an instant, or since a duration before now, such as `PT1H`."

router = APIGatewayHttpRouter()  # type: ignore[no-untyped-call]


@router.get("/queues")
@needs(Role.CALLER)
@rejects()
def list_queues(
    after: Annotated[
        Name | None, Query(description="Name after which the page begins: `next_after` of the page before.")
    ] = None,
    limit: Annotated[http.PageLimit, Query(description="Maximum number of queues.")] = http.MAX_PAGE,
) -> http.QueuesAnswer:
    """Show the queues, by name.

    A caller without the role operator sees those in which its tenant has tasks, with the tenant's own numbers. `done`
    and `dead` are then counted among the newest 1,000 of each shard.
    """
    found, following = app().queues.page(after or "", limit, current_request().visible_tenant)
    page = http.QueuesAnswer(queues=[http.show_queue(queue) for queue in found])
    return {**page, "next_after": following} if following else page


@router.get("/queues/<queue>")
@needs(Role.CALLER)
@rejects(QueueNotFound)
def get_queue(queue: QueueInPath) -> http.QueueAnswer:
    """Show a queue."""
    request = current_request()
    owners = request.principal is not None and request.visible_tenant is None
    return {"queue": http.show_queue(app().queues.get(queue, request.visible_tenant, owners=owners))}


@router.get("/queues/<queue>/history")
@needs(Role.OPERATOR)
@rejects(QueueNotFound)
def queue_history(
    queue: QueueInPath,
    span: Annotated[
        HistorySpan,
        Query(description="Span up to now: 60 minutes, 24 hours, 168 hours or 90 days, a line each. Default: 1h."),
    ] = http.DEFAULT_SPAN,
) -> http.HistoryAnswer:
    """Show what a queue did over time: tasks added, claimed, done, again, retried and dead, and how long they took."""
    return http.show_history(app().queues.history(queue, span))


@router.patch("/queues/<queue>")
@needs(Role.OPERATOR)
@rejects(QueueNotFound, ChangedSince)
def set_queue(queue: QueueInPath, body: http.SetQueue) -> http.QueueAnswer:
    """Change the settings of a queue; with `create` the queue need not exist yet."""
    status = app().queues.configure(queue, body.changes(), create=body.create, keyed=current_request().keyed)
    return {"queue": http.show_queue(status)}


@router.get("/queues/<queue>/dead")
@needs(Role.CALLER)
@rejects()
def list_dead(
    queue: QueueInPath,
    kind: Annotated[Name | None, Query(description="Filter: tasks of this kind.")] = None,
    group: Annotated[Name | None, Query(description="Filter: tasks of this group, such as one reminder's.")] = None,
    error: Annotated[ErrorText | None, Query(description=tasks_http.ERROR)] = None,
    since: Annotated[DeadlineField | None, Query(description=SINCE)] = None,
    cursor: Annotated[http.BulkCursor | None, Query(description=tasks_http.CURSOR)] = None,
    limit: Annotated[http.DeadLimit, Query(description="Maximum number of tasks to look at.")] = DEFAULT_BULK,
) -> http.DeadAnswer:
    """Show the dead tasks of a queue by their errors: number, kind, first and last death, and an example."""
    ledger = app().ledger
    wanted = Deaths(kind or "", group or "", error or "", tasks_http.since_at(since, ledger.now), limit)
    return http.show_dead(
        group_deaths(ledger.deaths(queue, wanted, http.start_of_bulk(cursor, (Status.DEAD,)), tenant()))
    )


@router.post("/queues/<queue>/dead/replay")
@needs(Role.CALLER)
@rejects(QuotaExceeded)
def replay_dead(queue: QueueInPath, body: http.ReplayDead) -> http.ReplayedAnswer:
    """Replay the dead tasks of a queue, oldest first; a dry run only lists them."""
    return http.show_replayed(
        app().tasks.with_source(request_source(), current_request().keyed).replay_dead(queue, body.replay(), tenant()),
        dry_run=body.dry_run,
    )


@router.post("/queues/<queue>/purge")
@needs(Role.CALLER)
@rejects()
def purge(queue: QueueInPath, body: http.PurgeTasks) -> http.PurgedAnswer:
    """Delete the tasks of one state of a queue; a dry run only counts them."""
    request = body.bulk()
    done = _act(queue, request, body.cursor)
    return {"purged": done.tasks, **http.show_many(done, dry_run=body.dry_run)}


@router.post("/queues/<queue>/cancel")
@needs(Role.CALLER)
@rejects()
def cancel_many(queue: QueueInPath, body: http.CancelTasks) -> http.CancelledAnswer:
    """Cancel the tasks of a queue by group, kind or state; a dry run only counts them."""
    request = body.bulk()
    done = _act(queue, request, body.cursor)
    return {"cancelled": done.tasks, **http.show_many(done, dry_run=body.dry_run)}


def _act(queue: str, request: Bulk, cursor: str | None) -> BulkResult:
    start = http.start_of_bulk(cursor, request.statuses)
    return app().bulk.act(queue, request, start, tenant(), request_source(), current_request().keyed)
