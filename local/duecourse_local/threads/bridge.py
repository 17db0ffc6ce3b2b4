"""The bridge as threads of the harness's process: the product's own, on the bells of the store that is open here."""

import asyncio
from collections.abc import Callable

from duecourse.bridge import Bridge

from ..stack.bridge import READY_WITHIN


class ThreadBridge:
    """A bridge, started when the functions can be invoked, and left dead when it dies."""

    pid = None
    """It has no process of its own."""

    def __init__(self, bridge: Bridge, notice: Callable[[str], None]) -> None:
        self._bridge = bridge
        self._notice = notice
        self._watching: asyncio.Task[None] | None = None
        self._stopping = False

    async def start(self) -> bool:
        """Start the bridge and wait until it is ready; False, with a notice to the user, if it does not become so."""
        self._bridge.start()
        self._watching = asyncio.create_task(self._watch())
        ready = await asyncio.to_thread(self._bridge.wait_ready, READY_WITHIN)
        if not ready:
            self._notice(f"THE BRIDGE is not ready after {READY_WITHIN:.0f} s: the tick serves meanwhile")
        return ready

    def kill(self) -> None:
        """Let it hear nothing more; invocations that it has begun continue. Not for the event loop's thread."""
        self._bridge.stop()

    async def stop(self) -> None:
        """End it in good order."""
        self._stopping = True
        await asyncio.to_thread(self._bridge.stop)
        if self._watching is not None:
            await self._watching

    async def _watch(self) -> None:
        await asyncio.to_thread(self._bridge.wait_ended)
        if not self._stopping:
            self._notice("THE BRIDGE IS DEAD: rings are not heard, tasks run at the tick's pace")
