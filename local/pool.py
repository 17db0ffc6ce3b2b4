"""The processes of one function: grown on demand up to its concurrency, each serving one request at a time."""

import asyncio

from local.environment import Surroundings
from local.invocation import Answer, InitFailed, Invocation, stopping, throttled
from local.logs import Log
from local.model import Function
from local.worker import Rules, Worker


class Pool:
    """A function and its processes."""

    def __init__(self, function: Function, surroundings: Surroundings, log: Log, rules: Rules) -> None:
        self.function = function
        self._surroundings = surroundings
        self._log = log
        self._rules = rules
        self._workers: set[Worker] = set()
        self._idle: list[Worker] = []
        self._closed = False

    def pids(self) -> list[int]:
        """The processes that are there, oldest first."""
        return sorted(worker.pid for worker in self._workers if worker.pid is not None)

    async def warm(self) -> None:
        """Have one process ready. Raises InitFailed."""
        self._idle.append(await self._started("-"))

    async def invoke(self, invocation: Invocation) -> Answer:
        """Run the invocation on a free process, or on a new one. Raises Refused where the limit is reached."""
        try:
            worker = self._free() or await self._started(invocation.request_id)
        except InitFailed as failure:
            return failure.answer
        answer = await worker.run(invocation)
        if worker.alive:
            self._idle.append(worker)
        else:
            await self._gone(worker)
        return answer

    def _free(self) -> Worker | None:
        while self._idle:
            worker = self._idle.pop()
            if worker.alive:
                return worker
            self._workers.discard(worker)
        return None

    async def _started(self, request_id: str) -> Worker:
        if self._closed:
            raise stopping()
        if len(self._workers) >= self.function.concurrency:
            raise throttled()
        worker = Worker(self.function, self._surroundings, self._log, self._rules)
        self._workers.add(worker)
        try:
            await worker.start(request_id)
        except InitFailed:
            self._workers.discard(worker)
            raise
        return worker

    async def _gone(self, worker: Worker) -> None:
        await worker.end()
        self._workers.discard(worker)

    def measure(self) -> None:
        """Hold every process to its memory size."""
        for worker in self._workers:
            worker.measure()

    async def close(self) -> None:
        """End every process."""
        self._closed = True
        await asyncio.gather(*(worker.end() for worker in self._workers))
