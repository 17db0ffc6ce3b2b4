"""Event that hands tasks to a function or a broker, the Protocols of both, and Lambda's record of a failure."""

import json
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any, NamedTuple, Protocol, TypeAlias

from duecourse.base import json_text as doubled
from duecourse.base.described_fields import Described, fields_of
from duecourse.base.event_reader import Received, check_origin
from duecourse.base.ids import ANY_ID_PATTERN, ID_PATTERN, NAME_PATTERN
from duecourse.base.json_text import Json, dump_json
from duecourse.base.times import MAX_DURATION_MS
from duecourse.base.value_classes import as_dict
from duecourse.errors import FieldError, InvalidInput
from duecourse.ledger.task import FENCE_DIGITS, MAX_PAYLOAD_BYTES, MAX_STATE_BYTES, RetryPolicy, Status, Task

# A user's own function reads this event before anything else: importing pydantic alone would cost it 68 ms of each cold
# start.

SOURCE = "duecourse"
VERSION = "1"
EXPECTED = "an event with tasks of duecourse, or messages of SQS or Amazon MQ for RabbitMQ"
TARGET = "lambda"
"""Receiver of a delivery, as the receiver itself knows it."""
MAX_NUMBER = 2**53
"""Largest integer that every JSON library carries exactly: instants, fences and generations stay far below."""
Bounds: TypeAlias = tuple[tuple[type, ...], float, float]
"""Types of a field, its lower and its upper bound."""


def _bounds(one: Described) -> Bounds:
    if one.kind is bool:
        return (bool,), False, True
    return (
        (int,) if one.kind is int else (int, float),
        one.about.low,
        MAX_DURATION_MS if one.is_time else one.about.high,
    )


POLICY: dict[str, Bounds] = {one.field: _bounds(one) for one in fields_of(RetryPolicy)}
"""Fields of a policy, and the bounds of each."""


def tasks_event(tasks: Iterable[Task]) -> dict[str, Json]:
    """The event that carries leased tasks to a function."""
    # Next: the function's handler, `_serve` (task_handlers.py), which reads it by `decode_tasks`.
    return {"source": SOURCE, "version": VERSION, "tasks": [encode_task(task) for task in tasks]}


def encode_task(task: Task) -> dict[str, Json]:
    """One leased task as the event carries it; `retry` and `group` are for settling it.

    `delivery` is True for a lease that the worker still has to begin.
    """
    lease = {"token": task.token, "expires_at": task.lease_expires_at, "delivery": bool(task.target)}
    return _common(task) | {"lease": lease}


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
        "retry": as_dict(task.retry),
        "idempotency_key": task.idempotency_key,
    }


def decode_tasks(event: Json) -> list[Task]:
    """The leased tasks of an event. Raises InvalidInput, naming the field, where it is not one of ours."""
    return [_leased(entry) for entry in _entries(check_origin(event, EXPECTED, ("source", "version", "tasks")))]


def decode_message(body: bytes) -> Task:
    """The task of a broker's message; its token is its fence alone, with which nothing can be settled or saved.

    Raises InvalidInput, naming the field, if the message is not one of ours: anyone may write to a queue.
    """
    try:
        event, twice = doubled.load(body)
    except (ValueError, RecursionError):
        raise InvalidInput([FieldError("body", "must be JSON")]) from None
    if twice:
        raise InvalidInput(twice)
    entries = _entries(event)
    _check(len(entries) == 1, "tasks", "must hold one task")
    [entry] = entries
    task = replace(_decode(entry), deadline_at=entry.number("deadline_at") if entry.get("deadline_at") else 0)
    fence = entry.number("fence")
    _check(fence < 16**FENCE_DIGITS, f"{entry.path}.fence", f"must be below {16**FENCE_DIGITS}, as every lease's is")
    return replace(task, token=f"{fence:0{FENCE_DIGITS}x}")


def _entries(event: Json) -> list["_Reader"]:
    _check(isinstance(event, Mapping), "event", "must be an object")
    _check(event.get("source") == SOURCE, "source", f"must be {SOURCE}")
    _check(event.get("version") == VERSION, "version", f"must be {VERSION}")
    _check(isinstance(event.get("tasks"), list), "tasks", "must be a list")
    return [_Reader(entry, f"tasks.{index}") for index, entry in enumerate(event["tasks"])]


