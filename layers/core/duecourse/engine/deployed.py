"""Reading of the record that deployments keep in the ledger, for a program that knows the store alone."""

import time
from collections.abc import Callable

from duecourse.ports.deployments import Deployed, Deployments

TRUSTED_S = 60.0
"""Time for which one reading is trusted."""
SETTLED_S = 1.0
"""Age from which the record is read again before something counts as missing: a deployment may be new."""


class Reading:
    """The record of a ledger, opened at its first reading; `newest` is the last one."""

    def __init__(self, record: Callable[[], Deployments]) -> None:
        self._record = record
        self._read_at = float("-inf")
        self.newest = Deployed()

    def has(self, has: Callable[[Deployed], bool]) -> bool:
        """True if the record has something. Raises StoreUnavailable."""
        return has(self._younger_than(TRUSTED_S)) or has(self._younger_than(SETTLED_S))

    def results(self) -> str:
        """Place of the results table, "" for none. Raises StoreUnavailable."""
        return self._younger_than(TRUSTED_S).results

    def _younger_than(self, age_s: float) -> Deployed:
        now = time.monotonic()
        if now - self._read_at > age_s:
            self.newest, self._read_at = self._record().read(), now
        return self.newest
