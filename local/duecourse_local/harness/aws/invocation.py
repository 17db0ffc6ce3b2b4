"""One invocation of a function: its payload, its answer, the errors that Lambda itself answers, and its log."""

import json
import math
import secrets
import signal
import time
import uuid
from dataclasses import dataclass, field
from typing import NamedTuple

from ...errors import HarnessError

MB = 1024 * 1024

MAX_SYNC_BYTES = 6 * MB

MAX_ASYNC_BYTES = MB

TAIL_BYTES = 4096
"""Size of the end of its log that an invocation hands back, in bytes."""

UNHANDLED = "Unhandled"


def _trace() -> str:
    return f"Root=1-{int(time.time()):08x}-{secrets.token_hex(12)};Parent={secrets.token_hex(8)};Sampled=0"


@dataclass
class Invocation:
    """A request to a function: JSON payload, client context as JSON text, and the log it leaves behind."""

    payload: bytes
    client_context: str = ""
    trace: str = field(default_factory=_trace)
    request_id: str = field(default_factory=lambda: str(uuid.uuid4()))
    log: bytearray = field(default_factory=bytearray)

    def append_log(self, chunk: bytes) -> None:
        """Append to the log, and keep its end."""
        self.log += chunk
        del self.log[:-TAIL_BYTES]


class Answer(NamedTuple):
    """Answer of a function, or, with `error` set, its failure: both as JSON text."""

    payload: bytes
    error: str | None = None


class LambdaError(HarnessError):
    """Error that Lambda's own service answers: HTTP status, error type and message, in the service's words."""

    def __init__(self, status: int, kind: str, message: str) -> None:
        super().__init__(message)
        self.status = status
        self.kind = kind


class InitFailed(Exception):
    """The function did not get as far as its first invocation; `answer` is what its caller gets."""

    def __init__(self, answer: Answer) -> None:
        super().__init__(answer.payload)
        self.answer = answer


def stopping() -> LambdaError:
    """Error for invocations after the stop of the stack."""
    return LambdaError(500, "ServiceException", "The stack is stopping.")


class Busy(LambdaError):
    """No slot is free; `detail` names the function, the number and the setting for people.

    `throttled`: Lambda would answer the same, for the template limits the function.
    """

    def __init__(self, detail: str, *, throttled: bool) -> None:
        super().__init__(429, "TooManyRequestsException", "Rate Exceeded.")
        self.detail = detail
        self.throttled = throttled


def unhandled(kind: str, message: str) -> Answer:
    """A failure that the service itself reports."""
    return Answer(json.dumps({"errorType": kind, "errorMessage": message}).encode(), UNHANDLED)


def exited(request_id: str, code: int) -> Answer:
    """The function's process ended with `code` (negative: by that signal) in place of an answer."""
    return unhandled("Runtime.ExitError", f"RequestId: {request_id} Error: {_reason(code)}")


def _reason(code: int) -> str:
    if code == 0:
        return "Runtime exited without providing a reason"
    how = f"exit status {code}" if code > 0 else f"signal: {(signal.strsignal(-code) or str(-code)).lower()}"
    return f"Runtime exited with error: {how}"


def timed_out(request_id: str, seconds: float) -> Answer:
    """The function's time was up."""
    return unhandled("Sandbox.Timedout", f"RequestId: {request_id} Error: Task timed out after {seconds:.2f} seconds")


def oversized(length: int) -> Answer:
    """The function's answer is larger than Lambda carries."""
    text = f"Response payload size ({length} bytes) exceeded maximum allowed payload size ({MAX_SYNC_BYTES} bytes)."
    return unhandled("Function.ResponseSizeTooLarge", text)


def start_line(invocation: Invocation) -> str:
    """The line that begins an invocation's log."""
    return f"START RequestId: {invocation.request_id} Version: $LATEST"


def timeout_line(invocation: Invocation, seconds: float) -> str:
    """Line in the log of an invocation that took too long."""
    stamp = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
    return f"{stamp} {invocation.request_id} Task timed out after {seconds:.2f} seconds\n"


def report_lines(
    invocation: Invocation, answer: Answer, memory_mb: int, took_ms: float, peak: int, init_ms: float = 0
) -> str:
    """The lines that end an invocation's log; `peak` is the most memory in bytes, `init_ms` that of a cold start."""
    init = f"Init Duration: {init_ms:.2f} ms\t" if init_ms else ""
    status = f"Status: error\tError Type: {error_type(answer)}\t" if answer.error else ""
    return (
        f"END RequestId: {invocation.request_id}\n"
        f"REPORT RequestId: {invocation.request_id}\tDuration: {took_ms:.2f} ms\t"
        f"Billed Duration: {math.ceil(took_ms)} ms\tMemory Size: {memory_mb} MB\t"
        f"Max Memory Used: {math.ceil(peak / MB)} MB\t{init}{status}"
    )


def error_text(answer: Answer) -> str:
    """The type and message of a failure, for people."""
    try:
        failure = json.loads(answer.payload)
        return f"{failure['errorType']}: {failure['errorMessage']}"
    except (ValueError, LookupError, TypeError):
        return answer.payload.decode(errors="replace")


def error_type(answer: Answer) -> str:
    """The `errorType` of a failure, for the REPORT line."""
    try:
        return str(json.loads(answer.payload).get("errorType", ""))
    except (ValueError, AttributeError):
        return ""
