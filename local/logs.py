"""Where the output of functions and services goes: a file each, and, for `up`, the standard error."""

import sys
from contextlib import suppress
from pathlib import Path


class Log:
    """The log of one function or service."""

    def __init__(self, folder: Path, name: str, *, echo: bool) -> None:
        self._name = name
        self._file = (folder / f"{name}.log").open("ab", buffering=0)
        self._echo = echo
        self._begun = b""

    def write(self, chunk: bytes) -> None:
        """Keep what was said, as far as there is room: a full disk or a closed terminal must not stop the stack."""
        with suppress(OSError):
            self._file.write(chunk)
        if self._echo:
            *lines, self._begun = (self._begun + chunk).split(b"\n")
            with suppress(OSError):
                sys.stderr.writelines(f"{self._name}  {line.decode(errors='replace')}\n" for line in lines)

    @property
    def descriptor(self) -> int:
        """For a child that writes by itself."""
        return self._file.fileno()

    def close(self) -> None:
        """Close the file."""
        self._file.close()


class Logs:
    """The logs of one stack."""

    def __init__(self, folder: Path, *, echo: bool) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self._folder = folder
        self._echo = echo
        self._open: list[Log] = []

    def of(self, name: str) -> Log:
        """A log called `name`."""
        log = Log(self._folder, name, echo=self._echo)
        self._open.append(log)
        return log

    def close(self) -> None:
        """Close them all."""
        for log in self._open:
            log.close()
