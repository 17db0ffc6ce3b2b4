"""Contract of the record of schedule files in the ledger: which number is the highest, and what the last one made."""

from collections.abc import Sequence
from typing import Protocol

from duecourse.domain.schedule_file import Entry, Noted


class FileRecord(Protocol):
    """The record of one ledger; every verb raises StoreUnavailable."""

    def read(self) -> Noted:
        """The record as it is."""

    def begin(self, number: int) -> Noted:
        """Note that a file is being applied, if none with a higher number was begun; answers what is known then."""

    def finish(self, number: int, entries: Sequence[Entry]) -> bool:
        """Note that a file is applied, and what it made; False, and nothing noted, if a higher one was begun since."""
