"""Cost of one message, bounded: turns of loops, steps, characters made on the way, and time."""

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from time import monotonic
from typing import Any

from jinja2 import Undefined
from jinja2.exceptions import TemplateRuntimeError

from duecourse.turns import Computation, OutOfTime

MAX_TURNS = 10_000
MAX_STEPS = 100_000
"""Names, values and operations within loops, and items that filters go over, in one text."""
MAX_MADE = 2_000_000
MAX_TEXT = 256 * 1024
"""The longest text, in characters, that a template may make, on the way or in the end."""
MAX_ITEMS = 10_000
"""The longest list that a filter goes over; the characters of a text are one."""
TOO_LATE = "rendering takes too long"


class Rejected(TemplateRuntimeError):
    """A template asked for more than it may."""


@dataclass(slots=True)
class Meter:
    """Work that one text may still cost: turns of loops, steps, characters made; its time is the computation's."""

    computation: Computation
    turns: int = MAX_TURNS
    steps: int = MAX_STEPS
    made: int = MAX_MADE


_current: ContextVar[Meter] = ContextVar("meter")


@contextmanager
def metered(computation: Computation) -> Iterator[None]:
    """Bound what is done meanwhile in this thread."""
    token = _current.set(Meter(computation))
    try:
        yield
    finally:
        _current.reset(token)


def counted(items: Any, nodes: int) -> Iterator[Any]:
    """Items, each turn counted: what every loop of a template is over; `nodes` are those of a turn. Raises Rejected."""
    if isinstance(items, Undefined):
        str(items)  # raises, naming what is not known
    if not isinstance(items, Iterable):
        raise Rejected("a loop needs a list")
    meter = _current.get()
    for item in items:
        meter.turns -= 1
        if meter.turns < 0:
            raise Rejected(f"more than {MAX_TURNS:,} turns of loops")
        spend(1 + nodes)
        yield item


def gone_over(items: Any) -> Any:
    """Items for a filter that goes over them: a list as it is, and each of another as it is taken. Raises Rejected."""
    if hasattr(items, "__len__"):
        if len(items) > MAX_ITEMS:
            raise Rejected(f"a list of more than {MAX_ITEMS:,} items")
        spend(len(items))
        return items
    return _stepped(items) if isinstance(items, Iterator) else items


def _stepped(items: Iterator[Any]) -> Iterator[Any]:
    for count, item in enumerate(items):
        if count >= MAX_ITEMS:
            raise Rejected(f"a list of more than {MAX_ITEMS:,} items")
        spend(1)
        yield item


def looked_at(value: Any) -> Any:
    """A value that is compared, by what going over it may cost. Raises Rejected."""
    spend(1 + (len(value) // 16 if isinstance(value, str | list | tuple | dict) else 0))
    return value


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
    _look(meter)


def spend(steps: int) -> None:
    """Count steps. Raises Rejected."""
    meter = _current.get()
    meter.steps -= steps
    if meter.steps < 0:
        raise Rejected(f"more than {MAX_STEPS:,} steps in loops and filters")
    _look(meter)


def in_time() -> None:
    """Look at the clock. Raises Rejected."""
    _look(_current.get())


def _look(meter: Meter) -> None:
    if monotonic() < meter.computation.look_at:
        return
    try:
        meter.computation.look()
    except OutOfTime as error:
        raise Rejected(f"{TOO_LATE}: {error}") from None
