"""Verbs of callers on schedules: add, show, change, delete, run, backfill, preview."""

from collections.abc import Callable, Iterable
from copy import copy
from itertools import count, islice
from typing import Any

from duecourse.domain.idempotency import KeyedTry
from duecourse.domain.near import nearest
from duecourse.domain.notification import Notify, is_url
from duecourse.domain.queues import Throttle
from duecourse.domain.schedule import (
    AT_ADD,
    NEVER,
    RECENT,
    Became,
    Every,
    Firing,
    Kept,
    Missed,
    Occurrence,
    Overlap,
    Progress,
    RRule,
    Rule,
    Schedule,
    backfill_id,
    occurrence_id,
)
from duecourse.domain.schedule_status import Passed, Preview, ScheduleStatus, Upcoming, why
from duecourse.domain.seals import hidden_in, hidden_in_address
from duecourse.domain.task import DEFAULT_TENANT, NewTask, Status, Task
from duecourse.domain.times import MAX_INSTANT, format_instant
from duecourse.domain.values import maker, replaced
from duecourse.engine.course import Course
from duecourse.errors import ChangedSince, FieldError, InvalidInput, ScheduleExists, TaskNotFound, VersionConflict
from duecourse.ports.calendar import Calendar
from duecourse.ports.schedules import Fired, Put, ScheduleStore

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


