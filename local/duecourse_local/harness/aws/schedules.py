"""Invokes functions at their scheduled times, asynchronously, as EventBridge does."""

import asyncio
import json
import math
import time
from collections.abc import Iterable, Sequence

from duecourse.base.times import MAX_INSTANT

from ..template import Function, Schedule
from .events import scheduled_event
from .functions import Functions
from .invocation import Invocation
from .schedule_expressions import Cadence, Every

SELDOM_S = 3_600
"""Shortest time between two events of a schedule where the clock is moved."""


TICK = "poll_tick"
"""Folder of the product's own function with a schedule."""


class Schedules:
    """The schedules of all functions; `tick` seconds replaces the cadence of the product's tick, 0 disables all."""

    def __init__(self, described: Iterable[Function], functions: Functions, tick: float | None) -> None:
        every = list(described)
        self._all = [(function.name, schedule) for function in every for schedule in function.schedules]
        self._ticks = {function.name for function in every if function.code.name == TICK}
        self._functions = functions
        self._tick = tick

    @property
    def described(self) -> str:
        """Function and cadence of each schedule, for people; "" for none."""
        if self._tick == 0:
            return ""
        return "  ".join(f"{function} {self._cadence(function, schedule)}" for function, schedule in self._all)

    @property
    def problems(self) -> list[str]:
        """Function and field of each schedule that AWS would reject, and that never fires here."""
        return [f"{function}: {schedule.problem}" for function, schedule in self._all if schedule.problem]

    def _cadence(self, function: str, schedule: Schedule) -> Cadence:
        return Every(self._tick) if self._tick and function in self._ticks else schedule.cadence

    async def keep(self, *, at_once: bool = False) -> None:
        """Send every event at its time, and with `at_once` the product's tick also now, until cancelled."""
        if self._tick == 0:
            return
        if at_once:
            for function, schedule in self._of_ticks():
                self._functions.send(function, Invocation(event_of(schedule, time.time())))
        await asyncio.gather(*(self._keep(name, schedule) for name, schedule in self._all))

    async def _keep(self, function: str, schedule: Schedule) -> None:
        cadence = self._cadence(function, schedule)
        at = time.time()
        while (at := cadence.next_after(max(at, time.time()))) < math.inf:
            await asyncio.sleep(at - time.time())
            self._functions.send(function, Invocation(event_of(schedule, at)))

    def _of_ticks(self) -> list[tuple[str, Schedule]]:
        return [(function, schedule) for function, schedule in self._all if function in self._ticks]

    def timetable(self, at: float) -> "Timetable":
        """The events from `at` (epoch seconds) on, for a clock that is moved."""
        every = [(name, schedule, self._cadence(name, schedule)) for name, schedule in self._all]
        return Timetable(every if self._tick != 0 else [], at)

    async def now(self) -> dict[str, object]:
        """The product's tick at once, synchronously: what each function answered, by its name."""
        answers: dict[str, object] = {}
        for function, schedule in self._of_ticks():
            answer = await self._functions.invoke(function, Invocation(event_of(schedule, time.time())))
            answers[function] = json.loads(answer.payload)
        return answers


class Timetable:
    """Events of schedules in the order of their times (epoch seconds), of each at most one in SELDOM_S."""

    def __init__(self, every: Sequence[tuple[str, Schedule, Cadence]], at: float) -> None:
        self._every = every
        self._next = [cadence.next_after(at) for _, _, cadence in every]

    @property
    def next_ms(self) -> int:
        """The instant of the next ones (epoch ms); the last of all instants where there are none."""
        at = min(self._next, default=math.inf)
        return MAX_INSTANT if at == math.inf else round(at * 1000)

    def pop(self) -> list[tuple[str, bytes]]:
        """Function and event of each that is next, which is then past."""
        at, found = min(self._next), list[tuple[str, bytes]]()
        for place, (function, schedule, cadence) in enumerate(self._every):
            if self._next[place] == at:
                found.append((function, event_of(schedule, at)))
                self._next[place] = cadence.next_after(max(at, at + SELDOM_S - 1))
        return found


def event_of(schedule: Schedule, at: float) -> bytes:
    """The event of a schedule at `at` (epoch seconds), as JSON text."""
    if schedule.input is not None:
        return schedule.input.encode()
    return json.dumps(scheduled_event(schedule.name, at, scheduler=schedule.scheduler)).encode()
