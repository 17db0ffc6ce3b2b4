"""Next times of schedules computed again by newer time zones: once a process, and never by older ones."""

from collections.abc import Callable, Iterator
from dataclasses import replace
from itertools import takewhile
from typing import TYPE_CHECKING

from duecourse.base.times import DAY_MS
from duecourse.errors import QuotaExceeded, StoreMisused, StoreUnavailable
from duecourse.ledger.schedule import Every, FormerTime, Progress, StoredSchedule

if TYPE_CHECKING:
    from duecourse.schedules.calendar import Calendar

if TYPE_CHECKING:
    from duecourse.ledger.operations.ledger import Ledger

BACK_MS = [60_000 * 4**number for number in range(6)]
"""Spans in which the time before is looked for, ever longer: a rule may have one each second."""


class TzdataUpdater:
    """Schedules of a ledger, and the calendar of this process, which is opened where there are schedules."""

    def __init__(self, ledger: "Ledger", calendar: Callable[[], "Calendar"]) -> None:
        self._ledger = ledger
        self._calendar = calendar
        self._coming: Iterator[StoredSchedule] | None = None
        self.are_known = False
        """True once every schedule was looked at."""

    def renew(self, remaining_ms: Callable[[], int]) -> int:
        """Compute the next times by newer zones; answers for how many schedules.

        A call takes half the time that remains, and the next one continues. A schedule that fires or is changed
        meanwhile is left alone.
        """
        least_ms, renewed = remaining_ms() // 2, 0
        self._coming = self._coming or self._ledger.coming_schedules()
        try:
            for stored in self._coming:
                renewed += self._renew(stored)
                if remaining_ms() <= least_ms:
                    return renewed
        except (StoreUnavailable, StoreMisused):
            self._coming = None
            raise
        self.are_known = True
        return renewed

    def _renew(self, stored: StoredSchedule) -> bool:
        """Compute the next time of one schedule; False where it is left as it is."""
        schedule, progress = stored.schedule, stored.progress
        calendar = self._calendar()
        if not _is_of_older(progress, calendar) or isinstance(schedule.rule.repeat, Every) or schedule.of:
            return False
        now = self._ledger.now()
        if progress.next_at <= now:  # it fires as it is
            return False
        later = recomputed(stored, calendar)
        try:
            # Its version stays, for no caller changed it. The store does nothing if it was written since.
            self._ledger.put_schedule(schedule, later, seen=stored, at=now)
        except QuotaExceeded:  # its tenant is over its bytes already: it fires as it is
            return False
        return True


def recomputed(stored: StoredSchedule, calendar: "Calendar") -> Progress:
    """Progress with the next time computed by the calendar's zones: the time nearest to the former one."""
    schedule, progress = stored.schedule, stored.progress
    was = progress.nominal or 0
    nominal = _nearest(stored, calendar, was)
    if nominal == was:
        return replace(progress, zones=calendar.version)
    former, next_at = FormerTime(progress.zones, was), schedule.next_at(nominal)
    return replace(progress, nominal=nominal, next_at=next_at, zones=calendar.version, former=former)


def _nearest(stored: StoredSchedule, calendar: "Calendar", was: int) -> int | None:
    """The time of a rule nearest to one that it had by other zones: the same wall-clock time by the zones of now."""
    rule = stored.schedule.rule
    following = next(calendar.times(rule, was - 1), None)
    if following == was:
        return was
    farthest = DAY_MS - 1 if following is None else min(DAY_MS - 1, following - was)
    for back in (*(one for one in BACK_MS if one < farthest), farthest):
        before = [*takewhile(lambda at: at < was, calendar.times(rule, was - back - 1))]
        if before:
            return before[-1]
    return following


def _is_of_older(progress: Progress, calendar: "Calendar") -> bool:
    return progress.nominal is not None and progress.zones < calendar.version