def _leased(entry: "_Reader") -> Task:
    lease = _Reader(entry.take("lease", Mapping), f"{entry.path}.lease")
    token, expires_at = lease.take("token", str), lease.number("expires_at")
    target = TARGET if lease.get("delivery") is True else ""
    return replace(_decode(entry), token=token, lease_expires_at=expires_at, target=target)


def _decode(entry: "_Reader") -> Task:
    return Task(
        id=entry.name("id", ANY_ID_PATTERN),
        queue=entry.name("queue", NAME_PATTERN),
        tenant=entry.name("tenant", NAME_PATTERN),
        kind=entry.name("kind", NAME_PATTERN),
        group=entry.name("group", ID_PATTERN) if entry.get("group") else "",
        status=Status.LEASED,
        payload_json=entry.json_text("payload", MAX_PAYLOAD_BYTES),
        state_json="" if entry.get("state") is None else entry.json_text("state", MAX_STATE_BYTES),
        result_json="",
        due_at=entry.number("due_at"),
        created_at=0,
        deadline_at=0,
        generation=_generation(entry),
        run=entry.number("run"),
        attempt=entry.number("attempt"),
        retry=_policy(entry),
        token="",
        claimed_at=0,
        log=(),
    )


def _policy(entry: "_Reader") -> RetryPolicy:
    path, given = f"{entry.path}.retry", entry.get("retry") or {}
    _check(isinstance(given, Mapping) and given.keys() <= POLICY.keys(), path, f"may hold {', '.join(POLICY)}")
    for field, value in given.items():
        kinds, least, most = POLICY[field]
        _check(type(value) in kinds and least <= value <= most, f"{path}.{field}", f"must be from {least} to {most}")
    return RetryPolicy(**given)


def _generation(entry: "_Reader") -> int:
    generation = entry.take("idempotency_key", str).rpartition(":")[2]
    fits = bool(re.fullmatch("[0-9]{1,15}", generation))
    _check(fits, f"{entry.path}.idempotency_key", "must be <id>:<generation>")
    return int(generation)


class _Reader:
    """One table of an event, and its place in the event."""

    def __init__(self, table: Json, path: str) -> None:
        _check(isinstance(table, Mapping), path, "must be an object")
        self._table = table
        self.path = path

    def get(self, field: str) -> Any:
        return self._table.get(field)

    def take(self, field: str, kind: type = object) -> Any:
        path = f"{self.path}.{field}"
        _check(field in self._table, path, "is required")
        _check(isinstance(self._table[field], kind), path, "must be text" if kind is str else "must be an object")
        return self._table[field]

    def number(self, field: str) -> int:
        value = self.take(field)
        fits = type(value) is int and 0 <= value <= MAX_NUMBER
        _check(fits, f"{self.path}.{field}", "must be a whole number, 0 or more")
        return int(value)

    def name(self, field: str, pattern: str) -> str:
        name: str = self.take(field, str)
        _check(bool(re.fullmatch(pattern, name)), f"{self.path}.{field}", f"must match {pattern}")
        return name

    def json_text(self, field: str, most: int) -> str:
        """The field as the ledger keeps it."""
        value, path = self.take(field), f"{self.path}.{field}"
        try:
            text = dump_json(value)
            size = len(text.encode())
        except (ValueError, RecursionError):
            raise InvalidInput([FieldError(path, "holds what JSON cannot carry")]) from None
        _check(size <= most, path, f"must be at most {most // 1024} KiB of JSON")
        return text


def _check(fits: bool, field: str, problem: str) -> None:
    if not fits:
        raise InvalidInput([FieldError(field, problem)])


# Invocations of functions.

Send: TypeAlias = Callable[[str, Json], None]
"""`Invoker.send`, for what needs no more of it."""


class Invoker(Protocol):
    """The functions' service: `LambdaInvoker` in services/aws.py.

    A Protocol, for services lie above this room.
    """

    def prepare(self) -> None:
        """Be ready to invoke without delay. Raises InvocationRejected."""

    def invoke(self, function: str, event: Json) -> Json:
        """Run `function` and wait for its answer. Raises InvocationRejected, also where the function itself failed."""

    def send(self, function: str, event: Json) -> None:
        """Have `function` run later, without its answer. Raises InvocationRejected."""


# Publishing due tasks to a broker, which then owns them.


class BrokerMessage(NamedTuple):
    """A task for a queue: its idempotency key as the message's id, its body as JSON text of ASCII characters.

    `source` is the queue and tenant that the task is of: other sources may have the same id.
    """

    id: str
    body: str
    source: str = ""


