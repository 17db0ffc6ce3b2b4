"""How long the machine kept a thread of this process waiting: so much it may add to a time measured meanwhile."""

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

EVERY_S = 0.005
HANDS = 3
"""Number of threads and processes, one after another, of which each may have been kept waiting so."""
MADE_GOOD_MS = 900
"""Just below the second after which a lost ring is made good: no busy machine excuses that."""


@contextmanager
def stalls() -> Iterator[Callable[[], float]]:
    """Watch the machine: the function answers how many seconds it may have added so far."""
    over, longest = threading.Event(), 0.0

    def watch() -> None:
        nonlocal longest
        while not over.is_set():
            began = time.monotonic()
            over.wait(EVERY_S)
            longest = max(longest, time.monotonic() - began - EVERY_S)

    thread = threading.Thread(target=watch, name="stalls", daemon=True)
    thread.start()
    try:
        yield lambda: HANDS * longest
    finally:
        over.set()
        thread.join()


@contextmanager
def on_time_ms(usual_ms: int) -> Iterator[Callable[[], float]]:
    """Watch the machine: the function answers how late a ring may have been, `usual_ms` where nothing else runs."""
    with stalls() as added_s:
        yield lambda: min(usual_ms + 1_000 * added_s(), MADE_GOOD_MS)
