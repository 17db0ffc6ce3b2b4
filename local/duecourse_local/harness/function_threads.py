"""Functions as threads: a module loaded beside the others', and the pool of threads of each function."""

import asyncio
import importlib.util
import json
import sys
import threading
import time
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path
from threading import Lock
from types import ModuleType, SimpleNamespace
from typing import Any, TypeVar

import psutil

from duecourse.app import App, Handler
from duecourse.running.threads import Threads

from .aws.account import arn
from .aws.concurrency import Slots
from .aws.invocation import (
    MAX_SYNC_BYTES,
    UNHANDLED,
    Answer,
    Busy,
    InitFailed,
    Invocation,
    exited,
    oversized,
    report_lines,
    start_line,
    timed_out,
    timeout_line,
)
from .environment import CodeFolder
from .logs import Log
from .template import Function
from .thread_logs import OUTPUT

Handle = Callable[[Any, Any], Any]
_loading = Lock()


def load_handler(function: Function) -> Handle:
    """The function's handler, its module under a name of its own. Raises whatever its import raises."""
    path, _, name = function.handler.rpartition(".")
    file = (function.code / path).with_suffix(".py")
    with _loading, _importable(function.code):
        _share(function.packages)
        handler: Handle = getattr(_module(f"duecourse_function_{function.logical_id}", file), name)
    return handler


def _module(name: str, file: Path) -> ModuleType:
    spec = importlib.util.spec_from_file_location(name, file)
    if spec is None or spec.loader is None:
        raise ImportError(f"{file} is no Python module")
    module = sys.modules[name] = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def _share(packages: Path | None) -> None:
    """Append a function's packages to the search path, for good: a package may import its parts late."""
    if packages and str(packages) not in sys.path:
        sys.path.append(str(packages))


@contextmanager
def _importable(folder: Path) -> Iterator[None]:
    """Let imports find modules beside the handler, and forget them at the end."""
    before = set(sys.modules)
    sys.path.insert(0, str(folder))
    try:
        yield
    finally:
        sys.path.remove(str(folder))
        for name in set(sys.modules) - before:
            if Path(getattr(sys.modules[name], "__file__", None) or "/").is_relative_to(folder):
                del sys.modules[name]


T = TypeVar("T")
NOT_YET = "-"
"""The id of no request: the handler is being loaded."""
LOOK_EVERY_S = 0.1
"""Time between two looks at a function's code: a changed one is loaded again."""
NO_TURN = "{} runs one at a time with all functions that have routes, for they are threads of one process"
GRACE_S = 5.0
"""Longest time that a stop waits for running calls: a thread cannot be ended."""


