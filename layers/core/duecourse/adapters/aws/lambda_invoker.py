"""Lambda as the functions' service."""

import json
from functools import cached_property
from urllib.parse import quote

from urllib3 import BaseHTTPResponse
from urllib3.exceptions import HTTPError

from duecourse.adapters.aws.signed_calls import SignedCalls
from duecourse.domain.task import Json, dump_json
from duecourse.errors import InvocationRejected

PATH = "/2015-03-31/functions/{}/invocations"


class LambdaInvoker:
    """An Invoker by the Invoke API; nothing is sent twice.

    `timeout_ms` is the longest wait for an answer. A connection can die without a word: a late answer is an error, or
    its caller would wait for ever.
    """

    def __init__(self, timeout_ms: int) -> None:
        self._timeout_s = timeout_ms / 1000

    @cached_property
    def _calls(self) -> SignedCalls:
        return SignedCalls("lambda", self._timeout_s)

    def prepare(self) -> None:
        """Make the client now: that takes longer than a ring may be late. Raises InvocationRejected."""
        from botocore.exceptions import BotoCoreError

        try:
            _ = self._calls
        except BotoCoreError as error:
            raise InvocationRejected(f"no Lambda client can be created: {error}") from error

    def invoke(self, function: str, event: Json) -> Json:
        """Run `function` and wait for its answer. Raises InvocationRejected, also where the function itself failed."""
        response = self._call(function, "RequestResponse", event)
        answer = _decoded(function, response.data)
        if "X-Amz-Function-Error" in response.headers:
            raise InvocationRejected(f"{function} failed: {_reason(answer)}")
        return answer

    def send(self, function: str, event: Json) -> None:
        """Have `function` run later, without its answer. Raises InvocationRejected."""
        response = self._call(function, "Event", event)
        if response.status != 202:
            raise InvocationRejected(f"{function} was not accepted: status {response.status}")

    def _call(self, function: str, mode: str, event: Json) -> BaseHTTPResponse:
        from botocore.exceptions import BotoCoreError

        headers = {"X-Amz-Invocation-Type": mode, "Content-Type": "application/json"}
        try:
            response = self._calls.post(PATH.format(quote(function, safe="")), headers, dump_json(event).encode())
        except (BotoCoreError, HTTPError) as error:
            raise InvocationRejected(f"{function} was not invoked: {error}") from error
        if response.status >= 300:
            raise InvocationRejected(f"{function} was not invoked: {_refusal(response)}")
        return response


def _refusal(response: BaseHTTPResponse) -> str:
    """Lambda's own words: the kind of error, which may be followed by an address, and its message."""
    try:
        answer = json.loads(response.data)
        message = answer.get("Message") or answer.get("message") or ""
    except (ValueError, AttributeError):
        message = response.data[:200].decode(errors="replace")
    kind = response.headers.get("X-Amzn-ErrorType", "").partition(":")[0]
    return f"{kind or 'error'} ({response.status}) {message}".rstrip()


def _decoded(function: str, body: bytes) -> Json:
    try:
        return json.loads(body) if body else None
    except ValueError as error:
        raise InvocationRejected(f"{function} answered something that is not JSON") from error


def _reason(answer: Json) -> str:
    if not isinstance(answer, dict):
        return str(answer)[:400]
    return f"{answer.get('errorType', 'error')}: {answer.get('errorMessage', '')}"[:400]
