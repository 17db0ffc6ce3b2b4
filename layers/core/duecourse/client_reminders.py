"""Reminders from Python, straight to the ledger, with the checks that HTTP makes."""

from collections.abc import Sequence
from datetime import datetime
from typing import Any, Required, TypedDict, Unpack

from duecourse.domain.outcomes import Span
from duecourse.domain.reminder import Made, Moved, Shown, Standing
from duecourse.domain.task import Json
from duecourse.engine.reminders import Reminders
from duecourse.wire.fields import read, read_both
from duecourse.wire.reminders import AddReminder, CancelReminder, MoveReminder, ReminderKey


class ReminderFields(TypedDict, total=False):
    """What POST /reminders has, where times may be datetime and timedelta too."""

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
    """The verbs on one tenant's reminders, as HTTP has them.

    Each raises InvalidInput (naming every wrong field), TaskNotFound, a Conflict, or StoreUnavailable; what writes
    messages raises TemplatesMissing where Jinja2 is not there (`duecourse[templates]`).
    """

    def __init__(self, reminders: Reminders, tenant: str) -> None:
        self._reminders = reminders
        self._tenant = tenant

    def add(self, **fields: Unpack[ReminderFields]) -> Made:
        """Schedule a reminder's messages, each written out beforehand."""
        return self._reminders.add(read(AddReminder, fields).reminder(), self._tenant)

    def preview(self, **fields: Unpack[ReminderFields]) -> list[Shown]:
        """Write each message out as its recipient would read it, and send none."""
        return self._reminders.preview(read(AddReminder, fields).reminder())

    def preview_standing(self, id: str) -> list[Shown]:
        """The same of a reminder that stands."""
        return self._reminders.preview_standing(_id(id), self._tenant)

    def get(self, id: str) -> Standing:
        """A reminder as it stands."""
        return self._reminders.get(_id(id), self._tenant)

    def move(self, id: str, *, starts_at: datetime | str) -> Moved:
        """Give a reminder a new start, and each of its messages, written out beforehand, its time before that."""
        key, asked = read_both(ReminderKey, {"id": id}, MoveReminder, {"starts_at": starts_at})
        return self._reminders.move(key.id, asked.starts_at, self._tenant)

    def cancel(self, id: str, *, force: bool = False) -> None:
        """Cancel what is pending of a reminder; with `force` what is being sent too."""
        asked = read(CancelReminder, {"id": id, "force": force})
        self._reminders.cancel(asked.id, force=asked.force, tenant=self._tenant)


def _id(id: str) -> str:
    return read(ReminderKey, {"id": id}).id
