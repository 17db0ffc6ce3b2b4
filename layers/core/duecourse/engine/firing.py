"""Firing of due schedules: which nominal times an occurrence is made for, and when the next one comes."""

from collections.abc import Callable, Mapping, Sequence
from itertools import islice, takewhile
from typing import NamedTuple

from duecourse.domain.schedule import (
    GRACE_MS,
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
    Rule,
    Schedule,
)
from duecourse.domain.task import Shard
from duecourse.domain.values import replaced
from duecourse.ports.calendar import Calendar
from duecourse.ports.schedules import ScheduleStore

COUNTED = 1_000
"""The most passed times of `cron` or `rrule` that are counted: of those behind them, only the newest are found."""
MOST = 2 * COUNTED
"""The most passed times that one step goes through."""
AT_ONCE = 10
"""The most missed times of one schedule that fire in one step."""
PACE_MS = 1_000
"""Time from such a step to the next."""
NEAR_MS = 60_000
"""The least distance within which the newest passed time is found."""


class _Passed(NamedTuple):
    """Times that have passed, oldest first, as far as one step goes through them, and the `next` one behind those.

    `older` counts those before them that the step does not look at: each is missed.
    """

    nominals: list[int]
    older: int
    next: int | None


class _Chosen(NamedTuple):
    """Times that fire in one step, and those that are missed; `next` comes after the step.

    `times_missed` counts the older times too, which `missed` does not name.
    """

    firing: list[int]
    next: int | None
    missed: list[int]
    times_missed: int


