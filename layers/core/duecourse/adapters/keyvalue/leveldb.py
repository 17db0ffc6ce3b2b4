"""The ordered map in a folder of this machine, by LevelDB: each change is one write, on disk before it is answered."""

import fcntl
import os
import re
from collections.abc import Iterator, Mapping
from contextlib import ExitStack
from io import TextIOWrapper
from pathlib import Path
from typing import Any

from duecourse.adapters.keyvalue.map import Item
from duecourse.adapters.record import VERSION
from duecourse.errors import StoreInUse, StoreMisused, StoreUnavailable

SCHEME = "leveldb://"
LAYOUT = b"duecourse %d" % VERSION
"""What the values mean, by the version of the records among them."""
LAYOUT_KEY = b"\0layout"
LOCK = "duecourse.lock"
"""LevelDB's own lock does not tell who holds it, nor a lock from any other fault."""
FILES = re.compile(r"CURRENT|LOCK|LOG(\.old)?|MANIFEST-\d+|\d+\.(log|ldb|sst|dbtmp)|" + re.escape(LOCK))
"""What LevelDB and we put into a folder; without CURRENT the first opening was cut off."""


class LevelMap:
    """An ordered map (map.OrderedMap) that one opener at a time has, and that outlives it."""

    def __init__(self, path: str) -> None:
        """Open the folder at `path` (absolute), made where it is missing.

        Raises StoreInUse where somebody has it open, StoreMisused where it is no folder for this, StoreUnavailable
        where the disk or the database fails.
        """
        self._folder = Path(path)
        _prepare(self._folder)
        with ExitStack() as opened:
            self._lock = opened.enter_context(_lock(self._folder))
            self._db, self._failed = _open(self._folder)
            opened.callback(self._db.close)
            self._check_layout()
            opened.pop_all()

    def get(self, key: bytes) -> bytes | None:
        """See OrderedMap."""
        try:
            found: bytes | None = self._database().get(key)
        except self._failed as error:
            raise _away(self._folder, error) from error
        return found

    def range(self, start: bytes, end: bytes) -> Iterator[Item]:
        """See OrderedMap."""
        try:
            with self._database().iterator(start=start, stop=end) as items:
                yield from items
        except self._failed as error:
            raise _away(self._folder, error) from error

    def apply(self, writes: Mapping[bytes, bytes | None]) -> None:
        """See OrderedMap; synced to the disk.

        After a write that failed the database is opened anew: LevelDB would go on in the same log, behind a torn
        record, and what follows one there cannot be read again. Where the folder is not there any more, nothing is
        written: LevelDB would go on in files that have no name.
        """
        database = self._database()
        self._check_place()
        try:
            with database.write_batch(transaction=True, sync=True) as batch:
                for key, value in writes.items():
                    if value is None:
                        batch.delete(key)
                    else:
                        batch.put(key, value)
        except self._failed as error:
            self._db.close()
            raise _away(self._folder, error) from error

    def close(self) -> None:
        """See OrderedMap."""
        self._db.close()
        self._lock.close()

    def _database(self) -> Any:
        if self._lock.closed:
            raise StoreUnavailable(f"{SCHEME}{self._folder} was closed")
        if self._db.closed:
            self._check_place()
            self._db, _ = _open(self._folder)
        return self._db

    def _check_place(self) -> None:
        """See that the folder is the one that was opened, by the lock file in it."""
        try:
            there = os.path.samestat(os.stat(self._folder / LOCK), os.fstat(self._lock.fileno()))
        except FileNotFoundError:
            there = False
        if not there:
            raise StoreUnavailable(
                f"{SCHEME}{self._folder}: the folder, or {LOCK} in it, was removed or replaced while open. "
                "Put it back as it was, or restart this process."
            )

    def _check_layout(self) -> None:
        found = self.get(LAYOUT_KEY)
        if found == LAYOUT:
            return
        if found is not None:
            raise _misused(
                self._folder,
                f"was written as {found.decode(errors='replace')!r}, and this version reads {LAYOUT.decode()!r}: "
                "use the version that wrote it, or another folder",
            )
        if next(self.range(b"", b"\xff" * 8), None):
            raise _misused(self._folder, "is another program's LevelDB database: give an empty folder, or a new one")
        self.apply({LAYOUT_KEY: LAYOUT})


def _prepare(folder: Path) -> None:
    """Make the folder, or see that it is one that can be used."""
    try:
        if not folder.parent.is_dir():
            raise _misused(folder, f"{folder.parent} is no folder: make it first")
        if folder.exists() and not folder.is_dir():
            raise _misused(folder, "is a file: give a folder")
        if not folder.exists():
            folder.mkdir()
            _sync(folder.parent)
        names = os.listdir(folder)
    except OSError as error:
        raise _unusable(folder, error) from error
    strangers = sorted(name for name in names if not FILES.fullmatch(name))
    if strangers and "CURRENT" not in names:
        raise _misused(folder, f"holds something else ({strangers[0]}): give an empty folder, or a new one")


def _sync(folder: Path) -> None:
    """Have a new name in the folder on disk."""
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _lock(folder: Path) -> TextIOWrapper:
    """Be the only one in the folder, until the file is closed or the process ends."""
    try:
        file = (folder / LOCK).open("a+")
    except OSError as error:
        raise _unusable(folder, error) from error
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as error:
        file.seek(0)
        holder = file.read().strip() or "unknown"
        file.close()
        raise StoreInUse(
            f"{SCHEME}{folder} is in use by process {holder}, and only one at a time may have it open: "
            "stop that process, or give this one another folder"
        ) from error
    file.truncate(0)
    file.write(f"{os.getpid()}\n")
    file.flush()
    return file


def _open(folder: Path) -> tuple[Any, type[Exception]]:
    """The database, and what it raises."""
    try:
        import plyvel  # type: ignore[import-untyped]
    except ImportError as error:
        raise StoreMisused(f"{SCHEME} needs LevelDB: pip install 'duecourse[embedded]'") from error
    try:
        return plyvel.DB(str(folder), create_if_missing=True), plyvel.Error
    except plyvel.Error as error:
        raise _away(folder, error) from error


def _misused(folder: Path, problem: str) -> StoreMisused:
    return StoreMisused(f"{SCHEME}{folder}: {problem}")


def _unusable(folder: Path, error: OSError) -> StoreMisused:
    return _misused(folder, f"cannot be written ({error.strerror}): give a folder that this process may write to")


def _away(folder: Path, error: Exception) -> StoreUnavailable:
    return StoreUnavailable(f"{SCHEME}{folder}: {error}")
