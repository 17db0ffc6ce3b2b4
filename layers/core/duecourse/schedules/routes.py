"""`/schedules`: add, list, show, change, delete, run, backfill, preview."""

from typing import Annotated
from urllib.parse import unquote

from aws_lambda_powertools.event_handler import Response
from aws_lambda_powertools.event_handler.openapi.params import Body, Path, Query
from aws_lambda_powertools.event_handler.router import APIGatewayHttpRouter
from pydantic import BeforeValidator

from duecourse.api.authorization import Role
from duecourse.api.fields import Name, OpenQueue
from duecourse.api.request import app, current_request, request_source, tenant
from duecourse.api.router import answer, needs, rejects
from duecourse.errors import BeyondQuota, ChangedSince, QuotaExceeded, ScheduleExists, TaskNotFound, VersionConflict
from duecourse.ledger.task import DEFAULT_QUEUE
from duecourse.schedules import http
from duecourse.schedules.verbs import Schedules
from duecourse.tasks.http import DEFAULT_PAGE, PageLimit

router = APIGatewayHttpRouter()  # type: ignore[no-untyped-call]

ScheduleId = Annotated[
    Name,
    BeforeValidator(unquote),
    Path(description="Id of the schedule, given or generated.", examples=["daily-report"]),
]
Queue = Annotated[Name, Query(description="Queue of the schedule.")]
ChangedQueue = Annotated[
    OpenQueue, Query(description="Queue of the schedule; those in `reminders` are changed at `/reminders`.")
]


def _schedules() -> Schedules:
    """Operations on schedules with the source and the Idempotency-Key of the current request."""
    return app().schedules.with_source(request_source(), current_request().keyed)


@router.post("/schedules")
@needs(Role.CALLER)
@rejects(ScheduleExists, ChangedSince, QuotaExceeded, BeyondQuota)
def add_schedule(body: http.AddSchedule) -> Response[http.AddScheduleAnswer]:
    """Add a schedule; 201 if it is new, 200 if the same schedule already exists."""
    status, created = _schedules().add(body.schedule(tenant(), current_request().new_id))
    return answer(201 if created else 200, {"schedule": http.show_schedule(status), "created": created})


@router.post("/schedules/preview")
@needs(Role.CALLER)
@rejects()
def preview_schedule(body: Annotated[http.PreviewSchedule, Body()]) -> http.TimesAnswer:
    """Show the times of a rule; nothing is stored."""
    times = app().schedules.preview(body.preview(app().schedules.now()))
    return {"times": [http.show_upcoming(one) for one in times]}


@router.post("/schedules/purge")
@needs(Role.CALLER)
@rejects()
def purge_schedules(
    body: Annotated[http.PurgeSchedules, Body()], queue: ChangedQueue = DEFAULT_QUEUE
) -> http.PurgedSchedulesAnswer:
    """Delete schedules by kind or by the beginning of their ids; a dry run only counts them."""
    done = app().bulk.purge_schedules(queue, body.purge(), tenant(), current_request().keyed)
    return {"purged": done.schedules, "dry_run": body.dry_run, "next_after": done.next or None}


@router.get("/schedules")
@needs(Role.CALLER)
@rejects()
def list_schedules(
    queue: Queue = DEFAULT_QUEUE,
    after: Annotated[
        Name | None, Query(description="Id after which the page begins: `next_after` of the page before.")
    ] = None,
    limit: Annotated[PageLimit, Query(description="Maximum number of schedules.")] = DEFAULT_PAGE,
) -> http.SchedulesAnswer:
    """List the schedules of a queue, by id."""
    found, following = app().schedules.page(queue, after or "", limit, tenant())
    page = http.SchedulesAnswer(schedules=[http.show_schedule(one) for one in found])
    return {**page, "next_after": following} if following else page


@router.get("/schedules/<id>")
@needs(Role.CALLER)
@rejects(TaskNotFound)
def get_schedule(id: ScheduleId, queue: Queue = DEFAULT_QUEUE) -> http.ScheduleAnswer:
    """Show a schedule: its next ten occurrences, and what became of the last ten."""
    return {"schedule": http.show_schedule(app().schedules.get(queue, id, tenant()))}


@router.patch("/schedules/<id>")
@needs(Role.CALLER)
@rejects(TaskNotFound, VersionConflict, ChangedSince, QuotaExceeded, BeyondQuota)
def change_schedule(
    id: ScheduleId, body: http.ChangeSchedule, queue: ChangedQueue = DEFAULT_QUEUE
) -> http.ScheduleAnswer:
    """Change, pause or resume a schedule. A running occurrence finishes."""
    status = _schedules().change(queue, id, body.changes(), body.if_version, tenant())
    return {"schedule": http.show_schedule(status)}


@router.delete("/schedules/<id>")
@needs(Role.CALLER)
@rejects(TaskNotFound)
def delete_schedule(id: ScheduleId, queue: ChangedQueue = DEFAULT_QUEUE) -> Response[None]:
    """Delete a schedule: no further occurrence comes, and a running one finishes."""
    _schedules().delete(queue, id, tenant())
    return Response(204)


@router.post("/schedules/<id>/run")
@needs(Role.CALLER)
@rejects(TaskNotFound, VersionConflict, QuotaExceeded, BeyondQuota)
def run_schedule(id: ScheduleId, queue: ChangedQueue = DEFAULT_QUEUE) -> Response[http.RunAnswer]:
    """Add one occurrence now, beside the series."""
    task_id = _schedules().run(queue, id, tenant())
    current_request().measure_added(1)
    return answer(201, {"id": task_id})


@router.post("/schedules/<id>/backfill")
@needs(Role.CALLER)
@rejects(TaskNotFound, ScheduleExists, QuotaExceeded, BeyondQuota)
def backfill_schedule(
    id: ScheduleId, body: Annotated[http.BackfillSchedule, Body()], queue: ChangedQueue = DEFAULT_QUEUE
) -> Response[http.BackfillAnswer]:
    """Add the occurrences of a past span now, some each second."""
    occurrences = _schedules().backfill(queue, id, (body.from_, body.to), body.overlap, tenant())
    return answer(201, {"occurrences": occurrences})