class Schedules:
    """The verbs on schedules.

    `prepare` answers a task as an add would write it, or rejects it. `fits` rejects a payload that a kind cannot run,
    and `runs` is False for a kind that nothing runs. `by` is the source in an occurrence's log.
    """

    def __init__(
        self,
        store: ScheduleStore,
        calendar: Calendar,
        prepare: Callable[[NewTask], NewTask],
        by: str = "http",
        fits: Callable[[str, str], None] = _fits,
        runs: Callable[[str], bool] = _runs,
    ) -> None:
        self._store = store
        self._calendar = calendar
        self._prepare = prepare
        self._fits = fits
        self._runs = runs
        self._by = by
        self._keyed: KeyedTry | None = None
        self._course = Course(store, calendar)

    def speaking_as(self, by: str, keyed: KeyedTry | None = None) -> "Schedules":
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
        return self._store.now()

    def add(self, schedule: Schedule) -> tuple[ScheduleStatus, bool]:
        """Add a schedule; the second value is False where the same one is there already, and nothing was changed.

        At a repeat, what was added under its id since the first try is it. Raises InvalidInput, QuotaExceeded, and
        ScheduleExists where another schedule has its id.
        """
        now = self._store.now()
        starting = self.checked(replaced(schedule, by=self._by), now)
        progress = self._first(schedule, starting, now)
        put, at = self._store.put_schedule(starting, progress)
        if put is Put.CREATED:
            upcoming = self._upcoming(starting, progress, at, SHOWN)
            return ScheduleStatus(
                starting, progress, at, tuple(upcoming), (), why(starting, progress, Throttle(now=at))
            ), True
        kept = self._kept(schedule.queue, schedule.id, schedule.tenant)
        since = self._keyed.since if self._keyed else 0
        if not (0 < since <= kept.created_at or self.is_same(schedule, kept.schedule)):
            raise ScheduleExists
        return self._status(kept), False

    def put(self, schedule: Schedule, may_add: Callable[[], bool]) -> Put:
        """Add a schedule of a file, or change the one with its id to it.

        CONFLICT, with nothing changed, where a caller made that one, or a file with a higher number. KEPT where it is
        the same, and ABSENT where it `may_add` none. Raises InvalidInput and QuotaExceeded.
        """
        for _ in range(TRIES):
            kept = self._store.schedule(schedule.queue, schedule.id, schedule.tenant)
            if kept is None and not may_add():
                return Put.ABSENT
            done = self._put_new(schedule) if kept is None else self._put_over(kept, schedule)
            if done:
                return done
        raise VersionConflict

    def _put_new(self, schedule: Schedule) -> Put | None:
        now = self._store.now()
        starting = self.checked(replaced(schedule, by=self._by), now)
        put, _ = self._store.put_schedule(starting, self._first(schedule, starting, now))
        return put if put is Put.CREATED else None

    def _put_over(self, kept: Kept, schedule: Schedule) -> Put | None:
        before = kept.schedule
        if not 0 < before.file <= schedule.file:
            return Put.CONFLICT
        is_same = self.is_same(schedule, before)
        if is_same and before.file == schedule.file:
            return Put.KEPT
        if is_same:  # it gets the number, and another version, so that no file with a lower number changes it
            later = replaced(before, file=schedule.file)
        else:
            later = self.checked(replaced(schedule, by=self._by), before.rule.starts_at)
        if not self._write(kept, later):
            return None
        return Put.KEPT if is_same else Put.CHANGED

    def is_same(self, asked: Schedule, kept: Schedule) -> bool:
        """True if a request asks for what there is; without a start of its own it may have begun at any time."""
        wanted = self.checked(asked, kept.rule.starts_at)
        as_kept = {"rule": wanted.rule.as_kept(kept.rule), "by": kept.by, "file": kept.file, "mark": kept.mark}
        return replaced(wanted, **as_kept) == kept

    def get(self, queue: str, id: str, tenant: str = DEFAULT_TENANT) -> ScheduleStatus:
        """One schedule. Raises TaskNotFound."""
        return self._status(self._kept(queue, id, tenant))

    def page(
        self, queue: str, after: str, limit: int, tenant: str = DEFAULT_TENANT
    ) -> tuple[list[ScheduleStatus], str]:
        """Some schedules of a queue by id, those after an id.

        The second value is the id after which the next page begins, "" for no more.
        """
        page = self._store.schedules(queue, after, limit, tenant)
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
            kept = self._kept(queue, id, tenant)
            if saw and saw != version_of(kept):
                if kept.schedule.mark == mark:
                    self._store.confirm(self._store.shard_of(queue, "", id))
                    return self._status(kept)
                raise ChangedSince
            if if_version not in {None, kept.progress.version}:
                break
            if self._write(kept, self._with(kept.schedule, {"mark": mark} | changes)):
                return self.get(queue, id, tenant)
        raise VersionConflict

    def _first_saw(self, queue: str, id: str, tenant: str) -> list[int]:
        """Version of the schedule at the first try of the request, at a repeat of it; [] where this is the first.

        Raises TaskNotFound.
        """
        if not self._keyed:
            return []
        saw: list[int] = self._keyed.first_saw(lambda: version_of(self._kept(queue, id, tenant)))
        return saw if self._keyed.is_repeat else []

    def _write(self, kept: Kept, schedule: Schedule) -> bool:
        """Change a schedule that is there; False where it has fired, or was changed, meanwhile."""
        progress = self._course.changed(kept, schedule)
        if progress is None:
            return False
        return self._store.put_schedule(schedule, progress, if_version=kept.progress.version).put is Put.CHANGED

    def _with(self, schedule: Schedule, changes: dict[str, Any]) -> Schedule:
        """A schedule with changes; only what they touch is checked, so that one whose kind is gone can be paused."""
        others = {name: value for name, value in changes.items() if name != "rule"}
        if "payload" in others:
            self._fits(schedule.kind, others["payload"])
        rule = replaced(schedule.rule, **changes.get("rule", {}))
        if rule != schedule.rule:
            self._calendar.check(rule)
        later = replaced(schedule, rule=rule, **others)
        return later if OF_TASKS.isdisjoint(others) else self._prepared(later)

    def delete(self, queue: str, id: str, tenant: str = DEFAULT_TENANT) -> None:
        """Delete a schedule; its occurrences stay. Raises TaskNotFound.

        A repeat leaves alone what was added under the id since the first try.
        """
        saw = self._first_saw(queue, id, tenant)
        if not self._store.drop_schedule(queue, id, tenant, created_at=saw[0] if saw else None) and not saw:
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
            kept = self._store.schedule(queue, id, tenant)
            if saw and (kept is None or self._has_run(kept, saw)):
                self._store.confirm(self._store.shard_of(queue, "", id))
                return occurrence_id(id, saw[1])
            if kept is None:
                raise self._absent(queue, id, tenant)
            now = self._store.now()
            nominal = saw[1] if saw else self._free_time(kept.schedule, now)
            task = kept.schedule.occurrence(nominal, now)._replace(by=self._by)
            recent = (*kept.progress.recent, Occurrence(nominal, Became.LIVE))[-RECENT:]
            firing = Firing(kept, (task,), replaced(kept.progress, recent=recent), by_hand=True, at=now)
            [fired] = self._store.fire(self._store.shard_of(queue, "", id), [firing])
            if fired is Fired.FIRED:
                return task.id
        raise VersionConflict

    def _free_time(self, schedule: Schedule, now: int) -> int:
        """The first nominal time from now on of which there is no task."""
        return next(at for at in count(now) if self._task(schedule, occurrence_id(schedule.id, at)) is None)

    def _next_run(self, queue: str, id: str, tenant: str) -> list[int]:
        """Instants: the add of a schedule, and the nominal time of a run of it. Raises TaskNotFound."""
        kept = self._kept(queue, id, tenant)
        return [kept.created_at, self._free_time(kept.schedule, self._store.now())]

    def _has_run(self, kept: Kept, saw: list[int]) -> bool:
        """True if a run was added, or its schedule is another by now."""
        created_at, nominal = saw
        is_known = any(one.nominal == nominal for one in kept.progress.recent)
        return (
            kept.created_at != created_at
            or is_known
            or bool(self._task(kept.schedule, occurrence_id(kept.schedule.id, nominal)))
        )

    def backfill(
        self, queue: str, id: str, span: tuple[int, int], overlap: Overlap | None, tenant: str = DEFAULT_TENANT
    ) -> int:
        """Add the occurrences from `span[0]` up to `span[1]` now, some each second; answers how many there are.

        What was added before is not added again while its task is kept; a repeat adds nothing where the first try did.
        Raises TaskNotFound, InvalidInput for over MAX_BACKFILL of them or one that is yet to come, and ScheduleExists
        while a span with this beginning is being added.
        """
        saw = self._first_saw(queue, id, tenant)
        kept, now = self._kept(queue, id, tenant), self._store.now()
        since, to = span
        rule = _reaching(replaced(kept.schedule.rule, until=to - 1), since)
        nominals = list(islice(self._calendar.times(rule, since - 1), MAX_BACKFILL + 1))
        if len(nominals) > MAX_BACKFILL:
            raise InvalidInput(
                [FieldError("to", f"at most {MAX_BACKFILL:,} occurrences at a time: choose an earlier one")]
            )
        if nominals and nominals[-1] > now:
            raise InvalidInput([FieldError("to", FUTURE)])
        if nominals:
            filling = replaced(
                kept.schedule,
                id=backfill_id(id, since),
                of=id,
                rule=rule,
                limit=None,
                missed=Missed.ALL,
                catch_up_ms=MAX_INSTANT,
                overlap=overlap or kept.schedule.overlap,
                paused=False,
                by=self._by,
                mark=self._mark,
            )
            progress = Progress(nominal=nominals[0], next_at=now, zones=self._calendar.version)
            if saw and (kept.created_at != saw[0] or self._was_filled(kept.schedule, nominals)):
                self._store.confirm(self._store.shard_of(queue, "", id))
                return len(nominals)
            if self._store.put_schedule(filling, progress).put is not Put.CREATED and not (
                saw and self._is_filled_by_this(filling)
            ):
                raise ScheduleExists(f"The occurrences from {format_instant(since)} on are being added already.")
        return len(nominals)

    def _was_filled(self, schedule: Schedule, nominals: list[int]) -> bool:
        """True if an occurrence of a span was added since the first try of this request."""
        since = self._keyed.since if self._keyed else 0
        tasks = (self._task(schedule, occurrence_id(schedule.id, at)) for at in nominals)
        return any(task and task.created_at >= since for task in tasks)

    def _is_filled_by_this(self, filling: Schedule) -> bool:
        kept = self._store.schedule(filling.queue, filling.id, filling.tenant)
        return kept is not None and kept.schedule.mark == filling.mark

    def preview(self, asked: Preview) -> list[Upcoming]:
        """The nominal times of a rule; nothing is stored. Raises InvalidInput."""
        self._calendar.check(asked.rule)
        times = self._calendar.times(asked.rule, asked.since - 1)
        return shown_times(
            self._calendar, asked.rule.time_zone, ((at, at) for at in islice(times, asked.most)), asked.since
        )

    def checked(self, schedule: Schedule, start: int) -> Schedule:
        """The schedule with its kind's default deadline, and with a start: its own, or `start`. Raises InvalidInput."""
        starting = replaced(schedule, rule=schedule.rule.starting(start))
        self._calendar.check(starting.rule)
        return self._prepared(starting)

    def _prepared(self, schedule: Schedule) -> Schedule:
        """The schedule with its kind's default deadline. Raises InvalidInput where its occurrences cannot be added."""
        if hidden_in(schedule.payload, schedule.kind):
            raise InvalidInput([FieldError("payload", CREDENTIALS)])
        if is_url(schedule.notify) and hidden_in_address(Notify.of(schedule.notify).address):
            raise InvalidInput([FieldError("notify_done.url", CREDENTIALS_IN_ADDRESS)])
        task = self._prepare(schedule.occurrence(schedule.rule.starts_at, schedule.rule.starts_at))
        return replaced(schedule, deadline_ms=task.deadline_ms)

    def _first(self, asked: Schedule, starting: Schedule, now: int) -> Progress:
        """Progress of a new series. One that starts now fires first after its first interval."""
        return self._course.begun(starting, Progress(), now + 1 if asked.rule.starts_at == AT_ADD else now)

    def _absent(self, queue: str, id: str, tenant: str) -> TaskNotFound:
        near = nearest(id, self._store.schedule_ids(queue, tenant))
        return TaskNotFound(id, queue, tenant, what="schedule", near=near)

    def _kept(self, queue: str, id: str, tenant: str) -> Kept:
        kept = self._store.schedule(queue, id, tenant)
        if kept is None:
            raise self._absent(queue, id, tenant)
        return kept

    def _brief(self, kept: Kept) -> ScheduleStatus:
        """A schedule of a list, without its occurrences that passed."""
        schedule, progress, now = kept.schedule, kept.progress, self._store.now()
        throttle = self._throttle(schedule) if progress.next_at <= now else Throttle(now=now)
        upcoming = self._upcoming(schedule, progress, now, 1)
        return ScheduleStatus(
            schedule, progress, kept.created_at, tuple(upcoming), (), why(schedule, progress, throttle)
        )

    def _status(self, kept: Kept) -> ScheduleStatus:
        schedule, progress, now = kept.schedule, kept.progress, self._store.now()
        upcoming = self._upcoming(schedule, progress, now, SHOWN)
        tasks = [self._live(schedule, one) for one in progress.recent]
        recent = [_passed(schedule, *one) for one in zip(progress.recent, tasks, strict=True)]
        late = next((task for task in reversed(tasks) if task and _is_late(task, now)), None)
        reason = why(schedule, progress, self._throttle(schedule, late), late, runs=self._runs(schedule.kind))
        return ScheduleStatus(schedule, progress, kept.created_at, tuple(upcoming), tuple(reversed(recent)), reason)

    def _throttle(self, schedule: Schedule, task: Task | None = None) -> Throttle:
        shard = self._store.shard_of(schedule.queue, "", schedule.series)
        return self._store.throttle(shard, schedule.tenant, task)

    def _upcoming(self, schedule: Schedule, progress: Progress, now: int, count: int) -> list[Upcoming]:
        if progress.next_at == NEVER or progress.nominal is None:
            return []
        left = count if schedule.limit is None else min(count, schedule.limit - progress.fired)
        nominals = [progress.nominal, *islice(self._calendar.times(schedule.rule, progress.nominal), left - 1)]
        due = zip(nominals, schedule.fire_in_order(nominals, progress.next_at), strict=True)
        return shown_times(self._calendar, schedule.rule.time_zone, due, now)

    def _live(self, schedule: Schedule, one: Occurrence) -> Task | None:
        """Task of an occurrence that has not ended by the schedule's record; None for others."""
        return self._task(schedule, occurrence_id(schedule.series, one.nominal)) if one.became is Became.LIVE else None

    def _task(self, schedule: Schedule, id: str) -> Task | None:
        return self._store.get(schedule.queue, id, schedule.tenant)


def shown_times(calendar: Calendar, time_zone: str, times: Iterable[tuple[int, int]], since: int) -> list[Upcoming]:
    """Nominal and due times as they are shown, in a time zone; `since` is an instant before the first."""
    make_upcoming, found = maker(Upcoming), list[Upcoming]()
    before = calendar.local(since, time_zone)
    for nominal, due_at in times:
        local = calendar.local(nominal, time_zone)
        found.append(make_upcoming(nominal, due_at, local, local[OFFSET] != before[OFFSET]))
        before = local
    return found


def version_of(kept: Kept) -> list[int]:
    """Instant of a schedule's add, and its version."""
    return [kept.created_at, kept.progress.version]


def _passed(schedule: Schedule, one: Occurrence, task: Task | None) -> Passed:
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
    return replaced(rule, starts_at=max(rule.starts_at % step, rule.starts_at + steps_back * step))
