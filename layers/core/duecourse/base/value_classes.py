"""Frozen dataclasses: declared, made, altered and shown."""

from dataclasses import dataclass, field
from enum import Enum
from operator import attrgetter
from typing import Any, Self, TypeVar, cast, dataclass_transform

from duecourse.base.times import format_instant

__all__ = ["Deferred", "as_dict", "brief", "value"]

T = TypeVar("T")

INSTANT = ("_at", "at")
"""Endings of the names of instants."""


@dataclass_transform(frozen_default=True, field_specifiers=(field,))
def value(kind: type[T]) -> type[T]:
    """Make the class below a dataclass with slots, equal to its own kind alone.

    Type checkers reject an assignment to a field. Nothing prevents it at run time.
    """
    # A frozen class sets each field by a call of a function, which costs more than all else in making a task.
    # `dataclass` would compile `__eq__`, `__hash__` and `__repr__` anew for each class, at each cold start.
    made: Any = dataclass(slots=True, repr=False, eq=False)(kind)
    read = attrgetter(*made.__dataclass_fields__)

    def equal(self: Any, other: Any) -> Any:
        return read(self) == read(other) if type(other) is type(self) else NotImplemented

    made.__eq__, made.__hash__ = equal, lambda self: hash(read(self))
    if "__repr__" not in vars(made):
        made.__repr__ = _repr
    return cast(type[T], made)


class Deferred:
    """Base of values that may have fields which are computed when somebody first looks at them.

    A computed field is compared, copied and pickled by its value, like any other field.
    """

    __slots__ = ("_later",)
    _later: object

    @classmethod
    def deferred(cls, later: object, **known: Any) -> Self:
        """A value whose fields are `known`, or are properties of `later`, which computes them."""
        made = cls.__new__(cls)
        made._later = later  # noqa: SLF001 - of its own class
        for name, one in known.items():
            setattr(made, name, one)
        return made

    def __getattr__(self, name: str) -> Any:
        # Python asks here for a field that is not set yet.
        if name not in type(self).__dataclass_fields__:  # type: ignore[attr-defined]
            return object.__getattribute__(self, name)  # which raises the usual error
        computed = getattr(self._later, name)
        setattr(self, name, computed)
        return computed

    def __getstate__(self) -> tuple[None, dict[str, Any]]:
        return None, as_dict(self)  # what computes a field stays in its process


def _repr(self: Any) -> str:
    return f"{type(self).__name__}({', '.join(f'{name}={one!r}' for name, one in as_dict(self).items())})"


def as_dict(value: Any) -> dict[str, Any]:
    """Fields of a dataclass by name, in order, without a deep copy."""
    return {name: getattr(value, name) for name in type(value).__dataclass_fields__}


def brief(value: Any, *names: str) -> str:
    """A short `repr` of some fields: instants as text, lists by their number of items, no empty fields."""
    given = [(name, getattr(value, name)) for name in names]
    shown = [f"{name}={_brief(name, one)}" for name, one in given if one or isinstance(one, bool)]
    return f"{type(value).__name__}({', '.join(shown)})"


def _brief(name: str, value: Any) -> str:
    if isinstance(value, Enum):
        return str(value.value)
    if isinstance(value, list | tuple):
        return f"<{len(value)} {name}>"
    return format_instant(value) if name.endswith(INSTANT) else repr(value)
