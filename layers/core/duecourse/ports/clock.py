"""Time for the stores that have no server to ask."""

from typing import Protocol


class Clock(Protocol):
    """A source of time."""

    def now(self) -> int:
        """Epoch milliseconds."""
