"""Reminders from Python, straight to the ledger, with the checks that HTTP makes."""

from collections.abc import Sequence
from datetime import datetime
from typing import Any, TypedDict, Unpack

from duecourse.domain.outcomes import Span
from duecourse.domain.reminder import Made, Moved, Shown, Standing
from duecourse.domain.task import Json
from duecourse.engine.reminders import Reminders
from duecourse.wire.fields import read
from duecourse.wire.reminders import AddReminder, MoveReminder, ReminderKey


class ReminderFields(TypedDict, total=False):
    """What POST /reminders has besides what it requires; each may be left out."""

    id: str
    message: str
    html: str
    data: Json
    time_zone: str


class ReminderClient:
    """The verbs on reminders, as HTTP has them; to add and preview, Jinja2 must be there (`duecourse[templates]`).

    Each raises InvalidInput (naming every wrong field), TaskNotFound, a Conflict, or StoreUnavailable.
    """

    def __init__(self, reminders: Reminders) -> None:
        self._reminders = reminders

    def add(
        self,
        *,
        subject: str,
        starts_at: datetime | str,
        remind_before: Sequence[Span],
        recipients: Sequence[dict[str, Any]],
        **fields: Unpack[ReminderFields],
    ) -> Made:
        """Schedule a reminder's messages; `fields` are those of POST /reminders. Raises TemplatesMissing too."""
        asked = _asked(subject, starts_at, remind_before, recipients, fields)
        return self._reminders.add(asked.reminder())

    def preview(
        self,
        *,
        subject: str,
        starts_at: datetime | str,
        remind_before: Sequence[Span],
        recipients: Sequence[dict[str, Any]],
        **fields: Unpack[ReminderFields],
    ) -> list[Shown]:
        """Write each message out as its recipient would read it, and send none. Raises TemplatesMissing too."""
        asked = _asked(subject, starts_at, remind_before, recipients, fields)
        return self._reminders.preview(asked.reminder())

    def preview_standing(self, id: str) -> list[Shown]:
        """The same of a reminder that stands. Raises TemplatesMissing too."""
        return self._reminders.preview_standing(_id(id))

    def get(self, id: str) -> Standing:
        """A reminder as it stands."""
        return self._reminders.get(_id(id))

    def move(self, id: str, *, starts_at: datetime | str) -> Moved:
        """Give a reminder a new start, and each of its messages its time before that."""
        return self._reminders.move(_id(id), read(MoveReminder, {"starts_at": starts_at}).starts_at)

    def cancel(self, id: str, *, force: bool = False) -> None:
        """Cancel what is pending of a reminder; with `force` what is being sent too."""
        self._reminders.cancel(_id(id), force=force)


def _asked(
    subject: str,
    starts_at: datetime | str,
    remind_before: Sequence[Span],
    recipients: Sequence[dict[str, Any]],
    fields: ReminderFields,
) -> AddReminder:
    required = {"subject": subject, "starts_at": starts_at}
    return read(AddReminder, {**required, "remind_before": remind_before, "recipients": recipients, **fields})


def _id(id: str) -> str:
    return read(ReminderKey, {"id": id}).id
