"""The bridge as a child process: started when the functions can be invoked, and again when it dies."""

import asyncio
import os
import re
import signal
import sys
import time
from asyncio.subprocess import Process
from collections.abc import Callable, Mapping
from contextlib import suppress

from ..process.children import Pipe, spawn, stop
from .logs import Log

READY = re.compile(rb"^bridge ready\b", re.MULTILINE)
READY_WITHIN = 15.0
WRONG = 2
"""Exit code for settings that are wrong: another start would end alike."""
PAUSES_S = 0.5, 30.0
"""Shortest and longest pause before the bridge is started again: each death in a row doubles it."""
LASTING_S = 60.0
"""Life of a bridge after which its death is the first in a row again."""


class Deaths:
    """Deaths in a row, and the pauses after them."""

    def __init__(self) -> None:
        self._count = 0
        self._began_at = time.monotonic()

    def begin(self) -> None:
        """A life begins."""
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


class Bridge:
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
        deaths = Deaths()
        while not self._over.is_set():
            deaths.begin()
            code = await self._run()
            self._known.set()
            if self._over.is_set():
                return
            pause_s = None if self._is_last or code == WRONG else deaths.pause_s()
            self._tell(dead(f" (exit {code})", pause_s))
            if pause_s is None:
                return
            with suppress(TimeoutError):
                await asyncio.wait_for(self._over.wait(), pause_s)

    async def _run(self) -> int:
        """One life of the process; its exit code."""
        again = self._known.is_set()
        self._ready.clear()
        pipe = Pipe(self._heard)
        process = self._process = await spawn(
            (sys.executable, "-m", "duecourse.bridge"),
            environment=self._environment,
            out=pipe.child_end,
        )
        pipe.handed_over()
        if self._over.is_set():
            await stop(process)  # meanwhile
        elif again:
            self._tell(f"the bridge was started again: process {process.pid}")
        code = await process.wait()
        pipe.drain()
        pipe.close()
        return code

    def _tell(self, text: str) -> None:
        self._log.note("WARNING", text)
        self._notice(text)

    def _heard(self, chunk: bytes) -> None:
        self._log.write(chunk)
        if READY.search(chunk):
            self._ready.set()
            self._known.set()
