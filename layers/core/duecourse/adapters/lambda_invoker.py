"""Lambda as the functions' service."""

import json
from functools import cached_property
from typing import TYPE_CHECKING, Any

from duecourse.adapters.aws import make_client
from duecourse.domain.task import Json, dump_json
from duecourse.errors import InvocationRefused

if TYPE_CHECKING:
    from mypy_boto3_lambda import LambdaClient


class LambdaInvoker:
    """An Invoker by the Invoke API; nothing is sent twice.

    `timeout_ms` is how long it waits for an answer. A connection can die without a word: what has not answered when it
    should have is refused, or its caller would wait for an answer that never comes.
    """

    def __init__(self, timeout_ms: int) -> None:
        self._timeout_s = timeout_ms / 1000

    @cached_property
    def _client(self) -> "LambdaClient":
        made: LambdaClient = make_client("lambda", attempts=1, read_timeout_s=self._timeout_s)
        return made

    def prepare(self) -> None:
        """Make the client now: that takes longer than a ring may be late. Raises InvocationRefused."""
        from botocore.exceptions import BotoCoreError

        try:
            _ = self._client
        except BotoCoreError as error:
            raise InvocationRefused(f"there is no client of Lambda: {error}") from error

    def invoke(self, function: str, event: Json) -> Json:
        """Run `function` and wait for its answer. Raises InvocationRefused, also where the function itself failed."""
        response, body = self._call(function, "RequestResponse", event)
        answer = _decoded(function, body)
        if "FunctionError" in response:
            raise InvocationRefused(f"{function} failed: {_reason(answer)}")
        return answer

    def send(self, function: str, event: Json) -> None:
        """Have `function` run later, without its answer. Raises InvocationRefused."""
        response, _ = self._call(function, "Event", event)
        if response["StatusCode"] != 202:
            raise InvocationRefused(f"{function} was not accepted: status {response['StatusCode']}")

    def _call(self, function: str, mode: Any, event: Json) -> tuple[Any, bytes]:
        from botocore.exceptions import BotoCoreError, ClientError

        try:
            response = self._client.invoke(
                FunctionName=function, InvocationType=mode, Payload=dump_json(event).encode()
            )
            return response, response["Payload"].read()
        except (BotoCoreError, ClientError) as error:
            raise InvocationRefused(f"{function} was not invoked: {error}") from error


def _decoded(function: str, body: bytes) -> Json:
    try:
        return json.loads(body) if body else None
    except ValueError as error:
        raise InvocationRefused(f"{function} answered something that is not JSON") from error


def _reason(answer: Json) -> str:
    if not isinstance(answer, dict):
        return str(answer)[:400]
    return f"{answer.get('errorType', 'error')}: {answer.get('errorMessage', '')}"[:400]
