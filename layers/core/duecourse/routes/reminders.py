"""`/reminders`: add, preview, show, move or change, cancel; and the same of one occurrence."""

from typing import Annotated
from urllib.parse import unquote

from aws_lambda_powertools.event_handler import Response
from aws_lambda_powertools.event_handler.openapi.params import Body, Path
from aws_lambda_powertools.event_handler.router import APIGatewayHttpRouter
from pydantic import BeforeValidator

from duecourse import errors
from duecourse.domain.access import Role
from duecourse.domain.reminder import KIND
from duecourse.routes.parts import Force, ReminderId, answer, count_added, needs, rejects
from duecourse.routes.request import app, by, served, tenant
from duecourse.wire.http import reminder_answers as answers
from duecourse.wire.http import reminders as requests
from duecourse.wire.http.fields import Instant

OccurrenceAt = Annotated[
    Instant,
    BeforeValidator(unquote),
    Path(description="Start of the occurrence by the rule.", examples=["2100-01-11T09:30:00Z"]),
]

router = APIGatewayHttpRouter()  # type: ignore[no-untyped-call]


@router.post("/reminders")
@needs(Role.CALLER)
@rejects(
    errors.TaskScheduled,
    errors.TaskLeased,
    errors.ScheduleExists,
    errors.LedgerTooOld,
    errors.ReminderTooLarge,
    errors.QuotaExceeded,
    errors.BeyondQuota,
)
def add_reminder(body: requests.AddReminder) -> Response[answers.AddReminderAnswer]:
    """Add a reminder; 201 if it is new, 200 if the same reminder already exists."""
    asked = body.asked(served().new_id)
    made = app().meetings.speaking_as(by(KIND), served().keyed).add(asked, tenant())
    count_added(len(made.tasks) if made.created else 0)
    return answer(201 if made.created else 200, answers.show_added(asked.id, made))


@router.post("/reminders/preview")
@needs(Role.CALLER)
@rejects(errors.TaskNotFound, errors.SealBroken)
def preview_reminder(body: Annotated[requests.PreviewReminder, Body()]) -> answers.PreviewAnswer:
    """Write out each message of a new or existing reminder, and send none."""
    if isinstance(body, requests.ReminderKey):
        return answers.show_preview(body.id, app().meetings.preview_standing(body.id, tenant()))
    asked = body.asked(served().new_id)
    return answers.show_preview(asked.id, app().meetings.preview(asked, tenant()))


@router.get("/reminders/<id>")
@needs(Role.CALLER)
@rejects(errors.TaskNotFound)
def get_reminder(id: ReminderId) -> answers.ReminderAnswer:
    """Show a reminder."""
    return answers.show_reminder(app().meetings.get(id, tenant()))


@router.patch("/reminders/<id>")
@needs(Role.CALLER)
@rejects(
    errors.TaskNotFound,
    errors.TaskCancelled,
    errors.TaskDead,
    errors.VersionConflict,
    errors.ChangedSince,
    errors.ReminderTooLarge,
    errors.SealBroken,
    errors.QuotaExceeded,
    errors.BeyondQuota,
)
def move_reminder(id: ReminderId, body: requests.ChangeReminder) -> answers.MoveReminderAnswer:
    """Move a reminder to a new start, or change one that comes again."""
    return answers.show_moved(app().meetings.speaking_as(by(KIND), served().keyed).change(id, body.change(), tenant()))


@router.delete("/reminders/<id>")
@needs(Role.CALLER)
@rejects(
    errors.TaskNotFound,
    errors.TaskLeased,
    errors.TaskDone,
    errors.TaskCancelled,
    errors.QuotaExceeded,
    errors.BeyondQuota,
)
def cancel_reminder(id: ReminderId, force: Force = False) -> Response[None]:
    """Cancel a reminder; one that comes again does so no more, and what was moved by hand stays."""
    app().meetings.speaking_as(by(KIND), served().keyed).cancel(id, force=force, tenant=tenant())
    return Response(204)


@router.patch("/reminders/<id>/occurrences/<at>")
@needs(Role.CALLER)
@rejects(
    errors.TaskNotFound,
    errors.TaskCancelled,
    errors.TaskDead,
    errors.ChangedSince,
    errors.QuotaExceeded,
    errors.BeyondQuota,
)
def move_occurrence(id: ReminderId, at: OccurrenceAt, body: requests.MoveOccurrence) -> answers.MoveReminderAnswer:
    """Move one occurrence of a reminder that comes again, and no other."""
    verbs = app().meetings.speaking_as(by(KIND), served().keyed)
    return answers.show_moved(verbs.move_occurrence(id, at, body.starts_at, tenant()))


@router.delete("/reminders/<id>/occurrences/<at>")
@needs(Role.CALLER)
@rejects(errors.TaskNotFound, errors.TaskLeased, errors.TaskCancelled, errors.QuotaExceeded, errors.BeyondQuota)
def cancel_occurrence(id: ReminderId, at: OccurrenceAt, force: Force = False) -> Response[None]:
    """Cancel one occurrence of a reminder that comes again, and no other."""
    app().meetings.speaking_as(by(KIND), served().keyed).cancel_occurrence(id, at, force=force, tenant=tenant())
    return Response(204)
