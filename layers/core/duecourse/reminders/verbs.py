"""Operations on one-off and recurring reminders, and checks of recurring ones."""

from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import replace
from itertools import islice
from typing import TYPE_CHECKING, TypeAlias

from duecourse.base.json_text import Json, load_json
from duecourse.base.value_classes import value
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
from duecourse.guard.seals import hidden_names, hidden_of
from duecourse.ledger.operation_types import KeyedTry, TaskSnapshot, Version
from duecourse.ledger.reminder import (
    KIND,
    MAX_STANDING,
    QUEUE,
    SERIES_KIND,
    Made,
    Mark,
    Moved,
    MovedTask,
    Name,
    Reminder,
    ReminderStatus,
    Series,
    SeriesChange,
    SeriesStatus,
    Shown,
    Standing,
)
from duecourse.ledger.schedule import StoredSchedule, occurrence_id
from duecourse.ledger.task import DEFAULT_TENANT, MAX_PAYLOAD_BYTES, Status, Task
from duecourse.reminders.occurrence_updates import TRIES, Occurrences
from duecourse.reminders.one_off import LIVE, OneOffReminders
from duecourse.schedules.verbs import SHOWN, Schedules, shown_times
from duecourse.tasks.verbs import require_room

if TYPE_CHECKING:
    from duecourse.ledger.operations.ledger import Ledger
    from duecourse.schedules.calendar import Calendar

CREDENTIAL = "holds a credential, which a reminder that comes again does not keep: name one of yours in `auth`"


class SeriesChecks:
    """Checks of a series: of its rule by a calendar, and of the messages of its first start."""

    def __init__(self, calendar: "Calendar", one_offs: OneOffReminders) -> None:
        self._calendar = calendar
        self._one_offs = one_offs

    def check(self, series: Series, now: int, tenant: str, *, starting: bool) -> int | None:
        """Check a series; answers its last start, None for no end. With `starting`, its rule's start is new.

        Raises InvalidInput.
        """
        _reject_credentials(series)
        self._calendar.check(series.rule)
        first = next(self._calendar.times(series.rule, max(now, series.rule.starts_at - 1)), None)
        if starting:
            self._check_start(series, first, now)
        if first is None:
            raise InvalidInput([FieldError("until", "leaves no start that is to come")])
        until = self._until(series)
        self._check_overlap(series, first)
        size = len(series.schedule(until, tenant).payload.encode())
        if size > MAX_PAYLOAD_BYTES:
            raise InvalidInput(
                [FieldError("recipients", f"with the texts, {size:,} bytes, over {MAX_PAYLOAD_BYTES:,}")]
            )
        self._one_offs.preview(series.reminder(first, first), tenant)
        return until

    def _check_start(self, series: Series, first: int | None, now: int) -> None:
        start = series.rule.starts_at
        if start <= now:
            raise InvalidInput([FieldError("starts_at", "must be in the future")])
        if first != start:
            other = f"; its next one is {self._calendar.local(first, series.rule.time_zone)}" if first else ""
            raise InvalidInput([FieldError("starts_at", f"is no time of the rule{other}")])

    def _until(self, series: Series) -> int | None:
        """The last start that `until` and `limit` leave."""
        if series.limit is None:
            return series.rule.until
        last = series.rule.starts_at
        for at in islice(self._calendar.times(series.rule, series.rule.starts_at - 1), series.limit):
            last = at
        return last

    def _check_overlap(self, series: Series, first: int) -> None:
        times = islice(self._calendar.times(series.rule, first - 1), MAX_STANDING + 1)
        if sum(at <= first + series.lead_ms for at in times) > MAX_STANDING:
            problem = f"at most {MAX_STANDING} starts may come within the largest lead time"
            raise InvalidInput([FieldError("repeat", problem), FieldError("remind_before", problem)])


