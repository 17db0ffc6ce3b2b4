"""Cost of one message, bounded: turns of loops, characters made on the way, and time."""

import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any

from jinja2 import Undefined
from jinja2.exceptions import TemplateRuntimeError

MAX_STEPS = 10_000
MAX_MADE = 2_000_000
MAX_TEXT = 256 * 1024
"""The longest text, in characters, that a template may make, on the way or in the end."""


class Rejected(TemplateRuntimeError):
    """A template asked for more than it may."""


class Meter:
    """The work of one message, which is over at `until` (monotonic seconds) at the latest."""

    def __init__(self, until: float) -> None:
        self._until = until
        self._steps = MAX_STEPS
        self._made = MAX_MADE

    def step(self) -> None:
        """Count one turn of a loop. Raises Rejected."""
        self._steps -= 1
        if self._steps < 0:
            raise Rejected(f"more than {MAX_STEPS:,} turns of loops")
        self.look()

    def make(self, length: int) -> None:
        """Count what is about to be made, in characters or items. Raises Rejected."""
        self._made -= length + 1
        if length > MAX_TEXT or self._made < 0:
            raise Rejected(f"more than {MAX_TEXT:,} characters in one text, or too many texts")
        self.look()

    def look(self) -> None:
        """Look at the clock. Raises Rejected."""
        if time.monotonic() > self._until:
            raise Rejected("rendering takes too long")


_current: ContextVar[Meter] = ContextVar("meter")


@contextmanager
def metered(until: float) -> Iterator[Meter]:
    """Bound what is done meanwhile in this thread."""
    meter = Meter(until)
    token = _current.set(meter)
    try:
        yield meter
    finally:
        _current.reset(token)


def counted(items: Any) -> Iterator[Any]:
    """Items, each turn counted: what every loop of a template is over. Raises Rejected."""
    if isinstance(items, Undefined):
        str(items)  # raises, naming what is not known
    if not isinstance(items, Iterable):
        raise Rejected("a loop needs a list")
    meter = _current.get()
    for item in items:
        meter.step()
        yield item


def made(value: Any) -> Any:
    """A value, its size counted. Raises Rejected."""
    _current.get().make(len(value) if isinstance(value, str | list | tuple | dict) else 0)
    return value


def expect(length: int) -> None:
    """Count what is about to be made before it is there. Raises Rejected."""
    _current.get().make(length)


def in_time() -> None:
    """Look at the clock where nothing is counted. Raises Rejected."""
    _current.get().look()
