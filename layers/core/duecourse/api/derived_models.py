"""Models of requests and answers, made of the fields that plain values describe (`base/described_fields.py`)."""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import MISSING
from enum import StrEnum
from types import MappingProxyType
from typing import Annotated, Any, NamedTuple, NotRequired, Self, TypeVar

from pydantic import AfterValidator, BaseModel, BeforeValidator, Field, StrictBool, create_model, model_validator

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
    the place in a request that changes; with None, null restores the default, and is rejected where there is none.
    With `shows_null`, an answer has null for None; without, it leaves the field out.
    """

    asked: Any
    shown: Any
    read: Callable[[Any], Any] = _as_it_is
    show: Callable[[Any], Any] = _as_it_is
    default: Any = OWN
    unset: Any = OWN
    shows_null: bool = False


def _text_or_none(value: Any) -> Any:
    # Enum's error prints repr(value), which overflows the stack for deeply nested input.
    return value if isinstance(value, str) else None


def _not_null(value: Any) -> Any:
    if value is None:
        raise ValueError("must be a JSON object")
    return value


OF_ENUM = BeforeValidator(_text_or_none)
"""Annotation of an enum in requests."""
NOT_NULL = AfterValidator(_not_null)
"""Annotation of an object that a change replaces and cannot take away."""
IfVersion = Annotated[int, Field(ge=1, strict=True)] | None
IF_VERSION = "if_version"
"""Name of the field that changes nothing itself."""
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
        """True if there may be no value: an answer then leaves the field out."""
        return self._unset is None and self.plain.default is not MISSING and not self.form.shows_null

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
        kind, field = _described(self.form.asked, self._unset, self.plain.about.changed or self.plain.about.shown)
        has_no_null = self._unset is None and self.plain.default is MISSING
        return Annotated[kind, NOT_NULL] if has_no_null else kind, field

    def shown(self) -> Any:
        """Type and description in an answer."""
        default, example = self.plain.default, self.plain.about.example
        has_null = self.form.shows_null and default is None
        kind: Any = self.form.shown | None if has_null else self.form.shown
        if example is None and isinstance(default, int | float):
            example = self.form.show(default)
        examples = [example] if has_null or example is not None else []
        described = Annotated[kind, about(self.plain.about.shown, *examples)]
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


def with_fields(fields: Mapping[str, Any]) -> Callable[[type[M]], type[M]]:
    """Add fields behind a model's own, by name: each has its type and description.

    Of a model with such fields, mypy knows those that the class states under TYPE_CHECKING, for its methods and
    callers that read them. A test compares each with the field that is added.
    """

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


def read_fields(fields: Iterable[ApiField], request: BaseModel) -> dict[str, Any]:
    """Values of a request by their names in the plain value."""
    return {one.plain.field: one.form.read(getattr(request, one.name)) for one in fields}


def show_fields(fields: Iterable[ApiField], value: Any) -> dict[str, Any]:
    """Fields of a plain value as an answer has them, without those that have no value."""
    found = ((one, getattr(value, one.plain.field)) for one in fields)
    given = ((one, own) for one, own in found if not (one.is_optional and own in (None, "")))
    return {one.name: None if own is None else one.form.show(own) for one, own in given}


class Change(Strict):
    """Request that changes the fields that it gives, and leaves the others as they are."""

    def read_given(self, fields: Iterable[ApiField]) -> dict[str, Any]:
        """Values of given fields by their names in the plain value."""
        return read_fields((one for one in fields if one.name in self.model_fields_set), self)


class VersionedChange(Change):
    """Request that changes at least one field, of the version `if_version` alone if that is given."""

    if_version: IfVersion = None

    @property
    def named(self) -> tuple[str, ...]:
        """Names of the fields to change, in order."""
        return tuple(name for name in type(self).model_fields if name in self.model_fields_set - {IF_VERSION})

    @model_validator(mode="after")
    def _changes_something(self) -> Self:
        if not self.named:
            raise ValueError("needs a field to change")
        return self


def changed_if_version(owner: str, fields: Iterable[ApiField]) -> dict[str, Any]:
    """Fields of a VersionedChange; `owner` is a text of what has the version."""
    text = f"Version that {owner} must have; with another, nothing changes (409)."
    return {IF_VERSION: (IfVersion, Field(None, description=text)), **changed(fields)}
