"""A clock that moves only when a test says so."""

START = 1_790_000_000_000


class HandClock:
    """Epoch milliseconds, set by hand."""

    def __init__(self, at: int = START) -> None:
        self.at = at

    def now(self) -> int:
        return self.at

    def advance(self, ms: int) -> int:
        self.at += ms
        return self.at