class Publisher(Protocol):
    """A broker: `SqsPublisher` in services/aws.py, `AmqpPublisher` in services/rabbitmq.py.

    To add a broker, write a Publisher in `services/`. In `settings.py`, its scheme belongs to TARGET, to the texts that
    list the others, and to `read_targets`: `poll` takes no broker. Its maker belongs to `brokers` of `app.py` and of
    `testing/product.py`. A broker with a URL also needs its port in PORTS of `ledger/address.py`. Its URL belongs to
    the `servers` of `http` in `app.py`, which tasks may not call. In the template, change the patterns of Targets and
    DeadTarget, and add the policy. Its event is read in `base/event_reader.py`. For the local stack, change
    `environment.py`, `options.py`, `stack_parts.py`, `functions_in_process.py`, `template.py` and `aws/` of `harness/`,
    and `cli/up.py` and `cli/stack.py`. Its client library is pinned as `requirements/README.md` says, in
    `pyproject.toml` and `layers/core/requirements.txt` too, and belongs to MAY_USE of
    `tests/repository/test_architecture.py`. `docs/reference/targets.md` has its row. `running/hand_over.py` needs no
    change.
    """

    def publish(self, queue: str, messages: Sequence[BrokerMessage]) -> list[str]:
        """Put messages into `queue`; returns for each the reason why it was not confirmed, "" if it was.

        A message may be there though it was not confirmed. Raises PublishRejected where none was confirmed.
        """


# Lambda's record of an asynchronous invocation with such an event that failed.

RAN = frozenset({"Handled", "Unhandled"})
"""Function errors of invocations that took place."""
TOO_OLD = "EventAgeExceeded"
"""Condition in a record of an event that became older than its maximum age."""
THROTTLES = frozenset(
    {
        "TooManyRequestsException",
        "ReservedFunctionConcurrentInvocationLimitExceeded",
        "FunctionInvocationRateLimitExceeded",
        "ConcurrentInvocationLimitExceeded",
        "CallerRateLimitExceeded",
    }
)
"""Errors of Lambda itself, and their reasons: the function was not invoked."""


class Failure(NamedTuple):
    """A failed invocation: its tasks, and why it failed; `arrived` is False where the function never saw the event.

    `invocation` is Lambda's id of the request, which the function was given too.
    """

    tasks: Sequence[Task]
    error: str
    arrived: bool
    invocation: str


def read_failure(message: Received) -> Failure:
    """One record (version 1.0 of Lambda's). Raises InvalidInput where it is none, or not of an event of ours."""
    try:
        record = json.loads(message.body)
        context = record["requestContext"]
        condition, function = str(context["condition"]), str(context["functionArn"])
        payload = record["requestPayload"]
    except (ValueError, RecursionError, LookupError, TypeError):
        raise InvalidInput([FieldError("body", "must be Lambda's record of a failed invocation")]) from None
    name, error, arrived = _name(function), f"{condition}{_reason(record)}", _arrived(record, condition)
    text = f"{name}: {error}" if arrived else f"waited for {name}, which was busy: {error}"
    invocation = str(_field(record, "requestContext", "requestId") or "")
    return Failure(decode_tasks(payload), text, arrived, invocation)


def _arrived(record: Mapping[str, Any], condition: str) -> bool:
    """False if any field shows that the function was not invoked, since it had no room."""
    error = _field(record, "responseContext", "functionError")
    if error in RAN:  # an earlier try of an event that has become too old since is such
        return True
    throttled = {error, _field(record, "responsePayload", "errorType")} & THROTTLES
    never = _field(record, "requestContext", "approximateInvokeCount") == 0
    return not (condition == TOO_OLD or throttled or never)


def _field(record: Mapping[str, Any], part: str, name: str) -> Any:
    """A plain value of one part of a record, None where there is none."""
    found = record.get(part)
    value = found.get(name) if isinstance(found, Mapping) else None
    return value if isinstance(value, str | int) else None


def _name(arn: str) -> str:
    """The name in arn:aws:lambda:<region>:<account>:function:<name>:<version>."""
    parts = arn.split(":")
    return parts[6] if len(parts) > 6 else arn


def _reason(record: Mapping[str, Any]) -> str:
    """Error's type and message in the function's answer, if it has them."""
    answer = record.get("responsePayload")
    if not isinstance(answer, Mapping):
        return ""
    said = [str(answer[field]) for field in ("errorType", "errorMessage") if answer.get(field)]
    return f": {': '.join(said)}" if said else ""
