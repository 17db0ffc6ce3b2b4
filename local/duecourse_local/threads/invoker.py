"""The functions' service for the engine and the bridge where all of them are one process."""

import asyncio
import json
from collections.abc import Coroutine
from typing import Any, TypeVar

from duecourse.domain.task import Json, dump_json
from duecourse.errors import InvocationRejected

from ..aws.functions import Functions
from ..aws.invocation import Invocation, LambdaError

T = TypeVar("T")


class DirectInvoker:
    """An Invoker (duecourse.ports.invoker) on the functions of the event loop that made this; for other threads."""

    def __init__(self, functions: Functions) -> None:
        self._functions = functions
        self._loop = asyncio.get_running_loop()

    def prepare(self) -> None:
        """The functions are in this process."""

    def invoke(self, function: str, event: Json) -> Json:
        """Run `function` and wait for its answer. Raises InvocationRejected, also where the function itself failed."""
        answer = self._do(function, self._functions.invoke(function, _invocation(event)))
        if answer.error:
            raise InvocationRejected(f"{function} failed: {answer.payload.decode(errors='replace')[:400]}")
        return json.loads(answer.payload)

    def send(self, function: str, event: Json) -> None:
        """Have `function` run later, without its answer. Raises InvocationRejected."""
        self._do(function, self._send(function, _invocation(event)))

    async def _send(self, function: str, invocation: Invocation) -> None:
        self._functions.send(function, invocation)

    def _do(self, function: str, work: Coroutine[Any, Any, T]) -> T:
        try:
            return asyncio.run_coroutine_threadsafe(work, self._loop).result()
        except LambdaError as refused:
            raise InvocationRejected(f"{function} was not invoked: {refused}") from refused


def _invocation(event: Json) -> Invocation:
    return Invocation(dump_json(event).encode())
