"""What functions that are threads share: the one open store, the environment, the wiring, the standard output."""

import logging
import sys
import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, nullcontext
from types import TracebackType
from typing import Self

from awslambdaric.lambda_runtime_log_utils import JsonFormatter  # type: ignore[import-untyped]

from duecourse import ledgers, settings
from duecourse.adapters.embedded.bells import EmbeddedBells
from duecourse.adapters.embedded.store import EmbeddedStore
from duecourse.adapters.http.caller import HttpOut
from duecourse.bridge import Bridge
from duecourse.bridge.rings import invoking
from duecourse.engine.crew import Crew
from duecourse.errors import DuecourseError
from duecourse.parts import configure

from ..aws.functions import Functions
from ..process.environment import Environment
from ..stack.logs import Logs
from ..stack.problems import HarnessError
from ..template.model import Function
from .bridge import ThreadBridge
from .environment import environment, united
from .invoker import DirectInvoker
from .pool import ThreadPool
from .voices import VOICES

SWITCH_S = 0.0005
"""How long a busy thread may keep the bridge's timer from the interpreter."""
PATIENCE_S = 5.0
_one = threading.Lock()


class House:
    """One store and the functions around it, from `with` to its end. Raises HarnessError at the start."""

    def __init__(self, described: Sequence[Function], environment: Environment, logs: Logs) -> None:
        self._variables = united(described, environment)
        self._layers = dict.fromkeys(str(layer) for function in described for layer in function.layers)
        self._logs = logs
        self._http_turn = threading.Lock()

    def __enter__(self) -> Self:
        with ExitStack() as opened:
            self._be_the_one(opened)
            opened.enter_context(environment(self._variables))
            opened.enter_context(_found(self._layers))
            self._open_store()
            opened.callback(self._store.close)
            opened.enter_context(VOICES.taken(self._logs.of("threads").write))
            opened.enter_context(logged())
            opened.callback(sys.setswitchinterval, sys.getswitchinterval())
            sys.setswitchinterval(SWITCH_S)
            self._opened = opened.pop_all()
        return self

    def __exit__(
        self, _kind: type[BaseException] | None, _error: BaseException | None, _trace: TracebackType | None
    ) -> None:
        self._opened.close()

    def pool(self, function: Function, first: bytes | None) -> ThreadPool:
        """The threads of a function; those with routes take turns, for Powertools keeps a request in a class."""
        turn = self._http_turn if function.routes else nullcontext()
        return ThreadPool(function, self._logs.of(function.name), turn, first)

    def wire(self, functions: Functions) -> None:
        """Let the handlers find the store here, and invoke each other without a detour."""
        self._invoker = DirectInvoker(functions)
        crew, http = Crew(self._settings.parallel), HttpOut(self._settings.parallel)
        store = ledgers.logged(self._store, self._settings)
        configure(settings=self._settings, store=store, invoker=self._invoker, crew=crew, http=http)
        self._opened.callback(configure)
        self._opened.callback(http.close)
        self._opened.callback(_close, crew)

    def bridge(self, function: Function, notice: Callable[[str], None]) -> ThreadBridge:
        """A bridge whose rings invoke `function`."""
        bells = EmbeddedBells(self._store, self._settings.namespace)
        made = Bridge(bells, invoking(self._invoker, function.name), in_flight=self._settings.bridge_in_flight)
        return ThreadBridge(made, notice)

    def _be_the_one(self, opened: ExitStack) -> None:
        if not _one.acquire(blocking=False):
            raise HarnessError("this process already has a stack with functions as threads: stop that stack first")
        opened.callback(_one.release)

    def _open_store(self) -> None:
        try:
            self._settings = settings.parse(self._variables)
            store = ledgers.open_store(self._settings)
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


@contextmanager
def logged() -> Iterator[None]:
    """Let what the product logs in a function's thread be in that function's log, in the form that Lambda gives it."""
    logger, handler = logging.getLogger("duecourse"), logging.StreamHandler(VOICES)
    handler.setFormatter(JsonFormatter())
    logger.addHandler(handler)
    try:
        yield
    finally:
        logger.removeHandler(handler)


def _close(crew: Crew) -> None:
    """End the crew's threads, but wait for none that is stuck in its work."""
    ending = threading.Thread(target=crew.close, daemon=True)
    ending.start()
    ending.join(PATIENCE_S)