class ThreadPool:
    """A function and its threads.

    Each run of its handler takes `turn`, within the function's timeout. `app_of_it` makes the App of a handler of the
    product's; `first` is the event that makes the function warm.
    """

    def __init__(
        self,
        function: Function,
        log: Log,
        turn: asyncio.Semaphore,
        app_of_it: Callable[[], App],
        first: bytes | None = None,
    ) -> None:
        self.function = function
        self.slots = Slots(function)
        self._log = log
        self._turn = turn
        self._app_of_it = app_of_it
        self._first = first
        self._threads = Threads(function.concurrency)
        self._writing = threading.Lock()
        self._handler: Handle | None = None
        self._code = CodeFolder(function.code, LOOK_EVERY_S)
        self._loaded = self._code.version
        self._busy = 0
        self._closed = False

    def pids(self) -> list[int]:
        """It has no processes of its own."""
        return []

    async def warm(self) -> None:
        """Load the handler, and have it handle its first event, where there is one. Raises InitFailed."""
        await self._load_handler()
        if self._first is not None:
            await self.slots.take(self.function.timeout)
            await self.run(Invocation(self._first))

    async def _load_handler(self) -> None:
        self._loaded = self._code.version
        loaded = await self._on_a_thread(self._load)
        if isinstance(loaded, Answer):
            raise InitFailed(loaded)
        self._handler = loaded

    async def run(self, invocation: Invocation) -> Answer:
        """Run the invocation on a thread. Raises Busy where its turn does not come in time.

        A call that takes too long gets an answer, but continues: it keeps its slot until it ends.
        """
        try:
            await self._enter()
        except InitFailed as failure:
            return failure.answer
        began = time.perf_counter()
        self._log_line(invocation, start_line(invocation))
        answer = await self._answer(invocation)
        took_ms = (time.perf_counter() - began) * 1000
        peak = psutil.Process().memory_info().rss
        self._log_line(invocation, report_lines(invocation, answer, self.function.memory_mb, took_ms, peak))
        return answer

    async def _answer(self, invocation: Invocation) -> Answer:
        until = time.monotonic() + self.function.timeout
        try:
            async with asyncio.timeout(self.function.timeout):
                return await self._on_a_thread(lambda: self._run(invocation, until), self._leave)
        except TimeoutError:
            self._log_line(invocation, timeout_line(invocation, self.function.timeout))
            return timed_out(invocation.request_id, self.function.timeout)

    async def _enter(self) -> None:
        """Load the newest code, and take the turn; after an error the slot is given back."""
        try:
            if self._handler is None or self._loaded != self._code.version:
                await self._load_handler()
            async with asyncio.timeout(self.function.timeout):
                await self._turn.acquire()
        except BaseException as error:
            self.slots.give_back()
            if isinstance(error, TimeoutError):
                raise Busy(NO_TURN.format(self.function.name), throttled=False) from None
            raise

    def _leave(self) -> None:
        self._turn.release()
        self.slots.give_back()

    async def _on_a_thread(self, work: Callable[[], T], ended: Callable[[], None] = lambda: None) -> T:
        """Answer of `work`, which must not raise; `ended` is called when it ends, however late."""
        loop = asyncio.get_running_loop()
        done: asyncio.Future[T] = loop.create_future()

        def end(answer: T) -> None:
            self._busy -= 1
            ended()
            if not done.done():
                done.set_result(answer)

        def body() -> None:
            answer = work()
            with suppress(RuntimeError):  # the stack has stopped, and waited long enough
                loop.call_soon_threadsafe(end, answer)

        self._busy += 1
        self._threads.do(body)
        return await done

    def _load(self) -> Handle | Answer:
        return self._guarded(NOT_YET, self._loaded_handler)

    def _loaded_handler(self) -> Handle:
        handle = load_handler(self.function)
        return handle.on(self._app_of_it()) if isinstance(handle, Handler) else handle

    def _run(self, invocation: Invocation, until: float) -> Answer:
        def handle() -> Answer:
            assert self._handler is not None  # noqa: S101 - for the type
            answer = self._handler(json.loads(invocation.payload), self._context(invocation, until))
            body = json.dumps(answer).encode()
            return Answer(body) if len(body) <= MAX_SYNC_BYTES else oversized(len(body))

        on_chunk = partial(self._log_output, invocation)
        with OUTPUT.of(on_chunk, self.function.name, invocation.request_id):
            return self._guarded(invocation.request_id, handle)

    def _guarded(self, request_id: str, work: Callable[[], T]) -> T | Answer:
        try:
            return work()
        except SystemExit as left:
            return exited(request_id, left.code if isinstance(left.code, int) else 1)
        except BaseException as error:  # noqa: BLE001 around a handler: what would end a process must not end the thread
            return self._failed(request_id, error)

    def _failed(self, request_id: str, error: BaseException) -> Answer:
        unloaded = request_id == NOT_YET and isinstance(error, ImportError)
        kind = "Runtime.ImportModuleError" if unloaded else type(error).__name__
        lines = traceback.format_tb(error.__traceback__)
        self.write(f"[ERROR] {kind}: {error}\nTraceback (most recent call last):\n{''.join(lines)}".encode())
        body = {"errorMessage": str(error), "errorType": kind, "requestId": request_id, "stackTrace": lines}
        return Answer(json.dumps(body).encode(), UNHANDLED) if isinstance(error, Exception) else exited(request_id, 1)

    def _context(self, invocation: Invocation, until: float) -> SimpleNamespace:
        name = self.function.name
        return SimpleNamespace(
            aws_request_id=invocation.request_id,
            function_name=name,
            function_version="$LATEST",
            invoked_function_arn=arn("lambda", f"function:{name}"),
            memory_limit_in_mb=str(self.function.memory_mb),
            log_group_name=self.function.log_group,
            log_stream_name="local/[$LATEST]thread",
            client_context=None,
            identity=None,
            get_remaining_time_in_millis=lambda: max(0, int((until - time.monotonic()) * 1000)),
        )

    def measure(self) -> None:
        """Do nothing: the memory is that of the whole process."""

    async def retire(self) -> None:
        """It has no processes of its own."""

    async def close(self) -> None:
        """Take no more calls, and wait a while for those that run; once is enough."""
        if self._closed:
            return
        self._closed = True
        self.slots.close()
        until = time.monotonic() + GRACE_S
        while self._busy and time.monotonic() < until:
            await asyncio.sleep(0.01)
        if not self._busy:
            self._threads.close()

    def _log_output(self, invocation: Invocation, chunk: bytes) -> None:
        invocation.append_log(chunk)
        self.write(chunk)

    def _log_line(self, invocation: Invocation, line: str) -> None:
        self._log_output(invocation, f"{line}\n".encode())

    def write(self, chunk: bytes) -> None:
        """Write to the function's log, from any thread."""
        with self._writing:
            self._log.write(chunk)
