"""Firing of due schedules, and progress of changed ones: times that fire, times that are missed, the next time."""

from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from itertools import islice, takewhile
from typing import TYPE_CHECKING, NamedTuple

from duecourse.errors import BeyondQuota, QuotaExceeded
from duecourse.ledger.operation_types import Fired, Put
from duecourse.ledger.schedule import (
    GRACE_MS,
    NEVER,
    RECENT,
    Became,
    Every,
    Firing,
    Missed,
    Occurrence,
    Overlap,
    Progress,
    RRule,
    Rule,
    Schedule,
    StoredSchedule,
)
from duecourse.ledger.task import Shard

if TYPE_CHECKING:
    from duecourse.ledger.operations.ledger import Ledger
    from duecourse.schedules.calendar import Calendar

COUNTED = 1_000
"""The most passed times of `cron` or `rrule` that are counted: of those behind them, only the newest are found."""
MOST = 2 * COUNTED
"""The most passed times that one step goes through."""
AT_ONCE = 10
"""The most missed times of one schedule that fire in one step."""
PACE_MS = 1_000
"""Time from such a step to the next."""
AHEAD_MS = 60_000
"""The least time by which a start that was not given is ahead of the clock only where that was put back."""
NEAR_MS = 60_000
"""The least distance within which the newest passed time is found."""


class _PastTimes(NamedTuple):
    """Past times of one step, oldest first, and the `next` time after them.

    `older` counts those before them that the step does not look at: each is missed.
    """

    nominals: list[int]
    older: int
    next: int | None


class _FiringPlan(NamedTuple):
    """Times that fire in one step, and missed times; `next` comes after the step.

    `times_missed` counts the older times too, which `missed` does not name.
    """

    firing: list[int]
    next: int | None
    missed: list[int]
    times_missed: int


