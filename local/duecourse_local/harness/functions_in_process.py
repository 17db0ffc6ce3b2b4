"""Functions that are threads of one process: the one open store, the environment, the standard output."""

import asyncio
import json
import os
import sys
import threading
import time
from collections import defaultdict
from collections.abc import Callable, Coroutine, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from functools import cache, partial
from types import TracebackType
from typing import Any, Self, TypeVar

from starlette.routing import Route

from duecourse import open_ledger, settings
from duecourse.app import PROCESS, App, Parts
from duecourse.base.json_text import Json, dump_json
from duecourse.base.times import format_instant
from duecourse.bridge import Bridge
from duecourse.errors import DuecourseError, InvocationRejected
from duecourse.guard.egress import Egress
from duecourse.guard.http_client import GuardedHttpClient
from duecourse.ledger.address import servers_of
from duecourse.ledger.embedded.ledger import BellSimulator, EmbeddedLedger, TravelClock
from duecourse.ringing.bridge import LambdaRingHandler
from duecourse.settings import Settings

from ..errors import HarnessError
from .aws.events import ON_EXPIRED
from .aws.functions import Functions
from .aws.invocation import Invocation, LambdaError
from .aws.schedules import Schedules
from .bridge import ThreadBridge
from .clock_travel import Travel, TravelTargets, clock_route
from .embedded_bells import EmbeddedBells
from .environment import Environment
from .function_threads import ThreadPool
from .logs import Logs
from .options import Clock
from .template import LOG_FORMAT, LOG_GROUP, LOG_LEVEL, Function
from .thread_logs import OUTPUT, FunctionLogs

OF_LOGS = (LOG_FORMAT, LOG_LEVEL, LOG_GROUP)


def united_environment(described: Iterable[Function], environment: Environment) -> dict[str, str]:
    """Every function's variables; one that is empty here and set there is set.

    Variables of a LoggingConfig that differ are left out: thread_logs.py applies each function's own.
    Raises HarnessError where two functions want different values of another variable.
    """
    wanted: dict[str, dict[str, list[str]]] = defaultdict(dict)
    for function in described:
        for name, value in environment.settings(function).items():
            wanted[name].setdefault(value, []).append(function.name)
    values = {name: [value for value in found if value] or [""] for name, found in wanted.items()}
    for name, found in values.items():
        if len(found) > 1 and name not in OF_LOGS:
            raise HarnessError(_conflict(name, wanted[name]))
    return {**environment.base(), **{name: found[0] for name, found in values.items() if len(found) == 1}}


def _conflict(name: str, found: Mapping[str, list[str]]) -> str:
    values_text = ", ".join(f"{value!r} for {' and '.join(functions)}" for value, functions in found.items() if value)
    return (
        f"{name} is {values_text}, but functions that are threads of one process share their environment. "
        "Give them one value, or give --store redis://…: then they are processes"
    )


@contextmanager
def shared_environment(variables: Mapping[str, str]) -> Iterator[None]:
    """This process's environment with `variables`, and without the host's own of AWS; as it was, at the end.

    For users' code and boto3, which read `os.environ`: a process has one. A handler of duecourse's is given an App.
    """
    before = dict(os.environ)
    for name in before:
        if name.startswith("AWS_"):
            del os.environ[name]
    os.environ.update(variables)
    try:
        yield
    finally:
        os.environ.clear()
        os.environ.update(before)


T = TypeVar("T")


class DirectInvoker:
    """Invoker (duecourse.running.task_event) on the functions of the event loop that made this; for other threads."""

    def __init__(self, functions: Functions) -> None:
        self._functions = functions
        self._loop = asyncio.get_running_loop()

    def prepare(self) -> None:
        """The functions are in this process."""

    def invoke(self, function: str, event: Json) -> Json:
        """Run `function` and wait for its answer. Raises InvocationRejected, also where the function itself failed."""
        answer = self._do(function, self._functions.invoke(function, _invocation(event)))
        if answer.error:
            raise InvocationRejected(f"{function} failed: {answer.payload.decode(errors='replace')[:400]}")
        return json.loads(answer.payload)

    def send(self, function: str, event: Json) -> None:
        """Have `function` run later, without its answer. Raises InvocationRejected."""
        self._do(function, self._send(function, _invocation(event)))

    async def _send(self, function: str, invocation: Invocation) -> None:
        self._functions.send(function, invocation)

    def _do(self, function: str, work: Coroutine[Any, Any, T]) -> T:
        try:
            return asyncio.run_coroutine_threadsafe(work, self._loop).result()
        except LambdaError as refused:
            raise InvocationRejected(f"{function} was not invoked: {refused}") from refused


def _invocation(event: Json) -> Invocation:
    return Invocation(dump_json(event).encode())


SWITCH_S = 0.0005
"""Longest time that a busy thread may keep the bridge's timer from the interpreter."""
PATIENCE_S = 5.0
_one = threading.Lock()


