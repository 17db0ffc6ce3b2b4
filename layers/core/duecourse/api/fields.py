"""Field types that requests share, and pydantic's errors as a user reads them."""

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from functools import cache
from typing import Annotated, Any, NamedTuple, TypeVar

from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    GetCoreSchemaHandler,
    GetJsonSchemaHandler,
    PlainValidator,
    StrictStr,
    ValidationError,
    WithJsonSchema,
    model_validator,
)
from pydantic_core import InitErrorDetails, PydanticCustomError
from pydantic_core.core_schema import CoreSchema, no_info_after_validator_function

from duecourse.base.hints import near_name, unknown_field
from duecourse.base.ids import ANY_ID_PATTERN, ID_PATTERN, NAME_PATTERN
from duecourse.base.json_text import MAX_DEPTH, deeper_than, dump_json
from duecourse.base.times import (
    DURATION_PATTERN,
    MAX_DURATION_MS,
    MAX_TEXT,
    format_duration,
    parse_duration,
    parse_instant,
)
from duecourse.base.variables import written_as
from duecourse.errors import MAX_FIELD, FieldError, InvalidInput, bounded
from duecourse.ledger import reminder
from duecourse.ledger.api_query import QUEUE_PREFIX, open_kind, open_queue
from duecourse.ledger.task import DETAIL_LENGTH, MAX_PAYLOAD_BYTES

M = TypeVar("M", bound=BaseModel)
N = TypeVar("N", bound=BaseModel)
Schema = dict[str, Any]

