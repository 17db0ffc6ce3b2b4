"""The bridge as a child process or as threads: started when functions can be invoked, and again when it dies."""

import asyncio
import os
import re
import signal
import sys
import time
from asyncio.subprocess import Process
from collections.abc import Callable, Mapping
from contextlib import suppress

from duecourse.bridge import Bridge

from .children import Pipe, spawn, stop
from .logs import Log

READY = re.compile(rb"^bridge ready\b", re.MULTILINE)
READY_WITHIN = 15.0
WRONG = 2
"""Exit code for settings that are wrong: another start would end alike."""
PAUSES_S = 0.5, 30.0
"""Shortest and longest pause before the bridge is started again: each death in a row doubles it."""
LASTING_S = 60.0
"""Life of a bridge after which its death is the first in a row again."""


class RestartPauses:
    """Pauses before restarts of the bridge, which grow with its deaths in a row."""

    def __init__(self) -> None:
        self._count = 0
        self._began_at = time.monotonic()

    def begin(self) -> None:
        """Note the start of a process."""
        self._began_at = time.monotonic()

    def pause_s(self) -> float:
        """Time to wait after a death until the next life."""
        self._count = 1 if time.monotonic() - self._began_at >= LASTING_S else self._count + 1
        shortest, longest = PAUSES_S
        return min(shortest * 2.0 ** min(self._count - 1, 16), longest)


def dead(how: str, pause_s: float | None) -> str:
    """Notice of a bridge's death for the user."""
    rest = "see its log" if pause_s is None else f"it is started again in {pause_s:g} s"
    return f"THE BRIDGE IS DEAD{how}: rings are not heard, tasks run at the tick's pace; {rest}"


class BridgeProcess:
    """The process that turns rings into invocations, started again when it dies."""

    def __init__(self, environment: Mapping[str, str], log: Log, notice: Callable[[str], None]) -> None:
        self._environment = environment
        self._log = log
        self._notice = notice
        self._process: Process | None = None
        self._is_last = False
        self._keeping: asyncio.Task[None] | None = None
        self._ready = asyncio.Event()
        self._known = asyncio.Event()
        """Set once the first process is ready, or dead."""
        self._over = asyncio.Event()

    @property
    def pid(self) -> int | None:
        """The process's id while it lives."""
        return self._process.pid if self._process and self._process.returncode is None else None

    async def start(self) -> bool:
        """Start the process and wait for its `ready`; False, after a notice to the user, where that does not come."""
        self._keeping = asyncio.create_task(self._keep())
        with suppress(TimeoutError):
            await asyncio.wait_for(self._known.wait(), READY_WITHIN)
        if self.pid is not None and not self._ready.is_set():
            self._notice(f"THE BRIDGE is not ready after {READY_WITHIN:.0f} s: see its log; the tick serves meanwhile")
        return self._ready.is_set()

    def kill(self) -> None:
        """End it at once, as SIGKILL does, and for good; for the event loop's thread or another."""
        self._is_last = True
        if self.pid is not None:
            os.kill(self.pid, signal.SIGKILL)

    async def stop(self) -> None:
        """End it in good order."""
        self._over.set()
        if self._process is not None and self.pid is not None:
            await stop(self._process)
        if self._keeping is not None:
            await self._keeping

    async def _keep(self) -> None:
        deaths = RestartPauses()
        while not self._over.is_set():
            deaths.begin()
            code = await self._run()
            self._known.set()
            if self._over.is_set():
                return
            pause_s = None if self._is_last or code == WRONG else deaths.pause_s()
            self._warn(dead(f" (exit {code})", pause_s))
            if pause_s is None:
                return
            with suppress(TimeoutError):
                await asyncio.wait_for(self._over.wait(), pause_s)

    async def _run(self) -> int:
        """Run the process once, and answer its exit code."""
        again = self._known.is_set()
        self._ready.clear()
        pipe = Pipe(self._on_output)
        process = self._process = await spawn(
            (sys.executable, "-m", "duecourse.bridge"),
            environment=self._environment,
            out=pipe.child_end,
        )
        pipe.handed_over()
        if self._over.is_set():
            await stop(process)  # meanwhile
        elif again:
            self._warn(f"the bridge was started again: process {process.pid}")
        code = await process.wait()
        pipe.drain()
        pipe.close()
        return code

    def _warn(self, text: str) -> None:
        self._log.note("WARNING", text)
        self._notice(text)

    def _on_output(self, chunk: bytes) -> None:
        self._log.write(chunk)
        if READY.search(chunk):
            self._ready.set()
            self._known.set()


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
        """Stop it for good, while its running invocations continue. Not for the event loop's thread."""
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
        deaths = RestartPauses()
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
