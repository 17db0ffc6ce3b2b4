"""Contract of the rounds of upkeep: when each part of the shards was last swept, kept from one tick to the next."""

from collections.abc import Iterable
from typing import Protocol


class Rounds(Protocol):
    """Instants by the number of a part; every verb raises StoreUnavailable."""

    def swept_at(self) -> dict[int, int]:
        """The instant of each part's last sweep; a part that was never swept is left out."""

    def note(self, parts: Iterable[int], at: int) -> None:
        """Note that every idle shard of these parts, one at least, was swept at `at`."""
