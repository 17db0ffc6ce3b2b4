"""The field types that requests share, and how pydantic's errors read to a user."""

import re
from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from typing import Annotated, Any, NamedTuple, TypeVar

from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    PlainValidator,
    StrictStr,
    ValidationError,
    WithJsonSchema,
    model_validator,
)
from pydantic_core import InitErrorDetails, PydanticCustomError

from duecourse.domain.task import ANY_ID_PATTERN, ID_PATTERN, MAX_PAYLOAD_BYTES, NAME_PATTERN, dump_json
from duecourse.domain.times import MAX_DURATION_MS, format_duration, parse_duration, parse_instant
from duecourse.errors import FieldError, InvalidInput, bounded

M = TypeVar("M", bound=BaseModel)

_AMOUNT = r"[0-9]+(\.[0-9]+)?"
DURATION_PATTERN = rf"^(P(?=.)({_AMOUNT}W)?({_AMOUNT}D)?(T(?=.)({_AMOUNT}H)?({_AMOUNT}M)?({_AMOUNT}S)?)?|{_AMOUNT})$"
SECONDS_SCHEMA = {"type": "number", "minimum": 0, "maximum": MAX_DURATION_MS // 1000}
DURATION_SCHEMA = {
    "anyOf": [{"type": "string", "pattern": DURATION_PATTERN}, SECONDS_SCHEMA],
    "examples": ["PT5M", 300],
}
INSTANT_SCHEMA = {"type": "string", "format": "date-time", "examples": ["2026-03-29T01:30:00Z"]}
DEADLINE_SCHEMA = {
    "anyOf": [
        {"type": "string", "pattern": DURATION_PATTERN},
        {"type": "string", "format": "date-time"},
        SECONDS_SCHEMA,
    ],
    "examples": ["PT24H", "2026-03-29T01:30:00Z"],
}
MAX_DEPTH = 100
"""How deep a payload, a result or a state may nest: well within what every JSON library carries."""
DATED = re.compile(r"\d{4}-")
"""How an instant begins, and no duration does."""
MAX_FIELD = 200
"""How much of a wrong field's name is told: an answer must not be many times its request's size."""
MAX_STRANGERS = 20
"""How many unknown fields of an object are named one by one."""
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
    "string_unicode": "holds a character that JSON cannot carry",
    "string_pattern_mismatch": "must be 1 to {most} characters of A-Z a-z 0-9 . _ : @ -",
}
SHOULD = re.compile(r"^(Input|String|List|Dictionary) should ")
"""How pydantic speaks of a field."""
LONGEST = re.compile(r"\{1,(\d+)\}")
"""How long a name may be, in its pattern."""


class Deadline(NamedTuple):
    """Past which a task is dead: an instant (epoch ms), or a time after it was due (ms)."""

    at: int | None = None
    after_ms: int | None = None


def _deadline(value: Any) -> Deadline:
    if isinstance(value, datetime) or (isinstance(value, str) and DATED.match(value)):
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


def json_of(max_bytes: int) -> AfterValidator:
    """What JSON can carry, in at most so many bytes of text."""

    def check(value: Any) -> Any:
        if deeper_than(MAX_DEPTH, value):
            raise ValueError(f"must not nest deeper than {MAX_DEPTH}")
        # Python's parser lets through what JSON cannot carry: NaN, numbers beyond a float, half surrogate pairs.
        try:
            size = len(dump_json(value).encode())
        except ValueError:
            raise ValueError("holds a number or a text that JSON cannot carry") from None
        except TypeError as error:  # only a caller in Python can send these
            raise ValueError(f"cannot be JSON: {error}") from None
        if size > max_bytes:
            raise ValueError(f"must be at most {max_bytes // 1024} KiB of JSON")
        return value

    return AfterValidator(check)


def deeper_than(depth: int, value: Any) -> bool:
    """Whether objects and lists nest deeper than `depth` within `value`."""
    inside = value.values() if isinstance(value, dict) else value if isinstance(value, list | tuple) else ()
    return depth < 0 or any(deeper_than(depth - 1, item) for item in inside)


def _flag(value: Any) -> Any:
    return True if value == "" else value


TaskId = Annotated[StrictStr, Field(pattern=ID_PATTERN)]
AnyTaskId = Annotated[StrictStr, Field(pattern=ANY_ID_PATTERN)]
"""A task's id, or a follow-up's, which holds a `~`."""
Name = Annotated[StrictStr, Field(pattern=NAME_PATTERN)]
Duration = Annotated[int, BeforeValidator(parse_duration), WithJsonSchema(DURATION_SCHEMA)]
Instant = Annotated[int, BeforeValidator(parse_instant), WithJsonSchema(INSTANT_SCHEMA)]
DeadlineField = Annotated[Deadline, PlainValidator(_deadline), WithJsonSchema(DEADLINE_SCHEMA)]
JsonObject = Annotated[dict[str, Any], json_of(MAX_PAYLOAD_BYTES)]
Flag = Annotated[bool, BeforeValidator(_flag)]
"""A query parameter that may stand bare: `?force`."""


Told = Annotated[str, WithJsonSchema(INSTANT_SCHEMA)]
"""An instant as it is told: RFC 3339, in UTC, with milliseconds."""


class Strict(BaseModel):
    """A JSON object without fields that are not known."""

    model_config = ConfigDict(extra="forbid")

    @model_validator(mode="before")
    @classmethod
    def _not_flooded(cls, value: Any) -> Any:
        # Each unknown field is an error of its own: half a million of them would take a function's whole time.
        if isinstance(value, dict) and len(value) > len(cls.model_fields) + MAX_STRANGERS:
            raise ValueError(f"has {len(value)} fields, and {len(cls.model_fields)} are known")
        return value


def read(model: type[M], value: Any) -> M:
    """`value` as one of `model`. Raises InvalidInput, naming every wrong field."""
    try:
        return model.model_validate(value)
    except ValidationError as error:
        raise InvalidInput(field_errors(error.errors())) from None


def field_errors(errors: Iterable[Mapping[str, Any]]) -> list[FieldError]:
    """Errors of pydantic by dotted field name, the first MAX_ERRORS of them; the whole body is called `body`."""
    return bounded([FieldError(_dotted(error["loc"])[:MAX_FIELD], _wording(error)) for error in errors])


def refuse_fields(problem: str, *fields: str) -> ValidationError:
    """The error that a validator raises to lay one problem at the door of several fields."""
    kind = PydanticCustomError("refused", "{problem}", {"problem": problem})
    lines = [InitErrorDetails(type=kind, loc=(field,), input=None) for field in fields]
    return ValidationError.from_exception_data("request", lines)


def _dotted(loc: Sequence[str | int]) -> str:
    inside = loc[1:] if len(loc) > 1 and loc[0] in PLACES else loc
    return ".".join(str(part) for part in inside) or "body"


def _wording(error: Mapping[str, Any]) -> str:
    text = SHOULD.sub("must ", str(error["msg"]).removeprefix("Value error, ")).replace(" after validation", "")
    most = LONGEST.search(text)
    return WORDING.get(error["type"], text[:1].lower() + text[1:]).replace("{most}", most[1] if most else "")
