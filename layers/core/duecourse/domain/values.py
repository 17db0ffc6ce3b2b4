"""Frozen dataclasses: declared, made, altered and shown, at little cost where a function starts and where it claims."""

from collections.abc import Callable, Hashable
from dataclasses import MISSING, FrozenInstanceError, dataclass, field, fields, make_dataclass
from enum import Enum
from functools import cache
from operator import attrgetter
from typing import TYPE_CHECKING, Any, TypeVar, cast

from duecourse.domain.times import format_instant

__all__ = ["as_dict", "brief", "maker", "replaced", "value"]

T = TypeVar("T")

INSTANT = ("_at", "at")
"""Endings of the names of instants."""

if TYPE_CHECKING:
    from dataclasses import dataclass as value
else:

    def value(*, frozen: bool, slots: bool, repr: bool = True):
        """Make the class below a dataclass that is frozen and has slots, as `dataclasses.dataclass` would.

        That compiles six functions for each class, which takes a millisecond at every cold start. Here classes share
        theirs, and only `__init__` is their own.
        """

        def made(kind: type) -> type:
            whole = dataclass(slots=slots, repr=False, eq=False)(kind)
            for name, method in SHARED.items():
                if repr or name != "__repr__":
                    setattr(whole, name, method)
            return whole

        return made if frozen else dataclass(slots=slots, repr=repr)


def _set_once(self: Any, name: str, new: Any) -> None:
    if name not in type(self).__slots__ or hasattr(self, name):
        raise FrozenInstanceError(f"cannot assign to field {name!r}")
    object.__setattr__(self, name, new)


def _keep(_self: Any, name: str) -> None:
    raise FrozenInstanceError(f"cannot delete field {name!r}")


def _equal(self: Any, other: object) -> Any:
    if type(other) is not type(self):
        return NotImplemented
    return _values(self) == _values(other)


def _hashed(self: Any) -> int:
    return hash(_values(self))


def _shown(self: Any) -> str:
    return f"{type(self).__name__}({', '.join(f'{name}={one!r}' for name, one in as_dict(self).items())})"


def _values(self: Any) -> tuple[Any, ...]:
    read, _ = _fields_of(cast(Any, type(self)))
    return read(self)


SHARED = {
    "__setattr__": _set_once,
    "__delattr__": _keep,
    "__eq__": _equal,
    "__hash__": _hashed,
    "__repr__": _shown,
}


def maker(kind: type[T]) -> Callable[..., T]:
    """A constructor of `kind`, a frozen dataclass with slots; it takes a seventh of the time of the usual one.

    A frozen class sets each field through a function. This makes an object of an open class with the same slots, which
    then becomes one of `kind`.
    """
    return cast(Callable[..., T], _open_class(cast(Any, kind)))


def replaced(value: T, **changes: Any) -> T:
    """`value` with other fields, as `dataclasses.replace` gives it, in a fifth of its time."""
    _, places = _fields_of(cast(Any, type(value)))
    found = list(_values(value))
    for name, new in changes.items():
        found[places[name]] = new
    return maker(type(value))(*found)


def as_dict(value: Any) -> dict[str, Any]:
    """The fields of a dataclass by their names, in order; what they hold is not copied."""
    return {name: getattr(value, name) for name in type(value).__slots__}


def brief(value: Any, *names: str) -> str:
    """A short `repr` of those fields: instants as text, the number of a list's items, nothing of what is empty."""
    given = [(name, getattr(value, name)) for name in names]
    shown = [f"{name}={_brief(name, one)}" for name, one in given if one or isinstance(one, bool)]
    return f"{type(value).__name__}({', '.join(shown)})"


def _brief(name: str, value: Any) -> str:
    if isinstance(value, Enum):
        return str(value.value)
    if isinstance(value, list | tuple):
        return f"<{len(value)} {name}>"
    return format_instant(value) if name.endswith(INSTANT) else repr(value)


@cache
def _open_class(kind: Hashable) -> Any:
    def freeze(draft: Any) -> None:
        draft.__class__ = kind

    shape: Any = kind
    given = [(one, field() if one.default is MISSING else field(default=one.default)) for one in fields(shape)]
    parts = [(one.name, one.type, usual) for one, usual in given]
    bases = getattr(shape, "__orig_bases__", shape.__bases__)  # the same, for an object to change its class
    return make_dataclass(shape.__name__, parts, bases=bases, namespace={"__post_init__": freeze}, eq=False, slots=True)


@cache
def _fields_of(kind: Hashable) -> tuple[Callable[[Any], tuple[Any, ...]], dict[str, int]]:
    shape: Any = kind
    names = [one.name for one in fields(shape)]
    read: Any = attrgetter(*names) if len(names) > 1 else lambda value: (getattr(value, names[0]),)
    return read, {name: place for place, name in enumerate(names)}
