"""Logs of functions that are threads: printed text and log records go to the function that the thread runs."""

import logging
import sys
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import Any, NamedTuple, Self

from awslambdaric.lambda_runtime_log_utils import JsonFormatter  # type: ignore[import-untyped]

from .template import LOG_FORMAT, LOG_LEVEL, Function

OnChunk = Callable[[bytes], None]


class ThreadOutput:
    """The standard output of a process in which functions are threads; one a process, for loggers keep it."""

    def __init__(self) -> None:
        self._local = threading.local()
        self._real: Any = None
        self._rest: OnChunk | None = None
        self._own: set[int] = set()

    @contextmanager
    def redirect(self, rest: OnChunk) -> Iterator[None]:
        """Become the standard output; `rest` receives the output of threads that belong to no function."""
        self._real, self._rest = sys.stdout, rest
        self._own = {threading.main_thread().native_id or 0, threading.get_native_id()}
        sys.stdout = self
        try:
            yield
        finally:
            sys.stdout, self._real, self._rest = self._real, None, None

    @contextmanager
    def of(self, on_chunk: OnChunk, function: str = "", request_id: str = "") -> Iterator[None]:
        """Send this thread's output to `on_chunk` while it runs a request of a function."""
        current = vars(self._local)
        current.update(on_chunk=on_chunk, function=function, request_id=request_id)
        try:
            yield
        finally:
            current.clear()

    @property
    def function(self) -> str:
        """Name of the function that this thread runs, "" for none."""
        return str(getattr(self._local, "function", ""))

    @property
    def request_id(self) -> str:
        """Id of the request that this thread runs, "" for none."""
        return str(getattr(self._local, "request_id", ""))

    @property
    def is_harness(self) -> bool:
        """True on the harness's own thread, and on that of its caller."""
        return threading.get_native_id() in self._own

    def write(self, text: str) -> int:
        """Print."""
        on_chunk: OnChunk | None = getattr(self._local, "on_chunk", None)
        if on_chunk is None and not self.is_harness:
            on_chunk = self._rest
        if on_chunk is None:
            self._stream.write(text)
        else:
            on_chunk(text.encode())
        return len(text)

    def flush(self) -> None:
        """Logs are written at once."""
        self._stream.flush()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)

    @property
    def _stream(self) -> Any:
        return self._real or (sys.__stdout__ if sys.stdout is self else sys.stdout)


OUTPUT = ThreadOutput()


TEXT = "[%(levelname)s]\t%(asctime)s.%(msecs)03dZ\t%(aws_request_id)s\t%(message)s\n"
STAMP = "%Y-%m-%dT%H:%M:%S"
PRODUCT = "duecourse"
LEVELS = {**logging.getLevelNamesMapping(), "TRACE": logging.DEBUG}


class FunctionLog(NamedTuple):
    """The log of one function: its code's folder, its format, the least level, and what writes a line."""

    folder: str
    formatter: logging.Formatter
    level: int | None
    """None for the text format, in which Lambda filters nothing: the loggers do, and the root's level is WARNING."""
    write: OnChunk


class FunctionLogs(logging.Handler):
    """The root logger's handler in a process whose threads are functions, from `with` to its end.

    All functions share one root logger, whose level is the least of theirs. So each function's own level is looked at
    here. A record from a thread of the engine belongs to the function whose code logged it.
    """

    def __init__(self, described: Iterable[Function]) -> None:
        super().__init__()
        least = min([logging.WARNING, *(level for one in described if (level := level_of(one)) is not None)])
        self._level = least - 1
        """Level of the root logger: no code sets such a number, so that a change by code is noticed."""
        self._functions: dict[str, FunctionLog] = {}
        self._json = JsonFormatter()

    def __enter__(self) -> Self:
        root = logging.getLogger()
        self._before = root.level
        root.setLevel(self._level)
        root.addHandler(self)
        return self

    def __exit__(self, *_: object) -> None:
        logging.getLogger().removeHandler(self)
        logging.getLogger().setLevel(self._before)

    def add(self, function: Function, write: OnChunk) -> None:
        """Add a function; `write` receives the logs of its code on threads of others."""
        level = level_of(function)
        formatter = text_formatter() if level is None else self._json
        self._functions[function.name] = FunctionLog(f"{function.code}/", formatter, level, write)

    def emit(self, record: logging.LogRecord) -> None:
        """Write a record to the log of its function."""
        found = self._functions.get(OUTPUT.function) or self._by_place(record.pathname)
        if found is None:
            self._emit_foreign(record)
        elif self._shows(found.level, record):
            record.aws_request_id = OUTPUT.request_id
            text = found.formatter.format(record)
            OUTPUT.write(text) if OUTPUT.function else found.write(text.encode())

    def _by_place(self, path: str) -> FunctionLog | None:
        return next((one for one in self._functions.values() if path.startswith(one.folder)), None)

    def _emit_foreign(self, record: logging.LogRecord) -> None:
        """Write what no function's code or thread has logged: warnings, as if this handler were not there."""
        if record.levelno < logging.WARNING:
            return
        if OUTPUT.is_harness and not record.name.startswith(PRODUCT):
            if logging.lastResort:
                logging.lastResort.handle(record)
            return
        OUTPUT.write(self._json.format(record))

    def _shows(self, level: int | None, record: logging.LogRecord) -> bool:
        if level is not None:
            return record.levelno >= level
        changed = logging.getLogger().level != self._level  # by a function's code, for all of them
        return changed or record.levelno >= logging.WARNING or _has_own_level(record.name)


def level_of(function: Function) -> int | None:
    """The least level that Lambda lets through; None for the text format."""
    if function.environment.get(LOG_FORMAT, "").upper() != "JSON":
        return None
    return LEVELS.get(function.environment.get(LOG_LEVEL, "").upper(), logging.WARNING)


def text_formatter() -> logging.Formatter:
    """The runtime's formatter for the text format: UTC times."""
    formatter = logging.Formatter(TEXT, STAMP)
    formatter.converter = time.gmtime
    return formatter


def _has_own_level(name: str) -> bool:
    """True if a logger below the root has a level of its own, by which it has let a record through."""
    logger: logging.Logger | None = logging.getLogger(name)
    while logger is not None and logger.parent is not None:
        if logger.level:
            return True
        logger = logger.parent
    return False
