"""Functions that are threads of one process: the one open store, the environment, the standard output."""

import asyncio
import sys
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from functools import cache, partial
from types import TracebackType
from typing import Self

from starlette.routing import Route

from duecourse import ledgers, settings
from duecourse.adapters.embedded.store import EmbeddedStore
from duecourse.adapters.embedded.travel import Journey, TravelClock
from duecourse.adapters.http.caller import HttpOut
from duecourse.bridge import Bridge
from duecourse.bridge.rings import Invoked
from duecourse.domain.address import servers_of
from duecourse.domain.egress import Egress
from duecourse.domain.times import format_instant
from duecourse.errors import DuecourseError
from duecourse.outside import Parts
from duecourse.process import PROCESS
from duecourse.settings import Settings
from duecourse.wiring import App

from ..aws.functions import Functions
from ..aws.schedules import Schedules
from ..process.environment import Environment
from ..process.first_events import ON_EXPIRED
from ..stack.logs import Logs
from ..stack.options import Clock
from ..stack.problems import HarnessError
from ..template.model import Function
from .bells import EmbeddedBells
from .bridge import ThreadBridge
from .clock_api import clock_route
from .environment import environment, united
from .invoker import DirectInvoker
from .logged import FunctionLogs
from .output import OUTPUT
from .pool import ThreadPool
from .travel import Served, Travel

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
        self._variables = united(described, environment)
        self._layers = dict.fromkeys(str(layer) for function in described for layer in function.layers)
        self._logs = logs
        self._http_turn = asyncio.Semaphore(1)
        self._apps: list[App] = []

    def __enter__(self) -> Self:
        with ExitStack() as opened:
            self._be_the_one(opened)
            opened.enter_context(environment(self._variables))
            opened.enter_context(_found(self._layers))
            self._open_store()
            opened.callback(self._store.close)
            opened.enter_context(OUTPUT.taken(self._logs.of("threads").write))
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
        self._http = HttpOut(given.parallel, Egress.of(given.egress_allow), servers=servers_of(given.amqp))
        self._opened.callback(self._http.close)
        self._opened.callback(_close, self._apps)
        self._opened.enter_context(PROCESS.using(self._app(self._settings)))

    def _app_of(self, function: Function) -> App:
        """The App that a function has by its own settings. Raises InvalidSettings."""
        return self._app(settings.parse(self._environment.settings(function)))

    def _app(self, given: Settings) -> App:
        store = ledgers.logged(self._store, given)
        app = App(given, Parts(store=store, invoker=self._invoker, http=self._http))
        self._apps.append(app)
        return app

    def bridge(self, function: Function, notice: Callable[[str], None]) -> ThreadBridge:
        """A bridge whose rings invoke `function`."""

        def make() -> Bridge:
            bells = EmbeddedBells(self._store, self._settings.namespace)
            return Bridge(bells, Invoked(self._invoker, function.name), in_flight=self._settings.bridge_in_flight)

        return ThreadBridge(make, notice)

    def clock(self, functions: Functions, schedules: Schedules, say: Callable[[str, str], None]) -> list[Route]:
        """Routes by which the clock is moved, where it is one that is moved."""
        if self._clock is None:
            return []
        server = next(one.name for one in self._described if one.code.name == ON_EXPIRED)
        journey = Journey(self._store, self._clock)
        self._opened.callback(journey.close)
        travel = Travel(journey, self._clock, self._settings.namespace, Served(functions, schedules, server))
        say("clock", f"{travel.now}, until you move it: duecourse advance 24h")
        return [clock_route(travel)]

    def _be_the_one(self, opened: ExitStack) -> None:
        if not _one.acquire(blocking=False):
            raise HarnessError("this process already has a stack with functions as threads: stop that stack first")
        opened.callback(_one.release)

    def _open_store(self) -> None:
        try:
            self._settings = settings.parse(self._variables)
            store = ledgers.open_store(self._settings, clock=self._clock)
        except DuecourseError as error:
            raise HarnessError(str(error)) from error
        assert isinstance(store, EmbeddedStore)  # noqa: S101 - for the type: what SCHEMES name
        self._store = store


@contextmanager
def _found(folders: Iterable[str]) -> Iterator[None]:
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
