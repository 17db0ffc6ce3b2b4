"""Tasks of the usual shape, read without the model, which gets all that is unusual or wrong and names every error.

This module makes no rule. The functions and patterns of the model's fields judge names, times and payloads, and their
models judge retries and notifications. Defaults are NewTask's own, which are the model's too: tests compare both.
"""

import re
from collections.abc import Callable, Collection
from datetime import datetime, timedelta
from functools import lru_cache
from typing import TYPE_CHECKING, Annotated, Any, TypeAlias

from pydantic import ValidationError, WrapValidator

from duecourse.domain.reserved import open_kind, open_queue
from duecourse.domain.task import (
    DEFAULT_TENANT,
    ID_PATTERN,
    MAX_DEPTH,
    MAX_PAYLOAD_BYTES,
    NewTask,
    OnDuplicate,
    RetryPolicy,
    deeper_than,
    dump_json,
    new_id,
)
from duecourse.domain.times import parse_duration, parse_instant
from duecourse.errors import MAX_ERRORS, FieldError, InvalidInput
from duecourse.wire.http.batch import MAX_BATCH, AddBatch
from duecourse.wire.http.fields import field_errors, parse_deadline, read
from duecourse.wire.http.kinds import check_payload
from duecourse.wire.http.notify import NotifyDone
from duecourse.wire.http.tasks import AddTask, Retry
from duecourse.wire.settings.variables import NAME

ID = re.compile(ID_PATTERN)
TEXT, OBJECT, SIMPLE = (str,), (dict,), (str, int, float, bool)
TIME, INSTANT, DEADLINE = (str, int, float, timedelta), (str, datetime), (str, int, float, timedelta, datetime)
"""Usual types of each."""
HTTP = "http"
"""Source of the tasks in the bodies below."""
MORE = FieldError("body", "has more wrong fields")
UNNAMED = str
"""Maker of empty ids: the router reads a body before a route can say whose request it is."""


class Unusual(ValueError):
    """A case that the model must judge."""


def read_task(fields: Any, tenant: str = DEFAULT_TENANT, by: str = "") -> NewTask:
    """The task in the body of POST /tasks. Raises InvalidInput, naming every wrong field.

    A task that is read here already has its source in `by`.
    """
    return usual(fields, tenant, by) or read(AddTask, fields).task(tenant)


def read_tasks(batch: Any, tenant: str = DEFAULT_TENANT, by: str = "") -> list[NewTask]:
    """The tasks that POST /tasks/batch is asked for. Raises InvalidInput, naming every wrong field."""
    return _read_batch(batch, tenant, by) or read(AddBatch, batch).new_tasks(tenant)


def _read_batch(batch: Any, tenant: str, by: str, name: Callable[[], str] = new_id) -> list[NewTask] | None:
    """The tasks of a batch of the usual shape, at least one; None where the model is to judge all of it.

    Raises InvalidInput. Nothing is read behind the first MAX_ERRORS wrong fields, and nothing twice.
    """
    tasks: Any = batch["tasks"] if type(batch) is dict and batch.keys() == {"tasks"} else None
    if type(tasks) not in (list, tuple) or not 0 < len(tasks) <= MAX_BATCH:
        return None
    found, wrong = list[NewTask](), list[dict[str, Any]]()
    for index, fields in enumerate(tasks):
        try:
            found.append(usual(fields, tenant, by, name) or AddTask.model_validate(fields).task(tenant, name))
        except ValidationError as error:
            wrong += [{**one, "loc": ("tasks", index, *one["loc"])} for one in error.errors(include_url=False)]
            if len(wrong) > MAX_ERRORS:
                raise InvalidInput([*field_errors(wrong[:MAX_ERRORS]), MORE]) from None
    if wrong:
        raise InvalidInput(field_errors(wrong))
    return found


def usual(fields: Any, tenant: str = DEFAULT_TENANT, by: str = "", name: Callable[[], str] = new_id) -> NewTask | None:
    """The task where its fields are of the usual shape, as the model would make it; else None, wrong or not."""
    try:
        return _usual(fields, tenant, by, name)
    except (ValueError, TypeError, KeyError, RecursionError):
        return None