class Firer:
    """Fires the due schedules of shards."""

    def __init__(self, store: ScheduleStore, calendar: Calendar) -> None:
        self._store = store
        self._calendar = calendar

    def fire(self, shard: Shard, due: Sequence[Kept], now: int) -> None:
        """Fire schedules of a shard that are due at `now` (epoch ms). Raises what the store raises."""
        self._store.fire(shard, [self.step(one, now)._replace(at=now) for one in due])

    def step(self, kept: Kept, now: int, last: int = NEVER) -> Firing:
        """The step of one due schedule at `now` (epoch ms): the tasks to add, and its progress after that.

        Times after `last` are left for later.
        """
        schedule, progress = kept.schedule, kept.progress
        if schedule.paused or progress.nominal is None or schedule.fires_at(progress.nominal) > now:
            return self._look_again(kept, now)
        grace_ms = 0 if kept.refused else GRACE_MS  # a time that passed in the rest after a refusal is late
        passed = self._passed(kept, now, last, grace_ms)
        since = 0 if kept.refused else progress.next_at
        due = dict(zip(passed.nominals, schedule.fire_in_order(passed.nominals, since), strict=True))
        firing, upcoming, missed, times_missed = _chosen(schedule, progress, passed, due, now, grace_ms)
        besides = times_missed if schedule.missed is Missed.LATEST else 0
        recent = [
            *([] if besides else (Occurrence(nominal, Became.MISSED) for nominal in missed)),
            *(Occurrence(nominal, Became.LIVE, 0 if place else besides) for place, nominal in enumerate(firing)),
        ]
        next_at = now + PACE_MS if upcoming in due else schedule.next_at(upcoming)
        later = replaced(
            self._moved(progress, upcoming, next_at, recent, times_missed), fired=progress.fired + len(firing)
        )
        tasks = tuple(schedule.occurrence(nominal, _due_at(due[nominal], now, grace_ms)) for nominal in firing)
        return Firing(kept, tasks, later)

    def _look_again(self, kept: Kept, now: int) -> Firing:
        """The step of a schedule that is due before its time: it gets its next time by its rule, and nothing fires.

        The store has it so after its clock was put back: the time that it had may be far in the future.
        """
        schedule, progress = kept.schedule, kept.progress
        if schedule.is_over(progress.fired):
            return Firing(kept, (), replaced(progress, nominal=None, next_at=NEVER))
        fired = {one.nominal for one in progress.recent}
        since = max(schedule.rule.starts_at, now + schedule.lead_ms)
        if schedule.paused and progress.nominal is not None:
            since = min(since, progress.nominal)  # what passed while it was paused is missed once it is resumed
        upcoming = (at for at in self._calendar.times(schedule.rule, since - 1) if at not in fired)
        nominal = next(upcoming, None)
        later = self._moved(progress, nominal, schedule.next_at(nominal), (), 0)
        return Firing(kept, (), later)

    def pass_over(self, kept: Kept, last: int) -> Firing:
        """The step of a schedule that counts its times up to `last` as missed, and adds no task."""
        schedule, progress = kept.schedule, kept.progress
        if progress.nominal is None:
            return Firing(kept, (), progress)
        older, first = self._skip(schedule.rule, progress.nominal, last + 1)
        missed, upcoming = self._run(schedule.rule, first, lambda nominal: nominal <= last)
        recent = [Occurrence(nominal, Became.MISSED) for nominal in missed]
        later = self._moved(progress, upcoming, schedule.next_at(upcoming), recent, older + len(missed))
        return Firing(kept, (), later)

    def _moved(
        self, progress: Progress, upcoming: int | None, next_at: int, recent: Sequence[Occurrence], missed: int
    ) -> Progress:
        """Progress with the next time, and what is remembered of those before."""
        return replaced(
            progress,
            nominal=upcoming,
            next_at=next_at,
            missed=progress.missed + missed,
            zones=self._calendar.version,
            former=None,
            recent=tuple([*progress.recent, *recent][-RECENT:]),
        )

    def _passed(self, kept: Kept, now: int, last: int, grace_ms: int) -> _Passed:
        """Nominal times up to `last`, from the one that was next on, that are due by `now`."""
        schedule, progress = kept.schedule, kept.progress
        if progress.nominal is None:
            return _Passed([], 0, None)
        older, first, most = 0, progress.nominal, AT_ONCE + 1
        if kept.refused or progress.next_at < now - grace_ms:  # else none is late: all fire, some at a time
            older, first = self._skip(schedule.rule, progress.nominal, _missed_before(schedule, now, grace_ms))
            most = MOST

        def is_due(nominal: int) -> bool:
            return nominal <= last and schedule.fires_at(nominal) <= now

        found, upcoming = self._run(schedule.rule, first, is_due, most)
        return _Passed(found, older, upcoming)

    def _run(
        self, rule: Rule, first: int, is_passed: Callable[[int], bool], most: int = MOST
    ) -> tuple[list[int], int | None]:
        """A time and those that follow it and have passed, at most so many, and the next one."""
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
        """The newest time before an instant, or one that is `near` it; `time` if none comes later.

        It looks just before the instant first, then ever farther back, and halves what lies between.
        """
        back = near
        while before - time > near:
            middle = max(before - back, (time + before) // 2)
            later = next(self._calendar.times(rule, middle), None)
            if later is None or later >= before:
                before, back = middle + 1, 8 * back
            else:
                time = later
        return time


def _missed_before(schedule: Schedule, now: int, grace_ms: int) -> int:
    """The instant before which every nominal time is missed, and none is made up for."""
    late = now - grace_ms + schedule.lead_ms - schedule.jitter_ms
    return min(late, now - schedule.catch_up_ms) if schedule.missed is Missed.ALL else late


def _chosen(
    schedule: Schedule, progress: Progress, passed: _Passed, due: Mapping[int, int], now: int, grace_ms: int
) -> _Chosen:
    """Choose among the times that have passed; `due` has the due time of each."""
    late = [nominal for nominal in passed.nominals if due[nominal] < now - grace_ms]
    on_time = passed.nominals[len(late) :]
    made_up = _made_up(schedule, late, now, is_newest_late=not on_time)
    firing, missed = [*made_up, *on_time], late[: len(late) - len(made_up)]
    left = len(firing) + 1 if schedule.limit is None else schedule.limit - progress.fired
    most = min(left, 1 if schedule.of and schedule.overlap is Overlap.QUEUE else AT_ONCE)
    upcoming = firing[most] if len(firing) > most else passed.next
    is_over = len(firing[:most]) == left
    return _Chosen(firing[:most], None if is_over else upcoming, missed, passed.older + len(missed))


def _made_up(schedule: Schedule, late: list[int], now: int, *, is_newest_late: bool) -> list[int]:
    """The late times that fire still. Of `latest` it is the newest, unless a time that is not late fires for all."""
    if schedule.missed is Missed.LATEST:
        return late[-1:] if is_newest_late else []
    if schedule.missed is Missed.NONE:
        return []
    return [nominal for nominal in late if nominal >= now - schedule.catch_up_ms]


def _due_at(due_at: int, now: int, grace_ms: int) -> int:
    """Due time of an occurrence: now for one that was missed, so that its deadline does not end it unrun."""
    return now if due_at < now - grace_ms else due_at