TEXT_DURATION = {"type": "string", "pattern": DURATION_PATTERN, "maxLength": MAX_TEXT}
SECONDS = {"type": "number", "minimum": 0, "maximum": MAX_DURATION_MS // 1000}
RFC_3339 = {"type": "string", "format": "date-time"}
DURATION_SCHEMA = {"anyOf": [TEXT_DURATION, SECONDS], "examples": ["PT5M", "5m", 300]}
INSTANT_SCHEMA = {**RFC_3339, "examples": ["2026-03-29T01:30:00Z"]}
DEADLINE_SCHEMA = {"anyOf": [TEXT_DURATION, RFC_3339, SECONDS], "examples": ["PT24H", "2026-03-29T01:30:00Z"]}
BEGINS_WITH_YEAR = re.compile(r"\d{4}-")
"""Beginning of an instant, which no duration has."""
MAX_UNKNOWN = 20
"""Maximum number of an object's unknown fields that are named one by one."""
LOCATIONS = frozenset({"body", "path", "query"})

WORDING = {
    "missing": "is required",
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
"""Words of pydantic about a field."""
ENUMERATIONS = frozenset({"enum", "literal_error"})
QUOTED = re.compile(r"'([^']+)'")
"""A known value, in an enumeration's error."""
MAX_LENGTH_PATTERN = re.compile(r"\{1,(\d+)\}")
"""Maximum length of a name, in its pattern."""


class Deadline(NamedTuple):
    """Past which a task is dead: an instant (epoch ms), or a time after it was due (ms)."""

    at: int | None = None
    after_ms: int | None = None


def parse_deadline(value: Any) -> Deadline:
    """Read a deadline. Raises ValueError with a text for users."""
    if isinstance(value, datetime) or (isinstance(value, str) and BEGINS_WITH_YEAR.match(value)):
        return Deadline(at=parse_instant(value))
    try:
        return Deadline(after_ms=parse_duration(value))
    except ValueError as error:
        raise ValueError(f"{error}, or an RFC 3339 instant") from None


# Compared by identity: a union of types hashes what is beside each of them, and no schema can be hashed.
@dataclass(frozen=True, slots=True, eq=False)
class Checked:
    """Check of a type's values: it returns the value or raises ValueError; `schema` says the same in the document."""

    check: Callable[[Any], Any]
    schema: Schema

    def __get_pydantic_core_schema__(self, source: Any, handler: GetCoreSchemaHandler) -> CoreSchema:
        return no_info_after_validator_function(self.check, handler(source))

    def __get_pydantic_json_schema__(self, schema: CoreSchema, handler: GetJsonSchemaHandler) -> Schema:
        return {**handler(schema), **self.schema}


def between(low_ms: int, high_ms: int) -> Checked:
    """Bounds of a duration, in words that its sender knows; a schema can say them of seconds alone."""

    def check(value: int) -> int:
        if not low_ms <= value <= high_ms:
            raise ValueError(f"must be between {format_duration(low_ms)} and {format_duration(high_ms)}")
        return value

    return Checked(check, {"minimum": low_ms / 1000, "maximum": high_ms / 1000})


def matching(pattern: str, problem: str) -> Checked:
    """Text that the whole of `pattern` fits, and what to say of any other."""
    return Checked(written_as(re.compile(pattern), problem), {"pattern": f"^{pattern}$"})


def about(meaning: str, *examples: Any) -> Any:
    """Description of a field in the OpenAPI document, and examples of its value."""
    return Field(description=meaning, examples=list(examples) or None)


def requires(*names: str) -> Schema:
    """The schema of an object in which these fields are there, and not null."""
    return {"required": list(names), "properties": {name: {"not": {"type": "null"}} for name in names}}


def json_of(max_bytes: int) -> AfterValidator:
    """Value that JSON can carry, in at most so many bytes of text."""

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


TaskId = Annotated[StrictStr, Field(pattern=ID_PATTERN)]
AnyTaskId = Annotated[StrictStr, Field(pattern=ANY_ID_PATTERN)]
"""Id of a task, or of a completion notification, which has a `~`."""
Name = Annotated[StrictStr, Field(pattern=NAME_PATTERN)]
OpenKind = Annotated[Name, Checked(open_kind, {"not": {"const": reminder.KIND}})]
OpenQueue = Annotated[Name, Checked(open_queue, {"not": {"pattern": f"^({reminder.QUEUE}$|{QUEUE_PREFIX})"}})]
Duration = Annotated[int, BeforeValidator(parse_duration), WithJsonSchema(DURATION_SCHEMA)]
Instant = Annotated[int, BeforeValidator(parse_instant), WithJsonSchema(INSTANT_SCHEMA)]
DeadlineField = Annotated[Deadline, PlainValidator(parse_deadline), WithJsonSchema(DEADLINE_SCHEMA)]
JsonObject = Annotated[dict[str, Any], json_of(MAX_PAYLOAD_BYTES)]
ErrorText = Annotated[StrictStr, Field(min_length=1, max_length=DETAIL_LENGTH)]
"""Part of an error, in which `#` matches any text."""
Flag = Annotated[bool, BeforeValidator(lambda value: True if value == "" else value)]
"""A query parameter that needs no value: `?force`."""
ShownInstant = Annotated[str, WithJsonSchema(INSTANT_SCHEMA)]
"""An instant in answers: RFC 3339, in UTC, with milliseconds."""


class Unknown(NamedTuple):
    """Replacement of an unknown field's value: the fields that its object may have."""

    known: frozenset[str]


@cache
def _names(model: type[BaseModel]) -> frozenset[str]:
    return frozenset(field.alias or name for name, field in model.model_fields.items())


class Strict(BaseModel):
    """A JSON object without fields that are not known."""

    model_config = ConfigDict(extra="forbid", defer_build=True)

    @model_validator(mode="before")
    @classmethod
    def _with_unknown(cls, value: Any) -> Any:
        known = _names(cls)
        if not isinstance(value, dict) or value.keys() <= known:
            return value
        # Each unknown field is an error of its own: half a million of them would take a function's whole time.
        if len(value) > len(known) + MAX_UNKNOWN:
            raise ValueError(f"has {len(value)} fields; only {len(known)} are known")
        # Pydantic's error has the field's value, and does not say of which model it is.
        return value | dict.fromkeys(value.keys() - known, Unknown(known))


def read(model: type[M], value: Any) -> M:
    """`value` as one of `model`. Raises InvalidInput, naming every wrong field."""
    try:
        return model.model_validate(value)
    except ValidationError as error:
        raise InvalidInput(field_errors(error.errors())) from None


def read_both(first: type[M], named: Any, second: type[N], asked: Any) -> tuple[M, N]:
    """`named` as one of `first`, `asked` as one of `second`. Raises InvalidInput, naming the wrong fields of both."""
    # A caller over HTTP gets both kinds of errors in one answer: path and body are checked together there.
    found, wrong = list[Any](), list[Any]()
    for model, value in ((first, named), (second, asked)):
        try:
            found.append(model.model_validate(value))
        except ValidationError as error:
            wrong += error.errors()
    if wrong:
        raise InvalidInput(field_errors(wrong))
    return found[0], found[1]


def field_errors(errors: Iterable[Mapping[str, Any]]) -> list[FieldError]:
    """Errors of pydantic by dotted field name, the first MAX_ERRORS of them; the whole body is called `body`."""
    return bounded([FieldError(_dotted_path(error["loc"])[:MAX_FIELD], _wording(error)) for error in errors])


def reject_fields(problem: str, *fields: str) -> ValidationError:
    """The error that a validator raises for one problem of several fields together."""
    kind = PydanticCustomError("refused", "{problem}", {"problem": problem})
    lines = [InitErrorDetails(type=kind, loc=(field,), input=None) for field in fields]
    return ValidationError.from_exception_data("request", lines)


def _dotted_path(loc: Sequence[str | int]) -> str:
    inside = loc[1:] if len(loc) > 1 and loc[0] in LOCATIONS else loc
    return ".".join(str(part) for part in inside) or "body"


def _wording(error: Mapping[str, Any]) -> str:
    given = error.get("input")
    if error["type"] == "extra_forbidden":
        return unknown_field(error["loc"][-1], given.known if isinstance(given, Unknown) else ())
    text = SHOULD.sub("must ", str(error["msg"]).removeprefix("Value error, ")).replace(" after validation", "")
    most = MAX_LENGTH_PATTERN.search(text)
    words = WORDING.get(error["type"], text[:1].lower() + text[1:]).replace("{most}", most[1] if most else "")
    return words + near_name(given, QUOTED.findall(text)) if error["type"] in ENUMERATIONS else words
