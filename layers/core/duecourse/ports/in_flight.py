"""Contract of the count of queries in flight: those whose requests wait for a call."""

from typing import Protocol


class InFlight(Protocol):
    """Queries in flight of each tenant, over all processes. Every verb is one step and raises StoreUnavailable."""

    def admit(self, tenant: str, id: str, most: int, for_ms: int) -> str:
        """Count a query as in flight unless `most` others of its tenant are; "" then, else the entry for `dismiss`.

        The entry ends by itself after `for_ms`, at most 15 minutes.
        """

    def dismiss(self, tenant: str, entry: str) -> None:
        """Count the query of an entry no more; an entry that has ended is no error."""
