"""`/schedules`: add, list, show, change, delete, run, backfill, preview."""

from typing import Annotated
from urllib.parse import unquote

from aws_lambda_powertools.event_handler import Response
from aws_lambda_powertools.event_handler.openapi.params import Body, Path, Query
from aws_lambda_powertools.event_handler.router import APIGatewayHttpRouter
from pydantic import BeforeValidator

from duecourse.domain.access import Role
from duecourse.domain.task import DEFAULT_QUEUE
from duecourse.errors import BeyondQuota, LedgerTooOld, QuotaExceeded, ScheduleExists, TaskNotFound, VersionConflict
from duecourse.routes.parts import answer, count_added, needs, rejects
from duecourse.routes.request import app, by, served, tenant
from duecourse.wire.http import schedule_answers as answers
from duecourse.wire.http import schedules as requests
from duecourse.wire.http.fields import Name, OpenQueue
from duecourse.wire.http.pages import DEFAULT_PAGE, PageLimit

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


@router.post("/schedules")
@needs(Role.CALLER)
@rejects(ScheduleExists, LedgerTooOld, QuotaExceeded, BeyondQuota)
def add_schedule(body: requests.AddSchedule) -> Response[answers.AddScheduleAnswer]:
    """Add a schedule; 201 if it is new, 200 if the same schedule already exists."""
    status, created = app().schedules.speaking_as(by()).add(body.schedule(tenant(), served().new_id))
    return answer(201 if created else 200, {"schedule": answers.show_schedule(status), "created": created})


@router.post("/schedules/preview")
@needs(Role.CALLER)
@rejects()
def preview_schedule(body: Annotated[requests.PreviewSchedule, Body()]) -> answers.TimesAnswer:
    """Show the times of a rule; nothing is stored."""
    times = app().schedules.preview(body.preview(app().schedules.now()))
    return {"times": [answers.show_upcoming(one) for one in times]}


@router.post("/schedules/purge")
@needs(Role.CALLER)
@rejects()
def purge_schedules(
    body: Annotated[requests.PurgeSchedules, Body()], queue: ChangedQueue = DEFAULT_QUEUE
) -> answers.PurgedSchedulesAnswer:
    """Delete schedules by kind or by the beginning of their ids; a dry run only counts them."""
    done = app().store.purge_schedules(queue, body.purge(), tenant())
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
) -> answers.SchedulesAnswer:
    """List the schedules of a queue, by id."""
    found, following = app().schedules.page(queue, after or "", limit, tenant())
    page = answers.SchedulesAnswer(schedules=[answers.show_schedule(one) for one in found])
    return {**page, "next_after": following} if following else page


@router.get("/schedules/<id>")
@needs(Role.CALLER)
@rejects(TaskNotFound)
def get_schedule(id: ScheduleId, queue: Queue = DEFAULT_QUEUE) -> answers.ScheduleAnswer:
    """Show a schedule: its next ten occurrences, and what became of the last ten."""
    return {"schedule": answers.show_schedule(app().schedules.get(queue, id, tenant()))}


@router.patch("/schedules/<id>")
@needs(Role.CALLER)
@rejects(TaskNotFound, VersionConflict, QuotaExceeded, BeyondQuota)
def change_schedule(
    id: ScheduleId, body: requests.ChangeSchedule, queue: ChangedQueue = DEFAULT_QUEUE
) -> answers.ScheduleAnswer:
    """Change, pause or resume a schedule. A running occurrence finishes."""
    status = app().schedules.speaking_as(by()).change(queue, id, body.changes(), body.if_version, tenant())
    return {"schedule": answers.show_schedule(status)}


@router.delete("/schedules/<id>")
@needs(Role.CALLER)
@rejects(TaskNotFound)
def delete_schedule(id: ScheduleId, queue: ChangedQueue = DEFAULT_QUEUE) -> Response[None]:
    """Delete a schedule: no further occurrence comes, and a running one finishes."""
    app().schedules.speaking_as(by()).delete(queue, id, tenant())
    return Response(204)


@router.post("/schedules/<id>/run")
@needs(Role.CALLER)
@rejects(TaskNotFound, VersionConflict, QuotaExceeded, BeyondQuota)
def run_schedule(id: ScheduleId, queue: ChangedQueue = DEFAULT_QUEUE) -> Response[answers.RunAnswer]:
    """Add one occurrence now, beside the series."""
    task_id = app().schedules.speaking_as(by()).run(queue, id, tenant())
    count_added(1)
    return answer(201, {"id": task_id})


@router.post("/schedules/<id>/backfill")
@needs(Role.CALLER)
@rejects(TaskNotFound, ScheduleExists, QuotaExceeded, BeyondQuota)
def backfill_schedule(
    id: ScheduleId, body: Annotated[requests.BackfillSchedule, Body()], queue: ChangedQueue = DEFAULT_QUEUE
) -> Response[answers.BackfillAnswer]:
    """Add the occurrences of a past span now, some each second."""
    occurrences = app().schedules.speaking_as(by()).backfill(queue, id, (body.from_, body.to), body.overlap, tenant())
    return answer(201, {"occurrences": occurrences})
