"""The event by which the engine hands tasks to a function or a broker, built and read without pydantic.

A user's own function reads it before anything else: importing pydantic alone would cost it 68 ms of each cold start.
"""

import json
import math
from collections.abc import Iterable, Mapping
from typing import Any

from duecourse.domain.task import Json, RetryPolicy, Status, Task, dump_json
from duecourse.errors import FieldError, InvalidInput

SOURCE = "duecourse"
VERSION = "1"
NUMBER, TEXT, TABLE = int, str, Mapping
NAMES: dict[type, str] = {NUMBER: "a whole number", TEXT: "text", TABLE: "an object", object: "JSON"}


def tasks_event(tasks: Iterable[Task]) -> dict[str, Json]:
    """The event that carries leased tasks."""
    return _event(_encode(task, lease={"token": task.token, "expires_at": task.lease_expires_at}) for task in tasks)


def message_body(task: Task) -> str:
    """A task that a broker is to own: the same event for it alone, its fence and deadline in place of a lease.

    ASCII, for not every broker takes every character.
    """
    entry = _encode(task, deadline_at=task.deadline_at, fence=task.fence)
    return json.dumps(_event([entry]), separators=(",", ":"))


def _event(entries: Iterable[Json]) -> dict[str, Json]:
    return {"source": SOURCE, "version": VERSION, "tasks": list(entries)}


def _encode(task: Task, **rest: Json) -> dict[str, Json]:
    """A task as both carry it; `retry` and `group` are what its worker needs to settle it."""
    return {
        "id": task.id,
        "queue": task.queue,
        "tenant": task.tenant,
        "kind": task.kind,
        "group": task.group,
        "payload": task.payload,
        "state": task.state,
        "run": task.run,
        "attempt": task.attempt,
        "due_at": task.due_at,
        "retry": task.retry._asdict(),
        "idempotency_key": task.idempotency_key,
        **rest,
    }


def decode_tasks(event: Json) -> list[Task]:
    """The leased tasks of an event. Raises InvalidInput, naming the field, where it is not one of ours."""
    return [_leased(entry) for entry in _entries(event)]


def decode_message(body: bytes) -> Task:
    """The task of a broker's message; its token is its fence alone, with which nothing can be settled or saved.

    Raises InvalidInput, naming the field, where the message is not one of ours.
    """
    try:
        event = json.loads(body)
    except (ValueError, RecursionError):
        raise InvalidInput([FieldError("body", "must be JSON")]) from None
    entries = _entries(event)
    _check(len(entries) == 1, "tasks", "must hold one task")
    [entry] = entries
    fence, deadline_at = entry.take("fence", NUMBER), entry.get("deadline_at", NUMBER, 0)
    return _decode(entry)._replace(token=f"{fence}.", deadline_at=deadline_at)


def _entries(event: Json) -> list["_Reader"]:
    _check(isinstance(event, Mapping), "event", "must be an object")
    _check(event.get("source") == SOURCE, "source", f"must be {SOURCE}")
    _check(event.get("version") == VERSION, "version", f"must be {VERSION}")
    _check(isinstance(event.get("tasks"), list), "tasks", "must be a list")
    return [_Reader(entry, f"tasks.{index}") for index, entry in enumerate(event["tasks"])]


def _leased(entry: "_Reader") -> Task:
    lease = _Reader(entry.take("lease", TABLE), f"{entry.path}.lease")
    token, expires_at = lease.take("token", TEXT), lease.take("expires_at", NUMBER)
    return _decode(entry)._replace(token=token, lease_expires_at=expires_at)


def _decode(entry: "_Reader") -> Task:
    state = entry.get("state", object, None)
    return Task(
        id=entry.take("id", TEXT),
        queue=entry.take("queue", TEXT),
        tenant=entry.take("tenant", TEXT),
        kind=entry.take("kind", TEXT),
        group=entry.get("group", TEXT, ""),
        status=Status.LEASED,
        payload_json=dump_json(entry.take("payload", object)),
        state_json="" if state is None else dump_json(state),
        result_json="",
        due_at=entry.take("due_at", NUMBER),
        created_at=0,
        deadline_at=0,
        generation=_generation(entry),
        run=entry.take("run", NUMBER),
        attempt=entry.take("attempt", NUMBER),
        retry=_policy(entry),
        token="",
        claimed_at=0,
        history=(),
    )


def _policy(entry: "_Reader") -> RetryPolicy:
    path, given = f"{entry.path}.retry", entry.get("retry", TABLE, {})
    _check(given.keys() <= set(RetryPolicy._fields), path, f"may hold {', '.join(RetryPolicy._fields)}")
    for field, value in given.items():
        fits = isinstance(value, int | float) and 0 <= value < math.inf
        _check(fits, f"{path}.{field}", "must be a number from 0 on, or true or false")
    return RetryPolicy(**given)


def _generation(entry: "_Reader") -> int:
    key = entry.take("idempotency_key", TEXT)
    generation = key.rpartition(":")[2]
    _check(generation.isdecimal(), f"{entry.path}.idempotency_key", "must be <id>:<generation>")
    return int(generation)


class _Reader:
    """One table of an event, and where in it that stands."""

    def __init__(self, table: Json, path: str) -> None:
        _check(isinstance(table, Mapping), path, "must be an object")
        self._table = table
        self.path = path

    def get(self, field: str, kind: type, default: Any) -> Any:
        """What stands there, `default` for null and for nothing."""
        return default if self._table.get(field) is None else self.take(field, kind)

    def take(self, field: str, kind: type) -> Any:
        path = f"{self.path}.{field}"
        _check(field in self._table, path, "is required")
        _check(isinstance(self._table[field], kind), path, f"must be {NAMES[kind]}")
        return self._table[field]


def _check(fits: bool, field: str, problem: str) -> None:
    if not fits:
        raise InvalidInput([FieldError(field, problem)])
