"""Logs of functions and services: a file each, of a bounded size, and, for `up`, the terminal."""

import asyncio
import json
import os
import shutil
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

OnLine = Callable[[str, str], None]
"""Receives each line too: the log's name, and the line without its end."""


MOST_BYTES = 10 * 1024 * 1024
"""Size at which a log moves to `<name>.log.1`, in place of the one before, and starts again."""
LOOK_S = 10.0
"""Time between two looks at the logs that children write by themselves."""


class Log:
    """The log of one function or service, and the one before it: `<name>.log` and `<name>.log.1`."""

    def __init__(self, folder: Path, name: str, *, on_line: OnLine | None = None) -> None:
        self._name = name
        self._path = folder / f"{name}.log"
        self._file = self._path.open("ab", buffering=0)
        self._size = os.fstat(self._file.fileno()).st_size
        self._on_line = on_line
        self._unfinished = b""

    def write(self, chunk: bytes) -> None:
        """Keep the output, as far as there is room: a full disk or a closed terminal must not stop the stack."""
        with suppress(OSError):
            self._file.write(chunk)
        self._size += len(chunk)
        if self._size > MOST_BYTES:
            self.cut()
        if self._on_line:
            *lines, self._unfinished = (self._unfinished + chunk).split(b"\n")
            with suppress(OSError):
                for line in lines:
                    self._on_line(self._name, line.decode(errors="replace"))

    def note(self, level: str, message: str) -> None:
        """Write a line of the harness's own, as JSON: time, level and message."""
        stamp = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
        line = json.dumps({"timestamp": stamp, "level": level, "message": message}, ensure_ascii=False)
        self.write(f"{line}\n".encode())

    def cut(self) -> None:
        """Copy the log to `<name>.log.1` and empty it, where it is too large.

        The file stays the same one, for a child may write to it. A line that it writes at this very moment may be lost.
        """
        self._size = os.fstat(self._file.fileno()).st_size
        if self._size > MOST_BYTES:
            with suppress(OSError):  # no room for a copy: it must end all the same
                shutil.copyfile(self._path, f"{self._path}.1")
            os.ftruncate(self._file.fileno(), 0)
            self._size = 0

    @property
    def descriptor(self) -> int:
        """File descriptor, for a child that writes by itself."""
        return self._file.fileno()

    def close(self) -> None:
        """Close the file."""
        self._file.close()


class Logs:
    """The logs of one stack."""

    def __init__(self, folder: Path, *, on_line: OnLine | None = None) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self._folder = folder
        self._on_line = on_line
        self._open: list[Log] = []

    def of(self, name: str) -> Log:
        """A log called `name`."""
        log = Log(self._folder, name, on_line=self._on_line)
        self._open.append(log)
        return log

    async def keep_bounded(self) -> None:
        """Cut those that are too large, until cancelled."""
        while True:
            await asyncio.sleep(LOOK_S)
            for log in self._open:
                log.cut()

    def close(self) -> None:
        """Close them all."""
        for log in self._open:
            log.close()
