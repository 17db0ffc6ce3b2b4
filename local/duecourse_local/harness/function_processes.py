"""Functions as processes under AWS's runtime clients: one process, and the pool of each function."""

import asyncio
import os
import signal
import time
from asyncio.subprocess import Process
from collections import deque
from contextlib import suppress
from dataclasses import dataclass

import psutil

from .addresses import LOOPBACK
from .aws.account import arn
from .aws.concurrency import Slots
from .aws.invocation import (
    MAX_SYNC_BYTES,
    MB,
    UNHANDLED,
    Answer,
    InitFailed,
    Invocation,
    LambdaError,
    error_type,
    exited,
    oversized,
    report_lines,
    start_line,
    stopping,
    timed_out,
    timeout_line,
    unhandled,
)
from .children import Pipe, spawn
from .environment import CodeFolder, Environment, NoRuntime, Version, runtime_command
from .logs import Log
from .runtime_api import RuntimeConnection
from .template import Function


@dataclass(frozen=True)
class ProcessRules:
    """Treatment of processes: the limit of a start, a stop between invokes, and when they end. In seconds.

    A process without work for `idle_limit` is ended, unless it is the function's last. A process whose code has changed
    takes no more invocations; the code is looked at every `look_every`.
    """

    init_limit: float = 10.0
    freeze: bool = False
    idle_limit: float = 300.0
    look_every: float = 0.1


