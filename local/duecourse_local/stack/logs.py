"""Logs of functions and services: a file each, and, for `up`, the terminal."""

import json
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

Hear = Callable[[str, str], None]
"""Gets each line besides: the log's name, and the line without its end."""


class Log:
    """The log of one function or service."""

    def __init__(self, folder: Path, name: str, *, hear: Hear | None = None) -> None:
        self._name = name
        self._file = (folder / f"{name}.log").open("ab", buffering=0)
        self._hear = hear
        self._begun = b""

    def write(self, chunk: bytes) -> None:
        """Keep what was said, as far as there is room: a full disk or a closed terminal must not stop the stack."""
        with suppress(OSError):
            self._file.write(chunk)
        if self._hear:
            *lines, self._begun = (self._begun + chunk).split(b"\n")
            with suppress(OSError):
                for line in lines:
                    self._hear(self._name, line.decode(errors="replace"))

    def note(self, level: str, message: str) -> None:
        """Write a line of the harness's own, as JSON: time, level and message."""
        stamp = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
        line = json.dumps({"timestamp": stamp, "level": level, "message": message}, ensure_ascii=False)
        self.write(f"{line}\n".encode())

    @property
    def descriptor(self) -> int:
        """File descriptor, for a child that writes by itself."""
        return self._file.fileno()

    def close(self) -> None:
        """Close the file."""
        self._file.close()


class Logs:
    """The logs of one stack."""

    def __init__(self, folder: Path, *, hear: Hear | None = None) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self._folder = folder
        self._hear = hear
        self._open: list[Log] = []

    def of(self, name: str) -> Log:
        """A log called `name`."""
        log = Log(self._folder, name, hear=self._hear)
        self._open.append(log)
        return log

    def close(self) -> None:
        """Close them all."""
        for log in self._open:
            log.close()
