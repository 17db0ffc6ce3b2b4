"""Cost of one message, bounded: turns of loops, characters made on the way, and time."""

import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from typing import Any

from jinja2 import Undefined
from jinja2.exceptions import TemplateRuntimeError

MAX_STEPS = 10_000
MAX_MADE = 2_000_000
MAX_TEXT = 256 * 1024
"""The longest text, in characters, that a template may make, on the way or in the end."""


class Rejected(TemplateRuntimeError):
    """A template asked for more than it may."""


@dataclass(slots=True)
class Meter:
    """Work that one message may still cost: turns of loops, characters made; over at `until` (monotonic seconds)."""

    until: float
    steps: int = MAX_STEPS
    made: int = MAX_MADE


_current: ContextVar[Meter] = ContextVar("meter")


@contextmanager
def metered(until: float) -> Iterator[None]:
    """Bound what is done meanwhile in this thread."""
    token = _current.set(Meter(until))
    try:
        yield
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
        meter.steps -= 1
        if meter.steps < 0:
            raise Rejected(f"more than {MAX_STEPS:,} turns of loops")
        in_time()
        yield item


def made(value: Any) -> Any:
    """A value, its size counted. Raises Rejected."""
    expect(len(value) if isinstance(value, str | list | tuple | dict) else 0)
    return value


def expect(length: int) -> None:
    """Count characters or items before they are made. Raises Rejected."""
    meter = _current.get()
    meter.made -= length + 1
    if length > MAX_TEXT or meter.made < 0:
        raise Rejected(f"more than {MAX_TEXT:,} characters in one text, or too many texts")
    in_time()


def in_time() -> None:
    """Look at the clock. Raises Rejected."""
    if time.monotonic() > _current.get().until:
        raise Rejected("rendering takes too long")
