"""One process of one function under its runtime client: started, invoked one request at a time, watched."""

import asyncio
import os
import signal
import time
from asyncio.subprocess import Process
from contextlib import suppress
from dataclasses import dataclass

import psutil

from ..aws.account import arn
from ..aws.invocation import (
    MAX_SYNC_BYTES,
    MB,
    UNHANDLED,
    Answer,
    InitFailed,
    Invocation,
    begun,
    cut_off,
    error_type,
    exited,
    oversized,
    report,
    timed_out,
    unhandled,
)
from ..stack.logs import Log
from ..stack.sockets import LOOPBACK
from ..template.model import Function
from .children import Pipe, spawn
from .environment import Environment
from .runtime_api import RuntimeConnection
from .runtimes import NoRuntime, command


@dataclass(frozen=True)
class Rules:
    """Treatment of processes: the limit of a start, a stop between invokes, and when they end. In seconds.

    A process without work for `idle_limit` is ended, unless it is the function's last. A process whose code has changed
    takes no more invocations; the code is looked at every `look_every`.
    """

    init_limit: float = 10.0
    freeze: bool = False
    idle_limit: float = 300.0
    look_every: float = 0.1


class Worker:
    """A function's process; implements `runtime_api.Runtime` for it."""

    def __init__(self, function: Function, environment: Environment, log: Log, rules: Rules) -> None:
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
            return command(self._function)
        except NoRuntime as error:
            raise InitFailed(unhandled("Runtime.InvalidRuntime", str(error))) from error

    async def _launch(self, words: tuple[str, ...]) -> None:
        loop = asyncio.get_running_loop()
        server = await loop.create_server(lambda: RuntimeConnection(self), LOOPBACK, 0)
        host, port = server.sockets[0].getsockname()
        self._pipe = Pipe(self._heard)
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
        self._note(f"{took}\tPhase: init\tStatus: error\tError Type: {error_type(answer)}")
        raise InitFailed(answer)

    async def run(self, invocation: Invocation) -> Answer:
        """Have the process handle one invocation; whatever goes wrong is in the answer."""
        self._current, self._answer = invocation, None
        self._turn = asyncio.get_running_loop().create_future()
        self._note(begun(invocation))
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
        self._note(cut_off(invocation, self._function.timeout))

    def _close_log(self, invocation: Invocation, answer: Answer, took_ms: float) -> None:
        self._pipe.drain()
        self.measure()
        init_ms, self._init_ms = self._init_ms, 0.0
        self._note(report(invocation, answer, self._function.memory_mb, took_ms, self._peak, init_ms))

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

    def _heard(self, chunk: bytes) -> None:
        self._log.write(chunk)
        if self._current is not None:
            self._current.logged(chunk)

    def _note(self, line: str) -> None:
        self._heard(f"{line}\n".encode())