def _reject_credentials(series: Series) -> None:
    """Raise InvalidInput, with each field, where a credential is written in clear."""
    hidden = hidden_of(load_json(series.schedule(None).payload, "payload"), SERIES_KIND)
    if hidden:
        fields = dict.fromkeys(_field(name, series.fields) for name in hidden_names(hidden.values, ""))
        raise InvalidInput([FieldError(field, CREDENTIAL) for field in fields])


def _field(name: str, fields: tuple[str, ...]) -> str:
    """Field of the request for a name in a payload."""
    list_name, _, rest = name.partition(".")
    index = rest.partition(".")[0]
    is_place = list_name == "recipients" and index.isdecimal() and int(index) < len(fields)
    return fields[int(index)] if is_place else name


OCCURRENCE = "occurrence"
"""Kind of an occurrence in the saved state of a request with a key."""
NO_SERIES = "is only for a reminder that comes again"
RULE = ("starts_at", "repeat", "time_zone", "gap", "fold")
"""Fields of a request that change the starts."""


# A reminder as a look found it. A repeat of a request with a key gets what the first try saw.


@value
class SeriesSeen:
    """A series as a look found it: the time of its add (epoch ms), and its version."""

    created_at: int
    version: int

    @classmethod
    def of(cls, stored: StoredSchedule) -> "SeriesSeen":
        """A series as it is stored."""
        return cls(stored.created_at, stored.progress.version)


@value
class OccurrenceSeen:
    """An occurrence as a look found it: generation of its task, time of its series' add (epoch ms); 0 for none."""

    generation: int
    created_at: int

    def is_of_series(self, other: "Seen") -> bool:
        """True if another look found an occurrence of the same series; a series may be added again under its id."""
        return isinstance(other, OccurrenceSeen) and self.created_at == other.created_at


@value
class OneOffSeen:
    """A one-off reminder as a look found it: its messages by id."""

    messages: Mapping[str, TaskSnapshot]


Seen: TypeAlias = SeriesSeen | OccurrenceSeen | OneOffSeen


def _packed(seen: Seen) -> list[Json]:
    """The same as JSON. The ledger keeps it for a day, in which another release may read it."""
    match seen:
        case SeriesSeen(created_at, version):
            return [SERIES_KIND, created_at, version]
        case OccurrenceSeen(generation, created_at):
            return [OCCURRENCE, generation, created_at]
        case OneOffSeen(messages):
            return [KIND, {id: [*one.version, one.status] for id, one in messages.items()}]


def _unpacked(packed: list[Json]) -> Seen:
    what, *found = packed
    if what == SERIES_KIND:
        return SeriesSeen(*found)
    if what == OCCURRENCE:
        return OccurrenceSeen(*found)
    messages = found[0].items()
    return OneOffSeen({id: TaskSnapshot(Version(*version), Status(status)) for id, (*version, status) in messages})


