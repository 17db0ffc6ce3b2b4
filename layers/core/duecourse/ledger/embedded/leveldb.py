"""A keyspace in a folder of this machine, by LevelDB: each change is on disk before it is answered."""

import fcntl
import math
import os
import re
import shlex
import shutil
import sys
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, suppress
from io import TextIOWrapper
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from duecourse.errors import OtherVersion, StoreInUse, StoreMisused, StoreUnavailable
from duecourse.ledger.embedded.in_process_redis import HASH, SET, Keyspace, ValueLocation
from duecourse.ledger.embedded.in_process_redis import number as as_number
from duecourse.ledger.layout import VERSION, way_out

# Files that a LevelDB folder needs, by its manifest; read without LevelDB, which deletes files when it opens a folder.
#
# A manifest is a log of changes to the list of files. Sources: `doc/log_format.md` and `db/version_edit.cc` of LevelDB.

BLOCK, HEADER = 32_768, 7
"""Bytes of a block of a log, and of the head of each record: checksum, length, type."""
FULL, FIRST, LAST = 1, 2, 4
COMPARATOR, LOG, NEXT_FILE, SEQUENCE, POINTER, DELETED, NEW, PREVIOUS_LOG = 1, 2, 3, 4, 5, 6, 7, 9
"""Tags of a change."""
NUMBERS = {COMPARATOR: 0, LOG: 1, NEXT_FILE: 1, SEQUENCE: 1, POINTER: 1, DELETED: 2, NEW: 3, PREVIOUS_LOG: 1}
"""Numbers behind each tag: of a table its level, its number and its size."""
TEXTS = {COMPARATOR: 1, POINTER: 1, NEW: 2}
"""Texts behind those numbers: names and keys."""


def missing(folder: Path) -> str:
    """First reason why the folder is not whole; "" for none, and where LevelDB itself finds the fault.

    LevelDB accepts a manifest that was cut off and a log that is missing. It then deletes each file that is not in the
    list, and with it tasks that a repair would find.
    """
    try:
        manifest = folder / (folder / "CURRENT").read_text().strip()
        log, tables = _files(manifest.read_bytes())
    except (OSError, ValueError, LookupError):
        return ""  # not readable: LevelDB rejects it too
    for number, size in sorted(tables.items()):
        found = [path for path in (folder / f"{number:06}.{end}" for end in ("ldb", "sst")) if path.exists()]
        if not found:
            return f"table {number:06}.ldb is missing"
        if found[0].stat().st_size < size:
            return f"table {found[0].name} is cut off"
    # The first manifest of all names no log yet.
    return f"log {log:06}.log is missing" if log and not (folder / f"{log:06}.log").exists() else ""


def _files(data: bytes) -> tuple[int, dict[int, int]]:
    """Number of the log, and the size of each table by its number. Raises LookupError where it is none."""
    log, tables = 0, dict[int, int]()
    for record in _records(data):
        change = _Change(record)
        while change.is_left:
            tag = change.number()
            numbers = [change.number() for _ in range(NUMBERS[tag])]
            for _ in range(TEXTS.get(tag, 0)):
                change.text()
            if tag == LOG:
                log = numbers[0]
            elif tag == DELETED:
                tables.pop(numbers[1], None)
            elif tag == NEW:
                tables[numbers[1]] = numbers[2]
    return log, tables


def _records(data: bytes) -> Iterator[bytes]:
    """The whole records of a log; one that is cut off at its end is left out, as LevelDB leaves it out."""
    at, parts = 0, b""
    while at + HEADER <= len(data):
        if BLOCK - at % BLOCK < HEADER:  # too short for a head: filled with zeros
            at += BLOCK - at % BLOCK
            continue
        length, kind = int.from_bytes(data[at + 4 : at + 6], "little"), data[at + 6]
        end = at + HEADER + length
        if not kind or end > len(data):
            return
        parts = data[at + HEADER : end] if kind in (FULL, FIRST) else parts + data[at + HEADER : end]
        if kind in (FULL, LAST):
            yield parts
        at = end


class _Change:
    """Numbers and texts of one record, in order."""

    def __init__(self, data: bytes) -> None:
        self._data, self._at = data, 0

    @property
    def is_left(self) -> bool:
        return self._at < len(self._data)

    def number(self) -> int:
        found = shift = 0
        while True:
            byte = self._data[self._at]
            self._at += 1
            found |= (byte & 0x7F) << shift
            if byte < 0x80:
                return found
            shift += 7

    def text(self) -> None:
        size = self.number()
        self._at += size


