"""The whole stack as a context manager: for the commands, the demo and tests; its event loop runs in a thread."""

import asyncio
import json
import threading
from collections.abc import Callable, Coroutine
from concurrent.futures import Future, ThreadPoolExecutor, wait
from contextlib import AsyncExitStack, suppress
from types import TracebackType
from typing import Any, Self, TypeVar

from localstack_client.session import Session  # type: ignore[import-untyped]

from .addresses import SCHEMES
from .aws import emulator as aws_emulator
from .aws.invocation import Answer, Invocation
from .options import Options
from .stack_parts import Services

T = TypeVar("T")

THREADS = 100
"""Threads for calls that block: each queue of SQS that is fed waits on one."""
NOTICED_S = 0.2
"""Time within which a signal is noticed while the stack starts."""


def _quiet(*_: str) -> None:
    """Discard a message."""


class Stack:
    """Everything that `up` starts, running from `with` to its end.

    `say(service, address)` is called for each ready service, `notice(text)` for each later problem. Raises
    HarnessError at the start.
    """

    def __init__(
        self,
        options: Options | None = None,
        *,
        say: Callable[[str, str], None] = _quiet,
        notice: Callable[[str], None] = _quiet,
    ) -> None:
        self._services = Services(options or Options(), say, notice)
        self._thread = threading.Thread(target=lambda: asyncio.run(self._run()), name="local-stack")
        self._started: Future[None] = Future()
        self._looping = threading.Event()

    def __enter__(self) -> Self:
        try:
            self._thread.start()
            # In steps: a signal that the kernel gives to another thread does not wake this one, which handles it.
            while not wait([self._started], NOTICED_S).done:
                pass
            self._started.result()
        except BaseException:
            self._stop()
            raise
        return self

    def __exit__(
        self, _kind: type[BaseException] | None, _error: BaseException | None, _trace: TracebackType | None
    ) -> None:
        self._stop()

    @property
    def api(self) -> str:
        """The HTTP API's URL."""
        return self._services.api

    @property
    def lambda_url(self) -> str:
        """URL of Lambda's Invoke API."""
        return self._services.lambda_url

    @property
    def aws(self) -> str:
        """URL of AWS's other services."""
        return self._services.aws

    @property
    def store(self) -> str:
        """The store's URL."""
        return self._services.store

    @property
    def in_threads(self) -> bool:
        """True if the functions, and with them the bridge, are threads of this process."""
        return self.store.startswith(SCHEMES)

    @property
    def travelled(self) -> Callable[[], str] | None:
        """Reads the clock that `duecourse advance` moves; None where the stack goes by this machine's."""
        return self._services.travelled

    def session(self) -> Session:
        """A boto3-like session: `session().client("sesv2")` calls the emulator."""
        return aws_emulator.session(self.aws)

    def addresses(self) -> dict[str, Any]:
        """Addresses and processes, as `up --json` prints them."""
        return self._services.addresses()

    def pids(self) -> dict[str, Any]:
        """The processes: `bridge`, `redis`, and `functions` by name."""
        found: dict[str, Any] = self.addresses()["pids"]
        return found

    def invoke(self, function: str, event: Any) -> Answer:
        """Run a function and wait for its answer. Raises LambdaError."""
        invocation = Invocation(json.dumps(event).encode())
        return self._wait_for(self._services.functions.invoke(function, invocation))

    def tick(self) -> dict[str, Any]:
        """The product's tick, now: what each function answered, by its name."""
        return self._wait_for(self._services.schedules.now())

    def kill_bridge(self) -> None:
        """End the bridge at once, as SIGKILL does; where it has no process of its own, it is stopped."""
        if self._services.bridge is not None:
            self._services.bridge.kill()

    def _wait_for(self, work: Coroutine[Any, Any, T]) -> T:
        return asyncio.run_coroutine_threadsafe(work, self._loop).result()

    async def _run(self) -> None:
        self._loop, self._end = asyncio.get_running_loop(), asyncio.Event()
        self._loop.set_default_executor(ThreadPoolExecutor(THREADS, "local-stack"))
        self._looping.set()
        async with AsyncExitStack() as parts:
            starting = asyncio.create_task(self._services.start(parts))
            ending = asyncio.create_task(self._end.wait())
            await asyncio.wait((starting, ending), return_when=asyncio.FIRST_COMPLETED)
            starting.cancel()
            try:
                await starting
                self._started.set_result(None)
                await ending
            except asyncio.CancelledError as cancelled:
                self._started.set_exception(InterruptedError(str(cancelled)))
            except BaseException as error:  # noqa: BLE001 - handed to the thread that waits for the start
                self._started.set_exception(error)
            ending.cancel()

    def _stop(self) -> None:
        if self._thread.ident is None:
            return
        self._looping.wait()
        with suppress(RuntimeError):  # it has ended already
            self._loop.call_soon_threadsafe(self._end.set)
        self._thread.join()
