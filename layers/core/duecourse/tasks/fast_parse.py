"""Tasks in bodies, parsed without pydantic's model if they have the usual form; the model judges all others."""

import re
from collections.abc import Callable, Collection
from datetime import datetime, timedelta
from enum import StrEnum
from functools import lru_cache
from typing import TYPE_CHECKING, Annotated, Any, TypeAlias

from pydantic import ValidationError, WrapValidator

from duecourse.api.derived_models import ApiField
from duecourse.api.fields import field_errors, parse_deadline, read
from duecourse.api.kind_payloads import NotifyDone, check_payload
from duecourse.api.request import HTTP
from duecourse.base.ids import ID_PATTERN, new_id, new_ids
from duecourse.base.json_text import dump_json, is_too_deep
from duecourse.base.times import parse_duration, parse_instant
from duecourse.base.variables import NAME
from duecourse.errors import MAX_ERRORS, FieldError, InvalidInput
from duecourse.ledger.api_query import open_kind, open_queue
from duecourse.ledger.task import DEFAULT_TENANT, MAX_PAYLOAD_BYTES, NewTask, RetryPolicy
from duecourse.tasks.http import FIELDS, MAX_BATCH, AddBatch, AddTask, Retry

# The model takes six times as long for a usual task. It gets each task that is unusual or wrong, and names every error.
#
# This module makes no rule. The functions and patterns of the model's fields judge names, times and payloads, and their
# models judge retries and notifications. Defaults are NewTask's own, which are the model's too: tests compare both.

ID = re.compile(ID_PATTERN)
TEXT, OBJECT, SIMPLE = (str,), (dict,), (str, int, float, bool)
TIME, INSTANT, DEADLINE = (str, int, float, timedelta), (str, datetime), (str, int, float, timedelta, datetime)
"""Usual types of each."""
MORE = FieldError("body", "has more wrong fields")
UNNAMED = str
"""Maker of empty ids: the router reads a body before a route can say whose request it is."""


class NeedsFullValidation(ValueError):
    """A case that the model must judge."""


def read_task(fields: Any, tenant: str = DEFAULT_TENANT, by: str = "") -> NewTask:
    """The task in the body of POST /tasks. Raises InvalidInput, naming every wrong field.

    A task that is read here already has its source in `by`.
    """
    return parse_fast(fields, tenant, by) or read(AddTask, fields).task(tenant)


def read_tasks(batch: Any, tenant: str = DEFAULT_TENANT, by: str = "") -> list[NewTask]:
    """The tasks that POST /tasks/batch is asked for. Raises InvalidInput, naming every wrong field."""
    return _read_batch(batch, tenant, by) or read(AddBatch, batch).new_tasks(tenant)


def _read_batch(batch: Any, tenant: str, by: str, name: Callable[[], str] | None = None) -> list[NewTask] | None:
    """The tasks of a batch of the usual shape, at least one; None where the model is to judge all of it.

    Raises InvalidInput. Nothing is read behind the first MAX_ERRORS wrong fields, and nothing twice.
    """
    tasks: Any = batch["tasks"] if type(batch) is dict and batch.keys() == {"tasks"} else None
    if type(tasks) not in (list, tuple) or not 0 < len(tasks) <= MAX_BATCH:
        return None
    name = name or new_ids().__next__
    found, wrong = list[NewTask](), list[dict[str, Any]]()
    for index, fields in enumerate(tasks):
        try:
            found.append(parse_fast(fields, tenant, by, name) or AddTask.model_validate(fields).task(tenant, name))
        except ValidationError as error:
            wrong += [{**one, "loc": ("tasks", index, *one["loc"])} for one in error.errors(include_url=False)]
            if len(wrong) > MAX_ERRORS:
                raise InvalidInput([*field_errors(wrong[:MAX_ERRORS]), MORE]) from None
    if wrong:
        raise InvalidInput(field_errors(wrong))
    return found


def parse_fast(
    fields: Any, tenant: str = DEFAULT_TENANT, by: str = "", name: Callable[[], str] = new_id
) -> NewTask | None:
    """The task where its fields are of the usual shape, as the model would make it; else None, wrong or not."""
    try:
        return _parse(fields, tenant, by, name)
    except (ValueError, TypeError, KeyError, RecursionError):
        return None


