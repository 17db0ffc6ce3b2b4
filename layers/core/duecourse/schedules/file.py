"""Application of a numbered file of schedules: once by each deployment, and never over a higher number."""

import logging
from collections.abc import Iterable
from enum import StrEnum
from typing import TYPE_CHECKING

from duecourse.errors import DuecourseError, FieldError, InvalidInput, StoreUnavailable
from duecourse.ledger.operation_types import Put
from duecourse.ledger.schedule import Entry, FileChanges, FileState, ScheduleFile, key_of
from duecourse.schedules.verbs import Schedules

if TYPE_CHECKING:
    from duecourse.ledger.operations.ledger import Ledger
    from duecourse.ledger.operations.namespace_records import FileRecord

log = logging.getLogger("duecourse.schedules")
BY = "file"
"""Source of what a file changes."""
SETTLED_MS = 16 * 60_000
"""Time after which an earlier file is applied no more: an invocation of Lambda takes at most 15 minutes."""
NOT_RAISED = (
    "the file of schedules differs from the one with its number %d that is applied: raise `number` to have it applied"
)


class Step(StrEnum):
    """Next step for a file."""

    APPLY = "apply"
    SETTLE = "settle"
    WAIT = "wait"
    NOTHING = "nothing"


class ScheduleFiles:
    """The file of a deployment, and the ledger that it is applied to.

    A file that is being applied beside one with a higher number adds, changes and deletes nothing that the higher one
    has made. What it still adds, the higher one deletes once it settles.
    """

    def __init__(self, ledger: "Ledger", record: "FileRecord", schedules: Schedules) -> None:
        self._ledger = ledger
        self._record = record
        self._schedules = schedules.with_source(BY)
        self.is_over = False
        """True once nothing is left to do for the file that was last applied."""

    def noted(self) -> FileState:
        """State of the schedule files in the ledger."""
        return self._record.read()

    def check(self, file: ScheduleFile) -> None:
        """Return if every schedule is right. Raises InvalidInput, which names every wrong field."""
        problems = list(file.problems)
        for schedule in file.schedules:
            try:
                self._schedules.checked(schedule, 0)  # so that one whose `until` has passed stays right
            except InvalidInput as error:
                problems += [FieldError(f"{schedule.id}.{one.field}", one.problem) for one in error.problems]
        if problems:
            raise InvalidInput(problems)

    def apply(self, file: ScheduleFile) -> FileChanges | None:
        """Make what the file says; None where there is nothing to do for it now.

        Cut off in the middle, it is applied by the next call. Raises InvalidInput, with nothing changed, for a schedule
        that is wrong.
        """
        step = self._step(file, self._record.read())
        self.is_over = step is Step.NOTHING
        if step in {Step.NOTHING, Step.WAIT}:
            return None
        if step is Step.SETTLE:
            return self._settle(file)
        self.check(file)
        return self._apply(file)

    def _step(self, file: ScheduleFile, noted: FileState) -> Step:
        if noted.begun > file.number:
            return Step.NOTHING
        if noted.applied != file.number:
            return Step.APPLY
        if noted.digest != file.digest:
            log.warning(NOT_RAISED, file.number)
            return Step.NOTHING
        if noted.settled == file.number:
            return Step.NOTHING
        return Step.SETTLE if self._schedules.now() >= noted.begun_at + SETTLED_MS else Step.WAIT

    def _apply(self, file: ScheduleFile) -> FileChanges | None:
        own = {key_of(one) for one in file.schedules}
        noted = self._record.begin(file.number, file.digest, own)
        if self._step(file, noted) is not Step.APPLY:
            return None
        found: dict[Put, list[Entry]] = {put: [] for put in Put}
        failed = False
        for schedule in file.schedules:
            try:
                put = self._schedules.put(schedule, lambda: self._record.highest() <= file.number)
                found[put].append(key_of(schedule))
            except StoreUnavailable:
                raise
            except DuecourseError as error:  # such as a quota: the next tick tries again
                failed = True
                log.error("schedule %s of queue %s is not applied: %s", schedule.id, schedule.queue, error)  # noqa: TRY400 - its words say all
        deleted = self._delete(noted.entries - own, file.number)
        for entry in found[Put.CONFLICT]:
            log.warning("schedule %s of queue %s is not this file's, and is left alone", entry.id, entry.queue)
        if not failed:
            self._record.finish(file.number)
        foreign = tuple(found[Put.CONFLICT])
        return FileChanges(tuple(found[Put.CREATED]), tuple(found[Put.CHANGED]), deleted, foreign)

    def _settle(self, file: ScheduleFile) -> FileChanges | None:
        """Delete what an earlier file added beside this one."""
        own = {key_of(one) for one in file.schedules}
        deleted = self._delete(self._record.read().entries - own, file.number)
        self.is_over = self._record.settle(file.number)
        return FileChanges((), (), deleted, ()) if deleted else None

    def _delete(self, entries: Iterable[Entry], number: int) -> tuple[Entry, ...]:
        return tuple(entry for entry in sorted(entries) if self._delete_one(entry, number))

    def _delete_one(self, entry: Entry, number: int) -> bool:
        """Delete a schedule that a file with this number made, or an earlier one; False where there is none."""
        while True:
            stored = self._ledger.schedule(entry.queue, entry.id, entry.tenant)
            if stored is None or not 0 < stored.schedule.file <= number:
                return False
            if self._ledger.drop_schedule(entry.queue, entry.id, entry.tenant, generation=stored.generation):
                return True
