"""Reminders from Python: the part `reminders` of a client."""

from datetime import datetime
from typing import Unpack

from duecourse.client_fields import ReminderChanges, ReminderFields
from duecourse.domain.reminder_status import Made, Moved, ReminderStatus, Shown
from duecourse.link import Link
from duecourse.wire.http.fields import read, read_both
from duecourse.wire.http.reminders import (
    AddReminder,
    CancelOccurrence,
    CancelReminder,
    ChangeReminder,
    MoveOccurrence,
    OccurrenceKey,
    ReminderKey,
)


class ReminderClient:
    """Reminders of one tenant, with the verbs of the HTTP API.

    Each verb raises InvalidInput (naming every wrong field), TaskNotFound, a Conflict, or StoreUnavailable. Verbs that
    render messages raise TemplatesMissing without Jinja2 (`duecourse[templates]`).
    """

    def __init__(self, link: Link, tenant: str) -> None:
        self._link = link
        self._tenant = tenant

    def add(self, **fields: Unpack[ReminderFields]) -> Made:
        """Render all messages of a reminder, then schedule them; with `repeat` it comes again."""
        return self._link.meetings.add(read(AddReminder, fields).asked(), self._tenant)

    def preview(self, **fields: Unpack[ReminderFields]) -> list[Shown]:
        """Render each message as its recipient would read it, and send none."""
        return self._link.meetings.preview(read(AddReminder, fields).asked(), self._tenant)

    def preview_standing(self, id: str) -> list[Shown]:
        """Render the messages of an existing reminder, and send none."""
        return self._link.meetings.preview_standing(_id(id), self._tenant)

    def get(self, id: str) -> ReminderStatus:
        """Return a reminder and its tasks."""
        return self._link.meetings.get(_id(id), self._tenant)

    def move(self, id: str, *, starts_at: datetime | str) -> Moved:
        """Render the pending messages for a new start, then move each to its lead time before that."""
        return self.change(id, starts_at=starts_at)

    def change(self, id: str, **changes: Unpack[ReminderChanges]) -> Moved:
        """Move a reminder, or change any field of one that comes again; with `if_version`, if it has that version.

        The occurrences of a series follow, except those that were moved or cancelled alone. Raises VersionConflict.
        """
        key, asked = read_both(ReminderKey, {"id": id}, ChangeReminder, changes)
        return self._link.meetings.change(key.id, asked.change(), self._tenant)

    def move_occurrence(self, id: str, at: datetime | str, *, starts_at: datetime | str) -> Moved:
        """Move the occurrence that starts `at` by the rule, and no other."""
        key, asked = read_both(OccurrenceKey, {"id": id, "at": at}, MoveOccurrence, {"starts_at": starts_at})
        return self._link.meetings.move_occurrence(key.id, key.at, asked.starts_at, self._tenant)

    def cancel_occurrence(self, id: str, at: datetime | str, *, force: bool = False) -> None:
        """Cancel the occurrence that starts `at` by the rule, and no other; with `force`, also messages being sent."""
        asked = read(CancelOccurrence, {"id": id, "at": at, "force": force})
        self._link.meetings.cancel_occurrence(asked.id, asked.at, force=asked.force, tenant=self._tenant)

    def cancel(self, id: str, *, force: bool = False) -> None:
        """Cancel the pending messages of a reminder; with `force`, also those being sent.

        One that comes again does so no more; an occurrence that was moved alone stays.
        """
        asked = read(CancelReminder, {"id": id, "force": force})
        self._link.meetings.cancel(asked.id, force=asked.force, tenant=self._tenant)


def _id(id: str) -> str:
    return read(ReminderKey, {"id": id}).id
