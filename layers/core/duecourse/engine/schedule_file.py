"""Application of a numbered file of schedules: once by each deployment, and never over a higher number."""

import logging

from duecourse.domain.schedule import Schedule
from duecourse.domain.schedule_file import Entry, FileChanges, Noted, ScheduleFile, key_of
from duecourse.engine.schedules import Schedules
from duecourse.ports.schedule_file import FileRecord
from duecourse.ports.schedules import ScheduleStore

log = logging.getLogger("duecourse.schedules")
BY = "file"
"""Source of what a file changes."""


class ScheduleFiles:
    """The file of a deployment, and the ledger that it is applied to."""

    def __init__(self, store: ScheduleStore, record: FileRecord, schedules: Schedules) -> None:
        self._store = store
        self._record = record
        self._schedules = schedules.speaking_as(BY)

    def diff(self, file: ScheduleFile) -> FileChanges:
        """Changes that the file would make; nothing is written. Raises InvalidInput for a schedule that is wrong."""
        return self._changes(file, self._record.read())

    def apply(self, file: ScheduleFile) -> FileChanges | None:
        """Make what the file says; None where it, or one with a higher number, is applied already.

        Cut off in the middle, it is applied by the next call. Raises InvalidInput, with nothing changed, for a schedule
        that is wrong.
        """
        noted = self._record.read()
        if noted.begun > file.number or noted.applied == file.number:
            return None
        for schedule in file.schedules:
            self._schedules.checked(schedule)
        noted = self._record.begin(file.number)
        if noted.begun > file.number:
            return None
        changes = self._changes(file, noted)
        for schedule in (*changes.add, *changes.change):
            self._schedules.put(schedule)
        for entry in changes.delete:
            self._store.drop_schedule(entry.queue, entry.id, entry.tenant)
        for entry in changes.foreign:
            log.warning("schedule %s of queue %s is not the file's, and is left alone", entry.id, entry.queue)
        foreign = set(changes.foreign)
        self._record.finish(file.number, [key for one in file.schedules if (key := key_of(one)) not in foreign])
        return changes

    def _changes(self, file: ScheduleFile, noted: Noted) -> FileChanges:
        add, change, foreign = list[Schedule](), list[Schedule](), list[Entry]()
        for schedule in file.schedules:
            kept = self._store.schedule(*_place(key_of(schedule)))
            if kept is None:
                add.append(schedule)
            elif not kept.schedule.file:
                foreign.append(key_of(schedule))
            elif not self._schedules.is_same(schedule, kept.schedule):
                change.append(schedule)
        gone = set(noted.entries) - {key_of(one) for one in file.schedules}
        return FileChanges(tuple(add), tuple(change), tuple(filter(self._is_of_a_file, sorted(gone))), tuple(foreign))

    def _is_of_a_file(self, entry: Entry) -> bool:
        kept = self._store.schedule(*_place(entry))
        return kept is not None and kept.schedule.file > 0


def _place(entry: Entry) -> tuple[str, str, str]:
    return entry.queue, entry.id, entry.tenant
