"""Attributes that are built at their first use."""

from collections.abc import Callable
from typing import Any, Generic, TypeVar, cast

T = TypeVar("T")


class lazy(Generic[T]):  # noqa: N801 - a decorator, as `property` is
    """An attribute built at its first use, and kept; only one thread builds it.

    Its object has a lock, `building`, that a thread may take again, since one attribute builds others.
    `functools.cached_property` would not do: two threads at once build two, of a ledger in memory, say.
    """

    def __init__(self, build: Callable[[Any], T]) -> None:
        self._build = build

    def __get__(self, owner: Any, _class: type) -> T:
        # Without a __set__, Python looks into the object itself first: this runs only until the value is kept there.
        name, kept = self._build.__name__, vars(owner)
        with owner.building:
            if name not in kept:
                kept[name] = self._build(owner)
            return cast(T, kept[name])
