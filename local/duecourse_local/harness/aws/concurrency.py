"""Concurrency of a function: its slots, and the callers and events that wait for one."""

import asyncio
from collections import deque
from collections.abc import Iterator
from contextlib import suppress

from ..template import Function
from .invocation import (
    Busy,
    stopping,
)

RESERVED = "its ReservedConcurrentExecutions in the template"
UNRESERVED = "this stack's limit for a function without ReservedConcurrentExecutions in the template"


def limit_of(function: Function) -> str:
    """The function, the number of its invocations at a time, and the setting that says so."""
    setting = RESERVED if function.reserved else UNRESERVED
    return f"{function.name} runs at most {function.concurrency} at a time, {setting}"


Turn = asyncio.Future[None]


class Slots:
    """Slots of a function, as many as it may run invocations at a time.

    A free slot goes to the caller that has waited longest, and to an event only where no caller waits. A caller waits
    for seconds, an event may wait for hours.
    """

    def __init__(self, function: Function) -> None:
        self._function = function
        self._callers: deque[Turn] = deque()
        self._events: deque[Turn] = deque()
        self._closed = False
        self.taken = 0

    @property
    def events(self) -> int:
        """Number of events that wait."""
        return len(self._events)

    @property
    def callers(self) -> int:
        """Number of callers that wait."""
        return len(self._callers)

    async def take(self, within_s: float = 0.0, *, event: bool = False) -> None:
        """Take a slot, at once or within so many seconds. Raises Busy, and LambdaError when the stack stops."""
        if self._closed:
            raise stopping()
        if self.taken < self._function.concurrency:
            self.taken += 1
        elif within_s <= 0 or not self._function.concurrency:
            raise self._busy()
        else:
            await self._wait(self._events if event else self._callers, within_s)

    def give_back(self) -> None:
        """Hand a slot on to the next that waits, in this turn of the event loop, or set it free."""
        if turn := next(self._turns(), None):
            turn.set_result(None)
        else:
            self.taken -= 1

    def close(self) -> None:
        """Turn away all that wait, and all that come."""
        self._closed = True
        for turn in self._turns():
            turn.set_exception(stopping())

    async def _wait(self, line: deque[Turn], within_s: float) -> None:
        turn: Turn = asyncio.get_running_loop().create_future()
        line.append(turn)
        try:
            async with asyncio.timeout(within_s):
                await turn
        except BaseException as error:
            with suppress(ValueError):  # it is out of the line where it was called
                line.remove(turn)
            # The slot may have come in the same turn of the loop as the timeout or the cancellation.
            if turn.done() and not turn.cancelled() and not turn.exception():
                self.give_back()
            if isinstance(error, TimeoutError):
                raise self._busy() from None
            raise

    def _busy(self) -> Busy:
        return Busy(limit_of(self._function), throttled=self._function.reserved)

    def _turns(self) -> Iterator[Turn]:
        """Take turns from the lines until both are empty; one that gives up in this turn of the loop is left out."""
        for line in (self._callers, self._events):
            while line:
                turn = line.popleft()
                if not turn.done():
                    yield turn
