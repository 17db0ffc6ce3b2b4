"""A keyspace in a folder of this machine, by LevelDB: each change is one write, on disk before it is answered.

A key is its kind's letter (`h` a hash, `s` a sorted set), the length of the ledger's key (2 bytes), that key, and the
field or member. A value is a hash's, or a score as text. All is read when the folder is opened, and nothing later.
"""

import fcntl
import os
import re
import sys
from collections.abc import Iterator, Mapping
from contextlib import ExitStack
from io import TextIOWrapper
from pathlib import Path
from typing import Any

from duecourse.adapters.embedded import former
from duecourse.adapters.embedded.commands import number
from duecourse.adapters.embedded.keyspace import HASH, Keyspace, Place
from duecourse.adapters.redis.layout import NEWEST
from duecourse.errors import StoreInUse, StoreMisused, StoreUnavailable

SCHEME = "leveldb://"
LAYOUT = b"duecourse keyspace %d" % NEWEST
"""Format of the keys and values, with the version of the records among them."""
LAYOUT_KEY = b"\0layout"
WITHOUT_WHEELS = (3, 13)
"""First version of Python for which nobody builds LevelDB's wheels."""
LOCK = "duecourse.lock"
"""Lock of our own: LevelDB's does not name its holder, and fails like any other fault."""
FILES = re.compile(r"CURRENT|LOCK|LOG(\.old)?|MANIFEST-\d+|\d+\.(log|ldb|sst|dbtmp)|" + re.escape(LOCK))
"""Files that LevelDB and we write; a folder without CURRENT was cut off at its first opening."""


class LevelDisk:
    """A folder that one opener at a time has, and that outlives it."""

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
            self._layout = self._found_layout()
            opened.pop_all()

    def load(self, space: Keyspace) -> None:
        """Fill an empty keyspace; a folder of an earlier layout is rewritten. Raises StoreUnavailable."""
        old: dict[bytes, bytes | None] = {}
        if self._layout == former.LAYOUT:
            former.read(self._items(), space)
            old |= {name: None for name, _ in self._items()}
        else:
            self._read(space)
        if self._layout != LAYOUT:
            former.raise_records(space)
            self._apply(old | {LAYOUT_KEY: LAYOUT} | _stored(space.written()))

    def _read(self, space: Keyspace) -> None:
        for name, value in self._items():
            end = 3 + int.from_bytes(name[1:3])
            key, field = name[3:end], name[end:]
            if name.startswith(HASH):
                space.write(key, (field, value))
            else:
                space.rank(key, (field, float(value)))
        space.keep()

    def check(self) -> None:
        """Return if the folder is open. Raises StoreUnavailable."""
        self._database()

    def save(self, writes: Mapping[Place, bytes | float | None]) -> None:
        """Write all of these or nothing, synced to the disk; None removes. Raises StoreUnavailable."""
        self._apply(_stored(writes))

    def _items(self) -> Iterator[tuple[bytes, bytes]]:
        """Every key but the layout's, and its value."""
        try:
            with self._database().iterator(start=LAYOUT_KEY + b"\0") as items:
                yield from items
        except self._failed as error:
            raise _away(self._folder, error) from error

    def _apply(self, writes: Mapping[bytes, bytes | None]) -> None:
        """Write all of these or nothing.

        After a write that failed the database is opened again: LevelDB would continue in the same log, behind a torn
        record, and records behind one cannot be read. If the folder is gone, nothing is written: LevelDB would
        continue in files that have no name.
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
        """Give up the folder."""
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

    def _found_layout(self) -> bytes:
        """The folder's layout; the newest is written into an empty one. Raises StoreMisused, StoreUnavailable."""
        try:
            found: bytes | None = self._db.get(LAYOUT_KEY)
        except self._failed as error:
            raise _away(self._folder, error) from error
        if found in (LAYOUT, *former.LAYOUTS):
            return found
        if found is not None:
            raise _misused(
                self._folder,
                f"was written as {found.decode(errors='replace')!r}, and this version reads {LAYOUT.decode()!r}: "
                "use the version that wrote it, or another folder",
            )
        if next(self._items(), None):
            raise _misused(self._folder, "is another program's LevelDB database: give an empty folder, or a new one")
        self._apply({LAYOUT_KEY: LAYOUT})
        return LAYOUT


def _stored(writes: Mapping[Place, bytes | float | None]) -> dict[bytes, bytes | None]:
    """The writes as LevelDB's keys and values."""
    return {
        kind + len(key).to_bytes(2) + key + field: number(new) if isinstance(new, (int, float)) else new
        for (kind, key, field), new in writes.items()
    }


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
    unknown = sorted(name for name in names if not FILES.fullmatch(name))
    if unknown and "CURRENT" not in names:
        raise _misused(folder, f"holds something else ({unknown[0]}): give an empty folder, or a new one")


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
        has_wheels = sys.version_info < WITHOUT_WHEELS
        how = "pip install 'duecourse[embedded]'" if has_wheels else "its wheels are for Python 3.11 and 3.12"
        raise StoreMisused(f"{SCHEME} needs LevelDB: {how}") from error
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
