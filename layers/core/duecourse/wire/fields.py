"""The field types that requests share, and how pydantic's errors read to a user."""

import json
from collections.abc import Iterable, Mapping, Sequence
from typing import Annotated, Any, NamedTuple

from pydantic import AfterValidator, BeforeValidator, Field, PlainValidator, StrictStr, ValidationError, WithJsonSchema
from pydantic_core import InitErrorDetails, PydanticCustomError

from duecourse.domain.task import ID_PATTERN
from duecourse.domain.times import format_duration, parse_duration, parse_instant
from duecourse.errors import FieldError

NAME_PATTERN = r"^[A-Za-z0-9._:@-]{1,64}$"
"""What a queue, a kind and a reminder may be called: no slash and no brace, which keys need for themselves."""

DURATION_SCHEMA = {"anyOf": [{"type": "number"}, {"type": "string"}], "examples": ["PT5M", 300]}
INSTANT_SCHEMA = {"type": "string", "format": "date-time", "examples": ["2026-03-29T01:30:00Z"]}
DEADLINE_SCHEMA = {"anyOf": [{"type": "number"}, {"type": "string"}], "examples": ["PT24H", "2026-03-29T01:30:00Z"]}
MAX_DEPTH = 100
"""How deep a payload may nest: well within what every JSON library carries."""
PLACES = frozenset({"body", "path", "query"})

WORDING = {
    "missing": "is required",
    "extra_forbidden": "is not a known field",
    "model_attributes_type": "must be a JSON object",
    "model_type": "must be a JSON object",
    "dict_type": "must be a JSON object",
    "bool_parsing": "must be true or false",
    "bool_type": "must be true or false",
    "string_type": "must be text",
}


class Deadline(NamedTuple):
    """Past which a task is dead: an instant (epoch ms), or a time after it was due (ms)."""

    at: int | None = None
    after_ms: int | None = None


def _deadline(value: Any) -> Deadline:
    if isinstance(value, str) and "T" in value and not value.startswith("P"):
        return Deadline(at=parse_instant(value))
    try:
        return Deadline(after_ms=parse_duration(value))
    except ValueError:
        raise ValueError("must be a duration such as PT24H, or an RFC 3339 instant") from None


def between(low_ms: int, high_ms: int) -> AfterValidator:
    """Bounds of a duration, in words that its sender knows."""

    def check(value: int) -> int:
        if not low_ms <= value <= high_ms:
            raise ValueError(f"must be between {format_duration(low_ms)} and {format_duration(high_ms)}")
        return value

    return AfterValidator(check)


def _json_text(value: dict[str, Any]) -> dict[str, Any]:
    if deeper_than(MAX_DEPTH, value):
        raise ValueError(f"must not nest deeper than {MAX_DEPTH}")
    # Python's parser lets through what JSON cannot carry: NaN, numbers beyond a float, half surrogate pairs.
    try:
        json.dumps(value, allow_nan=False, ensure_ascii=False).encode()
    except ValueError:
        raise ValueError("holds a number or a text that JSON cannot carry") from None
    return value


def deeper_than(depth: int, value: Any) -> bool:
    """Whether objects and lists nest deeper than `depth` within `value`."""
    inside = value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()
    return depth < 0 or any(deeper_than(depth - 1, item) for item in inside)


def _flag(value: Any) -> Any:
    return True if value == "" else value


TaskId = Annotated[StrictStr, Field(pattern=ID_PATTERN)]
Name = Annotated[StrictStr, Field(pattern=NAME_PATTERN)]
Duration = Annotated[int, BeforeValidator(parse_duration), WithJsonSchema(DURATION_SCHEMA)]
Instant = Annotated[int, BeforeValidator(parse_instant), WithJsonSchema(INSTANT_SCHEMA)]
DeadlineField = Annotated[Deadline, PlainValidator(_deadline), WithJsonSchema(DEADLINE_SCHEMA)]
JsonObject = Annotated[dict[str, Any], AfterValidator(_json_text)]
Flag = Annotated[bool, BeforeValidator(_flag)]
"""A query parameter that may stand bare: `?force`."""


def field_errors(errors: Iterable[Mapping[str, Any]]) -> list[FieldError]:
    """Errors of pydantic by dotted field name; the whole body is called `body`."""
    return [FieldError(_dotted(error["loc"]), _wording(error)) for error in errors]


def refuse_fields(problem: str, *fields: str) -> ValidationError:
    """The error that a validator raises to lay one problem at the door of several fields."""
    kind = PydanticCustomError("refused", "{problem}", {"problem": problem})
    lines = [InitErrorDetails(type=kind, loc=(field,), input=None) for field in fields]
    return ValidationError.from_exception_data("request", lines)


def _dotted(loc: Sequence[str | int]) -> str:
    inside = loc[1:] if len(loc) > 1 and loc[0] in PLACES else loc
    return ".".join(str(part) for part in inside)


def _wording(error: Mapping[str, Any]) -> str:
    text = str(error["msg"]).removeprefix("Value error, ")
    return WORDING.get(error["type"], text[:1].lower() + text[1:])