class Reminders:
    """Operations on one-off and recurring reminders; `OneOffReminders` has the errors of each.

    A recurring reminder (a series) is a schedule in the reminders' queue, under its id. `by` is the source in a log.
    """

    def __init__(
        self,
        ledger: "Ledger",
        calendar: "Calendar",
        one_offs: OneOffReminders,
        by: str = KIND,
        keyed: KeyedTry | None = None,
    ) -> None:
        self._ledger = ledger
        self._calendar = calendar
        self._one_offs = one_offs
        self._by = by
        self._keyed = keyed
        self._schedules = Schedules(ledger, calendar, lambda task: task, by)
        self._checks = SeriesChecks(calendar, one_offs)
        self._occurrences = Occurrences(ledger, calendar, one_offs)

    def with_source(self, by: str, keyed: KeyedTry | None = None) -> "Reminders":
        """The same verbs for another source of requests; `keyed` is the try of a request that carries a key."""
        return Reminders(self._ledger, self._calendar, self._one_offs.with_source(by), by, keyed)

    def add(self, asked: Reminder | Series, tenant: str = DEFAULT_TENANT) -> Made:
        """Add a reminder. The same one again changes nothing; another under a live one's id is a Conflict.

        A repeat finds what its first try added. Raises ChangedSince where another request added one since that try.
        """
        stored = self._ledger.schedule(QUEUE, asked.id, tenant)
        if stored is None:
            return self._add_series(asked, tenant) if isinstance(asked, Series) else self._add_one_off(asked, tenant)
        is_own = self._keyed is not None and stored.schedule.added_by == self._keyed.mark().hex()
        if isinstance(asked, Series) and (is_own or Series.of(stored.schedule).matches(asked)):
            self._occurrences.revive(asked.id, stored.schedule.rule, tenant)  # the add before may have been cut off
            self._ledger.confirm(self._ledger.shard_of(QUEUE, "", asked.id))
            return Made(is_own, [], self._status(stored, tenant))
        if self._keyed and self._keyed.may_be_newer(stored.created_at):
            raise ChangedSince
        raise ScheduleExists("A reminder that comes again has this id: change it, or delete it first.")

    def _add_one_off(self, asked: Reminder, tenant: str) -> Made:
        # An occurrence's id would take the reminder's place. `Name.of` raises TaskDamaged for all other ids.
        with suppress(TaskDamaged):
            if self._ledger.schedule(QUEUE, Name.of(asked.id).series, tenant):
                raise ScheduleExists("This id is one of an occurrence: move that, or choose another id.")
        return self._one_offs.add(asked, tenant, self._keyed)

    def _add_series(self, asked: Series, tenant: str) -> Made:
        now = self._ledger.now()
        self._one_offs.check_free(asked.id, tenant)
        until = self._checks.check(asked, now, tenant, starting=True)
        series = replace(asked, since=now, first=asked.rule.starts_at)
        added_by = self._keyed.mark().hex() if self._keyed else ""
        status, created = self._schedules.add(replace(series.schedule(until, tenant), added_by=added_by))
        self._occurrences.revive(asked.id, status.schedule.rule, tenant)  # those of a deleted series with this id
        return Made(created, [], self._status(self._stored(asked.id, tenant), tenant))

    def preview(self, asked: Reminder | Series, tenant: str = DEFAULT_TENANT) -> list[Shown]:
        """Each message of an add, as its recipient would read it; of a series, those of its first start."""
        if isinstance(asked, Reminder):
            return self._one_offs.preview(asked, tenant)
        self._checks.check(asked, self._ledger.now(), tenant, starting=True)
        return self._one_offs.preview(asked.reminder(asked.rule.starts_at, asked.rule.starts_at), tenant)

    def preview_standing(self, id: str, tenant: str = DEFAULT_TENANT) -> list[Shown]:
        """Each message of an existing reminder; of a series, those of its next start."""
        stored = self._ledger.schedule(QUEUE, id, tenant)
        if stored is None:
            return self._one_offs.preview_standing(id, tenant)
        start = next(self._calendar.times(stored.schedule.rule, self._ledger.now()), None)
        return (
            [] if start is None else self._one_offs.preview(Series.of(stored.schedule).reminder(start, start), tenant)
        )

    def get(self, id: str, tenant: str = DEFAULT_TENANT) -> ReminderStatus:
        """Status of a reminder. Raises TaskNotFound."""
        stored = self._ledger.schedule(QUEUE, id, tenant)
        if stored is None:
            return self._one_offs.get(id, tenant)
        status = self._status(stored, tenant)
        series = status.series
        start = status.next_start
        return ReminderStatus(id, start, [], series.reminder(start, start).content, status)

    def change(self, id: str, asked: SeriesChange, tenant: str = DEFAULT_TENANT) -> Moved:
        """Move a one-off reminder or an occurrence; change any field of a series, and update its occurrences.

        Occurrences that were moved or cancelled by hand stay so. A repeat changes nothing twice. Raises
        VersionConflict, and ChangedSince where another change came, and that of the first try is not known.
        """
        saw = self._first_saw(lambda: self._look(id, tenant))
        for _ in range(TRIES):
            stored = self._ledger.schedule(QUEUE, id, tenant)
            if isinstance(saw, SeriesSeen) and (stored is None or saw != SeriesSeen.of(stored)):
                return self._finish_change(stored, tenant)
            if stored is None:
                return self._move_one_off(id, asked, tenant, saw)
            if asked.if_version not in {None, stored.progress.version}:
                break
            try:
                status = self._change_series(stored, asked, tenant)
            except VersionConflict:
                continue  # it has fired, or another changed it
            return Moved(id, status.next_start, [], [], [], status)
        raise VersionConflict("reminder")

    def _first_saw(self, look: Callable[[], Seen]) -> Seen | None:
        """Result of `look` in the first try of the request, at a repeat of that; None where this is the first."""
        if not self._keyed:
            return None
        saw = self._keyed.first_saw(lambda: _packed(look()))
        return _unpacked(saw) if self._keyed.is_repeat else None

    def _look(self, id: str, tenant: str) -> Seen:
        """A reminder of any kind as it is now. Raises TaskNotFound."""
        stored = self._ledger.schedule(QUEUE, id, tenant)
        if stored:
            return SeriesSeen.of(stored)
        name = self._occurrence_name(id, tenant)
        return self._look_at(name, tenant) if name else OneOffSeen(self._one_offs.seen(id, tenant))

    def _look_at(self, name: Name, tenant: str) -> OccurrenceSeen:
        """An occurrence as it is now. Raises TaskNotFound."""
        stored, _ = self._occurrence(name, self._ledger.now(), tenant)
        seen = self._ledger.seen(QUEUE, occurrence_id(*name), tenant)
        return OccurrenceSeen(seen.version.generation if seen else 0, stored.created_at if stored else 0)

    def _finish_change(self, stored: StoredSchedule | None, tenant: str) -> Moved:
        """Finish a change of a series that the first try of this request made. Raises ChangedSince."""
        if not (stored and self._keyed and stored.schedule.mark == self._keyed.mark().hex()):
            raise ChangedSince
        id, status = stored.schedule.id, self._status(stored, tenant)
        self._occurrences.update_all(id, stored.schedule.rule, tenant)
        return Moved(id, status.next_start, [], [], [], status)

    def _move_one_off(self, id: str, asked: SeriesChange, tenant: str, saw: Seen | None) -> Moved:
        problems = _other_fields(asked)
        if problems:
            self._one_offs.get(id, tenant)  # of one that is not there, that is the error
            raise InvalidInput(problems)
        starts_at = int(asked.fields["rule"]["starts_at"])  # a one-off's start is read as its rule's too
        name = self._occurrence_name(id, tenant)
        if name:
            return self._move_occurrence(name, starts_at, tenant, saw)
        messages = saw.messages if isinstance(saw, OneOffSeen) else None
        return self._one_offs.move(id, starts_at, tenant, keyed=self._keyed, saw=messages)

    def _occurrence_name(self, id: str, tenant: str) -> Name | None:
        """The occurrence whose reminder has this id, None for none."""
        task = self._ledger.get(QUEUE, id, tenant) if "@" in id else None
        return Name.of(id) if task and task.kind == SERIES_KIND and task.status in LIVE else None

    def _change_series(self, stored: StoredSchedule, asked: SeriesChange, tenant: str) -> SeriesStatus:
        now, before = self._ledger.now(), Series.of(stored.schedule)
        fields = {name: value for name, value in asked.fields.items() if name != "rule"}
        wanted = replace(before, rule=replace(before.rule, **asked.fields.get("rule", {})), **fields)
        until = self._checks.check(wanted, now, tenant, starting="starts_at" in asked.named)
        first = self._first(wanted, now, tenant) if set(RULE) & set(asked.named) else 0
        series = replace(wanted, since=max(now, before.since + 1), first=first)
        schedule = series.schedule(until, tenant)
        rule = {name: getattr(schedule.rule, name) for name in (*RULE, "until")}
        mark = self._keyed.mark().hex() if self._keyed else ""
        changes = {"rule": rule, "payload": schedule.payload, "lead_ms": schedule.lead_ms, "mark": mark}
        self._schedules.change(QUEUE, series.id, changes, stored.progress.version, tenant)
        self._occurrences.update_all(series.id, schedule.rule, tenant)
        return self._status(self._stored(series.id, tenant), tenant)

    def _first(self, series: Series, now: int, tenant: str) -> int:
        """The next start by a changed rule, 0 if it has messages. Its passed lead times are due at once."""
        first = next(self._calendar.times(series.rule, now), 0)
        known = {Name.of(task.id).nominal for task in self._occurrences.tasks(series.id, tenant) if task.status in LIVE}
        return 0 if first in known else first

    def cancel(self, id: str, *, force: bool = False, tenant: str = DEFAULT_TENANT) -> None:
        """Cancel a reminder; of a series all pending occurrences but those moved by hand.

        A repeat does not cancel a reminder that was added under the id since the first try.
        """
        saw = self._first_saw(lambda: self._look(id, tenant))
        if saw:
            self._cancel_again(id, saw, tenant, force=force)
        elif self._ledger.drop_schedule(QUEUE, id, tenant):
            self._occurrences.update_all(id, None, tenant, force=force)
        elif name := self._occurrence_name(id, tenant):
            self._cancel_occurrence(name, tenant, None, force=force)
        else:
            self._one_offs.cancel(id, force=force, tenant=tenant)

    def _cancel_again(self, id: str, saw: Seen, tenant: str, *, force: bool) -> None:
        match saw:
            case OccurrenceSeen():
                self._cancel_occurrence(Name.of(id), tenant, saw, force=force)
            case OneOffSeen(messages):
                self._one_offs.cancel(id, force=force, tenant=tenant, saw=messages)
            case SeriesSeen(created_at):
                self._ledger.drop_schedule(QUEUE, id, tenant, created_at=created_at)
                if self._ledger.schedule(QUEUE, id, tenant) is None:
                    self._occurrences.update_all(id, None, tenant, force=force)

    def move_occurrence(self, id: str, nominal: int, starts_at: int, tenant: str = DEFAULT_TENANT) -> Moved:
        """Move one occurrence of a series to a new start, and leave all others.

        A repeat moves nothing twice. Raises TaskNotFound, TaskCancelled, and ChangedSince where another change came.
        """
        name = Name(id, nominal)
        return self._move_occurrence(name, starts_at, tenant, self._first_saw(lambda: self._look_at(name, tenant)))

    def _move_occurrence(self, name: Name, starts_at: int, tenant: str, saw: Seen | None) -> Moved:
        stored, mark = self._occurrence(name, self._ledger.now(), tenant)
        is_other = False
        if saw:
            seen = self._look_at(name, tenant)
            is_other = mark.by_hand and seen != saw
            if not seen.is_of_series(saw) or (is_other and (mark.cancelled or mark.starts_at != starts_at)):
                raise ChangedSince
        if mark.cancelled:
            raise TaskCancelled
        if is_other:
            return self._as_moved(name, starts_at, tenant)
        moved = self._move_messages(stored, name, starts_at, tenant)
        self._put_mark(name, Mark(mark.since, starts_at), tenant)
        return moved

    def _as_moved(self, name: Name, starts_at: int, tenant: str) -> Moved:
        """The answer to a move that the first try of this request has made."""
        tasks = self._one_offs.get(occurrence_id(*name), tenant).tasks
        pending = [MovedTask(one.id, one.due_at, one.status) for one in tasks if one.status is Status.SCHEDULED]
        leased, sent = ([one.id for one in tasks if one.status is each] for each in (Status.LEASED, Status.DONE))
        return Moved(occurrence_id(*name), starts_at, pending, leased, sent)

    def _move_messages(self, stored: StoredSchedule | None, name: Name, starts_at: int, tenant: str) -> Moved:
        if self._one_offs.starts(occurrence_id(*name), tenant) or stored is None:
            return self._one_offs.move(occurrence_id(*name), starts_at, tenant, keyed=self._keyed)
        self._one_offs.preview(Series.of(stored.schedule).reminder(name.nominal, starts_at), tenant)
        return self._occurrences.add_moved(stored, name, starts_at, tenant)

    def cancel_occurrence(self, id: str, nominal: int, *, force: bool = False, tenant: str = DEFAULT_TENANT) -> None:
        """Cancel one occurrence of a series, and leave all others. Raises TaskNotFound, TaskCancelled, TaskLeased."""
        name = Name(id, nominal)
        saw = self._first_saw(lambda: self._look_at(name, tenant))
        self._cancel_occurrence(name, tenant, saw, force=force)

    def _cancel_occurrence(self, name: Name, tenant: str, saw: Seen | None, *, force: bool) -> None:
        try:
            _, mark = self._occurrence(name, self._ledger.now(), tenant)
            seen = self._look_at(name, tenant) if saw else None
        except TaskNotFound:
            if saw:
                return  # the series, or the occurrence, has ended since the first try
            raise
        if saw and seen and not seen.is_of_series(saw):
            return  # the series was added anew
        if mark.cancelled and seen == saw:
            raise TaskCancelled
        if not mark.cancelled:
            self._put_mark(name, Mark(mark.since, mark.starts_at, cancelled=True), tenant)
        self._occurrences.drop(name, tenant, force=force)

    def _occurrence(self, name: Name, now: int, tenant: str) -> tuple[StoredSchedule | None, Mark]:
        """The series of an occurrence that is to come, if there is one still, and its mark. Raises TaskNotFound."""
        id = occurrence_id(*name)
        task, stored = self._ledger.get(QUEUE, id, tenant), self._ledger.schedule(QUEUE, name.series, tenant)
        if task and task.kind == SERIES_KIND and task.status in LIVE:
            return stored, Mark.of(task)
        if stored and name.nominal > now and self._occurrences.is_start(stored.schedule.rule, name.nominal):
            return stored, Mark()
        raise TaskNotFound(id, QUEUE, tenant, what="occurrence")

    def _put_mark(self, name: Name, mark: Mark, tenant: str) -> None:
        """Store a change by hand: its task replaces the series' own."""
        task = mark.task(*name, self._ledger.now(), tenant, self._by)
        require_room(self._ledger.add([task]), "starts_at")

    def _stored(self, id: str, tenant: str) -> StoredSchedule:
        stored = self._ledger.schedule(QUEUE, id, tenant)
        if stored is None:
            raise TaskNotFound(id, QUEUE, tenant, what="reminder")
        return stored

    def _status(self, stored: StoredSchedule, tenant: str) -> SeriesStatus:
        series, now = Series.of(stored.schedule), self._ledger.now()
        standing = [_as_standing(task) for task in self._occurrences.tasks(series.id, tenant) if task.status in LIVE]
        by_hand = {one.nominal for one in standing if one.state != "standing"}
        times = (at for at in self._calendar.times(stored.schedule.rule, now) if at not in by_hand)
        starts = ((at, at) for at in islice(times, SHOWN))
        upcoming = shown_times(self._calendar, series.rule.time_zone, starts, now)
        occurrences = sorted(standing, key=lambda one: one.nominal)
        return SeriesStatus(series, stored.progress.version, stored.created_at, tuple(upcoming), tuple(occurrences))


def _other_fields(asked: SeriesChange) -> list[FieldError]:
    """Problems of a change of a one-off reminder, of which only the start can change."""
    named = asked.named if asked.if_version is None else (*asked.named, "if_version")
    problems = [FieldError(name, NO_SERIES) for name in named if name != "starts_at"]
    return problems if "starts_at" in named else [*problems, FieldError("starts_at", "is required")]


def _as_standing(task: Task) -> Standing:
    name, mark = Name.of(task.id), Mark.of(task)
    if mark.cancelled:
        return Standing(task.id, name.nominal, name.nominal, "cancelled")
    if mark.starts_at is None:
        return Standing(task.id, name.nominal, name.nominal, "standing")
    return Standing(task.id, name.nominal, mark.starts_at, "moved")
