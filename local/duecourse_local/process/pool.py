"""The processes of one function: grown on demand up to its concurrency, each serving one request at a time."""

import asyncio
import os
import time
from collections import deque

from ..aws.invocation import Answer, InitFailed, Invocation, LambdaError, stopping
from ..aws.slots import Slots
from ..stack.logs import Log
from ..template.model import Function
from .code import Code, Version
from .environment import Environment
from .worker import Rules, Worker

PATIENCE_S = 0.025
"""Time that a busy process has to end its work before another is started, which takes some twenty times as long."""


def cores() -> int:
    """Number of processors that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


class Starts:
    """The starts of all functions' processes: no more at once than there are processors, or each would take longer."""

    def __init__(self, at_once: int = 0) -> None:
        self.turn = asyncio.Semaphore(at_once or cores())


class Pool:
    """A function and its processes; `starts` is shared by the functions of one stack.

    `first` is the event (JSON text) that each process handles before it is free, if there is one. A process that has
    handled it has loaded everything; until then a waiting invocation may get a busy process that ends its work earlier.
    """

    def __init__(
        self,
        function: Function,
        environment: Environment,
        log: Log,
        rules: Rules,
        starts: Starts | None = None,
        first: bytes | None = None,
    ) -> None:
        self.function = function
        self.slots = Slots(function)
        self._environment = environment
        self._log = log
        self._rules = rules
        self._starts = starts or Starts()
        self._first = first
        self._code = Code(function.code, rules.look_every)
        self._workers: dict[Worker, Version] = {}
        """The processes, and of which version of the code each is."""
        self._idle: list[tuple[float, Worker]] = []
        """Free processes and since when (time.monotonic()), the last used at the end, unused ones at the beginning."""
        self._waiting: deque[asyncio.Future[Worker]] = deque()
        self._growing: set[asyncio.Task[None]] = set()
        self._starting = 0
        self._closed = False

    def pids(self) -> list[int]:
        """The processes that are there, oldest first."""
        return sorted(worker.pid for worker in self._workers if worker.pid is not None)

    async def warm(self) -> None:
        """Have one process ready. Raises InitFailed."""
        async with self._starts.turn:
            self._put_back(await self._started("-"))

    async def run(self, invocation: Invocation) -> Answer:
        """Run the invocation on a free process, or on a new one; the slot is given back. Raises LambdaError."""
        try:
            worker = await self._free() or await self._next(invocation.request_id)
            answer = await worker.run(invocation)
        except InitFailed as failure:
            return failure.answer
        finally:
            self.slots.give_back()
        # Whoever has got the slot runs later than this: it finds the process free.
        if self._usable(worker):
            self._put_back(worker)
        else:
            await self._gone(worker)
        return answer

    async def _free(self) -> Worker | None:
        while self._idle:
            _, worker = self._idle.pop()
            if self._usable(worker):
                return worker
            await self._gone(worker)
        return None

    def _usable(self, worker: Worker) -> bool:
        """True if the process can take an invocation and runs the newest code."""
        return worker.alive and self._workers.get(worker) == self._code.version

    async def _next(self, request_id: str) -> Worker:
        """The next process that is free: one is started, and one that ends its work earlier is taken instead."""
        turn: asyncio.Future[Worker] = asyncio.get_running_loop().create_future()
        self._waiting.append(turn)
        growing = asyncio.create_task(self._grow(request_id))
        self._growing.add(growing)
        growing.add_done_callback(self._growing.discard)
        return await turn

    async def _grow(self, request_id: str) -> None:
        """Start a process, unless those that are being started are enough for who still waits when it may begin."""
        if self._workers:
            await asyncio.sleep(PATIENCE_S)
        async with self._starts.turn:
            if self._starting >= sum(1 for turn in self._waiting if not turn.done()):
                return
            self._starting += 1
            try:
                self._put_back(await self._started(request_id), fresh=True)
            except (InitFailed, LambdaError) as failure:
                if waiting := self._first_waiting():
                    waiting.set_exception(failure)
            finally:
                self._starting -= 1

    def _first_waiting(self) -> asyncio.Future[Worker] | None:
        while self._waiting:
            turn = self._waiting.popleft()
            if not turn.done():  # whoever waited may have been cancelled
                return turn
        return None

    def _put_back(self, worker: Worker, *, fresh: bool = False) -> None:
        """Give a free process to who waits longest, or keep it.

        A fresh one, whose first invocation will take longer, comes last: those that have worked are taken before it.
        """
        if waiting := self._first_waiting():
            waiting.set_result(worker)
        else:
            self._idle.insert(0 if fresh else len(self._idle), (time.monotonic(), worker))

    async def _started(self, request_id: str) -> Worker:
        if self._closed:
            raise stopping()
        worker = Worker(self.function, self._environment, self._log, self._rules)
        self._workers[worker] = self._code.version
        try:
            await worker.start(request_id)
            await self._make_warm(worker)
        except InitFailed:
            await self._gone(worker)
            raise
        return worker

    async def _make_warm(self, worker: Worker) -> None:
        if self._first is None:
            return
        answer = await worker.run(Invocation(self._first))
        if not worker.alive:
            raise InitFailed(answer)

    async def _gone(self, worker: Worker) -> None:
        await worker.end()
        self._workers.pop(worker, None)

    def measure(self) -> None:
        """Hold every process to its memory size."""
        for worker in self._workers:
            worker.measure()

    async def retire(self) -> None:
        """End the processes that had nothing to do for a while, but for the one that was last used."""
        until = time.monotonic() - self._rules.idle_limit
        over = [one for one in self._idle[:-1] if one[0] <= until]
        self._idle = [one for one in self._idle if one not in over]
        await asyncio.gather(*(self._gone(worker) for _, worker in over))

    async def close(self) -> None:
        """End every process."""
        self._closed = True
        self.slots.close()
        while waiting := self._first_waiting():
            waiting.set_exception(stopping())
        for growing in self._growing:
            growing.cancel()
        await asyncio.gather(*self._growing, return_exceptions=True)
        await asyncio.gather(*(worker.end() for worker in self._workers))
