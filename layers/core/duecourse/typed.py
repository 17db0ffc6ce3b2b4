"""Typed kinds: tasks whose payload and result have types, checked where one is added and where it runs."""

from collections.abc import Callable
from functools import update_wrapper
from typing import TYPE_CHECKING, Any, Generic, TypeVar, Unpack, overload

from duecourse.domain.order import AddResult
from duecourse.domain.outcomes import Drop, Outcome, Span
from duecourse.domain.task import DEFAULT_QUEUE, Task
from duecourse.errors import InvalidInput
from duecourse.handler import TaskHandler, check_plain, task_handler
from duecourse.shapes import Shapes

if TYPE_CHECKING:
    from duecourse.async_client import AsyncClient
    from duecourse.client import Client
    from duecourse.client_fields import KindFields

In = TypeVar("In")
Out = TypeVar("Out")


class Kind(Generic[In, Out]):
    """A kind of tasks with a type for the payload and one for the result.

    Each is a pydantic model, or another type that `pydantic.TypeAdapter` takes; a payload's JSON is an object. Tasks
    are added by `Client.from_env()`, or by another client: `kind.on(client)`.
    """

    @overload
    def __init__(self: "Kind[In, Any]", name: str, *, payload: type[In], queue: str = ...) -> None: ...
    @overload
    def __init__(self, name: str, *, payload: type[In], result: type[Out], queue: str = ...) -> None: ...
    def __init__(self, name: str, *, payload: Any, result: Any = Any, queue: str = DEFAULT_QUEUE) -> None:
        """Declare a kind, and the queue of its tasks."""
        self.name = name
        self.queue = queue
        self.shapes: Shapes[In, Out] = Shapes(payload, result)
        self._chosen: Client | None = None

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.name!r})"

    @overload
    def on(self, client: "Client") -> "Kind[In, Out]": ...
    @overload
    def on(self, client: "AsyncClient") -> "AsyncKind[In, Out]": ...
    def on(self, client: "Client | AsyncClient") -> "Kind[In, Out] | AsyncKind[In, Out]":
        """The same kind by this client; by an AsyncClient, its verbs are awaited."""
        from duecourse.client import Client

        if not isinstance(client, Client):
            return AsyncKind(self, client)
        kind: Kind[In, Out] = Kind.__new__(Kind)
        vars(kind).update(vars(self) | {"_chosen": client})
        return kind

    def add(self, payload: In, **fields: "Unpack[KindFields]") -> AddResult:
        """Schedule a task; `fields` are those of `Client.add`. Raises InvalidInput, naming what is wrong."""
        return self._client.add(kind=self.name, payload=self.shapes.payload.write(payload), queue=self.queue, **fields)

    def get(self, id: str) -> Task[In]:
        """Return one task, with its payload. Raises InvalidInput too, where that does not fit."""
        return self.shapes.typed(self._client.get(id, self.queue))

    def wait(self, id: str, *, timeout: Span | None = None) -> Out:
        """Return the result of a task once it is done; without `timeout`, there is no limit.

        Raises TaskDead with the task's error, TaskCancelled, WaitTimedOut, and InvalidInput if the result does not fit.
        """
        return self.shapes.result_of(self._client.wait(id, self.queue, timeout=timeout))

    def handler(self, function: Callable[[Task[In]], Out | Outcome | None]) -> TaskHandler:
        """Make `function` a Lambda handler for tasks of this kind, as `task_handler` does.

        The function gets a task with a payload of the kind's type. It returns a result, or an outcome. A payload or a
        result that does not fit makes the task dead, with the reason: further attempts would find the same.
        """

        check_plain(function)

        def run(task: Task) -> Outcome:
            try:
                typed = self.shapes.typed(task)
            except InvalidInput as error:
                return Drop(str(error))
            return self.shapes.outcome(function(typed))

        update_wrapper(run, function)
        return task_handler(kind=self.name)(run)

    @property
    def _client(self) -> "Client":
        from duecourse.client import Client  # a function that only handles tasks does without

        return self._chosen or Client.from_env()


class AsyncKind(Generic[In, Out]):
    """A kind by an AsyncClient: the verbs of `Kind`, each to be awaited."""

    def __init__(self, kind: Kind[In, Out], client: "AsyncClient") -> None:
        self._kind = kind
        self._client = client

    def __repr__(self) -> str:
        return f"AsyncKind({self._kind.name!r})"

    async def add(self, payload: In, **fields: "Unpack[KindFields]") -> AddResult:
        """Schedule a task, as `Kind.add` does."""
        kind = self._kind
        written = kind.shapes.payload.write(payload)
        return await self._client.add(kind=kind.name, payload=written, queue=kind.queue, **fields)

    async def get(self, id: str) -> Task[In]:
        """Return one task, as `Kind.get` does."""
        return self._kind.shapes.typed(await self._client.get(id, self._kind.queue))

    async def wait(self, id: str, *, timeout: Span | None = None) -> Out:
        """Return the result of a task once it is done, as `Kind.wait` does."""
        return self._kind.shapes.result_of(await self._client.wait(id, self._kind.queue, timeout=timeout))
