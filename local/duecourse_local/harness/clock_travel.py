"""Time of a stack whose clock is moved: `advance` over HTTP serves in order what falls due on the way."""

import asyncio
import json
from collections.abc import Sequence
from typing import NamedTuple

from starlette.requests import Request
from starlette.responses import JSONResponse
from starlette.routing import Route

from duecourse.base.times import INSTANT, format_instant, parse_duration, parse_instant
from duecourse.ledger.bells import BellEvent
from duecourse.ledger.embedded.ledger import BellSimulator, TravelClock
from duecourse.ledger.keys import keys_of
from duecourse.ledger.task import Shard, Trigger
from duecourse.ringing.bridge_event import Ring, event

from ..errors import HarnessError
from .aws.functions import Functions
from .aws.invocation import Invocation
from .aws.schedules import Schedules


class TravelTargets(NamedTuple):
    """Functions and schedules that a journey invokes, and the name of the function that serves rings."""

    functions: Functions
    schedules: Schedules
    on_expired: str


class Travel:
    """A clock that is moved: the bells of a store ring the function `on_expired`, and schedules their own functions.

    A schedule's event is sent once in an hour of this time at most: thirty days of ticks would take many minutes.
    """

    def __init__(self, journey: BellSimulator, clock: TravelClock, namespace: str, targets: "TravelTargets") -> None:
        self._journey, self._clock, self._namespace = journey, clock, namespace
        self._functions, self._on_expired = targets.functions, targets.on_expired
        self._timetable = targets.schedules.timetable(clock.now() / 1000)
        self._turn = asyncio.Lock()

    @property
    def now(self) -> str:
        """The present instant, as text."""
        return format_instant(self._clock.now())

    async def advance(self, to: str) -> int:
        """Move the clock by a span or to an instant, and return the number of tasks that were claimed on the way.

        Raises ValueError for a text that is neither, or for an instant that is past. Raises HarnessError where a
        function failed that serves rings or a schedule.
        """
        until = self._until(to)
        async with self._turn:
            claimed = 0
            while True:
                stop = min(until, self._timetable.next_ms)
                shards = self._journey.next(stop)
                if shards:
                    claimed += await self._ring(shards)
                elif stop == self._timetable.next_ms:
                    await self._run_schedules()
                else:
                    return claimed
                await self._functions.idle()

    def _until(self, to: str) -> int:
        until = parse_instant(to) if INSTANT.fullmatch(to) else self._clock.now() + parse_duration(to)
        if until < self._clock.now():
            raise ValueError(f"{format_instant(until)} is past: it is {self.now} in this stack")
        return until

    async def _ring(self, shards: Sequence[Shard]) -> int:
        channel = f"{self._namespace}:{BellEvent.EXPIRED}"
        rings = [
            Ring(str(keys_of(self._namespace, shard).bell), channel, self._clock.now(), Trigger.TIMER)
            for shard in shards
        ]
        answer = await self._invoke(self._on_expired, json.dumps(event(rings)).encode())
        return int(answer["claimed"])

    async def _run_schedules(self) -> None:
        for function, text in self._timetable.pop():
            await self._invoke(function, text)

    async def _invoke(self, function: str, text: bytes) -> dict[str, int]:
        answer = await self._functions.invoke(function, Invocation(text))
        if answer.error:
            raise HarnessError(f"{function} failed at {self.now}: {answer.payload.decode(errors='replace')[:400]}")
        found = json.loads(answer.payload)
        return found if isinstance(found, dict) else {}


CLOCK_PATH = "/clock"


def clock_route(travel: Travel) -> Route:
    """The route: GET answers the time; POST {"to": span or instant} moves it, and answers when all is done."""

    async def serve(request: Request) -> JSONResponse:
        if request.method == "GET":
            return JSONResponse({"now": travel.now})
        if request.headers.get("content-type", "") != "application/json":  # a page's form is not what moves time
            return JSONResponse({"detail": "send the body with Content-Type: application/json"}, 415)
        try:
            given = await request.json()
            claimed = await travel.advance(str(given["to"]))
        except (ValueError, LookupError, TypeError) as error:
            return JSONResponse({"detail": f"to: {error}"}, 422)
        except HarnessError as error:
            return JSONResponse({"detail": str(error)}, 500)
        return JSONResponse({"now": travel.now, "claimed": claimed})

    return Route(CLOCK_PATH, serve, methods=["GET", "POST"])
