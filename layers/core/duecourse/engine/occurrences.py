"""Occurrences of reminders that come again: each is added, and kept as its series or a change by hand says."""

import logging
from contextlib import suppress

from duecourse.domain.outcomes import Again, Done, Drop, Outcome, Retry
from duecourse.domain.reminder import QUEUE
from duecourse.domain.reminder_status import Moved, MovedTask
from duecourse.domain.schedule import Kept, Rule, occurrence_id
from duecourse.domain.series import KIND, Mark, Name, Series
from duecourse.domain.task import Status, Task, dump_json
from duecourse.domain.times import format_instant
from duecourse.domain.values import replaced
from duecourse.engine.reminders import LIVE, Reminders
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
from duecourse.ports.calendar import Calendar
from duecourse.ports.schedules import ScheduleStore
from duecourse.ports.tasks import Move, TaskStore

log = logging.getLogger("duecourse.engine")

TRIES = 5
"""Looks at a series that changes meanwhile."""


class Occurrences:
    """Keeper of occurrences. The messages of their reminders were written out before, and are not again.

    A task for each occurrence, in the group of its series, exists until its start. So the group of a series lists its
    occurrences, and those tasks finish a change in the middle of which a process died.
    """

    def __init__(self, store: TaskStore, series: ScheduleStore, calendar: Calendar, reminders: Reminders) -> None:
        self._store = store
        self._series = series
        self._calendar = calendar
        self._reminders = reminders

    def look(self, task: Task) -> Outcome:
        """Work of an occurrence's task: it ends with the occurrence, else it comes again at its end."""
        try:
            until, mark = self.follow(Name.of(task.id), Mark.of(task), task.tenant)
        except (TaskDamaged, BeyondQuota) as error:
            return Drop(str(error))
        except (Conflict, QuotaExceeded) as error:
            return Retry(error=str(error))
        return Done() if until <= self._store.now() else Again(at=format_instant(until), state=mark.state())

    def follow(self, name: Name, mark: Mark, tenant: str, *, force: bool = False) -> tuple[int, Mark]:
        """Make the reminder of an occurrence as its mark or its series says; answers the end of its task, and its mark.

        Raises TaskLeased where a message is being sent that was to be cancelled, and as `Reminders.add_checked` does.
        """
        if mark.cancelled:
            self.drop(name, tenant, force=force)
            is_over = self._series.schedule(QUEUE, name.series, tenant) is None
            return 0 if is_over else name.nominal, mark
        if mark.starts_at is not None:
            self._bring(name, mark.starts_at, tenant)
            return max(name.nominal, mark.starts_at), mark
        for _ in range(TRIES):
            kept = self._series.schedule(QUEUE, name.series, tenant)
            if kept is None or not self.is_start(kept.schedule.rule, name.nominal):
                self.drop(name, tenant, force=force)
                return 0, mark
            series = Series.of(kept.schedule)
            if mark.since == series.since or name.nominal <= self._store.now():
                return name.nominal, mark
            self._put(series, name.nominal, tenant)
            mark = replaced(mark, since=series.since)  # and looks again: the series may have been changed meanwhile
        raise VersionConflict("reminder")

    def is_start(self, rule: Rule, at: int) -> bool:
        """True if a rule has this start."""
        return next(self._calendar.times(rule, at - 1), None) == at

    def drop(self, name: Name, tenant: str, *, force: bool = False) -> None:
        """Cancel the reminder of an occurrence, if it has one. Raises TaskLeased, after all others are cancelled."""
        with suppress(TaskNotFound, TaskDone, TaskCancelled):
            self._reminders.cancel(occurrence_id(*name), force=force, tenant=tenant)

    def _put(self, series: Series, nominal: int, tenant: str) -> None:
        """Add the reminder of a start, in place of one that the series had before."""
        name = Name(series.id, nominal)
        leads = series.leads_of(nominal)
        if not leads:
            self.drop(name, tenant)
            return
        reminder = series.reminder(nominal, nominal)._replace(leads_ms=leads)
        try:
            self._reminders.add_checked(reminder, tenant)
        except TaskScheduled:
            self.drop(name, tenant)
            self._reminders.add_checked(reminder, tenant)

    def _bring(self, name: Name, starts_at: int, tenant: str) -> None:
        """Have the reminder of an occurrence at the start to which it was moved by hand."""
        starts = self._reminders.starts(occurrence_id(*name), tenant)
        if starts_at <= self._store.now() or starts == {starts_at}:
            return
        if starts:
            self._reminders.move(occurrence_id(*name), starts_at, tenant, checked=True)
        elif kept := self._series.schedule(QUEUE, name.series, tenant):
            self.add_moved(kept, name, starts_at, tenant)

    def add_moved(self, kept: Kept, name: Name, starts_at: int, tenant: str) -> Moved:
        """Add the reminder of an occurrence at another start."""
        reminder = Series.of(kept.schedule).reminder(name.nominal, starts_at)
        made = self._reminders.add_checked(reminder, tenant)
        tasks = [MovedTask(task.id, task.due_at, Status.SCHEDULED) for task in made.tasks]
        return Moved(reminder.id, starts_at, tasks, [], [])

    def tasks(self, id: str, tenant: str) -> list[Task]:
        """Tasks of the occurrences of a series, in the order of their ids; those that ended lately too."""
        return [task for task in self._store.group(QUEUE, id, tenant) if task.kind == KIND]

    def follow_all(self, id: str, rule: Rule | None, tenant: str, *, force: bool = False) -> None:
        """Have the occurrences follow a change of their series; `rule` is the present one, None for none.

        What was cancelled by hand ends with its series: another one with this id has all of its starts.

        Raises TaskLeased, with the occurrences being sent, once all others are as they are to be.
        """
        tasks = self.tasks(id, tenant)
        own = [task for task in tasks if task.status in LIVE and _follows_series(Mark.of(task), is_over=rule is None)]
        # Due at once: what is not reached here, their own work does.
        self._store.move(QUEUE, [Move(task.id, delay_ms=0) for task in own], tenant, group=id)
        if rule:
            self._revive(tasks, rule, tenant)
        leased = [task.id for task in own if not self._follows(Name.of(task.id), Mark.of(task), tenant, force=force)]
        if leased and rule is None:
            raise TaskLeased(f"Being sent now: {', '.join(leased)}. All others are cancelled.")

    def _follows(self, name: Name, mark: Mark, tenant: str, *, force: bool = False) -> bool:
        """Have one occurrence follow its series; False if a message of it is being sent."""
        id = occurrence_id(*name)
        try:
            until, _ = self.follow(name, mark, tenant, force=force)
        except TaskLeased:
            return False
        except (Conflict, QuotaExceeded, BeyondQuota) as error:
            log.warning("occurrence %s is left to its task: %s", id, error)
            return True
        if not until:
            self._store.cancel(QUEUE, [id], tenant=tenant, group=name.series)
        return True

    def revive(self, id: str, rule: Rule, tenant: str) -> None:
        """Add the tasks again of starts that a series has once more."""
        self._revive(self.tasks(id, tenant), rule, tenant)

    def _revive(self, tasks: list[Task], rule: Rule, tenant: str) -> None:
        # Firing leaves alone what the ledger has, ended or not.
        now = self._store.now()
        names = [Name.of(task.id) for task in tasks if task.status not in LIVE]
        starts = [name for name in names if name.nominal > now and self.is_start(rule, name.nominal)]
        if starts:
            self._store.add([Mark().task(*name, now, tenant, KIND)._replace(state=dump_json({})) for name in starts])
        for name in starts:  # at once: a move of one takes the messages along that it has
            self._follows(name, Mark(), tenant)


def _follows_series(mark: Mark, *, is_over: bool) -> bool:
    """True if a series has a say in an occurrence with this mark; one that is over leaves alone what was moved."""
    return not mark.by_hand or (is_over and mark.cancelled)
