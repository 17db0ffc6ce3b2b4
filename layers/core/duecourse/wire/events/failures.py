"""Lambda's records of asynchronous invocations that failed, as a queue brings them; read without pydantic."""

import json
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from duecourse.domain.task import Task
from duecourse.errors import FieldError, InvalidInput
from duecourse.wire.events.invocation import decode_tasks
from duecourse.wire.events.messages import Received

NEVER_INVOKED = frozenset({"EventAgeExceeded"})
"""The conditions under which the function never saw the event."""


class Failure(NamedTuple):
    """An invocation that failed: the tasks that it carried, and why; `arrived` where the function was invoked."""

    tasks: Sequence[Task]
    error: str
    arrived: bool


def read_failure(message: Received) -> Failure:
    """One record (version 1.0 of Lambda's). Raises InvalidInput where it is none, or not of an event of ours."""
    try:
        record = json.loads(message.body)
        context = record["requestContext"]
        condition, function = str(context["condition"]), str(context["functionArn"])
        payload = record["requestPayload"]
    except (ValueError, RecursionError, LookupError, TypeError):
        raise InvalidInput([FieldError("body", "must be Lambda's record of a failed invocation")]) from None
    error = f"{_name(function)}: {condition}{_reason(record)}"
    return Failure(decode_tasks(payload), error, condition not in NEVER_INVOKED)


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
