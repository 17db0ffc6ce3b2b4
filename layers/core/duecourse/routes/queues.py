"""`/queues`: look at them, set them, show and replay the dead of one, purge and cancel many tasks."""

from typing import Annotated

from aws_lambda_powertools.event_handler.openapi.params import Query
from aws_lambda_powertools.event_handler.router import APIGatewayHttpRouter

from duecourse.domain.access import Role
from duecourse.domain.bulk import DEFAULT_BULK, Bulk, BulkResult
from duecourse.domain.dead import Deaths, group_deaths
from duecourse.domain.task import Status
from duecourse.errors import ChangedSince, QueueNotFound, QuotaExceeded
from duecourse.routes.parts import QueueInPath, needs, rejects
from duecourse.routes.request import app, by, served, tenant
from duecourse.wire.http import bulk, dead, pages, queues
from duecourse.wire.http.fields import DeadlineField, ErrorText, Name

SINCE = "Filter: tasks that died since an instant, or since a duration before now, such as `PT1H`."

router = APIGatewayHttpRouter()  # type: ignore[no-untyped-call]


@router.get("/queues")
@needs(Role.CALLER)
@rejects()
def list_queues(
    after: Annotated[
        Name | None, Query(description="Name after which the page begins: `next_after` of the page before.")
    ] = None,
    limit: Annotated[queues.PageLimit, Query(description="Maximum number of queues.")] = queues.MAX_PAGE,
) -> queues.QueuesAnswer:
    """Show the queues, by name.

    A caller without the role operator sees those in which its tenant has tasks, with the tenant's own numbers. `done`
    and `dead` are then counted among the newest 1,000 of each shard.
    """
    found, following = app().queues.page(after or "", limit, served().narrowed)
    page = queues.QueuesAnswer(queues=[queues.show_queue(queue) for queue in found])
    return {**page, "next_after": following} if following else page


@router.get("/queues/<queue>")
@needs(Role.CALLER)
@rejects(QueueNotFound)
def get_queue(queue: QueueInPath) -> queues.QueueAnswer:
    """Show a queue."""
    asked = served()
    owners = asked.principal is not None and asked.narrowed is None
    return {"queue": queues.show_queue(app().queues.get(queue, asked.narrowed, owners=owners))}


@router.patch("/queues/<queue>")
@needs(Role.OPERATOR)
@rejects(QueueNotFound, ChangedSince)
def set_queue(queue: QueueInPath, body: queues.SetQueue) -> queues.QueueAnswer:
    """Change the settings of a queue; with `create` the queue need not exist yet."""
    status = app().queues.configure(queue, body.changes(), create=body.create, keyed=served().keyed)
    return {"queue": queues.show_queue(status)}


@router.get("/queues/<queue>/dead")
@needs(Role.CALLER)
@rejects()
def list_dead(
    queue: QueueInPath,
    kind: Annotated[Name | None, Query(description="Filter: tasks of this kind.")] = None,
    group: Annotated[Name | None, Query(description="Filter: tasks of this group, such as one reminder's.")] = None,
    error: Annotated[ErrorText | None, Query(description=pages.ERROR)] = None,
    since: Annotated[DeadlineField | None, Query(description=SINCE)] = None,
    cursor: Annotated[bulk.BulkCursor | None, Query(description=pages.CURSOR)] = None,
    limit: Annotated[dead.DeadLimit, Query(description="Maximum number of tasks to look at.")] = DEFAULT_BULK,
) -> dead.DeadAnswer:
    """Show the dead tasks of a queue by their errors: number, kind, first and last death, and an example."""
    store = app().store
    wanted = Deaths(kind or "", group or "", error or "", pages.since_at(since, store.now), limit)
    return dead.show_dead(group_deaths(store.deaths(queue, wanted, bulk.start_of(cursor, (Status.DEAD,)), tenant())))


@router.post("/queues/<queue>/dead/replay")
@needs(Role.CALLER)
@rejects(QuotaExceeded)
def replay_dead(queue: QueueInPath, body: queues.ReplayDead) -> queues.ReplayedAnswer:
    """Replay the dead tasks of a queue, oldest first; a dry run only lists them."""
    return queues.show_replayed(
        app().tasks.speaking_as(by(), served().keyed).replay_dead(queue, body.replay(), tenant()),
        dry_run=body.dry_run,
    )


@router.post("/queues/<queue>/purge")
@needs(Role.CALLER)
@rejects()
def purge(queue: QueueInPath, body: bulk.PurgeTasks) -> bulk.PurgedAnswer:
    """Delete the tasks of one state of a queue; a dry run only counts them."""
    asked = body.bulk()
    done = _act(queue, asked, body.cursor)
    return {"purged": done.tasks, **bulk.show_many(done, dry_run=body.dry_run)}


@router.post("/queues/<queue>/cancel")
@needs(Role.CALLER)
@rejects()
def cancel_many(queue: QueueInPath, body: bulk.CancelTasks) -> bulk.CancelledAnswer:
    """Cancel the tasks of a queue by group, kind or state; a dry run only counts them."""
    asked = body.bulk()
    done = _act(queue, asked, body.cursor)
    return {"cancelled": done.tasks, **bulk.show_many(done, dry_run=body.dry_run)}


def _act(queue: str, asked: Bulk, cursor: str | None) -> BulkResult:
    start = bulk.start_of(cursor, asked.statuses)
    return app().many.act(queue, asked, start, tenant(), by(), served().keyed)
