"""A secret that is kept elsewhere: its value, and a newer one once that was rejected."""

from typing import Protocol


class Secret(Protocol):
    """One secret; safe for threads."""

    def value(self) -> str:
        """The value, read at the first call and kept.

        Raises InvalidSettings, naming the setting, for a secret that is absent, closed to us or wrong, and
        StoreUnavailable where its service does not answer.
        """

    def renewed(self, rejected: str) -> str | None:
        """Another value than the `rejected` one, read again for it; None where there is none, or none can be read."""
