"""Times of schedules by newer time zones: recomputed once a process, and never by older ones."""

from collections.abc import Callable, Iterator
from itertools import takewhile

from duecourse.domain.schedule import Every, FormerTime, Kept, Progress
from duecourse.domain.times import DAY_MS
from duecourse.domain.values import replaced
from duecourse.errors import QuotaExceeded, StoreMisused, StoreUnavailable
from duecourse.ports.calendar import Calendar
from duecourse.ports.schedules import ScheduleStore

BACK_MS = [60_000 * 4**number for number in range(6)]
"""Spans in which the time before is looked for, ever longer: a rule may have one each second."""


class Zones:
    """Schedules of a ledger, and the calendar of this process, which is opened where there are schedules."""

    def __init__(self, store: ScheduleStore, calendar: Callable[[], Calendar]) -> None:
        self._store = store
        self._calendar = calendar
        self._coming: Iterator[Kept] | None = None
        self.are_known = False
        """True once every schedule was looked at."""

    def renew(self, remaining_ms: Callable[[], int]) -> int:
        """Compute the next times by newer zones; answers for how many schedules.

        It takes half the time that remains, and continues at the next call. A schedule that fires or is changed
        meanwhile is left to that.
        """
        least_ms, renewed = remaining_ms() // 2, 0
        self._coming = self._coming or self._store.coming_schedules()
        try:
            for kept in self._coming:
                renewed += self._renew(kept)
                if remaining_ms() <= least_ms:
                    return renewed
        except (StoreUnavailable, StoreMisused):
            self._coming = None
            raise
        self.are_known = True
        return renewed

    def _renew(self, kept: Kept) -> bool:
        """Compute the next time of one schedule; False where it is left as it is."""
        schedule, progress = kept.schedule, kept.progress
        calendar = self._calendar()
        if not _is_of_older(progress, calendar) or isinstance(schedule.rule.repeat, Every) or schedule.of:
            return False
        if progress.next_at <= self._store.now():  # it fires as it is
            return False
        later = renewed(kept, calendar)
        try:
            # Its version stays, for no caller changed it. The store does nothing if it has fired or changed since.
            self._store.put_schedule(schedule, later, if_version=progress.version)
        except QuotaExceeded:  # its tenant is over its bytes already: it fires as it is
            return False
        return True


def renewed(kept: Kept, calendar: Calendar) -> Progress:
    """Progress of a schedule whose next time is computed by a calendar's zones: the one nearest to the time it had."""
    schedule, progress = kept.schedule, kept.progress
    was = progress.nominal or 0
    nominal = _nearest(kept, calendar, was)
    if nominal == was:
        return replaced(progress, zones=calendar.version)
    former, next_at = FormerTime(progress.zones, was), schedule.next_at(nominal)
    return replaced(progress, nominal=nominal, next_at=next_at, zones=calendar.version, former=former)


def _nearest(kept: Kept, calendar: Calendar, was: int) -> int | None:
    """The time of a rule nearest to one that it had by other zones: the same wall-clock time by the zones of now."""
    rule = kept.schedule.rule
    following = next(calendar.times(rule, was - 1), None)
    if following == was:
        return was
    farthest = DAY_MS - 1 if following is None else min(DAY_MS - 1, following - was)
    for back in (*(one for one in BACK_MS if one < farthest), farthest):
        before = [*takewhile(lambda at: at < was, calendar.times(rule, was - back - 1))]
        if before:
            return before[-1]
    return following


def _is_of_older(progress: Progress, calendar: Calendar) -> bool:
    return progress.nominal is not None and progress.zones < calendar.version
