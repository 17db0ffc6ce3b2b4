"""How long the machine kept this process waiting: what it was late by itself, a bound on lateness allows for."""

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager

STEP_S = 0.005


class Stalls:
    """The longest that a thread slept over its time so far."""

    def __init__(self) -> None:
        self._over = threading.Event()
        self._worst_s = 0.0

    @property
    def worst_ms(self) -> float:
        """In milliseconds."""
        return self._worst_s * 1_000

    def watch(self) -> None:
        """Sleep and look at the clock, until it is over."""
        before = time.monotonic()
        while not self._over.wait(STEP_S):
            now = time.monotonic()
            self._worst_s, before = max(self._worst_s, now - before - STEP_S), now

    def end(self) -> None:
        """Let `watch` return."""
        self._over.set()


@contextmanager
def stalls_seen() -> Iterator[Stalls]:
    """What is seen of stalls while the block runs."""
    stalls = Stalls()
    thread = threading.Thread(target=stalls.watch)
    thread.start()
    try:
        yield stalls
    finally:
        stalls.end()
        thread.join()
