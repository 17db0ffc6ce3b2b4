"""Record of deployments in the ledger, for programs that know its address alone: kinds, and the results table."""

from collections.abc import Collection
from typing import NamedTuple, Protocol

RENEWED_MS = 10 * 60_000
"""Age of an entry from which its next writer renews it."""
KEPT_MS = 60 * 60_000
"""Time for which an entry is kept that no deployment writes any more: two may run beside each other in a rollout."""
MOST = 10_000
"""Maximum number of entries that are read."""


class Deployed(NamedTuple):
    """Kinds that deployments run, those `handed` to a target, and the place of the newest results table, "" for none.

    `written_at` is the newest writing (epoch ms, 0 for none).
    """

    kinds: Collection[str] = frozenset()
    handed: Collection[str] = frozenset()
    results: str = ""
    written_at: int = 0


class Deployments(Protocol):
    """The record of one ledger; both verbs raise StoreUnavailable."""

    def write(self, kinds: Collection[str], handed: Collection[str], results: str = "") -> bool:
        """Write what a deployment has, and drop what none has written for KEPT_MS.

        True if the record changed: an entry that was written within RENEWED_MS is left alone.
        """

    def read(self) -> Deployed:
        """The kinds and the table of all deployments, as the newest writing left them."""
