"""Course of a schedule that is added or changed: where its times begin or go on, and what fires before that."""

from duecourse.domain.schedule import Kept, Progress, Schedule
from duecourse.domain.values import replaced
from duecourse.engine.firing import Firer
from duecourse.ports.calendar import Calendar
from duecourse.ports.schedules import Fired, ScheduleStore

MOST_STEPS = 100
"""The most steps by the former rule at a change of it: a thousand occurrences."""


class Course:
    """Progress of schedules that callers write."""

    def __init__(self, store: ScheduleStore, calendar: Calendar) -> None:
        self._store = store
        self._calendar = calendar
        self._firer = Firer(store, calendar)

    def begun(self, schedule: Schedule, before: Progress, now: int) -> Progress:
        """Progress of a series whose times begin at `now`, without those that it has fired."""
        return _timed(schedule, self._from(schedule, before, max(schedule.rule.starts_at, now)))

    def changed(self, kept: Kept, schedule: Schedule) -> Progress | None:
        """Progress of a schedule that is changed; None where it has fired, or was changed, meanwhile.

        By another rule, times begin now, and what has passed by the former one fires first.
        """
        was, before, now = kept.schedule, kept.progress, self._store.now()
        if before.nominal is not None and was.rule.ending_as(schedule.rule) == schedule.rule:
            return self._going_on(kept, before.nominal, schedule, now)
        if (schedule.rule, schedule.limit) == (was.rule, was.limit):
            return replaced(before, version=before.version + 1)
        settled = self._settled(kept, now)
        if settled is None:
            return None
        return self.begun(schedule, replaced(settled, version=before.version + 1), now)

    def _going_on(self, kept: Kept, nominal: int, schedule: Schedule, now: int) -> Progress:
        """Progress of one whose times go on: its rule is the same, but for its end and what it leaves out."""
        was, later = kept.schedule, replaced(kept.progress, version=kept.progress.version + 1)
        if schedule.rule.repeat != was.rule.repeat:  # what was left out may come now
            later = self._from(schedule, later, min(nominal, now))
        elif schedule.rule != was.rule:
            later = self._from(schedule, later, nominal)
        # What has only waited so far is not late; what passed while it was paused is.
        return _timed(schedule, later, 0 if was.paused else min(later.next_at, now))

    def _from(self, schedule: Schedule, before: Progress, at: int) -> Progress:
        """Progress whose next time is the first one from an instant on that has not fired."""
        fired = {one.nominal for one in before.recent}
        nominal = next((time for time in self._calendar.times(schedule.rule, at - 1) if time not in fired), None)
        return replaced(before, nominal=nominal, zones=self._calendar.version, former=None)

    def _settled(self, kept: Kept, now: int) -> Progress | None:
        """Progress behind all times that have passed, before another rule begins; None where it was changed meanwhile.

        They fire as by the rule of before, those that would wait for their pace with later due times. Those of a paused
        schedule are missed.
        """
        queue, id, tenant = kept.schedule.queue, kept.schedule.id, kept.schedule.tenant
        shard, version = self._store.shard_of(queue, "", id), kept.progress.version
        last, steps = now + kept.schedule.lead_ms, 0
        while kept.progress.nominal is not None and kept.progress.nominal <= last:
            if kept.schedule.paused or steps == MOST_STEPS:
                step = self._firer.pass_over(kept, last)
            else:
                step = self._firer.step(kept, max(now, kept.progress.next_at), last)
            [fired] = self._store.fire(shard, [step])
            again = self._store.schedule(queue, id, tenant)
            if fired is Fired.STALE or again is None or again.progress.version != version:
                return None
            kept, steps = again, steps + 1
        return kept.progress


def _timed(schedule: Schedule, progress: Progress, since: int = 0) -> Progress:
    """Progress with the time at which its nominal time fires, not before `since`."""
    nominal = None if schedule.is_over(progress.fired) else progress.nominal
    return replaced(progress, nominal=nominal, next_at=max(since, schedule.next_at(nominal)))
