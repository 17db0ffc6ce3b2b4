"""Printed text, sent to the place of the thread that prints it: a function's log, or the harness's own output."""

import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

Hear = Callable[[bytes], None]


class ThreadOutput:
    """The standard output of a process in which functions are threads; one a process, for loggers keep it."""

    def __init__(self) -> None:
        self._here = threading.local()
        self._real: Any = None
        self._rest: Hear | None = None
        self._own: set[int] = set()

    @contextmanager
    def taken(self, rest: Hear) -> Iterator[None]:
        """Be the standard output: of other threads than the main one and this, `rest` hears what no function said."""
        self._real, self._rest = sys.stdout, rest
        self._own = {threading.main_thread().native_id or 0, threading.get_native_id()}
        sys.stdout = self
        try:
            yield
        finally:
            sys.stdout, self._real, self._rest = self._real, None, None

    @contextmanager
    def of(self, hear: Hear, function: str = "", request_id: str = "") -> Iterator[None]:
        """Let `hear` have what this thread prints, which runs this request of a function."""
        here = vars(self._here)
        here.update(hear=hear, function=function, request_id=request_id)
        try:
            yield
        finally:
            here.clear()

    @property
    def function(self) -> str:
        """Name of the function that this thread runs, "" for none."""
        return str(getattr(self._here, "function", ""))

    @property
    def request_id(self) -> str:
        """Id of the request that this thread runs, "" for none."""
        return str(getattr(self._here, "request_id", ""))

    @property
    def is_harness(self) -> bool:
        """True on the harness's own thread, and on that of its caller."""
        return threading.get_native_id() in self._own

    def write(self, text: str) -> int:
        """Print."""
        hear: Hear | None = getattr(self._here, "hear", None)
        if hear is None and not self.is_harness:
            hear = self._rest
        if hear is None:
            self._stream.write(text)
        else:
            hear(text.encode())
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
