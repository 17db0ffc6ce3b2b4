"""Reminders from Python, straight to the ledger, with the checks that HTTP makes."""

from collections.abc import Sequence
from datetime import datetime
from typing import Any, Required, TypedDict, Unpack

from duecourse.domain.outcomes import Span
from duecourse.domain.reminder import Made, Moved, ReminderStatus, Shown
from duecourse.domain.task import Json
from duecourse.engine.reminders import Reminders
from duecourse.wire.http.fields import read, read_both
from duecourse.wire.http.reminders import AddReminder, CancelReminder, MoveReminder, ReminderKey


class ReminderFields(TypedDict, total=False):
    """Fields of POST /reminders; times may be datetime and timedelta too."""

    id: str
    subject: Required[str]
    starts_at: Required[datetime | str]
    remind_before: Required[Sequence[Span]]
    recipients: Required[Sequence[dict[str, Any]]]
    message: str
    html: str
    data: Json
    time_zone: str


class ReminderClient:
    """Reminders of one tenant, with the verbs of the HTTP API.

    Each verb raises InvalidInput (naming every wrong field), TaskNotFound, a Conflict, or StoreUnavailable. Verbs that
    render messages raise TemplatesMissing without Jinja2 (`duecourse[templates]`).
    """

    def __init__(self, reminders: Reminders, tenant: str) -> None:
        self._reminders = reminders
        self._tenant = tenant

    def add(self, **fields: Unpack[ReminderFields]) -> Made:
        """Render all messages of a reminder, then schedule them."""
        return self._reminders.add(read(AddReminder, fields).reminder(), self._tenant)

    def preview(self, **fields: Unpack[ReminderFields]) -> list[Shown]:
        """Render each message as its recipient would read it, and send none."""
        return self._reminders.preview(read(AddReminder, fields).reminder())

    def preview_standing(self, id: str) -> list[Shown]:
        """Render the messages of an existing reminder, and send none."""
        return self._reminders.preview_standing(_id(id), self._tenant)

    def get(self, id: str) -> ReminderStatus:
        """Return a reminder and its tasks."""
        return self._reminders.get(_id(id), self._tenant)

    def move(self, id: str, *, starts_at: datetime | str) -> Moved:
        """Render the pending messages for a new start, then move each to its lead time before that."""
        key, asked = read_both(ReminderKey, {"id": id}, MoveReminder, {"starts_at": starts_at})
        return self._reminders.move(key.id, asked.starts_at, self._tenant)

    def cancel(self, id: str, *, force: bool = False) -> None:
        """Cancel the pending messages of a reminder; with `force`, also those being sent."""
        asked = read(CancelReminder, {"id": id, "force": force})
        self._reminders.cancel(asked.id, force=asked.force, tenant=self._tenant)


def _id(id: str) -> str:
    return read(ReminderKey, {"id": id}).id
