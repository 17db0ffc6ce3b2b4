"""Poll until true, with a deadline."""

import time
from collections.abc import Callable
from typing import TypeVar

T = TypeVar("T")


def until(probe: Callable[[], T], *, seconds: float = 10.0, every: float = 0.005) -> T:
    """The first truthy answer of `probe`; fails the test where none comes in `seconds`."""
    deadline = time.monotonic() + seconds
    while not (answer := probe()):
        if time.monotonic() > deadline:
            raise AssertionError(f"nothing came of {probe} within {seconds} s")
        time.sleep(every)
    return answer
