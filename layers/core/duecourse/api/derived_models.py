"""Models of requests and answers, made of the fields that plain values describe (`base/described_fields.py`)."""

from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import MISSING
from enum import StrEnum
from types import MappingProxyType
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple, NotRequired, TypeVar

from pydantic import BaseModel, BeforeValidator, Field, StrictBool, create_model

from duecourse.api.fields import Duration, Instant, ShownInstant, Strict, about, between
from duecourse.base.described_fields import About, Described, fields_of
from duecourse.base.times import format_duration, format_instant

M = TypeVar("M", bound=BaseModel)
OWN: Any = object()
"""Mark in place of a default: the plain field has it."""


def _as_it_is(value: Any) -> Any:
    return value


class Form(NamedTuple):
    """A field over HTTP: its types, how a request's value becomes the plain one, and how that one is shown.

    `default` is that of a request that adds: MISSING if it is required, a class for an empty one. `unset` only fills
    the place in a request that changes; None if null is a value too.
    """

    asked: Any
    shown: Any
    read: Callable[[Any], Any] = _as_it_is
    show: Callable[[Any], Any] = _as_it_is
    default: Any = OWN
    unset: Any = OWN


def _text_or_none(value: Any) -> Any:
    # Enum's error prints repr(value), which overflows the stack for deeply nested input.
    return value if isinstance(value, str) else None


OF_ENUM = BeforeValidator(_text_or_none)
"""Annotation of an enum in requests."""
INSTANT = Form(Instant, ShownInstant, show=format_instant)
"""Form of an instant in epoch ms."""


def _form_of(one: Described) -> Form:
    """The form of a field by its type."""
    kind, low, high = one.kind, one.about.low, one.about.high
    if one.is_time:
        duration: Any = Annotated[Duration, between(low, high)] if high else Duration
        return Form(duration, str, show=format_duration, unset=OWN if one.default is None else 0)
    if kind is bool:
        return Form(StrictBool, bool)
    if kind is float:
        return Form(Annotated[float, Field(ge=low, le=high, allow_inf_nan=False, strict=True)], float)
    if issubclass(kind, StrEnum):
        return Form(Annotated[kind, OF_ENUM], kind)
    return Form(Annotated[int, Field(ge=low if high else None, le=high or None, strict=True)], int)


class ApiField(NamedTuple):
    """A described field and its form over HTTP."""

    plain: Described
    form: Form

    @property
    def name(self) -> str:
        """Name over HTTP."""
        return self.plain.name

    @property
    def is_optional(self) -> bool:
        """True if there may be no value: a change takes it away by null, and an answer leaves it out."""
        return self._unset is None and self.plain.default is not MISSING

    @property
    def takes_null(self) -> bool:
        """True if a request that adds may have null, which is the same as not to give the field."""
        return self._default is None

    @property
    def _default(self) -> Any:
        return self.plain.default if self.form.default is OWN else self.form.default

    @property
    def _unset(self) -> Any:
        return self.plain.default if self.form.unset is OWN else self.form.unset

    def asked(self) -> tuple[Any, Any]:
        """Type and description in a request that adds."""
        default, described = self._default, self.plain.about
        text = described.asked or described.shown
        if self.plain.is_time and isinstance(default, int):  # shown as a duration, which is read as one
            return self.form.asked, Field(format_duration(default), validate_default=True, description=text)
        return _described(self.form.asked, default, text, described.tried)

    def changed(self) -> tuple[Any, Any]:
        """Type and description in a request that changes."""
        return _described(self.form.asked, self._unset, self.plain.about.changed or self.plain.about.shown)

    def shown(self) -> Any:
        """Type and description in an answer."""
        kind: Any = self.form.shown
        default, example = self.plain.default, self.plain.about.example
        if example is None and isinstance(default, int | float):
            example = self.form.show(default)
        described = Annotated[kind, about(self.plain.about.shown, *([] if example is None else [example]))]
        return NotRequired[described] if self.is_optional else described


def _described(kind: Any, default: Any, text: str, example: Any = None) -> tuple[Any, Any]:
    said: Any = {"description": text} | ({} if example is None else {"examples": [example]})
    if default is MISSING:
        return kind, Field(**said)
    if isinstance(default, type):
        return kind, Field(default_factory=default, **said)
    return kind | None if default is None else kind, Field(default, **said)


def api_fields(
    owner: type[Any], texts: Mapping[str, About] = MappingProxyType({}), **forms: Form
) -> dict[str, ApiField]:
    """The described fields of a value by their names in it.

    `forms` are those that no type tells. `texts` describe fields otherwise than the value does.
    """
    found = (one._replace(about=texts.get(one.field, one.about)) for one in fields_of(owner))
    return {one.field: ApiField(one, forms.get(one.field) or _form_of(one)) for one in found}


class Derived(Strict):
    """Model with fields that follow from a plain value: mypy takes each of them for anything."""

    if TYPE_CHECKING:

        def __getattr__(self, name: str) -> Any: ...


def with_fields(fields: Mapping[str, Any]) -> Callable[[type[M]], type[M]]:
    """Add fields behind a model's own, by name: each has its type and description."""

    def extended(kind: type[M]) -> type[M]:
        return create_model(kind.__name__, __base__=kind, __doc__=kind.__doc__, __module__=kind.__module__, **fields)

    return extended


def asked(fields: Iterable[ApiField]) -> dict[str, Any]:
    """Fields of a request that adds."""
    return {one.name: one.asked() for one in fields}


def changed(fields: Iterable[ApiField]) -> dict[str, Any]:
    """Fields of a request that changes."""
    return {one.name: one.changed() for one in fields}


def shown(fields: Iterable[ApiField]) -> dict[str, Any]:
    """Fields of an answer."""
    return {one.name: one.shown() for one in fields}


def read_fields(
    fields: Iterable[ApiField], request: BaseModel, *, given: Collection[str] | None = None
) -> dict[str, Any]:
    """Values of a request by their names in the plain value; those `given` alone, if names are."""
    wanted = (one for one in fields if given is None or one.name in given)
    return {one.plain.field: one.form.read(getattr(request, one.name)) for one in wanted}


def show_fields(fields: Iterable[ApiField], value: Any) -> dict[str, Any]:
    """Fields of a plain value as an answer has them, without those that have no value."""
    found = ((one, getattr(value, one.plain.field)) for one in fields)
    return {one.name: one.form.show(own) for one, own in found if not (one.is_optional and own in (None, ""))}
