"""`/reminders`: add, preview, show, move or change, cancel; and the same of one occurrence."""

from typing import Annotated
from urllib.parse import unquote

from aws_lambda_powertools.event_handler import Response
from aws_lambda_powertools.event_handler.openapi.params import Body, Path
from aws_lambda_powertools.event_handler.router import APIGatewayHttpRouter
from pydantic import BeforeValidator

from duecourse import errors
from duecourse.api.authorization import Role
from duecourse.api.fields import Instant
from duecourse.api.request import app, current_request, request_source, tenant
from duecourse.api.router import Force, ReminderId, answer, needs, rejects
from duecourse.ledger.reminder import KIND
from duecourse.reminders import http
from duecourse.reminders.verbs import Reminders

OccurrenceAt = Annotated[
    Instant,
    BeforeValidator(unquote),
    Path(description="Start of the occurrence by the rule.", examples=["2100-01-11T09:30:00Z"]),
]

router = APIGatewayHttpRouter()  # type: ignore[no-untyped-call]


def _reminders() -> Reminders:
    """Operations on reminders with the source and the Idempotency-Key of the current request."""
    return app().reminders.with_source(request_source(KIND), current_request().keyed)


@router.post("/reminders")
@needs(Role.CALLER)
@rejects(
    errors.TaskScheduled,
    errors.TaskLeased,
    errors.ScheduleExists,
    errors.ChangedSince,
    errors.QuotaExceeded,
    errors.BeyondQuota,
)
def add_reminder(body: http.AddReminder) -> Response[http.AddReminderAnswer]:
    """Add a reminder; 201 if it is new, 200 if the same reminder already exists."""
    asked = body.asked(current_request().new_id)
    made = _reminders().add(asked, tenant())
    current_request().measure_added(len(made.tasks) if made.created else 0)
    return answer(201 if made.created else 200, http.show_added(asked.id, made))


@router.post("/reminders/preview")
@needs(Role.CALLER)
@rejects(errors.TaskNotFound, errors.SealBroken)
def preview_reminder(body: Annotated[http.PreviewReminder, Body()]) -> http.PreviewAnswer:
    """Write out each message of a new or existing reminder, and send none."""
    if isinstance(body, http.ReminderKey):
        return http.show_preview(body.id, app().reminders.preview_standing(body.id, tenant()))
    asked = body.asked(current_request().new_id)
    return http.show_preview(asked.id, app().reminders.preview(asked, tenant()))


@router.get("/reminders/<id>")
@needs(Role.CALLER)
@rejects(errors.TaskNotFound)
def get_reminder(id: ReminderId) -> http.ReminderAnswer:
    """Show a reminder."""
    return http.show_reminder(app().reminders.get(id, tenant()))


@router.patch("/reminders/<id>")
@needs(Role.CALLER)
@rejects(
    errors.TaskNotFound,
    errors.TaskCancelled,
    errors.TaskDead,
    errors.VersionConflict,
    errors.ChangedSince,
    errors.SealBroken,
    errors.QuotaExceeded,
    errors.BeyondQuota,
)
def move_reminder(id: ReminderId, body: http.ChangeReminder) -> http.MoveReminderAnswer:
    """Move a reminder to a new start, or change one that comes again."""
    return http.show_moved(_reminders().change(id, body.change(), tenant()))


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
    _reminders().cancel(id, force=force, tenant=tenant())
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
def move_occurrence(id: ReminderId, at: OccurrenceAt, body: http.MoveOccurrence) -> http.MoveReminderAnswer:
    """Move one occurrence of a reminder that comes again, and no other."""
    verbs = _reminders()
    return http.show_moved(verbs.move_occurrence(id, at, body.starts_at, tenant()))


@router.delete("/reminders/<id>/occurrences/<at>")
@needs(Role.CALLER)
@rejects(errors.TaskNotFound, errors.TaskLeased, errors.TaskCancelled, errors.QuotaExceeded, errors.BeyondQuota)
def cancel_occurrence(id: ReminderId, at: OccurrenceAt, force: Force = False) -> Response[None]:
    """Cancel one occurrence of a reminder that comes again, and no other."""
    _reminders().cancel_occurrence(id, at, force=force, tenant=tenant())
    return Response(204)
