"""Descriptions of the fields of plain values: requests, answers, the client and the reference follow from them."""

from dataclasses import MISSING, dataclass, fields, is_dataclass
from types import NoneType
from typing import Any, NamedTuple, get_args


# Compared by identity, so that it may be part of a union, whatever its example is.
@dataclass(slots=True, eq=False, repr=False)
class About:
    """Description of a field, in its annotation: `Annotated[int, About("Maximum attempts.", low=1, high=1_000)]`.

    `shown` describes it in answers, `asked` in a request that adds, and `changed` in one that changes; these two are as
    `shown` if left out. `low` and `high` bound a number, or a time in ms; without `high` nothing does. `name` is the
    field's name over HTTP, by default its own without `_ms`. `example` is that of an answer, by default the default;
    `tried` is that of a request that adds.
    """

    shown: str
    asked: str = ""
    changed: str = ""
    low: int = 0
    high: int = 0
    name: str = ""
    example: Any = None
    tried: Any = None


class Described(NamedTuple):
    """A described field: its name in the value and elsewhere, its type without None, and its default or MISSING."""

    field: str
    name: str
    kind: Any
    about: About
    default: Any

    @property
    def is_time(self) -> bool:
        """True for milliseconds, which requests and answers have as a duration."""
        return self.field.endswith("_ms")


def fields_of(owner: type[Any]) -> list[Described]:
    """The described fields of a dataclass or of a NamedTuple, in their order."""
    every: list[tuple[str, Any, Any]]
    if is_dataclass(owner):
        every = [(one.name, one.type, one.default) for one in fields(owner)]
    else:
        defaults: dict[str, Any] = owner._field_defaults
        every = [(name, kind, defaults.get(name, MISSING)) for name, kind in owner.__annotations__.items()]
    return [
        Described(name, about.name or name.removesuffix("_ms"), _some(kind.__origin__), about, default)
        for name, kind, default in every
        if (about := _about(kind))
    ]


def _about(kind: Any) -> About | None:
    return next((one for one in getattr(kind, "__metadata__", ()) if isinstance(one, About)), None)


def _some(kind: Any) -> Any:
    """A type without None."""
    kinds = get_args(kind)
    return next(one for one in kinds if one is not NoneType) if NoneType in kinds else kind
