"""Log records of functions that are threads of one process: in each one's log, as Lambda's runtime writes them."""

import logging
import time
from collections.abc import Iterable
from typing import NamedTuple, Self

from awslambdaric.lambda_runtime_log_utils import JsonFormatter  # type: ignore[import-untyped]

from ..template.model import LOG_FORMAT, LOG_LEVEL, Function
from .output import OUTPUT, Hear

TEXT = "[%(levelname)s]\t%(asctime)s.%(msecs)03dZ\t%(aws_request_id)s\t%(message)s\n"
STAMP = "%Y-%m-%dT%H:%M:%S"
PRODUCT = "duecourse"
LEVELS = {**logging.getLevelNamesMapping(), "TRACE": logging.DEBUG}


class Logged(NamedTuple):
    """The log of one function: its code's folder, its format, the least level, and what writes a line."""

    folder: str
    formatter: logging.Formatter
    level: int | None
    """None for the text format, in which Lambda filters nothing: the loggers do, and the root's level is WARNING."""
    write: Hear


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
        self._functions: dict[str, Logged] = {}
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

    def add(self, function: Function, write: Hear) -> None:
        """Know a function; `write` gets what its code logs on a thread that is not its own."""
        level = level_of(function)
        formatter = text_formatter() if level is None else self._json
        self._functions[function.name] = Logged(f"{function.code}/", formatter, level, write)

    def emit(self, record: logging.LogRecord) -> None:
        """Write a record to the log of its function."""
        found = self._functions.get(OUTPUT.function) or self._by_place(record.pathname)
        if found is None:
            self._emit_foreign(record)
        elif self._shows(found.level, record):
            record.aws_request_id = OUTPUT.request_id
            text = found.formatter.format(record)
            OUTPUT.write(text) if OUTPUT.function else found.write(text.encode())

    def _by_place(self, path: str) -> Logged | None:
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
