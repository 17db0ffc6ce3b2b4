"""The event by which the engine hands tasks to a function or a broker, built and read without pydantic.

A user's own function reads it before anything else: importing pydantic alone would cost it 68 ms of each cold start.
"""

import json
from collections.abc import Iterable, Mapping
from typing import Any

from duecourse.domain.task import Json, RetryPolicy, Status, Task, dump_json
from duecourse.errors import FieldError, InvalidInput

SOURCE = "duecourse"
VERSION = "1"
NUMBER, TEXT, TABLE = int, str, Mapping


def tasks_event(tasks: Iterable[Task]) -> dict[str, Json]:
    """The event that carries leased tasks."""
    return {"source": SOURCE, "version": VERSION, "tasks": [encode_task(task) for task in tasks]}


def encode_task(task: Task) -> dict[str, Json]:
    """One leased task as the event carries it; `retry` and `group` are what its worker needs to settle it."""
    return _common(task) | {"lease": {"token": task.token, "expires_at": task.lease_expires_at}}


def message_body(task: Task) -> str:
    """A task that a broker is to own: the same event for it alone, its fence and deadline in place of a lease.

    ASCII, for not every broker takes every character.
    """
    entry = _common(task) | {"deadline_at": task.deadline_at, "fence": task.fence}
    event = {"source": SOURCE, "version": VERSION, "tasks": [entry]}
    return json.dumps(event, separators=(",", ":"))


def _common(task: Task) -> dict[str, Json]:
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
    task = _decode(entries[0])._replace(deadline_at=entries[0].get("deadline_at") or 0)
    return task._replace(token=f"{entries[0].take('fence', NUMBER)}.")


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
    state = entry.get("state")
    return Task(
        id=entry.take("id", TEXT),
        queue=entry.take("queue", TEXT),
        tenant=entry.take("tenant", TEXT),
        kind=entry.take("kind", TEXT),
        group=entry.get("group") or "",
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
        log=(),
    )


def _policy(entry: "_Reader") -> RetryPolicy:
    given = entry.get("retry") or {}
    known = isinstance(given, Mapping) and given.keys() <= set(RetryPolicy._fields)
    _check(known, f"{entry.path}.retry", f"may hold {', '.join(RetryPolicy._fields)}")
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

    def get(self, field: str) -> Any:
        return self._table.get(field)

    def take(self, field: str, kind: type) -> Any:
        path = f"{self.path}.{field}"
        _check(field in self._table, path, "is required")
        _check(isinstance(self._table[field], kind), path, f"must be {NAMES.get(kind, 'given')}")
        return self._table[field]


NAMES: dict[type, str] = {NUMBER: "a whole number", TEXT: "text", TABLE: "an object"}


def _check(fits: bool, field: str, problem: str) -> None:
    if not fits:
        raise InvalidInput([FieldError(field, problem)])
