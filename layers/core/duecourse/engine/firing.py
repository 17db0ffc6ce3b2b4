"""Firing of due schedules: which nominal times an occurrence is made for, and when the next one comes."""

from collections.abc import Mapping, Sequence
from itertools import islice, takewhile
from typing import NamedTuple

from duecourse.domain.schedule import (
    GRACE_MS,
    NEVER,
    RECENT,
    Became,
    Firing,
    Kept,
    Missed,
    Occurrence,
    Progress,
    Schedule,
)
from duecourse.domain.task import Shard
from duecourse.domain.values import replaced
from duecourse.ports.calendar import Calendar
from duecourse.ports.schedules import Fired, ScheduleStore

COUNTED = 1_000
"""The most passed times that are gone through one by one: behind them, the newest is looked for."""
AT_ONCE = 10
"""The most missed times of one schedule that fire in one step."""
PACE_MS = 1_000
"""Time from such a step to the next."""
STEP_MS = 60_000
"""The first look back for the newest passed time; each further one is four times as far."""


class _Passed(NamedTuple):
    """Nominal times whose time to fire has come, oldest first, as far as they were gone through, and the next one."""

    nominals: list[int]
    next: int | None


class Firer:
    """Fires the due schedules of shards."""

    def __init__(self, store: ScheduleStore, calendar: Calendar) -> None:
        self._store = store
        self._calendar = calendar

    def fire(self, shard: Shard) -> bool:
        """Fire some schedules of a shard that are due; False if none is. Raises what the store raises."""
        due = self._store.due_schedules(shard)
        if due:
            now = self._store.now()
            steps = [self.step(one, now) for one in due]
            answers = self._store.fire(shard, steps)
            self._drop_backfills([step for step, fired in zip(steps, answers, strict=True) if fired is Fired.FIRED])
        return bool(due)

    def _drop_backfills(self, steps: Sequence[Firing]) -> None:
        """Delete the backfills that have added all."""
        for kept, _, progress in steps:
            if kept.schedule.of and progress.nominal is None:
                self._store.drop_schedule(kept.schedule.queue, kept.schedule.id, kept.schedule.tenant)

    def step(self, kept: Kept, now: int) -> Firing:
        """The step of one due schedule at `now` (epoch ms): the tasks to add, and its progress after that."""
        schedule, progress = kept.schedule, kept.progress
        passed = self._passed(schedule, progress, now)
        due = dict(zip(passed.nominals, schedule.fire_in_order(passed.nominals), strict=True))
        firing, missed, besides, waiting = _chosen(schedule, progress, due, now)
        recent = [
            Occurrence(nominal, Became.LIVE, besides if place == 0 else 0) for place, nominal in enumerate(firing)
        ]
        missed_ones = [Occurrence(nominal, Became.MISSED) for nominal in missed]
        upcoming = waiting if waiting is not None else passed.next
        fired = progress.fired + len(firing)
        if schedule.limit is not None and fired >= schedule.limit:
            upcoming = None
        later = replaced(
            progress,
            nominal=upcoming,
            next_at=now + PACE_MS if waiting is not None else _fires_at(schedule, upcoming),
            fired=fired,
            missed=progress.missed + len(missed) + besides,
            zones=self._calendar.version,
            former=None,
            recent=tuple([*progress.recent, *missed_ones, *recent][-RECENT:]),
        )
        tasks = tuple(schedule.occurrence(nominal, _due_at(due[nominal], now)) for nominal in firing)
        return Firing(kept, tasks, later)

    def _passed(self, schedule: Schedule, progress: Progress, now: int) -> _Passed:
        """Nominal times from the one that was next on that are due by `now`."""
        if progress.nominal is None:
            return _Passed([], None)
        found = [progress.nominal]
        for nominal in self._calendar.times(schedule.rule, progress.nominal):
            if schedule.fires_at(nominal) > now:
                return _Passed(found, nominal)
            found.append(nominal)
            if len(found) == COUNTED:
                return self._behind(schedule, found, now)
        return _Passed(found, None)

    def _behind(self, schedule: Schedule, found: list[int], now: int) -> _Passed:
        """The newest passed times of a schedule with more of them than are counted, after those that are."""
        if schedule.missed is Missed.ALL:
            return self._worth(schedule, found, now)
        back = STEP_MS
        while True:
            newest, upcoming = list[int](), None
            for nominal in self._calendar.times(schedule.rule, max(now - back, found[-1])):
                if schedule.fires_at(nominal) > now:
                    upcoming = nominal
                    break
                newest.append(nominal)
            if newest or now - back <= found[-1]:
                return _Passed([*found, *newest[-COUNTED:]], upcoming)
            back *= 4

    def _worth(self, schedule: Schedule, found: list[int], now: int) -> _Passed:
        """The same of one that makes up for times: the oldest of those that it does, as many as are counted."""
        oldest = max(found[-1], now - schedule.catch_up_ms - 1)
        times = list(islice(self._calendar.times(schedule.rule, oldest), COUNTED))
        passed = list(takewhile(lambda nominal: schedule.fires_at(nominal) <= now, times))
        return _Passed([*found, *passed], next(iter(times[len(passed) :]), None))


def _chosen(
    schedule: Schedule, progress: Progress, due: Mapping[int, int], now: int
) -> tuple[list[int], list[int], int, int | None]:
    """The times that fire, those that are missed, how many of these the first makes up for, and the one that waits.

    `due` are the times that have passed, in order, each with its due time.
    """
    late = [nominal for nominal, due_at in due.items() if due_at < now - GRACE_MS]
    on_time = list(due)[len(late) :]
    missed: list[int] = []
    besides = 0
    if schedule.missed is Missed.LATEST:
        firing = on_time or late[-1:]
        besides = len(late) - (0 if on_time else len(late[-1:]))
    elif schedule.missed is Missed.NONE:
        firing, missed = on_time, late
    else:
        worth = [nominal for nominal in late if nominal >= now - schedule.catch_up_ms]
        firing, missed = [*worth, *on_time], late[: len(late) - len(worth)]
    left = len(firing) if schedule.limit is None else max(0, schedule.limit - progress.fired)
    most = min(left, AT_ONCE)
    waiting = firing[most] if len(firing) > most and left > most else None
    return firing[:most], missed, besides, waiting


def _due_at(due_at: int, now: int) -> int:
    """Due time of an occurrence: now for one that was missed, so that its deadline does not end it unrun."""
    return now if due_at < now - GRACE_MS else due_at


def _fires_at(schedule: Schedule, nominal: int | None) -> int:
    return NEVER if nominal is None else schedule.fires_at(nominal)
