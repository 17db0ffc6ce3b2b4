"""Tasks of the usual shape, read without the model, which gets all that is unusual or wrong and names every error.

This module makes no rule. The functions and patterns of the model's fields judge names, times and payloads, and their
models judge retries and notifications. Constants are those of the model's own fields.
"""

import re
from collections.abc import Callable
from datetime import datetime, timedelta
from functools import cache, lru_cache
from typing import Any, NamedTuple, Self

from pydantic import GetCoreSchemaHandler, ValidationError
from pydantic_core.core_schema import CoreSchema, no_info_wrap_validator_function

from duecourse.domain.reserved import open_kind, open_queue
from duecourse.domain.task import (
    DEFAULT_TENANT,
    ID_PATTERN,
    MAX_DEPTH,
    MAX_PAYLOAD_BYTES,
    NAME_PATTERN,
    NewTask,
    OnDuplicate,
    RetryPolicy,
    deeper_than,
    dump_json,
    new_id,
)
from duecourse.domain.times import parse_duration, parse_instant
from duecourse.wire.http.batch import MAX_BATCH, AddBatch
from duecourse.wire.http.fields import Deadline, parse_deadline, read
from duecourse.wire.http.kinds import check_payload
from duecourse.wire.http.notify import NotifyDone
from duecourse.wire.http.retry import Retry
from duecourse.wire.http.tasks import AddTask

ID, NAME = re.compile(ID_PATTERN), re.compile(NAME_PATTERN)
READ = frozenset(
    "id queue kind payload due_at delay retry deadline on_duplicate max_wait notify_done".split()  # noqa: SIM905
)
"""The fields that are read here; a task that has another is left to the model, which knows it, or does not."""
SECONDS = frozenset({int, float, timedelta})
"""Usual types of a duration, besides text."""
SIMPLE = frozenset({str, int, float, bool})
MODES = {str(mode): mode for mode in OnDuplicate}
NOT_GIVEN = Deadline()
HTTP = "http"
"""Source of the tasks in the bodies below."""
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
    tasks = _usual_batch(batch, tenant, by)
    return read(AddBatch, batch).new_tasks(tenant) if tasks is None else tasks


def _usual_batch(batch: Any, tenant: str, by: str, name: Callable[[], str] = new_id) -> list[NewTask] | None:
    """The tasks of a batch of the usual shape; None where the model is to judge all of it."""
    tasks: Any = batch["tasks"] if type(batch) is dict and batch.keys() == {"tasks"} else None
    if type(tasks) not in (list, tuple) or not 0 < len(tasks) <= MAX_BATCH:
        return None
    try:
        return [
            usual(fields, tenant, by, name) or AddTask.model_validate(fields).task(tenant, name) for fields in tasks
        ]
    except ValidationError:
        return None


def usual(fields: Any, tenant: str = DEFAULT_TENANT, by: str = "", name: Callable[[], str] = new_id) -> NewTask | None:
    """The task where its fields are of the usual shape, as the model would make it; else None, wrong or not."""
    try:
        return _usual(fields, tenant, by, name)
    except (ValueError, TypeError, KeyError, RecursionError):
        return None


def _usual(fields: Any, tenant: str, by: str, name: Callable[[], str]) -> NewTask:
    known = _constants()
    if type(fields) is not dict or not fields.keys() <= known.names:
        raise Unusual
    given = fields.get
    kind, due_at, delay = _kind(_text(fields["kind"])), given("due_at"), given("delay")
    if due_at is not None and delay is not None:
        raise Unusual
    payload, deadline, notify = _payload(kind, fields["payload"]), given("deadline"), given("notify_done")
    until = NOT_GIVEN if deadline is None else _deadline(deadline)
    return NewTask(
        id=_id(_text(fields["id"])) if "id" in fields else name(),
        queue=_queue(_text(fields["queue"])) if "queue" in fields else known.queue,
        tenant=tenant,
        by=by,
        kind=kind,
        payload=payload,
        due_at=None if due_at is None else _instant(due_at),
        delay_ms=0 if delay is None else _duration(delay),
        deadline_at=until.at,
        deadline_ms=until.after_ms,
        retry=_retry(fields["retry"]) if "retry" in fields else known.retry,
        on_duplicate=MODES[_text(fields["on_duplicate"])] if "on_duplicate" in fields else known.on_duplicate,
        max_wait_ms=_duration(fields["max_wait"]) if "max_wait" in fields else known.max_wait_ms,
        notify="" if notify is None else NotifyDone.model_validate(notify).text(),
    )


class _Constants(NamedTuple):
    """Defaults of the model."""

    names: frozenset[str]
    queue: str
    retry: RetryPolicy
    on_duplicate: OnDuplicate
    max_wait_ms: int


