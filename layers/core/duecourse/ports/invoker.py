"""Contract of invocations of functions."""

from collections.abc import Callable
from typing import Protocol, TypeAlias

from duecourse.domain.task import Json

Send: TypeAlias = Callable[[str, Json], None]
"""`Invoker.send`, for what needs no more of it."""


class Invoker(Protocol):
    """The functions' service."""

    def prepare(self) -> None:
        """Be ready to invoke without delay. Raises InvocationRejected."""

    def invoke(self, function: str, event: Json) -> Json:
        """Run `function` and wait for its answer. Raises InvocationRejected, also where the function itself failed."""

    def send(self, function: str, event: Json) -> None:
        """Have `function` run later, without its answer. Raises InvocationRejected."""
