"""Lambda's record of an asynchronous invocation that failed, read without pydantic."""

import json
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from duecourse.base.event_reader import Received
from duecourse.errors import FieldError, InvalidInput
from duecourse.ledger.task import Task
from duecourse.running.task_event import decode_tasks

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