# A keyspace in a folder of this machine, by LevelDB: each change is one write, on disk before it is answered.
#
# A key begins with its kind's letter (`h` a hash, `s` a sorted set) and the length of the ledger's key (2 bytes). Then
# come that key, and the field or member. A value is a hash's, or a score as text. All is read when the folder is
# opened, and nothing later.

SCHEME = "leveldb://"
LAYOUT = b"duecourse keyspace %d" % VERSION
OF_LEDGER = re.compile(rb"duecourse (?:keyspace )?(\d+)")
"""Layout of a ledger of any version."""
"""Format of the keys and values, with the version of the records among them."""
LAYOUT_KEY = b"\0layout"
WITHOUT_WHEELS = (3, 13)
"""First version of Python for which nobody builds LevelDB's wheels."""
LOCK = "duecourse.lock"
"""Lock of our own: LevelDB's does not name its holder, and fails like any other fault."""
FILES = re.compile(r"CURRENT|LOCK|LOG(\.old)?|MANIFEST-\d+|\d+\.(log|ldb|sst|dbtmp)|" + re.escape(LOCK))
"""Files that LevelDB and we write."""
DATA = re.compile(r"MANIFEST-(?!0*1$)\d+|\d+\.(log|ldb|sst)")
"""Files that LevelDB writes after CURRENT only: a folder without both was cut off at its first opening."""


class LevelDisk:
    """A folder that one opener at a time has, and that outlives it."""

    def __init__(self, path: str) -> None:
        """Open the folder at `path` (absolute), made where it is missing.

        Raises StoreInUse where somebody has it open, and StoreUnavailable where the disk fails. Raises StoreMisused
        where it is damaged or no folder for this, before anything is written to the database. Raises OtherVersion
        where another release wrote it.
        """
        self._folder = Path(path)
        _prepare(self._folder)
        with ExitStack() as opened:
            self._lock = opened.enter_context(lock(self._folder))
            self._db, self._failed = _open(self._folder)
            opened.callback(self._db.close)
            self._write_layout()
            opened.pop_all()

    def load(self, space: Keyspace) -> None:
        """Fill an empty keyspace. Raises StoreMisused and StoreUnavailable; the folder is closed then."""
        with ExitStack() as failed:
            failed.callback(self.close)
            self._read(space)
            failed.pop_all()

    def _read(self, space: Keyspace) -> None:
        for name, value in self._items():
            try:
                (_, key, field), new = loaded(name, value)
            except ValueError as error:
                raise _damaged(self._folder, str(error)) from error
            if isinstance(new, float):
                space.rank(key, (field, new))
            else:
                space.write(key, (field, new))
        space.keep()

    def check(self) -> None:
        """Return if the folder is open. Raises StoreUnavailable."""
        self._database()

    def save(self, writes: Mapping[ValueLocation, bytes | float | None]) -> None:
        """Write all of these or nothing, synced to the disk; None removes. Raises StoreUnavailable."""
        self._apply(_stored(writes))

    def _items(self) -> Iterator[tuple[bytes, bytes]]:
        """Every key but the layout's, and its value."""
        try:
            # Checksums too: what is read here is all that is ever read.
            with self._database().iterator(start=LAYOUT_KEY + b"\0", verify_checksums=True) as items:
                yield from items
        except self._failed as error:
            raise _broken(self._folder, error) from error

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

    def _write_layout(self) -> None:
        """Write the layout into an empty folder. Raises as `_has_layout`."""
        if not _has_layout(self._folder, self._db, self._failed):
            self._apply({LAYOUT_KEY: LAYOUT})


def _has_layout(folder: Path, database: Any, failed: type[Exception]) -> bool:
    """True if the database of a folder has this layout, False if it is empty.

    Raises StoreMisused, OtherVersion and StoreUnavailable.
    """
    try:
        found: bytes | None = database.get(LAYOUT_KEY, verify_checksums=True)
        with database.iterator(include_value=False) as items:
            is_empty = next(items, None) is None
    except failed as error:
        raise _broken(folder, error) from error
    if found == LAYOUT or is_empty:
        return found == LAYOUT
    version = OF_LEDGER.fullmatch(found or b"")
    if version is None:
        raise _misused(folder, "is another program's LevelDB database: give an empty folder, or a new one")
    raise OtherVersion(
        f"{SCHEME}{folder} was written as {version[0].decode()!r}, and this release reads "
        f"{LAYOUT.decode()!r}: {way_out(int(version[1]))}"
    )