class SharedProcess:
    """One store and the functions around it, from `with` to its end. Raises HarnessError at the start."""

    def __init__(
        self,
        described: Sequence[Function],
        environment: Environment,
        logs: Logs,
        clock: Clock = Clock.WALL,
    ) -> None:
        self._clock = TravelClock(time.time_ns() // 1_000_000) if clock == Clock.TRAVEL else None
        self._described = described
        self._environment = environment
        self._variables = united_environment(described, environment)
        self._layers = dict.fromkeys(str(layer) for function in described for layer in function.layers)
        self._logs = logs
        self._http_turn = asyncio.Semaphore(1)
        self._apps: list[App] = []

    def __enter__(self) -> Self:
        with ExitStack() as opened:
            self._claim_process(opened)
            opened.enter_context(shared_environment(self._variables))
            opened.enter_context(_importable(self._layers))
            self._open_ledger()
            opened.callback(self._ledger.close)
            opened.enter_context(OUTPUT.redirect(self._logs.of("threads").write))
            self._logged = opened.enter_context(FunctionLogs(self._described))
            opened.callback(sys.setswitchinterval, sys.getswitchinterval())
            sys.setswitchinterval(SWITCH_S)
            self._opened = opened.pop_all()
        return self

    def __exit__(
        self, _kind: type[BaseException] | None, _error: BaseException | None, _trace: TracebackType | None
    ) -> None:
        self._opened.close()

    @property
    def travelled(self) -> Callable[[], str] | None:
        """Reads the clock that is moved, as text; None where the clock is this machine's."""
        clock = self._clock
        return None if clock is None else lambda: format_instant(clock.now())

    def pool(self, function: Function, first: bytes | None) -> ThreadPool:
        """The threads of a function; those with routes take turns, for Powertools keeps a request in a class."""
        turn = self._http_turn if function.routes else asyncio.Semaphore(function.concurrency)
        pool = ThreadPool(function, self._logs.of(function.name), turn, cache(partial(self._app_of, function)), first)
        self._logged.add(function, pool.write)
        return pool

    def wire(self, functions: Functions) -> None:
        """Let the functions invoke each other without a detour; what else runs here finds the same store."""
        self._invoker = DirectInvoker(functions)
        given = self._settings
        self._http = GuardedHttpClient(given.parallel, Egress.of(given.egress_allow), servers=servers_of(given.amqp))
        self._opened.callback(self._http.close)
        self._opened.callback(_close, self._apps)
        self._opened.enter_context(PROCESS.using(self._app(self._settings)))

    def _app_of(self, function: Function) -> App:
        """The App that a function has by its own settings. Raises InvalidSettings."""
        return self._app(settings.parse(self._environment.settings(function)))

    def _app(self, given: Settings) -> App:
        ledger = open_ledger.logged(self._ledger, given)
        app = App(given, Parts(ledger=ledger, invoker=self._invoker, http=self._http))
        self._apps.append(app)
        return app

    def bridge(self, function: Function, notice: Callable[[str], None]) -> ThreadBridge:
        """A bridge whose rings invoke `function`."""

        def make() -> Bridge:
            bells = EmbeddedBells(self._ledger, self._settings.namespace)
            return Bridge(
                bells, LambdaRingHandler(self._invoker, function.name), in_flight=self._settings.bridge_in_flight
            )

        return ThreadBridge(make, notice)

    def clock(self, functions: Functions, schedules: Schedules, say: Callable[[str, str], None]) -> list[Route]:
        """Routes by which the clock is moved, where it is one that is moved."""
        if self._clock is None:
            return []
        server = next(one.name for one in self._described if one.code.name == ON_EXPIRED)
        journey = BellSimulator(self._ledger, self._clock)
        self._opened.callback(journey.close)
        travel = Travel(journey, self._clock, self._settings.namespace, TravelTargets(functions, schedules, server))
        say("clock", f"{travel.now}, until you move it: duecourse advance 24h")
        return [clock_route(travel)]

    def _claim_process(self, opened: ExitStack) -> None:
        if not _one.acquire(blocking=False):
            raise HarnessError("this process already has a stack with functions as threads: stop that stack first")
        opened.callback(_one.release)

    def _open_ledger(self) -> None:
        try:
            self._settings = settings.parse(self._variables)
            ledger = open_ledger.open_ledger(self._settings, clock=self._clock)
        except DuecourseError as error:
            raise HarnessError(str(error)) from error
        assert isinstance(ledger, EmbeddedLedger)  # noqa: S101 - for the type: what SCHEMES name
        self._ledger = ledger


@contextmanager
def _importable(folders: Iterable[str]) -> Iterator[None]:
    """Let imports find what lies in `folders`, after all else."""
    before = list(sys.path)
    sys.path.extend(folders)
    try:
        yield
    finally:
        sys.path[:] = before


def _close(apps: Iterable[App]) -> None:
    """End the threads of all Apps, but wait for none that is stuck in its work."""
    until = time.monotonic() + PATIENCE_S
    closing = [threading.Thread(target=app.close, daemon=True) for app in apps]
    for thread in closing:
        thread.start()
    for thread in closing:
        thread.join(max(0.0, until - time.monotonic()))