class Firer:
    """Fires the due schedules of shards."""

    def __init__(self, ledger: "Ledger", calendar: "Calendar") -> None:
        self._ledger = ledger
        self._calendar = calendar

    def fire(self, shard: Shard, due: Sequence[StoredSchedule], now: int) -> None:
        """Fire schedules of a shard that are due at `now` (epoch ms). Raises the errors of the ledger."""
        ready = [one for one in due if not self._restarted(one, now)]
        self._ledger.fire(shard, [self.step(one, now)._replace(at=now) for one in ready])

    def _restarted(self, stored: StoredSchedule, now: int) -> bool:
        """Start a schedule now if it was added by a clock ahead of this one; else False.

        No caller changed it: its version stays.
        """
        schedule = stored.schedule
        # The times of an `rrule` are counted from its start: one that has fired keeps it.
        stays = isinstance(schedule.rule.repeat, RRule) and stored.progress.recent
        if not schedule.starts_at_add or stays or schedule.rule.starts_at <= now + AHEAD_MS:
            return False
        starting = replace(schedule, rule=_beginning(schedule.rule, now))
        progress = self._look_again(stored._replace(schedule=starting), now + 1).progress
        with suppress(QuotaExceeded, BeyondQuota):  # its tenant is over its bytes already: it begins as it is
            return self._ledger.put_schedule(starting, progress, seen=stored, at=now).put is Put.CHANGED
        return False

    def step(self, stored: StoredSchedule, now: int, last: int = NEVER) -> Firing:
        """The step of one due schedule at `now` (epoch ms): the tasks to add, and its progress after that.

        Times after `last` are left for later.
        """
        schedule, progress = stored.schedule, stored.progress
        if schedule.paused or progress.nominal is None or schedule.fires_at(progress.nominal) > now:
            return self._look_again(stored, now)
        grace_ms = 0 if stored.refused else GRACE_MS  # a time that passed in the rest after a refusal is late
        passed = self._past_times(stored, now, last, grace_ms)
        since = 0 if stored.refused else progress.next_at
        due = dict(zip(passed.nominals, schedule.fire_in_order(passed.nominals, since), strict=True))
        firing, upcoming, missed, times_missed = _plan(schedule, progress, passed, due, now, grace_ms)
        besides = times_missed if schedule.missed is Missed.LATEST else 0
        recent = [
            *([] if besides else (Occurrence(nominal, Became.MISSED) for nominal in missed)),
            *(Occurrence(nominal, Became.LIVE, 0 if place else besides) for place, nominal in enumerate(firing)),
        ]
        next_at = now + PACE_MS if upcoming in due else schedule.next_at(upcoming)
        later = replace(
            self._advanced(progress, upcoming, next_at, recent, times_missed), fired=progress.fired + len(firing)
        )
        tasks = tuple(schedule.occurrence(nominal, _due_at(due[nominal], now, grace_ms)) for nominal in firing)
        return Firing(stored, tasks, later)

    def _look_again(self, stored: StoredSchedule, now: int) -> Firing:
        """The step of a schedule that is due before its time: it gets its next time by its rule, and nothing fires.

        The store has it so after its clock was put back: the time that it had may be far in the future.
        """
        schedule, progress = stored.schedule, stored.progress
        if schedule.is_over(progress.fired):
            return Firing(stored, (), replace(progress, nominal=None, next_at=NEVER))
        fired = {one.nominal for one in progress.recent}
        since = max(schedule.rule.starts_at, now + schedule.lead_ms)
        if schedule.paused and progress.nominal is not None:
            since = min(since, progress.nominal)  # what passed while it was paused is missed once it is resumed
        upcoming = (at for at in self._calendar.times(schedule.rule, since - 1) if at not in fired)
        nominal = next(upcoming, None)
        later = self._advanced(progress, nominal, schedule.next_at(nominal), (), 0)
        return Firing(stored, (), later)

    def skip_until(self, stored: StoredSchedule, last: int) -> Firing:
        """Step of a schedule that counts its times up to `last` as missed, and adds no task."""
        schedule, progress = stored.schedule, stored.progress
        if progress.nominal is None:
            return Firing(stored, (), progress)
        older, first = self._skip(schedule.rule, progress.nominal, last + 1)
        missed, upcoming = self._run(schedule.rule, first, lambda nominal: nominal <= last)
        recent = [Occurrence(nominal, Became.MISSED) for nominal in missed]
        later = self._advanced(progress, upcoming, schedule.next_at(upcoming), recent, older + len(missed))
        return Firing(stored, (), later)

    def _advanced(
        self, progress: Progress, upcoming: int | None, next_at: int, recent: Sequence[Occurrence], missed: int
    ) -> Progress:
        """Progress with the next time and the last occurrences."""
        return replace(
            progress,
            nominal=upcoming,
            next_at=next_at,
            missed=progress.missed + missed,
            zones=self._calendar.version,
            former=None,
            recent=tuple([*progress.recent, *recent][-RECENT:]),
        )

    def _past_times(self, stored: StoredSchedule, now: int, last: int, grace_ms: int) -> _PastTimes:
        """Nominal times up to `last`, from the one that was next on, that are due by `now`."""
        schedule, progress = stored.schedule, stored.progress
        if progress.nominal is None:
            return _PastTimes([], 0, None)
        older, first, most = 0, progress.nominal, AT_ONCE + 1
        if stored.refused or progress.next_at < now - grace_ms:  # else none is late: all fire, some at a time
            older, first = self._skip(schedule.rule, progress.nominal, _missed_before(schedule, now, grace_ms))
            most = MOST

        def is_due(nominal: int) -> bool:
            return nominal <= last and schedule.fires_at(nominal) <= now

        found, upcoming = self._run(schedule.rule, first, is_due, most)
        return _PastTimes(found, older, upcoming)

    def _run(
        self, rule: Rule, first: int, is_passed: Callable[[int], bool], most: int = MOST
    ) -> tuple[list[int], int | None]:
        """Past times from `first` on, at most `most`, and the time after them."""
        found = [first]
        for nominal in self._calendar.times(rule, first):
            if len(found) == most or not is_passed(nominal):
                return found, nominal
            found.append(nominal)
        return found, None

    def _skip(self, rule: Rule, nominal: int, before: int) -> tuple[int, int]:
        """Skip times from `nominal` on that come before an instant, but for the newest; their number, and the next one.

        Where more than COUNTED of `cron` or `rrule` are skipped, the number is too low.
        """
        if isinstance(rule.repeat, Every):
            end = before if rule.until is None else min(before, rule.until + 1)
            skipped = max(0, -((nominal - end) // rule.repeat.every_ms) - RECENT)
            return skipped, nominal + skipped * rule.repeat.every_ms
        early = takewhile(lambda at: at < before, self._calendar.times(rule, nominal))
        counted = list(islice(early, COUNTED))
        if len(counted) < COUNTED:
            return 0, nominal
        near = max(NEAR_MS, (counted[-1] - nominal) // COUNTED)
        newest = self._newest(rule, counted[-1], before, near)
        return COUNTED + (newest > counted[-1]), newest

    def _newest(self, rule: Rule, time: int, before: int, near: int) -> int:
        """The newest time before an instant, or one that is `near` it; `time` if none comes later."""
        # The search looks just before the instant first, then ever farther back, and halves the span between.
        back = near
        while before - time > near:
            middle = max(before - back, (time + before) // 2)
            later = next(self._calendar.times(rule, middle), None)
            if later is None or later >= before:
                before, back = middle + 1, 8 * back
            else:
                time = later
        return time


def _beginning(rule: Rule, now: int) -> Rule:
    """The rule with a start of now or before; the times of an interval stay as they were, with some before them."""
    if not isinstance(rule.repeat, Every):
        return replace(rule, starts_at=now)
    every_ms = rule.repeat.every_ms
    return replace(rule, starts_at=rule.starts_at - -(-(rule.starts_at - now) // every_ms) * every_ms)


def _missed_before(schedule: Schedule, now: int, grace_ms: int) -> int:
    """The instant before which every nominal time is missed, and none is made up for."""
    late = now - grace_ms + schedule.lead_ms - schedule.jitter_ms
    return min(late, now - schedule.catch_up_ms) if schedule.missed is Missed.ALL else late


def _plan(
    schedule: Schedule, progress: Progress, passed: _PastTimes, due: Mapping[int, int], now: int, grace_ms: int
) -> _FiringPlan:
    """Choose among the times that have passed; `due` has the due time of each."""
    late = [nominal for nominal in passed.nominals if due[nominal] < now - grace_ms]
    on_time = passed.nominals[len(late) :]
    made_up = _catch_up_times(schedule, late, now, is_newest_late=not on_time)
    firing, missed = [*made_up, *on_time], late[: len(late) - len(made_up)]
    left = len(firing) + 1 if schedule.limit is None else schedule.limit - progress.fired
    most = min(left, 1 if schedule.of and schedule.overlap is Overlap.QUEUE else AT_ONCE)
    upcoming = firing[most] if len(firing) > most else passed.next
    is_over = len(firing[:most]) == left
    return _FiringPlan(firing[:most], None if is_over else upcoming, missed, passed.older + len(missed))


def _catch_up_times(schedule: Schedule, late: list[int], now: int, *, is_newest_late: bool) -> list[int]:
    """The late times that fire still. Of `latest` it is the newest, unless a time that is not late fires for all."""
    if schedule.missed is Missed.LATEST:
        return late[-1:] if is_newest_late else []
    if schedule.missed is Missed.NONE:
        return []
    return [nominal for nominal in late if nominal >= now - schedule.catch_up_ms]


def _due_at(due_at: int, now: int, grace_ms: int) -> int:
    """Due time of an occurrence: now for one that was missed, so that its deadline does not end it unrun."""
    return now if due_at < now - grace_ms else due_at


# Progress of a schedule that is added or changed: where its times begin or go on, and what fires before that.

MOST_STEPS = 100
"""The most steps by the former rule at a change of it: a thousand occurrences."""


class ProgressPlanner:
    """Progress of schedules that callers write."""

    def __init__(self, ledger: "Ledger", calendar: "Calendar") -> None:
        self._ledger = ledger
        self._calendar = calendar
        self._firer = Firer(ledger, calendar)

    def first(self, schedule: Schedule, nominal: int | None) -> Progress:
        """Progress of a new schedule with this first time."""
        return _timed(schedule, Progress(nominal=nominal, zones=self._calendar.version))

    def begun(self, schedule: Schedule, before: Progress, now: int) -> Progress:
        """Progress of a schedule whose times begin at `now`, without the times that it has fired."""
        return _timed(schedule, self._from(schedule, before, max(schedule.rule.starts_at, now)))

    def changed(self, stored: StoredSchedule, schedule: Schedule) -> tuple[StoredSchedule, Progress] | None:
        """A schedule as it was read last, and its progress once it is changed; None where it was changed meanwhile.

        By another rule, times begin now, and what has passed by the former one fires first.
        """
        was, before, now = stored.schedule, stored.progress, self._ledger.now()
        if before.nominal is not None and was.rule.ending_as(schedule.rule) == schedule.rule:
            return stored, self._going_on(stored, before.nominal, schedule, now)
        if (schedule.rule, schedule.limit) == (was.rule, was.limit):
            return stored, replace(before, version=before.version + 1)
        settled = self._settled(stored, now)
        if settled is None:
            return None
        return settled, self.begun(schedule, replace(settled.progress, version=before.version + 1), now)

    def _going_on(self, stored: StoredSchedule, nominal: int, schedule: Schedule, now: int) -> Progress:
        """Progress of a schedule whose times go on: only the end or the exceptions of its rule changed."""
        was, later = stored.schedule, replace(stored.progress, version=stored.progress.version + 1)
        if schedule.rule.repeat != was.rule.repeat:  # what was left out may come now
            later = self._from(schedule, later, min(nominal, now))
        elif schedule.rule != was.rule:
            later = self._from(schedule, later, nominal)
        # What has only waited so far is not late; what passed while it was paused is.
        return _timed(schedule, later, 0 if was.paused else min(later.next_at, now))

    def _from(self, schedule: Schedule, before: Progress, at: int) -> Progress:
        """Progress whose next time is the first unfired time from `at` on."""
        fired = {one.nominal for one in before.recent}
        nominal = next((time for time in self._calendar.times(schedule.rule, at - 1) if time not in fired), None)
        return replace(before, nominal=nominal, zones=self._calendar.version, former=None)

    def _settled(self, stored: StoredSchedule, now: int) -> StoredSchedule | None:
        """Fire all passed times by the former rule; returns the schedule after that, None if it was changed meanwhile.

        Times that would wait for their pace get later due times. Times of a paused schedule are missed.
        """
        queue, id, tenant = stored.schedule.queue, stored.schedule.id, stored.schedule.tenant
        shard, version = self._ledger.shard_of(queue, "", id), stored.progress.version
        last, steps = now + stored.schedule.lead_ms, 0
        while stored.progress.nominal is not None and stored.progress.nominal <= last:
            if stored.schedule.paused or steps == MOST_STEPS:
                step = self._firer.skip_until(stored, last)
            else:
                step = self._firer.step(stored, max(now, stored.progress.next_at), last)
            [fired] = self._ledger.fire(shard, [step._replace(at=now)])
            again = self._ledger.schedule(queue, id, tenant)
            if fired is Fired.STALE or again is None or again.progress.version != version:
                return None
            stored, steps = again, steps + 1
        return stored


def _timed(schedule: Schedule, progress: Progress, since: int = 0) -> Progress:
    """Progress with the time at which its nominal time fires, not before `since`."""
    nominal = None if schedule.is_over(progress.fired) else progress.nominal
    return replace(progress, nominal=nominal, next_at=max(since, schedule.next_at(nominal)))
