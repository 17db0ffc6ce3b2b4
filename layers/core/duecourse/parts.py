"""Parts of a process: each is built at its first use, and kept while the process is warm."""

from collections.abc import Callable
from functools import cache
from threading import RLock
from typing import Any, TypeVar, cast

T = TypeVar("T")

_given: dict[str, Any] = {}
_built: list[Callable[[], None]] = []
_building = RLock()
"""Held while a part is built: two threads at once would build two, of a ledger in memory, say; a part builds others."""


def configure(**parts: Any) -> None:
    """Use these parts (named as wiring's functions) in place of the real ones; forget all that was built."""
    _given.clear()
    _given.update(parts)
    for forget in _built:
        forget()


def part(build: Callable[[], T]) -> Callable[[], T]:
    """A part: the one given, else built once."""
    once = cache(build)
    _built.append(once.cache_clear)

    def take() -> T:
        if build.__name__ in _given:
            return cast(T, _given[build.__name__])
        with _building:
            return once()

    return take
