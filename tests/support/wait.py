"""Poll until true, with a deadline."""

import time
from collections.abc import Callable
from typing import TypeVar

T = TypeVar("T")
PATIENCE_S = 30.0
"""Far more than anything takes on a busy machine: a test that proves a time measures it."""


def until(probe: Callable[[], T], *, seconds: float = PATIENCE_S, every: float = 0.005) -> T:
    """The first truthy answer of `probe`; fails the test where none comes in `seconds`."""
    deadline = time.monotonic() + seconds
    while not (answer := probe()):
        if time.monotonic() > deadline:
            raise AssertionError(f"nothing came of {probe} within {seconds} s")
        time.sleep(every)
    return answer
