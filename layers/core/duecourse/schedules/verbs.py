"""Operations of callers on schedules: add, show, change, delete, run, backfill, preview."""

from collections.abc import Callable, Iterable
from copy import copy
from dataclasses import replace
from itertools import count, islice
from typing import TYPE_CHECKING, Any, NamedTuple

from duecourse.base.hints import nearest
from duecourse.base.times import MAX_INSTANT, format_instant
from duecourse.errors import (
    ChangedSince,
    FieldError,
    InvalidInput,
    ScheduleExists,
    StoreUnavailable,
    TaskNotFound,
    VersionConflict,
)
from duecourse.guard.seals import hidden_in, hidden_in_address
from duecourse.ledger.operation_types import Fired, KeyedTry, Put
from duecourse.ledger.queue import Throttle
from duecourse.ledger.schedule import (
    AT_ADD,
    NEVER,
    RECENT,
    Became,
    Every,
    Firing,
    Missed,
    Occurrence,
    Overlap,
    Passed,
    Preview,
    Progress,
    RRule,
    Rule,
    Schedule,
    ScheduleStatus,
    StoredSchedule,
    Upcoming,
    backfill_id,
    occurrence_id,
    why,
)
from duecourse.ledger.task import DEFAULT_TENANT, NewTask, Notify, Status, Task, is_url
from duecourse.schedules.firing import ProgressPlanner

if TYPE_CHECKING:
    from duecourse.ledger.operations.ledger import Ledger
    from duecourse.schedules.calendar import Calendar

OFFSET = slice(-6, None)
"""Place of the distance to UTC in an instant as text."""
SHOWN = 10
"""Number of occurrences to come that a schedule shows."""
MAX_BACKFILL = 1_000
TRIES = 5
"""Attempts of a change beside others, where the caller names no version."""
PROMPT_MS = 1_000
"""Usual time until a due occurrence is claimed; `why` says that it waits only after that."""
OF_TASKS = {"payload", "retry", "deadline_ms", "notify"}
"""Fields that the occurrences have as tasks."""
CREDENTIALS = "a schedule keeps no credentials: name one of yours in `auth`"
CREDENTIALS_IN_ADDRESS = "a schedule keeps no credentials: give an address without any"
FUTURE = "the span has occurrences that are yet to come: choose now, or an earlier time"


def _fits(_kind: str, _payload: str) -> None:
    """Take any payload."""


def _runs(_kind: str) -> bool:
    """Treat each kind as one that runs."""
    return True


class _Outlook(NamedTuple):
    """Fields of a new schedule's status that few callers look at, computed for those alone."""

    schedule: Schedule
    progress: Progress
    now: int
    times: Callable[[Schedule, Progress, int, int], list[Upcoming]]

    @property
    def upcoming(self) -> tuple[Upcoming, ...]:
        return tuple(self.times(self.schedule, self.progress, self.now, SHOWN))

    @property
    def why(self) -> str:
        return why(self.schedule, self.progress, Throttle(now=self.now))