class FunctionProcess:
    """A function's process; implements `runtime_api.Runtime` for it."""

    def __init__(self, function: Function, environment: Environment, log: Log, rules: ProcessRules) -> None:
        self._function = function
        self._environment = environment
        self._log = log
        self._rules = rules
        self._launching: asyncio.Task[None] | None = None
        self._watching: asyncio.Task[None] | None = None
        self._process: Process | None = None
        self._stats: psutil.Process | None = None
        self._waiting: RuntimeConnection | None = None
        self._current: Invocation | None = None
        self._answer: Answer | None = None
        self._init_ms = 0.0
        self._peak = 0
        self._turn: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        """Done when the process asks for its next invocation, or has ended."""

    @property
    def pid(self) -> int | None:
        """The process's id."""
        return self._process.pid if self._process else None

    @property
    def alive(self) -> bool:
        """True if the process can take an invocation."""
        return self._waiting is not None and self._waiting.open

    async def start(self, request_id: str) -> None:
        """Start the process and wait until it asks for work. Raises InitFailed."""
        words = self._command()
        began = time.perf_counter()
        # Shielded: a caller that is cancelled leaves a whole process behind, which `end` can end, and no half of one.
        self._launching = asyncio.create_task(self._launch(words))
        await asyncio.shield(self._launching)
        try:
            await asyncio.wait_for(asyncio.shield(self._turn), self._rules.init_limit)
        except TimeoutError:
            self._answer = timed_out(request_id, self._rules.init_limit)
        self._init_ms = (time.perf_counter() - began) * 1000
        await self._judge_start(request_id)

    def _command(self) -> tuple[str, ...]:
        try:
            return runtime_command(self._function)
        except NoRuntime as error:
            raise InitFailed(unhandled("Runtime.InvalidRuntime", str(error))) from error

    async def _launch(self, words: tuple[str, ...]) -> None:
        loop = asyncio.get_running_loop()
        server = await loop.create_server(lambda: RuntimeConnection(self), LOOPBACK, 0)
        host, port = server.sockets[0].getsockname()
        self._pipe = Pipe(self._on_output)
        try:
            self._process = await spawn(
                words,
                environment=self._environment.of(self._function, f"{host}:{port}"),
                out=self._pipe.child_end,
                folder=self._function.code,
            )
        except OSError as error:
            self._close(server)
            raise InitFailed(unhandled("Sandbox.Failure", str(error))) from error
        finally:
            self._pipe.handed_over()
        self._watching = asyncio.create_task(self._watch(self._process, server))
        with suppress(psutil.NoSuchProcess):
            self._stats = psutil.Process(self._process.pid)

    def _close(self, server: asyncio.Server) -> None:
        self._pipe.close()
        server.close()

    async def _judge_start(self, request_id: str) -> None:
        if self._answer is None and self.alive:
            return
        await self.end()
        assert self._process is not None  # noqa: S101 - for the type
        answer = self._answer or exited(request_id, self._process.returncode or 0)
        took = f"INIT_REPORT Init Duration: {self._init_ms:.2f} ms"
        self._log_line(f"{took}\tPhase: init\tStatus: error\tError Type: {error_type(answer)}")
        raise InitFailed(answer)

    async def run(self, invocation: Invocation) -> Answer:
        """Have the process handle one invocation; whatever goes wrong is in the answer."""
        self._current, self._answer = invocation, None
        self._turn = asyncio.get_running_loop().create_future()
        self._log_line(start_line(invocation))
        began = time.perf_counter()
        self._hand_over(invocation)
        try:
            async with asyncio.timeout(self._function.timeout):
                await self._turn
        except TimeoutError:
            await self._time_is_up(invocation)
        answer = self._answer or exited(invocation.request_id, -signal.SIGKILL)
        self._close_log(invocation, answer, (time.perf_counter() - began) * 1000)
        self._current = None
        return answer

    def _hand_over(self, invocation: Invocation) -> None:
        connection, self._waiting = self._waiting, None
        if connection is None:
            return
        if self._rules.freeze:
            self._signal(signal.SIGCONT)
        headers = {
            "Lambda-Runtime-Aws-Request-Id": invocation.request_id,
            "Lambda-Runtime-Deadline-Ms": str(int((time.time() + self._function.timeout) * 1000)),
            "Lambda-Runtime-Invoked-Function-Arn": arn("lambda", f"function:{self._function.name}"),
            "Lambda-Runtime-Trace-Id": invocation.trace,
        }
        if invocation.client_context:
            headers["Lambda-Runtime-Client-Context"] = invocation.client_context
        connection.reply(200, invocation.payload, headers)

    async def _time_is_up(self, invocation: Invocation) -> None:
        if self._answer is None:
            self._answer = timed_out(invocation.request_id, self._function.timeout)
        await self.end()
        self._log_line(timeout_line(invocation, self._function.timeout))

    def _close_log(self, invocation: Invocation, answer: Answer, took_ms: float) -> None:
        self._pipe.drain()
        self.measure()
        init_ms, self._init_ms = self._init_ms, 0.0
        self._log_line(report_lines(invocation, answer, self._function.memory_mb, took_ms, self._peak, init_ms))

    def measure(self) -> None:
        """Look at the memory that the process holds, and end it where it is over its size, as Lambda does."""
        with suppress(psutil.NoSuchProcess):
            if self._stats is not None:
                self._peak = max(self._peak, self._stats.memory_info().rss)
        if self._peak > self._function.memory_mb * MB:
            self._kill()

    async def end(self) -> None:
        """Kill the process, one that is only being started too, and wait until it is gone."""
        if self._launching is not None:
            await asyncio.wait((self._launching,))
        self._kill()
        if self._watching is not None:
            await asyncio.shield(self._watching)

    def _kill(self) -> None:
        self._waiting = None
        self._signal(signal.SIGKILL)

    def wants_next(self, connection: RuntimeConnection) -> None:
        """The process has done its work and waits for more."""
        self._waiting = connection
        self._pipe.drain()
        if self._rules.freeze:
            self._signal(signal.SIGSTOP)
        self._finish_turn()

    def responded(self, request_id: str, body: bytes) -> None:
        """The handler returned."""
        self._settle(request_id, Answer(body) if len(body) <= MAX_SYNC_BYTES else oversized(len(body)))

    def failed(self, request_id: str, body: bytes) -> None:
        """The handler raised."""
        self._settle(request_id, Answer(body, UNHANDLED))

    def init_failed(self, body: bytes) -> None:
        """The handler's module could not be loaded: the process ends by itself."""
        self._answer = Answer(body, UNHANDLED)

    def _settle(self, request_id: str, answer: Answer) -> None:
        if self._current is not None and self._current.request_id == request_id:
            self._answer = answer

    async def _watch(self, process: Process, server: asyncio.Server) -> None:
        code = await process.wait()
        self._waiting = None
        self._pipe.drain()
        self._close(server)
        if self._answer is None and self._current is not None:
            self._answer = exited(self._current.request_id, code)
        self._finish_turn()

    def _finish_turn(self) -> None:
        if not self._turn.done():
            self._turn.set_result(None)

    def _signal(self, number: int) -> None:
        if self._process is not None and self._process.returncode is None:
            with suppress(ProcessLookupError):
                os.kill(self._process.pid, number)

    def _on_output(self, chunk: bytes) -> None:
        self._log.write(chunk)
        if self._current is not None:
            self._current.append_log(chunk)

    def _log_line(self, line: str) -> None:
        self._on_output(f"{line}\n".encode())


