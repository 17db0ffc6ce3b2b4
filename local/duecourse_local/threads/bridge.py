"""The bridge as threads of the harness's process: the product's own, on the bells of the store that is open here."""

import asyncio
from collections.abc import Callable
from contextlib import suppress

from duecourse.bridge import Bridge

from ..stack.bridge import READY_WITHIN, Deaths, dead


class ThreadBridge:
    """A bridge, started when the functions can be invoked, and another one each time that it dies."""

    pid = None
    """It has no process of its own."""

    def __init__(self, make: Callable[[], Bridge], notice: Callable[[str], None]) -> None:
        self._make = make
        self._bridge = make()
        self._notice = notice
        self._keeping: asyncio.Task[None] | None = None
        self._over = asyncio.Event()
        self._stopping = False

    async def start(self) -> bool:
        """Start the bridge and wait until it is ready; False, with a notice to the user, if it does not become so."""
        self._bridge.start()
        self._keeping = asyncio.create_task(self._keep())
        ready = await asyncio.to_thread(self._bridge.wait_ready, READY_WITHIN)
        if not ready:
            self._notice(f"THE BRIDGE is not ready after {READY_WITHIN:.0f} s: the tick serves meanwhile")
        return ready

    def kill(self) -> None:
        """Let it hear nothing more, for good; invocations that it has begun continue. Not for the loop's own thread."""
        self._stopping = True
        self._bridge.stop()
        self._notice(dead("", None))

    async def stop(self) -> None:
        """End it in good order."""
        self._stopping = True
        self._over.set()
        await asyncio.to_thread(self._bridge.stop)
        if self._keeping is not None:
            await self._keeping

    async def _keep(self) -> None:
        deaths = Deaths()
        while True:
            deaths.begin()
            await asyncio.to_thread(self._bridge.wait_ended)
            if self._stopping:
                return
            pause_s = deaths.pause_s()
            self._notice(dead("", pause_s))
            await asyncio.to_thread(self._bridge.stop)
            with suppress(TimeoutError):
                await asyncio.wait_for(self._over.wait(), pause_s)
            if self._stopping:
                return
            self._bridge = self._make()
            self._bridge.start()
            self._notice("the bridge was started again")
