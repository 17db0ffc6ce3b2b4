"""Imports of a cold start, without collections of garbage."""

import gc
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def lasting() -> Iterator[None]:
    """Context for imports at the begin of a process: the collector pauses, and ignores for good what is there then."""
    # An import makes a hundred thousand objects that stay. To look through them takes a tenth of a cold import.
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        gc.freeze()  # else the next collection, in the first call, would look through all of them
        if was_enabled:
            gc.enable()