def _parse(fields: Any, tenant: str, by: str, name: Callable[[], str]) -> NewTask:
    if type(fields) is not dict:
        raise NeedsFullValidation
    # Only what is given is read: a usual body has few of the fields, and the tuple fills in its defaults by itself.
    found: dict[str, Any] = {"tenant": tenant, "by": by}
    for field, value in fields.items():
        own, reader = FIELD_READERS[field]
        if value is not None or field not in NULLABLE:
            found[own] = reader(value)
    if "due_at" in found and "delay_ms" in found:
        raise NeedsFullValidation
    check_payload(found["kind"], fields["payload"])
    if "id" not in found:
        found["id"] = name()
    if "deadline_ms" in found:
        found["deadline_at"], found["deadline_ms"] = found["deadline_ms"]
    return NewTask(**found)


def _of_type(kinds: Collection[type], value: Any) -> Any:
    # Of a subclass the model may think otherwise.
    if type(value) not in kinds:
        raise NeedsFullValidation
    return value


def _matching(value: Any, pattern: re.Pattern[str] = NAME) -> str:
    text: str = _of_type(TEXT, value)
    if not pattern.fullmatch(text):
        raise NeedsFullValidation
    return text


def _of(kinds: Collection[type], read: Callable[[Any], Any]) -> Callable[[Any], Any]:
    """A reader of values of exactly these types."""
    return lambda value: read(_of_type(kinds, value))


# By type too: 1, 1.0 and True are equal, a text and one of a subclass are, and not all of them fit.
_cached = lru_cache(maxsize=1024, typed=True)


def _payload(value: Any) -> str:
    for name in _of_type(OBJECT, value):
        _of_type(TEXT, name)
    text = dump_json(value)
    short = text.isascii() and len(text) <= MAX_PAYLOAD_BYTES
    if not short and len(text.encode()) > MAX_PAYLOAD_BYTES:
        raise NeedsFullValidation
    if is_too_deep(text, value):
        raise NeedsFullValidation
    return text


def _retry(value: Any) -> RetryPolicy:
    fields = _of_type(OBJECT, value).items()
    return _policy(tuple([(name, type(one), _of_type(SIMPLE, one)) for name, one in fields]))


@lru_cache(maxsize=1024)
def _policy(fields: tuple[tuple[str, type, Any], ...]) -> RetryPolicy:
    policy: RetryPolicy = Retry.model_validate({name: value for name, _, value in fields}).policy()
    return policy


def _reader_of(one: ApiField) -> Callable[[Any], Any]:
    """Reader of a field that NewTask describes: by its name, else by its type."""
    if reader := BY_NAME.get(one.plain.field):
        return reader
    if one.plain.is_time:
        return _cached(_of(TIME, parse_duration))
    if issubclass(one.plain.kind, StrEnum):
        return _of(TEXT, one.plain.kind)
    raise TypeError(f"{one.name} needs a reader")


BY_NAME: dict[str, Callable[[Any], Any]] = {
    "payload": _payload,
    "due_at": _of(INSTANT, parse_instant),
    "retry": _retry,
    "deadline_ms": _of(DEADLINE, parse_deadline),
    "notify": lambda value: NotifyDone.model_validate(value).text(),
}
"""Readers of fields of NewTask that no type tells."""
FIELD_READERS: dict[str, tuple[str, Callable[[Any], Any]]] = {
    "id": ("id", lambda value: _matching(value, ID)),
    "queue": ("queue", _cached(lambda value: open_queue(_matching(value)))),
    "kind": ("kind", _cached(lambda value: open_kind(_matching(value)))),
    **{one.name: (one.plain.field, _reader_of(one)) for one in FIELDS},
}
"""Each field's name in a NewTask, and its reader; a deadline's makes `deadline_at` of an instant."""
NULLABLE = frozenset(one.name for one in FIELDS if one.takes_null)
"""Fields that may be null, which is the same as not to give them."""


class UnloggedBatch(list[NewTask]):
    """Tasks of a batch, shown by their number: the router writes a route's arguments into a log that is off."""

    def __repr__(self) -> str:
        return f"{len(self)} tasks"


def _parse_body(value: Any, by_the_model: Callable[[Any], AddTask]) -> NewTask:
    return parse_fast(value, by=HTTP, name=UNNAMED) or by_the_model(value).task(name=UNNAMED)


def _parse_batch_body(value: Any, by_the_model: Callable[[Any], AddBatch]) -> list[NewTask]:
    return UnloggedBatch(
        _read_batch(value, DEFAULT_TENANT, HTTP, UNNAMED) or by_the_model(value).new_tasks(name=UNNAMED)
    )


# To a route the body is what was read of it; to the router and to the API's document it is the model.
if TYPE_CHECKING:
    TaskBody: TypeAlias = NewTask
    BatchBody: TypeAlias = list[NewTask]
else:
    TaskBody = Annotated[AddTask, WrapValidator(_parse_body)]
    BatchBody = Annotated[AddBatch, WrapValidator(_parse_batch_body)]