def _stored(writes: Mapping[ValueLocation, bytes | float | None]) -> dict[bytes, bytes | None]:
    """The writes as LevelDB's keys and values."""
    return {
        kind + len(key).to_bytes(2) + key + field: as_number(new) if isinstance(new, (int, float)) else new
        for (kind, key, field), new in writes.items()
    }


def loaded(name: bytes, value: bytes) -> tuple[ValueLocation, bytes | float]:
    """Place and value of one of LevelDB's entries. Raises ValueError if they are not as `_stored` makes them."""
    kind, end = name[:1], 3 + int.from_bytes(name[1:3])
    if kind not in (HASH, SET) or len(name) < end:
        raise ValueError(f"the entry {name!r} is none of a ledger")
    return (kind, name[3:end], name[end:]), value if kind == HASH else _score(name, value)


def _score(name: bytes, value: bytes) -> float:
    with suppress(ValueError):
        found = float(value)
        if not math.isnan(found):  # which has no place in an order
            return found
    raise ValueError(f"the score {value[:40]!r} of {name!r} is no number")


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
    if "CURRENT" not in names:
        if unknown:
            raise _misused(folder, f"holds something else ({unknown[0]}): give an empty folder, or a new one")
        if any(map(DATA.fullmatch, names)):
            # LevelDB would make a new database here, and delete the tables of the one that was.
            raise _damaged(folder, "CURRENT is missing")
    elif LOCK not in names:
        _check_owner(folder)


def _check_owner(folder: Path) -> None:
    """See that a database without our lock file is a ledger, by a copy: LevelDB writes when it opens a folder."""
    with TemporaryDirectory() as place:
        copy = shutil.copytree(folder, Path(place) / "copy")
        database, failed = _open(folder, copy)
        with database:
            _has_layout(folder, database, failed)


def _sync(folder: Path) -> None:
    """Have a new name in the folder on disk."""
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def lock(folder: Path) -> TextIOWrapper:
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


def _open(folder: Path, place: Path | None = None) -> tuple[Any, type[Exception]]:
    """The database of a folder, or of a copy of it at `place`, and what it raises.

    Raises StoreMisused where it is damaged, before anything is written.
    """
    plyvel, place = library(), place or folder
    if reason := missing(place):
        raise _damaged(folder, reason)
    try:
        # Without the checks LevelDB leaves out what it cannot read of its log, and deletes it.
        return plyvel.DB(str(place), create_if_missing=True, paranoid_checks=True), plyvel.Error
    except plyvel.Error as error:
        raise _broken(folder, error) from error


def library() -> Any:
    """The module plyvel. Raises StoreMisused where it is not installed."""
    try:
        import plyvel  # type: ignore[import-untyped]
    except ImportError as error:
        has_wheels = sys.version_info < WITHOUT_WHEELS
        how = "pip install 'duecourse[embedded]'" if has_wheels else "its wheels are for Python 3.11 and 3.12"
        raise StoreMisused(f"{SCHEME} needs LevelDB: {how}") from error
    return plyvel


def _broken(folder: Path, error: Exception) -> StoreMisused | StoreUnavailable:
    """The error for one of LevelDB's: the folder is damaged, or the disk fails."""
    return _damaged(folder, _text(error)) if isinstance(error, library().CorruptionError) else _away(folder, error)


def _damaged(folder: Path, reason: str) -> StoreMisused:
    how = f"`duecourse repair {shlex.quote(str(folder))}` makes a repaired copy"
    return _misused(folder, f"damaged ({reason}): {how}")


def _misused(folder: Path, problem: str) -> StoreMisused:
    return StoreMisused(f"{SCHEME}{folder}: {problem}")


def _unusable(folder: Path, error: OSError) -> StoreMisused:
    return _misused(folder, f"cannot be written ({error.strerror}): give a folder that this process may write to")


def _away(folder: Path, error: Exception) -> StoreUnavailable:
    return StoreUnavailable(f"{SCHEME}{folder}: {_text(error)}")


def _text(error: Exception) -> str:
    """Text of an error of LevelDB, which gives bytes."""
    found = error.args[0] if error.args else ""
    return found.decode(errors="replace") if isinstance(found, bytes) else str(error)
