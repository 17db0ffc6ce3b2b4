"""The functions' parts in the test's own process, as the test wants them."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from duecourse import wiring
from duecourse.parts import configure


@contextmanager
def wired_with(**parts: Any) -> Iterator[None]:
    """These parts for the while; none of them is left to the next test, and no thread."""
    configure(**parts)
    try:
        yield
    finally:
        wiring.crew().close()
        configure()
