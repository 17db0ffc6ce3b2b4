"""A function's code, watched for changes: a changed function gets a new process."""

import os
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import TypeAlias

Version: TypeAlias = frozenset[tuple[str, int]]

WRITTEN_BY_TOOLS = ("__pycache__", "node_modules")


class Code:
    """The files of a folder, and when they were written; `version` changes as they do.

    A look holds for `look_every` seconds: at a folder with a thousand files it takes some milliseconds.
    """

    def __init__(self, folder: Path, look_every: float) -> None:
        self._folder = folder
        self._look_every = look_every
        self._looked_at = -look_every
        self._version: Version = frozenset()

    @property
    def version(self) -> Version:
        """Files and their times, now or at the last look."""
        now = time.monotonic()
        if now - self._looked_at >= self._look_every:
            self._version, self._looked_at = frozenset(_files(self._folder)), now
        return self._version


def _files(folder: Path) -> Iterator[tuple[str, int]]:
    for place, folders, names in os.walk(folder):
        folders[:] = [name for name in folders if name not in WRITTEN_BY_TOOLS and not name.startswith(".")]
        for name in names:
            with suppress(FileNotFoundError):  # an editor's own, which is gone again
                if not name.startswith("."):
                    yield f"{place}/{name}", Path(place, name).stat().st_mtime_ns
