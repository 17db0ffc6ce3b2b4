"""Files that a LevelDB folder needs, by its manifest; read without LevelDB, which deletes files when it opens a folder.

A manifest is a log of changes to the list of files. Sources: `doc/log_format.md` and `db/version_edit.cc` of LevelDB.
"""

from collections.abc import Iterator
from pathlib import Path

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