PATIENCE_S = 0.025
"""Time that a busy process has to end its work before another is started, which takes some twenty times as long."""


def cores() -> int:
    """Number of processors that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


class StartLimit:
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
        rules: ProcessRules,
        starts: StartLimit | None = None,
        first: bytes | None = None,
    ) -> None:
        self.function = function
        self.slots = Slots(function)
        self._environment = environment
        self._log = log
        self._rules = rules
        self._starts = starts or StartLimit()
        self._first = first
        self._code = CodeFolder(function.code, rules.look_every)
        self._workers: dict[FunctionProcess, Version] = {}
        """The processes, and of which version of the code each is."""
        self._idle: list[tuple[float, FunctionProcess]] = []
        """Free processes and since when (time.monotonic()), the last used at the end, unused ones at the beginning."""
        self._waiting: deque[asyncio.Future[FunctionProcess]] = deque()
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

    async def _free(self) -> FunctionProcess | None:
        while self._idle:
            _, worker = self._idle.pop()
            if self._usable(worker):
                return worker
            await self._gone(worker)
        return None

    def _usable(self, worker: FunctionProcess) -> bool:
        """True if the process can take an invocation and runs the newest code."""
        return worker.alive and self._workers.get(worker) == self._code.version

    async def _next(self, request_id: str) -> FunctionProcess:
        """The next process that is free: one is started, and one that ends its work earlier is taken instead."""
        turn: asyncio.Future[FunctionProcess] = asyncio.get_running_loop().create_future()
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

    def _first_waiting(self) -> asyncio.Future[FunctionProcess] | None:
        while self._waiting:
            turn = self._waiting.popleft()
            if not turn.done():  # whoever waited may have been cancelled
                return turn
        return None

    def _put_back(self, worker: FunctionProcess, *, fresh: bool = False) -> None:
        """Give a free process to who waits longest, or keep it.

        A fresh one, whose first invocation will take longer, comes last: those that have worked are taken before it.
        """
        if waiting := self._first_waiting():
            waiting.set_result(worker)
        else:
            self._idle.insert(0 if fresh else len(self._idle), (time.monotonic(), worker))

    async def _started(self, request_id: str) -> FunctionProcess:
        if self._closed:
            raise stopping()
        worker = FunctionProcess(self.function, self._environment, self._log, self._rules)
        self._workers[worker] = self._code.version
        try:
            await worker.start(request_id)
            await self._make_warm(worker)
        except InitFailed:
            await self._gone(worker)
            raise
        return worker

    async def _make_warm(self, worker: FunctionProcess) -> None:
        if self._first is None:
            return
        answer = await worker.run(Invocation(self._first))
        if not worker.alive:
            raise InitFailed(answer)

    async def _gone(self, worker: FunctionProcess) -> None:
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