class Schedules:
    """Operations on schedules.

    `prepare` answers a task as an add would write it, or rejects it. `fits` rejects a payload that a kind cannot run,
    and `runs` is False for a kind that nothing runs. `by` is the source in an occurrence's log.
    """

    def __init__(
        self,
        ledger: "Ledger",
        calendar: "Calendar",
        prepare: Callable[[NewTask], NewTask],
        by: str = "http",
        fits: Callable[[str, str], None] = _fits,
        runs: Callable[[str], bool] = _runs,
    ) -> None:
        self._ledger = ledger
        self._calendar = calendar
        self._prepare = prepare
        self._fits = fits
        self._runs = runs
        self._by = by
        self._keyed: KeyedTry | None = None
        self._planner = ProgressPlanner(ledger, calendar)

    def with_source(self, by: str, keyed: KeyedTry | None = None) -> "Schedules":
        """The same verbs for another source of requests; `keyed` is the try of a request that carries a key."""
        same = copy(self)
        same._by, same._keyed = by, keyed  # noqa: SLF001 - of its own class
        return same

    @property
    def _mark(self) -> str:
        """Mark of the request with a key, "" without one."""
        return self._keyed.mark().hex() if self._keyed else ""

    def now(self) -> int:
        """The store's own time (epoch ms)."""
        return self._ledger.now()

    def add(self, schedule: Schedule) -> tuple[ScheduleStatus, bool]:
        """Add a schedule; the second value is False where the same one is there already, and nothing was changed.

        A repeat finds what its first try added, which the second value tells too. Raises InvalidInput, QuotaExceeded,
        ScheduleExists where another schedule has its id, and ChangedSince where it was added since that try.
        """
        added_by = self._mark or schedule.added_by
        for _ in range(TRIES):
            now = self._ledger.now_by_answers(schedule.queue, schedule.id)
            starting, progress = self._begun(schedule, now, added_by)
            put, at = self._ledger.put_schedule(starting, progress, at=now)
            if put is not Put.CONFLICT:
                break
        else:  # the clock was set each time
            raise StoreUnavailable
        if put is Put.CREATED:
            later = _Outlook(starting, progress, at, self._upcoming)
            return ScheduleStatus.deferred(later, schedule=starting, progress=progress, created_at=at, recent=()), True
        stored = self._read_stored(schedule.queue, schedule.id, schedule.tenant)
        is_own = bool(starting.added_by) and stored.schedule.added_by == starting.added_by
        if is_own or self.is_same(schedule, stored.schedule):
            return self._status(stored), is_own
        raise ChangedSince if self._keyed and self._keyed.may_be_newer(stored.created_at) else ScheduleExists

    def put(self, schedule: Schedule, may_add: Callable[[], bool]) -> Put:
        """Add a schedule of a file, or change the one with its id to it.

        CONFLICT, with nothing changed, where a caller made that one, or a file with a higher number. KEPT where it is
        the same, and ABSENT where it `may_add` none. Raises InvalidInput and QuotaExceeded.
        """
        for _ in range(TRIES):
            stored = self._ledger.schedule(schedule.queue, schedule.id, schedule.tenant)
            if stored is None and not may_add():
                return Put.ABSENT
            done = self._put_new(schedule) if stored is None else self._put_over(stored, schedule)
            if done:
                return done
        raise VersionConflict

    def _put_new(self, schedule: Schedule) -> Put | None:
        now = self._ledger.now()
        put, _ = self._ledger.put_schedule(*self._begun(schedule, now, schedule.added_by), at=now)
        return put if put is Put.CREATED else None

    def _put_over(self, stored: StoredSchedule, schedule: Schedule) -> Put | None:
        before = stored.schedule
        if not 0 < before.file <= schedule.file:
            return Put.CONFLICT
        is_same = self.is_same(schedule, before)
        if is_same and before.file == schedule.file:
            return Put.KEPT
        if is_same:  # it gets the number, and another version, so that no file with a lower number changes it
            later = replace(before, file=schedule.file)
        else:
            later = self.checked(replace(schedule, by=self._by), before.rule.starts_at)
            later = replace(later, starts_at_add=later.starts_at_add and before.starts_at_add)
        if not self._write(stored, later):
            return None
        return Put.KEPT if is_same else Put.CHANGED

    def is_same(self, asked: Schedule, stored: Schedule) -> bool:
        """True if the request describes the stored schedule; a request without a start fits any start."""
        wanted = self.checked(asked, stored.rule.starts_at)
        marks: dict[str, Any] = {
            "mark": stored.mark,
            "added_by": stored.added_by,
            "starts_at_add": stored.starts_at_add,
        }
        return (
            replace(wanted, rule=wanted.rule.as_stored(stored.rule), by=stored.by, file=stored.file, **marks) == stored
        )

    def get(self, queue: str, id: str, tenant: str = DEFAULT_TENANT) -> ScheduleStatus:
        """One schedule. Raises TaskNotFound."""
        return self._status(self._read_stored(queue, id, tenant))

    def page(
        self, queue: str, after: str, limit: int, tenant: str = DEFAULT_TENANT
    ) -> tuple[list[ScheduleStatus], str]:
        """Page of a queue's schedules by id, after an id.

        The second value is the id after which the next page begins, "" for no more.
        """
        page = self._ledger.schedules(queue, after, limit, tenant)
        return [self._brief(one) for one in page.schedules if not one.schedule.of], page.next

    def change(
        self, queue: str, id: str, changes: dict[str, Any], if_version: int | None = None, tenant: str = DEFAULT_TENANT
    ) -> ScheduleStatus:
        """Change fields of a schedule, in one step. A running occurrence finishes.

        `changes` are fields of Schedule and, as `rule`, fields of Rule. A repeat changes nothing twice.
        Raises TaskNotFound, InvalidInput, VersionConflict where its version is not `if_version`, and ChangedSince where
        another change came, and that of the first try is not known.
        """
        mark = self._mark
        saw = self._first_saw(queue, id, tenant)
        for _ in range(TRIES):
            stored = self._read_stored(queue, id, tenant)
            if saw and saw != version_of(stored):
                if stored.schedule.mark == mark:
                    self._ledger.confirm(self._ledger.shard_of(queue, "", id))
                    return self._status(stored)
                raise ChangedSince
            if if_version not in {None, stored.progress.version}:
                break
            if self._write(stored, self._with(stored.schedule, {"mark": mark} | changes)):
                return self.get(queue, id, tenant)
        raise VersionConflict

    def _first_saw(self, queue: str, id: str, tenant: str) -> list[int]:
        """Version of the schedule at the first try of the request, at a repeat of it; [] where this is the first.

        Raises TaskNotFound.
        """
        if not self._keyed:
            return []
        saw: list[int] = self._keyed.first_saw(lambda: version_of(self._read_stored(queue, id, tenant)))
        return saw if self._keyed.is_repeat else []

    def _write(self, stored: StoredSchedule, schedule: Schedule) -> bool:
        """Change a schedule that is there; False where it has fired, or was changed, meanwhile."""
        now = self._ledger.now()
        changed = self._planner.changed(stored, schedule)
        if changed is None:
            return False
        read, progress = changed
        return self._ledger.put_schedule(schedule, progress, seen=read, at=now).put is Put.CHANGED

    def _with(self, schedule: Schedule, changes: dict[str, Any]) -> Schedule:
        """A schedule with changes; only what they touch is checked, so that one whose kind is gone can be paused."""
        others = {name: value for name, value in changes.items() if name != "rule"}
        if "payload" in others:
            self._fits(schedule.kind, others["payload"])
        rule = replace(schedule.rule, **changes.get("rule", {}))
        if rule != schedule.rule:
            self._calendar.check(rule)
        starts_at_add = schedule.starts_at_add and "starts_at" not in changes.get("rule", {})
        later = replace(schedule, rule=rule, starts_at_add=starts_at_add, **others)
        return later if OF_TASKS.isdisjoint(others) else self._prepared(later)

    def delete(self, queue: str, id: str, tenant: str = DEFAULT_TENANT) -> None:
        """Delete a schedule; its occurrences stay. Raises TaskNotFound.

        A repeat leaves alone what was added under the id since the first try.
        """
        saw = self._first_saw(queue, id, tenant)
        if not self._ledger.drop_schedule(queue, id, tenant, created_at=saw[0] if saw else None) and not saw:
            raise self._absent(queue, id, tenant)

    def run(self, queue: str, id: str, tenant: str = DEFAULT_TENANT) -> str:
        """Add one occurrence now, beside the series; answers its id.

        A repeat adds the occurrence of the first try, unless that did. Raises TaskNotFound, and QuotaExceeded or
        BeyondQuota, with nothing changed.
        """
        saw: list[int] = []
        if self._keyed:
            saw = self._keyed.first_saw(lambda: self._next_run(queue, id, tenant))
        for _ in range(TRIES):
            stored = self._ledger.schedule(queue, id, tenant)
            if saw and (stored is None or self._has_run(stored, saw)):
                self._ledger.confirm(self._ledger.shard_of(queue, "", id))
                return occurrence_id(id, saw[1])
            if stored is None:
                raise self._absent(queue, id, tenant)
            now = self._ledger.now()
            nominal = saw[1] if saw else self._free_time(stored.schedule, now)
            task = stored.schedule.occurrence(nominal, now)._replace(by=self._by)
            recent = (*stored.progress.recent, Occurrence(nominal, Became.LIVE))[-RECENT:]
            firing = Firing(stored, (task,), replace(stored.progress, recent=recent), by_hand=True, at=now)
            [fired] = self._ledger.fire(self._ledger.shard_of(queue, "", id), [firing])
            if fired is Fired.FIRED:
                return task.id
        raise VersionConflict

    def _free_time(self, schedule: Schedule, now: int) -> int:
        """The first nominal time from now on of which there is no task."""
        return next(at for at in count(now) if self._task(schedule, occurrence_id(schedule.id, at)) is None)

    def _next_run(self, queue: str, id: str, tenant: str) -> list[int]:
        """Instants: the add of a schedule, and the nominal time of a run of it. Raises TaskNotFound."""
        stored = self._read_stored(queue, id, tenant)
        return [stored.created_at, self._free_time(stored.schedule, self._ledger.now())]

    def _has_run(self, stored: StoredSchedule, saw: list[int]) -> bool:
        """True if a run was added, or its schedule is another by now."""
        created_at, nominal = saw
        is_known = any(one.nominal == nominal for one in stored.progress.recent)
        return (
            stored.created_at != created_at
            or is_known
            or bool(self._task(stored.schedule, occurrence_id(stored.schedule.id, nominal)))
        )

    def backfill(
        self, queue: str, id: str, span: tuple[int, int], overlap: Overlap | None, tenant: str = DEFAULT_TENANT
    ) -> int:
        """Add the occurrences from `span[0]` up to `span[1]` now, some each second; answers how many there are.

        An occurrence is not added again while its task is kept; a repeat adds nothing where the first try did.
        Raises TaskNotFound. Raises InvalidInput for over MAX_BACKFILL of them, or for one that is yet to come. Raises
        ScheduleExists while a span with this beginning is being added.
        """
        saw = self._first_saw(queue, id, tenant)
        stored, now = self._read_stored(queue, id, tenant), self._ledger.now()
        since, to = span
        rule = _reaching(replace(stored.schedule.rule, until=to - 1), since)
        nominals = list(islice(self._calendar.times(rule, since - 1), MAX_BACKFILL + 1))
        if len(nominals) > MAX_BACKFILL:
            raise InvalidInput(
                [FieldError("to", f"at most {MAX_BACKFILL:,} occurrences at a time: choose an earlier one")]
            )
        if nominals and nominals[-1] > now:
            raise InvalidInput([FieldError("to", FUTURE)])
        if nominals:
            filling = replace(
                stored.schedule,
                id=backfill_id(id, since),
                of=id,
                rule=rule,
                limit=None,
                missed=Missed.ALL,
                catch_up_ms=MAX_INSTANT,
                overlap=overlap or stored.schedule.overlap,
                paused=False,
                by=self._by,
                mark=self._mark,
                added_by="",
                starts_at_add=False,
            )
            progress = Progress(nominal=nominals[0], next_at=now, zones=self._calendar.version)
            if saw and (stored.created_at != saw[0] or self._was_filled(stored.schedule, nominals)):
                self._ledger.confirm(self._ledger.shard_of(queue, "", id))
                return len(nominals)
            put = self._ledger.put_schedule(filling, progress, at=now).put
            if put is Put.CONFLICT:  # the clock was put back meanwhile
                return self.backfill(queue, id, span, overlap, tenant)
            if put is not Put.CREATED and not (saw and self._is_filled_by_this(filling)):
                raise ScheduleExists(f"The occurrences from {format_instant(since)} on are being added already.")
        return len(nominals)

    def _was_filled(self, schedule: Schedule, nominals: list[int]) -> bool:
        """True if the first try of this request has added an occurrence of a span."""
        mark = self._keyed.mark() if self._keyed else b""
        tasks = (self._task(schedule, occurrence_id(schedule.id, at)) for at in nominals)
        return any(task and task.is_of(mark) for task in tasks)

    def _is_filled_by_this(self, filling: Schedule) -> bool:
        stored = self._ledger.schedule(filling.queue, filling.id, filling.tenant)
        return stored is not None and stored.schedule.mark == filling.mark

    def preview(self, asked: Preview) -> list[Upcoming]:
        """The nominal times of a rule; nothing is stored. Raises InvalidInput."""
        self._calendar.check(asked.rule)
        times = self._calendar.times(asked.rule, asked.since - 1)
        return shown_times(
            self._calendar, asked.rule.time_zone, ((at, at) for at in islice(times, asked.most)), asked.since
        )

    def checked(self, schedule: Schedule, start: int) -> Schedule:
        """The schedule with its kind's default deadline, and with a start: its own, or `start`. Raises InvalidInput."""
        rule = schedule.rule.starting(start)
        self._calendar.check(rule)
        return self._prepared(replace(schedule, rule=rule, starts_at_add=schedule.rule.starts_at == AT_ADD))

    def _prepared(self, schedule: Schedule) -> Schedule:
        """The schedule with its kind's default deadline. Raises InvalidInput where its occurrences cannot be added."""
        if hidden_in(schedule.payload, schedule.kind):
            raise InvalidInput([FieldError("payload", CREDENTIALS)])
        if is_url(schedule.notify) and hidden_in_address(Notify.of(schedule.notify).address):
            raise InvalidInput([FieldError("notify_done.url", CREDENTIALS_IN_ADDRESS)])
        task = self._prepare(schedule.occurrence(schedule.rule.starts_at, schedule.rule.starts_at))
        is_same = task.deadline_ms == schedule.deadline_ms
        return schedule if is_same else replace(schedule, deadline_ms=task.deadline_ms)

    def _begun(self, asked: Schedule, now: int, added_by: str) -> tuple[Schedule, Progress]:
        """A new schedule as `checked`, and its progress. One that starts at its add fires after its first interval."""
        rule, is_open = asked.rule.starting(now), asked.rule.starts_at == AT_ADD
        nominal = self._calendar.first(rule, max(rule.starts_at, now + is_open))
        starting = replace(asked, rule=rule, starts_at_add=is_open, by=self._by, added_by=added_by)
        starting = self._prepared(starting)
        return starting, self._planner.first(starting, nominal)

    def _absent(self, queue: str, id: str, tenant: str) -> TaskNotFound:
        near = nearest(id, self._ledger.schedule_ids(queue, tenant))
        return TaskNotFound(id, queue, tenant, what="schedule", near=near)

    def _read_stored(self, queue: str, id: str, tenant: str) -> StoredSchedule:
        stored = self._ledger.schedule(queue, id, tenant)
        if stored is None:
            raise self._absent(queue, id, tenant)
        return stored

    def _brief(self, stored: StoredSchedule) -> ScheduleStatus:
        """A schedule of a list, without its occurrences that passed."""
        schedule, progress, now = stored.schedule, stored.progress, self._ledger.now()
        throttle = self._throttle(schedule) if progress.next_at <= now else Throttle(now=now)
        upcoming = self._upcoming(schedule, progress, now, 1)
        return ScheduleStatus(
            schedule, progress, stored.created_at, tuple(upcoming), (), why(schedule, progress, throttle)
        )

    def _status(self, stored: StoredSchedule) -> ScheduleStatus:
        schedule, progress, now = stored.schedule, stored.progress, self._ledger.now()
        upcoming = self._upcoming(schedule, progress, now, SHOWN)
        tasks = [self._live(schedule, one) for one in progress.recent]
        recent = [_as_passed(schedule, *one) for one in zip(progress.recent, tasks, strict=True)]
        late = next((task for task in reversed(tasks) if task and _is_late(task, now)), None)
        reason = why(schedule, progress, self._throttle(schedule, late), late, runs=self._runs(schedule.kind))
        return ScheduleStatus(schedule, progress, stored.created_at, tuple(upcoming), tuple(reversed(recent)), reason)

    def _throttle(self, schedule: Schedule, task: Task | None = None) -> Throttle:
        shard = self._ledger.shard_of(schedule.queue, "", schedule.series)
        return self._ledger.throttle(shard, schedule.tenant, task)

    def _upcoming(self, schedule: Schedule, progress: Progress, now: int, count: int) -> list[Upcoming]:
        if progress.next_at == NEVER or progress.nominal is None:
            return []
        left = count if schedule.limit is None else min(count, schedule.limit - progress.fired)
        nominals = [progress.nominal, *islice(self._calendar.times(schedule.rule, progress.nominal), left - 1)]
        due = zip(nominals, schedule.fire_in_order(nominals, progress.next_at), strict=True)
        return shown_times(self._calendar, schedule.rule.time_zone, due, now)

    def _live(self, schedule: Schedule, one: Occurrence) -> Task | None:
        """Task of an occurrence that is live by the schedule's record; else None."""
        return self._task(schedule, occurrence_id(schedule.series, one.nominal)) if one.became is Became.LIVE else None

    def _task(self, schedule: Schedule, id: str) -> Task | None:
        return self._ledger.get(schedule.queue, id, schedule.tenant)


