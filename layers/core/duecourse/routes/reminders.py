"""`/reminders`: add, preview, show, move, cancel."""

from typing import Annotated

from aws_lambda_powertools.event_handler import Response
from aws_lambda_powertools.event_handler.openapi.params import Body
from aws_lambda_powertools.event_handler.router import APIGatewayHttpRouter

from duecourse import errors
from duecourse.domain.access import Role
from duecourse.domain.reminder import KIND
from duecourse.routes.parts import Force, ReminderId, answer, count_added, needs, rejects
from duecourse.routes.request import app, by, served, tenant
from duecourse.wire.http import reminder_answers as answers
from duecourse.wire.http import reminders as requests

router = APIGatewayHttpRouter()  # type: ignore[no-untyped-call]


@router.post("/reminders")
@needs(Role.CALLER)
@rejects(errors.TaskScheduled, errors.TaskLeased, errors.ReminderTooLarge, errors.QuotaExceeded, errors.BeyondQuota)
def add_reminder(body: requests.AddReminder) -> Response[answers.AddReminderAnswer]:
    """Add a reminder; 201 if it is new, 200 if the same reminder already exists."""
    reminder = body.reminder(served().new_id)
    made = app().reminders.speaking_as(by(KIND)).add(reminder, tenant())
    count_added(len(made.tasks) if made.created else 0)
    return answer(201 if made.created else 200, answers.show_added(reminder.id, made.tasks))


@router.post("/reminders/preview")
@needs(Role.CALLER)
@rejects(errors.TaskNotFound, errors.SealBroken)
def preview_reminder(body: Annotated[requests.PreviewReminder, Body()]) -> answers.PreviewAnswer:
    """Write out each message of a new or existing reminder, and send none."""
    if isinstance(body, requests.ReminderKey):
        return answers.show_preview(body.id, app().reminders.preview_standing(body.id, tenant()))
    reminder = body.reminder(served().new_id)
    return answers.show_preview(reminder.id, app().reminders.preview(reminder, tenant()))


@router.get("/reminders/<id>")
@needs(Role.CALLER)
@rejects(errors.TaskNotFound)
def get_reminder(id: ReminderId) -> answers.ReminderAnswer:
    """Show a reminder."""
    return answers.show_reminder(app().reminders.get(id, tenant()))


@router.patch("/reminders/<id>")
@needs(Role.CALLER)
@rejects(
    errors.TaskNotFound,
    errors.TaskCancelled,
    errors.TaskDead,
    errors.SealBroken,
    errors.QuotaExceeded,
    errors.BeyondQuota,
)
def move_reminder(id: ReminderId, body: requests.MoveReminder) -> answers.MoveReminderAnswer:
    """Move a reminder to a new start."""
    return answers.show_moved(app().reminders.speaking_as(by(KIND)).move(id, body.starts_at, tenant()))


@router.delete("/reminders/<id>")
@needs(Role.CALLER)
@rejects(errors.TaskNotFound, errors.TaskLeased, errors.TaskDone, errors.TaskCancelled)
def cancel_reminder(id: ReminderId, force: Force = False) -> Response[None]:
    """Cancel a reminder."""
    app().reminders.speaking_as(by(KIND)).cancel(id, force=force, tenant=tenant())
    return Response(204)