@cache
def _constants() -> _Constants:
    fields = AddTask.model_fields
    return _Constants(
        names=READ & fields.keys(),
        queue=fields["queue"].default,
        retry=Retry().policy(),
        on_duplicate=fields["on_duplicate"].default,
        max_wait_ms=parse_duration(fields["max_wait"].default),
    )


def _text(value: Any) -> str:
    # Of a subclass the model may think otherwise, and in the caches below it could not be told from its text.
    if type(value) is not str:
        raise Unusual
    return value


def _id(value: str) -> str:
    if not ID.fullmatch(value):
        raise Unusual
    return value


@lru_cache(maxsize=1024)
def _kind(value: str) -> str:
    if not NAME.fullmatch(value):
        raise Unusual
    return open_kind(value)


@lru_cache(maxsize=1024)
def _queue(value: str) -> str:
    if not NAME.fullmatch(value):
        raise Unusual
    return open_queue(value)


def _payload(kind: str, payload: Any) -> str:
    if type(payload) is not dict:
        raise Unusual
    for name in payload:
        _text(name)
    text = dump_json(payload)
    short = text.isascii() and len(text) <= MAX_PAYLOAD_BYTES
    if not short and len(text.encode()) > MAX_PAYLOAD_BYTES:
        raise Unusual
    # It nests no deeper than it has brackets, those in texts among them.
    if text.count("{") + text.count("[") > MAX_DEPTH and deeper_than(MAX_DEPTH, payload):
        raise Unusual
    check_payload(kind, payload)
    return text


def _instant(value: Any) -> int:
    if type(value) not in (str, datetime):
        raise Unusual
    return parse_instant(value)


def _duration(value: Any) -> int:
    if type(value) is str:
        return _duration_of(value)
    if type(value) not in SECONDS:
        raise Unusual
    return parse_duration(value)


@lru_cache(maxsize=1024)
def _duration_of(text: str) -> int:
    return parse_duration(text)


def _deadline(value: Any) -> Deadline:
    if type(value) not in SECONDS and type(value) not in (str, datetime):
        raise Unusual
    return parse_deadline(value)


def _retry(given: Any) -> RetryPolicy:
    if type(given) is not dict or not all(type(value) in SIMPLE for value in given.values()):
        raise Unusual
    # With their types, for 1, 1.0 and True are equal and not all of them fit a field.
    return _retry_of(tuple((name, type(value), value) for name, value in given.items()))


@lru_cache(maxsize=1024)
def _retry_of(fields: tuple[tuple[str, type, Any], ...]) -> RetryPolicy:
    return Retry.model_validate({name: value for name, _, value in fields}).policy()


class AskedTask:
    """The body of POST /tasks, read: to the router and to the API's document it is an AddTask."""

    __slots__ = ("_task",)

    def __init__(self, task: NewTask) -> None:
        self._task = task

    def task(self, tenant: str, name: Callable[[], str]) -> NewTask:
        """The task asked for, with an id of `name` where none was given."""
        return _owned(self._task, tenant, name)

    @classmethod
    def __get_pydantic_core_schema__(cls, _source: Any, handler: GetCoreSchemaHandler) -> CoreSchema:
        return no_info_wrap_validator_function(cls._read, handler.generate_schema(AddTask))

    @classmethod
    def _read(cls, value: Any, by_the_model: Callable[[Any], AddTask]) -> Self:
        return cls(usual(value, by=HTTP, name=UNNAMED) or by_the_model(value).task(name=UNNAMED))


class AskedBatch:
    """The body of POST /tasks/batch, read: to the router and to the API's document it is an AddBatch."""

    __slots__ = ("_tasks",)

    def __init__(self, tasks: list[NewTask]) -> None:
        self._tasks = tasks

    def new_tasks(self, tenant: str, name: Callable[[], str]) -> list[NewTask]:
        """The tasks asked for, with ids of `name` where none were given."""
        return [_owned(task, tenant, name) for task in self._tasks]

    @classmethod
    def __get_pydantic_core_schema__(cls, _source: Any, handler: GetCoreSchemaHandler) -> CoreSchema:
        return no_info_wrap_validator_function(cls._read, handler.generate_schema(AddBatch))

    @classmethod
    def _read(cls, value: Any, by_the_model: Callable[[Any], AddBatch]) -> Self:
        tasks = _usual_batch(value, DEFAULT_TENANT, HTTP, UNNAMED)
        return cls(by_the_model(value).new_tasks(name=UNNAMED) if tasks is None else tasks)


def _owned(task: NewTask, tenant: str, name: Callable[[], str]) -> NewTask:
    return task if task.id and tenant == task.tenant else task._replace(id=task.id or name(), tenant=tenant)