def shown_times(calendar: "Calendar", time_zone: str, times: Iterable[tuple[int, int]], since: int) -> list[Upcoming]:
    """Nominal and due times as they are shown, in a time zone; `since` is an instant before the first."""
    found, before = list[Upcoming](), ""
    for nominal, due_at in times:
        local = calendar.local(nominal, time_zone)
        before = before or calendar.local(since, time_zone)  # not earlier: without a time, `since` may be in no year
        found.append(Upcoming(nominal, due_at, local, local[OFFSET] != before[OFFSET]))
        before = local
    return found


def version_of(stored: StoredSchedule) -> list[int]:
    """Instant of a schedule's add, and its version."""
    return [stored.created_at, stored.progress.version]


def _as_passed(schedule: Schedule, one: Occurrence, task: Task | None) -> Passed:
    state = str(task.status) if task else str(one.became)
    return Passed(occurrence_id(schedule.series, one.nominal), one.nominal, state, 1 + one.besides)


def _is_late(task: Task, now: int) -> bool:
    """True if a task has been due for PROMPT_MS, and nobody has claimed it."""
    return task.status is Status.SCHEDULED and task.due_at <= now - PROMPT_MS


def _reaching(rule: Rule, since: int) -> Rule:
    """The rule with times before its start too; an `rrule` begins with its start, and has none."""
    if isinstance(rule.repeat, RRule) or since >= rule.starts_at:
        return rule
    step = rule.repeat.every_ms if isinstance(rule.repeat, Every) else 1
    steps_back = (since - rule.starts_at) // step
    return replace(rule, starts_at=max(rule.starts_at % step, rule.starts_at + steps_back * step))
