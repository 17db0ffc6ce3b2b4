"""Invokes functions at their scheduled times, asynchronously, as EventBridge does."""

import asyncio
import json
import time
from collections.abc import Iterable

from ..template.model import Function, Schedule
from .cadence import Cadence, Every
from .events import scheduled_event
from .functions import Functions
from .invocation import Invocation


class Schedules:
    """The schedules of all functions; `tick` seconds replaces every schedule's own cadence, 0 disables all."""

    def __init__(self, described: Iterable[Function], functions: Functions, tick: float | None) -> None:
        self._all = [(function.name, schedule) for function in described for schedule in function.schedules]
        self._functions = functions
        self._tick = tick

    @property
    def described(self) -> str:
        """Function and cadence of each schedule, for people; "" for none."""
        if self._tick == 0:
            return ""
        return "  ".join(f"{function} {self._cadence(schedule)}" for function, schedule in self._all)

    def _cadence(self, schedule: Schedule) -> Cadence:
        return Every(self._tick) if self._tick else schedule.cadence

    async def keep(self, *, at_once: bool = False) -> None:
        """Send every event at its time, and with `at_once` also now, until cancelled."""
        if self._tick == 0:
            return
        if at_once:
            for function, schedule in self._all:
                self._functions.send(function, Invocation(event_of(schedule, time.time())))
        await asyncio.gather(*(self._keep(name, schedule) for name, schedule in self._all))

    async def _keep(self, function: str, schedule: Schedule) -> None:
        cadence = self._cadence(schedule)
        at = time.time()
        while True:
            at = cadence.next_after(max(at, time.time()))
            await asyncio.sleep(at - time.time())
            self._functions.send(function, Invocation(event_of(schedule, at)))

    async def now(self) -> dict[str, object]:
        """Every schedule's event at once, synchronously: what each function answered, by its name."""
        answers: dict[str, object] = {}
        for function, schedule in self._all:
            answer = await self._functions.invoke(function, Invocation(event_of(schedule, time.time())))
            answers[function] = json.loads(answer.payload)
        return answers


def event_of(schedule: Schedule, at: float) -> bytes:
    """The event of a schedule at `at` (epoch seconds), as JSON text."""
    if schedule.input is not None:
        return schedule.input.encode()
    return json.dumps(scheduled_event(schedule.name, at, scheduler=schedule.scheduler)).encode()
