"""The story of a schedule through both changes of the clocks of a year, in this process, on a clock that is moved."""

from collections.abc import Sequence
from datetime import UTC, date, datetime, time, timedelta
from zoneinfo import ZoneInfo

from duecourse import Done, Task, task_handler
from duecourse.testing import Duecourse

from .stage import check
from .stories import Report

ZONE = "Europe/Vienna"
VIENNA = ZoneInfo(ZONE)
FIRST, LAST = date(2027, 1, 3), date(2027, 12, 26)
WEEK = timedelta(days=7)
GAP, FOLD = date(2027, 3, 28), date(2027, 10, 31)
"""Sundays without a 02:30, and with two."""
AFTER_GAP = datetime(2027, 3, 28, 1, tzinfo=UTC)
"""The first instant after the gap."""


def nights() -> Report:
    """A task each Sunday of 2027 at 02:30 in Vienna."""
    ran: list[datetime] = []

    @task_handler
    def close_the_week(task: Task) -> Done:
        ran.append(duecourse.now)
        return Done({"attempt": task.attempt})

    with Duecourse(start=_midnight(FIRST)) as duecourse:
        duecourse.handle("close-the-week", close_the_week)
        duecourse.client.schedules.add(
            id="weekly", kind="close-the-week", payload={}, repeat={"cron": "30 2 * * SUN"}, time_zone=ZONE
        )
        duecourse.advance(_midnight(LAST + timedelta(days=1)))
        states = {one.state for one in duecourse.client.schedules.get("weekly").recent}
    wanted = [_of(night) for night in _nights()]
    check(ran == wanted, "one run each Sunday, at its time", _difference(ran, wanted))
    check(states == {"done"}, "the last ten are done", str(states))
    gap, fold = (_shown(ran[(night - FIRST) // WEEK]) for night in (GAP, FOLD))
    return Report(
        "A schedule through both changes of the clocks",
        [
            f"30 2 * * SUN in {ZONE}: the {len(ran)} Sundays of 2027 on a clock that is moved, one run each",
            f"28 March 2027 has no 02:30: it ran at {gap}; 31 October has two: it ran once, at {fold}",
            "each run was at the time that Python's zoneinfo says; in this process, with no server",
        ],
    )


def _midnight(day: date) -> datetime:
    return datetime.combine(day, time(), VIENNA)


def _nights() -> list[date]:
    return [FIRST + number * WEEK for number in range((LAST - FIRST) // WEEK + 1)]


def _of(night: date) -> datetime:
    """Instant of a night's run, as Python's own zoneinfo has it: of two, the first; of none, the first after."""
    return AFTER_GAP if night == GAP else datetime.combine(night, time(2, 30), VIENNA).astimezone(UTC)


def _shown(at: datetime) -> str:
    return f"{at.astimezone(VIENNA):%H:%M %Z} ({at:%H:%M} UTC)"


def _difference(ran: Sequence[datetime], wanted: Sequence[datetime]) -> str:
    more, less = sorted({*ran} - {*wanted}), sorted({*wanted} - {*ran})
    return f"{len(ran)} runs for {len(wanted)} Sundays; besides: {more[:3]}; missing: {less[:3]}"
