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
    def of(self, hear: Hear) -> Iterator[None]:
        """Let `hear` have what this thread prints."""
        self._here.hear = hear
        try:
            yield
        finally:
            self._here.hear = None

    def write(self, text: str) -> int:
        """Print."""
        hear: Hear | None = getattr(self._here, "hear", None)
        if hear is None and threading.get_native_id() not in self._own:
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
