"""The bridge as a child process: started when the functions can be invoked, and left dead when it dies."""

import asyncio
import os
import re
import signal
import sys
from asyncio.subprocess import Process
from collections.abc import Callable, Mapping

from ..process.children import Pipe, spawn, stop
from .logs import Log

READY = re.compile(rb"^bridge ready\b", re.MULTILINE)
READY_WITHIN = 15.0


class Bridge:
    """The process that turns rings into invocations."""

    def __init__(self, environment: Mapping[str, str], log: Log, notice: Callable[[str], None]) -> None:
        self._environment = environment
        self._log = log
        self._notice = notice
        self._process: Process | None = None
        self._watching: asyncio.Task[None] | None = None
        self._ready = asyncio.Event()

    @property
    def pid(self) -> int | None:
        """The process's id while it lives."""
        return self._process.pid if self._process and self._process.returncode is None else None

    async def start(self) -> bool:
        """Start the process and wait for its `ready`; False, after a notice to the user, where that does not come."""
        self._ready.clear()
        pipe = Pipe(self._heard)
        self._process = await spawn(
            (sys.executable, "-m", "duecourse.bridge"),
            environment=self._environment,
            out=pipe.child_end,
        )
        pipe.handed_over()
        self._watching = asyncio.create_task(self._watch(self._process, pipe))
        waiting = asyncio.create_task(self._ready.wait())
        await asyncio.wait((self._watching, waiting), timeout=READY_WITHIN, return_when=asyncio.FIRST_COMPLETED)
        waiting.cancel()
        if self.pid is not None and not self._ready.is_set():
            self._notice(f"THE BRIDGE is not ready after {READY_WITHIN:.0f} s: see its log; the tick serves meanwhile")
        return self._ready.is_set()

    def kill(self) -> None:
        """End it at once, as SIGKILL does."""
        if self.pid is not None:
            os.kill(self.pid, signal.SIGKILL)

    async def stop(self) -> None:
        """End it in good order."""
        process, self._process = self._process, None
        if process is not None and process.returncode is None:
            await stop(process)
        if self._watching is not None:
            await self._watching

    async def _watch(self, process: Process, pipe: Pipe) -> None:
        code = await process.wait()
        pipe.drain()
        pipe.close()
        if process is self._process:
            self._notice(f"THE BRIDGE IS DEAD (exit {code}): rings are not heard, tasks run at the tick's pace")

    def _heard(self, chunk: bytes) -> None:
        self._log.write(chunk)
        if READY.search(chunk):
            self._ready.set()
