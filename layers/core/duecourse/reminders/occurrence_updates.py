"""Occurrences of recurring reminders: each follows its series, or a change by hand."""

import logging
from contextlib import suppress
from dataclasses import replace
from typing import TYPE_CHECKING

from duecourse.base.json_text import dump_json
from duecourse.base.times import format_instant
from duecourse.errors import (
    BeyondQuota,
    Conflict,
    QuotaExceeded,
    TaskCancelled,
    TaskDamaged,
    TaskDone,
    TaskLeased,
    TaskNotFound,
    TaskScheduled,
    VersionConflict,
)
from duecourse.ledger.operation_types import Move
from duecourse.ledger.reminder import QUEUE, SERIES_KIND, Mark, Moved, MovedTask, Name, Series
from duecourse.ledger.schedule import Rule, StoredSchedule, occurrence_id
from duecourse.ledger.task import Again, Done, Drop, Outcome, Retry, Status, Task
from duecourse.reminders.one_off import LIVE, OneOffReminders

if TYPE_CHECKING:
    from duecourse.ledger.operations.ledger import Ledger
    from duecourse.schedules.calendar import Calendar

log = logging.getLogger("duecourse.reminders")

TRIES = 5
"""Looks at a series that changes meanwhile."""


class Occurrences:
    """Updates of occurrences. The messages of their reminders were checked before, and are not checked again.

    A task for each occurrence, in the group of its series, exists until its start. So the group of a series lists its
    occurrences, and those tasks finish a change in the middle of which a process died.
    """

    def __init__(self, ledger: "Ledger", calendar: "Calendar", one_offs: OneOffReminders) -> None:
        self._ledger = ledger
        self._calendar = calendar
        self._one_offs = one_offs

    def run_task(self, task: Task) -> Outcome:
        """Run the task of an occurrence: update its reminder; Done once it is over, else Again at its end."""
        try:
            until, mark = self.update(Name.of(task.id), Mark.of(task), task.tenant)
        except (TaskDamaged, BeyondQuota) as error:
            return Drop(str(error))
        except (Conflict, QuotaExceeded) as error:
            return Retry(error=str(error))
        return Done() if until <= self._ledger.now() else Again(at=format_instant(until), state=mark.state())

    def update(self, name: Name, mark: Mark, tenant: str, *, force: bool = False) -> tuple[int, Mark]:
        """Update the reminder of an occurrence by its mark or its series; returns the end of its task, and its mark.

        Raises TaskLeased where a message to be cancelled is being sent, and as `OneOffReminders.add_checked` does.
        """
        if mark.cancelled:
            self.drop(name, tenant, force=force)
            is_over = self._ledger.schedule(QUEUE, name.series, tenant) is None
            return 0 if is_over else name.nominal, mark
        if mark.starts_at is not None:
            self._move_to(name, mark.starts_at, tenant)
            return max(name.nominal, mark.starts_at), mark
        for _ in range(TRIES):
            stored = self._ledger.schedule(QUEUE, name.series, tenant)
            if stored is None or not self.is_start(stored.schedule.rule, name.nominal):
                self.drop(name, tenant, force=force)
                return 0, mark
            series = Series.of(stored.schedule)
            if mark.since == series.since or name.nominal <= self._ledger.now():
                return name.nominal, mark
            self._add_again(series, name.nominal, tenant)
            mark = replace(mark, since=series.since)  # and looks again: the series may have been changed meanwhile
        raise VersionConflict("reminder")

    def is_start(self, rule: Rule, at: int) -> bool:
        """True if a rule has this start."""
        return next(self._calendar.times(rule, at - 1), None) == at

    def drop(self, name: Name, tenant: str, *, force: bool = False) -> None:
        """Cancel the reminder of an occurrence, if it has one. Raises TaskLeased, after all others are cancelled."""
        with suppress(TaskNotFound, TaskDone, TaskCancelled):
            self._one_offs.cancel(occurrence_id(*name), force=force, tenant=tenant)

    def _add_again(self, series: Series, nominal: int, tenant: str) -> None:
        """Add the reminder of a start; replaces a former one of the series."""
        name = Name(series.id, nominal)
        leads = series.leads_of(nominal)
        if not leads:
            self.drop(name, tenant)
            return
        reminder = replace(series.reminder(nominal, nominal), leads_ms=leads)
        try:
            self._one_offs.add_checked(reminder, tenant)
        except TaskScheduled:
            self.drop(name, tenant)
            self._one_offs.add_checked(reminder, tenant)

    def _move_to(self, name: Name, starts_at: int, tenant: str) -> None:
        """Move the reminder of an occurrence to the start that was set by hand."""
        starts = self._one_offs.starts(occurrence_id(*name), tenant)
        if starts_at <= self._ledger.now() or starts == {starts_at}:
            return
        if starts:
            self._one_offs.move(occurrence_id(*name), starts_at, tenant, checked=True)
        elif stored := self._ledger.schedule(QUEUE, name.series, tenant):
            self.add_moved(stored, name, starts_at, tenant)

    def add_moved(self, stored: StoredSchedule, name: Name, starts_at: int, tenant: str) -> Moved:
        """Add the reminder of an occurrence at another start."""
        reminder = Series.of(stored.schedule).reminder(name.nominal, starts_at)
        made = self._one_offs.add_checked(reminder, tenant)
        tasks = [MovedTask(task.id, task.due_at, Status.SCHEDULED) for task in made.tasks]
        return Moved(reminder.id, starts_at, tasks, [], [])

    def tasks(self, id: str, tenant: str) -> list[Task]:
        """Tasks of the occurrences of a series, in the order of their ids; those that ended lately too."""
        return [task for task in self._ledger.group(QUEUE, id, tenant) if task.kind == SERIES_KIND]

    def update_all(self, id: str, rule: Rule | None, tenant: str, *, force: bool = False) -> None:
        """Update all occurrences after a change of their series; `rule` is the present one, None after its deletion.

        Raises TaskLeased, with the occurrences being sent, once all others are updated.
        """
        # An occurrence cancelled by hand ends with its series: a later series with this id has all of its starts.
        tasks = self.tasks(id, tenant)
        own = [task for task in tasks if task.status in LIVE and _applies(Mark.of(task), is_over=rule is None)]
        # Due at once, so that each task does what this call does not reach.
        self._ledger.move(QUEUE, [Move(task.id, delay_ms=0) for task in own], tenant, group=id)
        if rule:
            self._revive(tasks, rule, tenant)
        leased = [task.id for task in own if not self._update_one(Name.of(task.id), Mark.of(task), tenant, force=force)]
        if leased and rule is None:
            raise TaskLeased(f"Being sent now: {', '.join(leased)}. All others are cancelled.")

    def _update_one(self, name: Name, mark: Mark, tenant: str, *, force: bool = False) -> bool:
        """Update one occurrence; False if a message of it is being sent."""
        id = occurrence_id(*name)
        try:
            until, _ = self.update(name, mark, tenant, force=force)
        except TaskLeased:
            return False
        except (Conflict, QuotaExceeded, BeyondQuota) as error:
            log.warning("occurrence %s is left to its task: %s", id, error)
            return True
        if not until:
            self._ledger.cancel(QUEUE, [id], tenant=tenant, group=name.series)
        return True

    def revive(self, id: str, rule: Rule, tenant: str) -> None:
        """Add the tasks of starts that a series has again."""
        self._revive(self.tasks(id, tenant), rule, tenant)

    def _revive(self, tasks: list[Task], rule: Rule, tenant: str) -> None:
        # Firing leaves alone what the ledger has, ended or not.
        now = self._ledger.now()
        names = [Name.of(task.id) for task in tasks if task.status not in LIVE]
        starts = [name for name in names if name.nominal > now and self.is_start(rule, name.nominal)]
        if starts:
            self._ledger.add(
                [Mark().task(*name, now, tenant, SERIES_KIND)._replace(state=dump_json({})) for name in starts]
            )
        for name in starts:  # at once: a move of one takes the messages along that it has
            self._update_one(name, Mark(), tenant)


def _applies(mark: Mark, *, is_over: bool) -> bool:
    """True if a change of the series applies to an occurrence with this mark. Its deletion keeps moved ones."""
    return not mark.by_hand or (is_over and mark.cancelled)
