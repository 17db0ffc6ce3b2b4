"""Verbs of callers on reminders of both kinds: those of one start, and those that come again."""

from contextlib import suppress
from itertools import islice
from typing import Any

from duecourse.domain.idempotency import KeyedTry
from duecourse.domain.reminder import KIND, QUEUE, Reminder
from duecourse.domain.reminder_status import Made, Moved, MovedTask, ReminderStatus, Shown
from duecourse.domain.schedule import Kept, occurrence_id
from duecourse.domain.series import KIND as SERIES
from duecourse.domain.series import Mark, Name, Series, SeriesChange, SeriesStatus, Standing
from duecourse.domain.task import DEFAULT_TENANT, Status, Task
from duecourse.domain.values import replaced
from duecourse.engine.occurrences import TRIES, Occurrences
from duecourse.engine.reminders import LIVE, Reminders
from duecourse.engine.schedules import SHOWN, Schedules, shown_times, version_of
from duecourse.engine.series_checks import SeriesChecks
from duecourse.engine.tasks import require_room
from duecourse.errors import (
    ChangedSince,
    FieldError,
    InvalidInput,
    ScheduleExists,
    TaskCancelled,
    TaskDamaged,
    TaskNotFound,
    VersionConflict,
)
from duecourse.ports.calendar import Calendar
from duecourse.ports.schedules import ScheduleStore
from duecourse.ports.tasks import TaskStore

OCCURRENCE = "occurrence"
"""Word for an occurrence of a series in what the first try of a request saw."""
NO_SERIES = "is only for a reminder that comes again"
RULE = ("starts_at", "repeat", "time_zone", "gap", "fold")
"""Fields of a request that change the starts."""