def _usual(fields: Any, tenant: str, by: str, name: Callable[[], str]) -> NewTask:
    if type(fields) is not dict:
        raise Unusual
    # Only what is given is read: a usual body has few of the fields, and the tuple fills in its defaults by itself.
    found: dict[str, Any] = {"tenant": tenant, "by": by}
    for field, value in fields.items():
        own, reader = READ[field]
        if value is not None or field not in NULLABLE:
            found[own] = reader(value)
    if "due_at" in found and "delay_ms" in found:
        raise Unusual
    check_payload(found["kind"], fields["payload"])
    if "id" not in found:
        found["id"] = name()
    if "deadline" in found:
        found["deadline_at"], found["deadline_ms"] = found.pop("deadline")
    return NewTask(**found)


def _exactly(kinds: Collection[type], value: Any) -> Any:
    # Of a subclass the model may think otherwise.
    if type(value) not in kinds:
        raise Unusual
    return value


def _named(value: Any, pattern: re.Pattern[str] = NAME) -> str:
    text: str = _exactly(TEXT, value)
    if not pattern.fullmatch(text):
        raise Unusual
    return text


def _of(kinds: Collection[type], read: Callable[[Any], Any]) -> Callable[[Any], Any]:
    """A reader of values of exactly these types."""
    return lambda value: read(_exactly(kinds, value))


# By type too: 1, 1.0 and True are equal, a text and one of a subclass are, and not all of them fit.
_kept = lru_cache(maxsize=1024, typed=True)


def _payload(value: Any) -> str:
    for name in _exactly(OBJECT, value):
        _exactly(TEXT, name)
    text = dump_json(value)
    short = text.isascii() and len(text) <= MAX_PAYLOAD_BYTES
    if not short and len(text.encode()) > MAX_PAYLOAD_BYTES:
        raise Unusual
    # It nests no deeper than it has brackets, those in texts among them.
    if text.count("{") + text.count("[") > MAX_DEPTH and deeper_than(MAX_DEPTH, value):
        raise Unusual
    return text


def _retry(value: Any) -> RetryPolicy:
    fields = _exactly(OBJECT, value).items()
    return _policy(tuple([(name, type(one), _exactly(SIMPLE, one)) for name, one in fields]))


@lru_cache(maxsize=1024)
def _policy(fields: tuple[tuple[str, type, Any], ...]) -> RetryPolicy:
    return Retry.model_validate({name: value for name, _, value in fields}).policy()


DURATION = _kept(_of(TIME, parse_duration))
READ: dict[str, tuple[str, Callable[[Any], Any]]] = {
    "id": ("id", lambda value: _named(value, ID)),
    "queue": ("queue", _kept(lambda value: open_queue(_named(value)))),
    "kind": ("kind", _kept(lambda value: open_kind(_named(value)))),
    "payload": ("payload", _payload),
    "due_at": ("due_at", _of(INSTANT, parse_instant)),
    "delay": ("delay_ms", DURATION),
    "retry": ("retry", _retry),
    "deadline": ("deadline", _of(DEADLINE, parse_deadline)),
    "on_duplicate": ("on_duplicate", _of(TEXT, OnDuplicate)),
    "max_wait": ("max_wait_ms", DURATION),
    "notify_done": ("notify", lambda value: NotifyDone.model_validate(value).text()),
}
"""Each field's name in a NewTask, and its reader; a field that is not here leaves its task to the model."""
NULLABLE = frozenset({"due_at", "delay", "deadline", "notify_done"})
"""Fields that may be null, which is the same as not to give them."""


class Asked(list[NewTask]):
    """Tasks of a batch, shown by their number: the router writes a route's arguments into a log that is off."""

    def __repr__(self) -> str:
        return f"{len(self)} tasks"


def _asked(value: Any, by_the_model: Callable[[Any], AddTask]) -> NewTask:
    return usual(value, by=HTTP, name=UNNAMED) or by_the_model(value).task(name=UNNAMED)


def _asked_many(value: Any, by_the_model: Callable[[Any], AddBatch]) -> list[NewTask]:
    return Asked(_read_batch(value, DEFAULT_TENANT, HTTP, UNNAMED) or by_the_model(value).new_tasks(name=UNNAMED))


# To a route the body is what was read of it; to the router and to the API's document it is the model.
if TYPE_CHECKING:
    AskedTask: TypeAlias = NewTask
    AskedBatch: TypeAlias = list[NewTask]
else:
    AskedTask = Annotated[AddTask, WrapValidator(_asked)]
    AskedBatch = Annotated[AddBatch, WrapValidator(_asked_many)]


def owned(task: NewTask, tenant: str, name: Callable[[], str]) -> NewTask:
    """A task of such a body as its tenant's, with an id of `name` where none was given."""
    return task if task.id and tenant == task.tenant else task._replace(id=task.id or name(), tenant=tenant)
