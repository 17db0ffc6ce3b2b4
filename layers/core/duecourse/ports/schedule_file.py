"""Contract of the record of schedule files in the ledger: which number is the highest, and what files have made."""

from collections.abc import Collection
from typing import Protocol

from duecourse.domain.schedule_file import Entry, Noted


class FileRecord(Protocol):
    """The record of one ledger; every verb raises StoreUnavailable."""

    def read(self) -> Noted:
        """State of the files."""

    def highest(self) -> int:
        """The highest number that was begun."""

    def begin(self, number: int, digest: str, entries: Collection[Entry]) -> Noted:
        """Note that a file is being applied, and what it is to make, if none with a higher number was begun.

        Answers the state then: `entries` are those of every file that was begun since one settled.
        """

    def finish(self, number: int) -> bool:
        """Note that a file is applied; False, and nothing noted, if a higher one was begun since."""

    def settle(self, number: int) -> bool:
        """Forget the entries of earlier files; False, and nothing noted, if a higher one was begun since."""
