"""Contract of looking a host's name up."""

from typing import Protocol


class Resolver(Protocol):
    """A way from a host's name to its addresses."""

    def __call__(self, host: str, port: int, within_s: float, /) -> list[str]:
        """Numeric addresses of a host, each once, in the order in which to try them.

        Raises CallFailed where nobody knows the host, CallTimedOut where its time is over before that is known, and
        InvalidInput where no host can have this name.
        """