class Meetings:
    """The verbs on reminders; each raises as that of `Reminders`, which does the work for those of one start.

    A series is a schedule in the reminders' queue, under the reminder's id. `by` is the source in a log.
    """

    def __init__(
        self,
        store: TaskStore,
        series: ScheduleStore,
        calendar: Calendar,
        reminders: Reminders,
        by: str = KIND,
        keyed: KeyedTry | None = None,
    ) -> None:
        self._store = store
        self._series = series
        self._calendar = calendar
        self._reminders = reminders
        self._by = by
        self._keyed = keyed
        self._schedules = Schedules(series, calendar, lambda task: task, by)
        self._checks = SeriesChecks(calendar, reminders)
        self._occurrences = Occurrences(store, series, calendar, reminders)

    def speaking_as(self, by: str, keyed: KeyedTry | None = None) -> "Meetings":
        """The same verbs for another source of requests; `keyed` is the try of a request that carries a key."""
        return Meetings(self._store, self._series, self._calendar, self._reminders.speaking_as(by), by, keyed)

    def add(self, asked: Reminder | Series, tenant: str = DEFAULT_TENANT) -> Made:
        """Add a reminder. The same one again changes nothing; another under a live one's id is a Conflict.

        At a repeat, what was added under its id since the first try is it.
        """
        kept = self._series.schedule(QUEUE, asked.id, tenant)
        if kept is None:
            return self._added(asked, tenant) if isinstance(asked, Series) else self._added_alone(asked, tenant)
        is_it = self._keyed is not None and 0 < self._keyed.since <= kept.created_at
        if isinstance(asked, Series) and (is_it or Series.of(kept.schedule).matches(asked)):
            self._occurrences.revive(asked.id, kept.schedule.rule, tenant)  # the add before may have been cut off
            self._store.confirm(self._store.shard_of(QUEUE, "", asked.id))
            return Made(False, [], self._status(kept, tenant))
        raise ScheduleExists("A reminder that comes again has this id: change it, or delete it first.")

    def _added_alone(self, asked: Reminder, tenant: str) -> Made:
        with suppress(TaskDamaged):  # most ids are none of an occurrence, which would take the reminder's place
            if self._series.schedule(QUEUE, Name.of(asked.id).series, tenant):
                raise ScheduleExists("This id is one of an occurrence: move that, or choose another id.")
        return self._reminders.add(asked, tenant, since=self._keyed.since if self._keyed else 0)

    def _added(self, asked: Series, tenant: str) -> Made:
        now = self._store.now()
        self._reminders.check_free(asked.id, tenant)
        until = self._checks.check(asked, now, tenant, starting=True)
        series = replaced(asked, since=now, first=asked.rule.starts_at)
        status, created = self._schedules.add(series.schedule(until, tenant))
        self._occurrences.revive(asked.id, status.schedule.rule, tenant)  # those of a deleted series with this id
        return Made(created, [], self._status(self._kept(asked.id, tenant), tenant))

    def preview(self, asked: Reminder | Series, tenant: str = DEFAULT_TENANT) -> list[Shown]:
        """Each message of an add, as its recipient would read it; of a series, those of its first start."""
        if isinstance(asked, Reminder):
            return self._reminders.preview(asked, tenant)
        self._checks.check(asked, self._store.now(), tenant, starting=True)
        return self._reminders.preview(asked.reminder(asked.rule.starts_at, asked.rule.starts_at), tenant)

    def preview_standing(self, id: str, tenant: str = DEFAULT_TENANT) -> list[Shown]:
        """Each message of an existing reminder; of a series, those of its next start."""
        kept = self._series.schedule(QUEUE, id, tenant)
        if kept is None:
            return self._reminders.preview_standing(id, tenant)
        start = next(self._calendar.times(kept.schedule.rule, self._store.now()), None)
        return [] if start is None else self._reminders.preview(Series.of(kept.schedule).reminder(start, start), tenant)

    def get(self, id: str, tenant: str = DEFAULT_TENANT) -> ReminderStatus:
        """Status of a reminder. Raises TaskNotFound."""
        kept = self._series.schedule(QUEUE, id, tenant)
        if kept is None:
            return self._reminders.get(id, tenant)
        status = self._status(kept, tenant)
        series = status.series
        start = status.next_start
        return ReminderStatus(id, start, [], series.reminder(start, start).content, status)

    def change(self, id: str, asked: SeriesChange, tenant: str = DEFAULT_TENANT) -> Moved:
        """Move a reminder of one start; change any field of a series, whose occurrences follow.

        What was moved or cancelled by hand stays so: a reminder of one start may be an occurrence. A repeat changes
        nothing twice. Raises VersionConflict, and ChangedSince where another change came, and that of the first try is
        not known.
        """
        saw = self._first_saw(id, tenant)
        for _ in range(TRIES):
            kept = self._series.schedule(QUEUE, id, tenant)
            if saw and saw[0] == SERIES and (kept is None or saw[1:] != version_of(kept)):
                return self._changed_before(kept, tenant)
            if kept is None:
                return self._moved_alone(id, asked, tenant, saw)
            if asked.if_version not in {None, kept.progress.version}:
                break
            try:
                status = self._changed(kept, asked, tenant)
            except VersionConflict:
                continue  # it has fired, or another changed it
            return Moved(id, status.next_start, [], [], [], status)
        raise VersionConflict("reminder")

    def _first_saw(self, id: str, tenant: str) -> list[Any]:
        """The reminder as the first try of the request saw it, at a repeat of that; [] where this is the first.

        A series by its version, an occurrence by its own, another by the versions of its messages.
        Raises TaskNotFound.
        """
        if not self._keyed:
            return []

        def look() -> list[Any]:
            kept = self._series.schedule(QUEUE, id, tenant)
            if kept:
                return [SERIES, *version_of(kept)]
            name = self._standing_name(id, tenant)
            if name:
                return [OCCURRENCE, *self._version(name, tenant)]
            return [KIND, self._reminders.versions(id, tenant)]

        saw: list[Any] = self._keyed.first_saw(look)
        return saw if self._keyed.is_repeat else []

    def _version(self, name: Name, tenant: str) -> list[int]:
        """Generation of the task of an occurrence, and when its series was added, 0 for none. Raises TaskNotFound."""
        kept, _ = self._occurrence(name, self._store.now(), tenant)
        seen = self._store.seen(QUEUE, occurrence_id(*name), tenant)
        return [seen.version.generation if seen else 0, kept.created_at if kept else 0]

    def _changed_before(self, kept: Kept | None, tenant: str) -> Moved:
        """Finish a change of a series that the first try of this request made. Raises ChangedSince."""
        if not (kept and self._keyed and kept.schedule.mark == self._keyed.mark().hex()):
            raise ChangedSince
        id, status = kept.schedule.id, self._status(kept, tenant)
        self._occurrences.follow_all(id, kept.schedule.rule, tenant)
        return Moved(id, status.next_start, [], [], [], status)

    def _moved_alone(self, id: str, asked: SeriesChange, tenant: str, saw: list[Any]) -> Moved:
        problems = _beside_the_start(asked)
        if problems:
            self._reminders.get(id, tenant)  # of one that is not there, that is the error
            raise InvalidInput(problems)
        starts_at = int(asked.fields["rule"]["starts_at"])
        name = self._standing_name(id, tenant)
        if name:
            return self._move_occurrence(name, starts_at, tenant, saw)
        versions = saw[1] if saw and saw[0] == KIND else None
        return self._reminders.move(id, starts_at, tenant, keyed=self._keyed, saw=versions)

    def _standing_name(self, id: str, tenant: str) -> Name | None:
        """The occurrence whose reminder has this id, None for none."""
        task = self._store.get(QUEUE, id, tenant) if "@" in id else None
        return Name.of(id) if task and task.kind == SERIES and task.status in LIVE else None

    def _changed(self, kept: Kept, asked: SeriesChange, tenant: str) -> SeriesStatus:
        now, before = self._store.now(), Series.of(kept.schedule)
        fields = {name: value for name, value in asked.fields.items() if name != "rule"}
        wanted = replaced(before, rule=replaced(before.rule, **asked.fields.get("rule", {})), **fields)
        until = self._checks.check(wanted, now, tenant, starting="starts_at" in asked.named)
        first = self._first(wanted, now, tenant) if set(RULE) & set(asked.named) else 0
        series = replaced(wanted, since=max(now, before.since + 1), first=first)
        schedule = series.schedule(until, tenant)
        rule = {name: getattr(schedule.rule, name) for name in (*RULE, "until")}
        mark = self._keyed.mark().hex() if self._keyed else ""
        changes = {"rule": rule, "payload": schedule.payload, "lead_ms": schedule.lead_ms, "mark": mark}
        self._schedules.change(QUEUE, series.id, changes, kept.progress.version, tenant)
        self._occurrences.follow_all(series.id, schedule.rule, tenant)
        return self._status(self._kept(series.id, tenant), tenant)

    def _first(self, series: Series, now: int, tenant: str) -> int:
        """The next start by a changed rule, 0 if it has messages already: passed lead times of it are made up for."""
        first = next(self._calendar.times(series.rule, now), 0)
        known = {Name.of(task.id).nominal for task in self._occurrences.tasks(series.id, tenant) if task.status in LIVE}
        return 0 if first in known else first

    def cancel(self, id: str, *, force: bool = False, tenant: str = DEFAULT_TENANT) -> None:
        """Cancel a reminder; of a series all that is to come, but what was moved by hand.

        A repeat leaves alone what was added under the id since the first try.
        """
        saw = self._first_saw(id, tenant)
        if saw:
            self._cancel_again(id, saw, tenant, force=force)
        elif self._series.drop_schedule(QUEUE, id, tenant):
            self._occurrences.follow_all(id, None, tenant, force=force)
        elif name := self._standing_name(id, tenant):
            self._cancel_occurrence(name, tenant, [], force=force)
        else:
            self._reminders.cancel(id, force=force, tenant=tenant)

    def _cancel_again(self, id: str, saw: list[Any], tenant: str, *, force: bool) -> None:
        what, *version = saw
        if what == OCCURRENCE:
            self._cancel_occurrence(Name.of(id), tenant, saw, force=force)
        elif what == KIND:
            self._reminders.cancel(id, force=force, tenant=tenant, saw=version[0])
        else:
            self._series.drop_schedule(QUEUE, id, tenant, created_at=version[0])
            if self._series.schedule(QUEUE, id, tenant) is None:
                self._occurrences.follow_all(id, None, tenant, force=force)

    def move_occurrence(self, id: str, nominal: int, starts_at: int, tenant: str = DEFAULT_TENANT) -> Moved:
        """Move one occurrence of a series to a new start, and leave all others.

        A repeat moves nothing twice. Raises TaskNotFound, TaskCancelled, and ChangedSince where another change came.
        """
        name = Name(id, nominal)
        return self._move_occurrence(name, starts_at, tenant, self._first_saw_of(name, tenant))

    def _first_saw_of(self, name: Name, tenant: str) -> list[Any]:
        """An occurrence as the first try of the request saw it, at a repeat of that; [] where this is the first."""
        if not self._keyed:
            return []
        saw: list[Any] = self._keyed.first_saw(lambda: [OCCURRENCE, *self._version(name, tenant)])
        return saw if self._keyed.is_repeat else []

    def _move_occurrence(self, name: Name, starts_at: int, tenant: str, saw: list[Any]) -> Moved:
        kept, mark = self._occurrence(name, self._store.now(), tenant)
        version = self._version(name, tenant) if saw else []
        is_other = bool(saw) and mark.by_hand and version != saw[1:]
        if saw and (version[1] != saw[2] or (is_other and (mark.cancelled or mark.starts_at != starts_at))):
            raise ChangedSince
        if mark.cancelled:
            raise TaskCancelled
        if is_other:
            return self._as_moved(name, starts_at, tenant)
        moved = self._moved(kept, name, starts_at, tenant)
        self._put_mark(name, Mark(mark.since, starts_at), tenant)
        return moved

    def _as_moved(self, name: Name, starts_at: int, tenant: str) -> Moved:
        """The answer to a move that the first try of this request has made."""
        tasks = self._reminders.get(occurrence_id(*name), tenant).tasks
        pending = [MovedTask(one.id, one.due_at, one.status) for one in tasks if one.status is Status.SCHEDULED]
        leased, sent = ([one.id for one in tasks if one.status is each] for each in (Status.LEASED, Status.DONE))
        return Moved(occurrence_id(*name), starts_at, pending, leased, sent)

    def _moved(self, kept: Kept | None, name: Name, starts_at: int, tenant: str) -> Moved:
        if self._reminders.starts(occurrence_id(*name), tenant) or kept is None:
            return self._reminders.move(occurrence_id(*name), starts_at, tenant, keyed=self._keyed)
        self._reminders.preview(Series.of(kept.schedule).reminder(name.nominal, starts_at), tenant)
        return self._occurrences.add_moved(kept, name, starts_at, tenant)

    def cancel_occurrence(self, id: str, nominal: int, *, force: bool = False, tenant: str = DEFAULT_TENANT) -> None:
        """Cancel one occurrence of a series, and leave all others. Raises TaskNotFound, TaskCancelled, TaskLeased."""
        name = Name(id, nominal)
        self._cancel_occurrence(name, tenant, self._first_saw_of(name, tenant), force=force)

    def _cancel_occurrence(self, name: Name, tenant: str, saw: list[Any], *, force: bool) -> None:
        try:
            _, mark = self._occurrence(name, self._store.now(), tenant)
            version = self._version(name, tenant) if saw else []
        except TaskNotFound:
            if saw:
                return  # the series, or the occurrence, has ended since the first try
            raise
        if saw and version[1] != saw[2]:
            return  # the series was added anew
        if mark.cancelled and version == saw[1:]:
            raise TaskCancelled
        if not mark.cancelled:
            self._put_mark(name, Mark(mark.since, mark.starts_at, cancelled=True), tenant)
        self._occurrences.drop(name, tenant, force=force)

    def _occurrence(self, name: Name, now: int, tenant: str) -> tuple[Kept | None, Mark]:
        """The series of an occurrence that is to come, if there is one still, and its mark. Raises TaskNotFound."""
        id = occurrence_id(*name)
        task, kept = self._store.get(QUEUE, id, tenant), self._series.schedule(QUEUE, name.series, tenant)
        if task and task.kind == SERIES and task.status in LIVE:
            return kept, Mark.of(task)
        if kept and name.nominal > now and self._occurrences.is_start(kept.schedule.rule, name.nominal):
            return kept, Mark()
        raise TaskNotFound(id, QUEUE, tenant, what="occurrence")

    def _put_mark(self, name: Name, mark: Mark, tenant: str) -> None:
        """Keep what was done by hand: the task that says so is in the place of the series' own."""
        task = mark.task(*name, self._store.now(), tenant, self._by)
        require_room(self._store.add([task]), "starts_at")

    def _kept(self, id: str, tenant: str) -> Kept:
        kept = self._series.schedule(QUEUE, id, tenant)
        if kept is None:
            raise TaskNotFound(id, QUEUE, tenant, what="reminder")
        return kept

    def _status(self, kept: Kept, tenant: str) -> SeriesStatus:
        series, now = Series.of(kept.schedule), self._store.now()
        standing = [_standing(task) for task in self._occurrences.tasks(series.id, tenant) if task.status in LIVE]
        by_hand = {one.nominal for one in standing if one.state != "standing"}
        times = (at for at in self._calendar.times(kept.schedule.rule, now) if at not in by_hand)
        starts = ((at, at) for at in islice(times, SHOWN))
        upcoming = shown_times(self._calendar, series.rule.time_zone, starts, now)
        occurrences = sorted(standing, key=lambda one: one.nominal)
        return SeriesStatus(series, kept.progress.version, kept.created_at, tuple(upcoming), tuple(occurrences))


def _beside_the_start(asked: SeriesChange) -> list[FieldError]:
    """Problems of a change of a reminder of one start, which has a start alone."""
    named = asked.named if asked.if_version is None else (*asked.named, "if_version")
    problems = [FieldError(name, NO_SERIES) for name in named if name != "starts_at"]
    return problems if "starts_at" in named else [*problems, FieldError("starts_at", "is required")]


def _standing(task: Task) -> Standing:
    name, mark = Name.of(task.id), Mark.of(task)
    if mark.cancelled:
        return Standing(task.id, name.nominal, name.nominal, "cancelled")
    if mark.starts_at is None:
        return Standing(task.id, name.nominal, name.nominal, "standing")
    return Standing(task.id, name.nominal, mark.starts_at, "moved")
