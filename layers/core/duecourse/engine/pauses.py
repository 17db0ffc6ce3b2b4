"""Pauses of a function that waits for a store that is away."""

import time
from collections.abc import Callable, Iterator

LEAST_MS = 1_000
"""Time that is left to a function when it waits no longer."""
PAUSES_S = 0.1, 2.0
"""Shortest and longest pause; each one is twice as long as the one before."""


def pauses(remaining_ms: Callable[[], int], most_ms: int) -> Iterator[bool]:
    """Pause before each further try, and yield True after it, for `most_ms` or until the function's time is short."""
    ends_at, (pause_s, longest_s) = time.monotonic() + most_ms / 1_000, PAUSES_S
    while remaining_ms() > LEAST_MS + pause_s * 1_000 and time.monotonic() < ends_at:
        time.sleep(pause_s)
        pause_s = min(2 * pause_s, longest_s)
        yield True
