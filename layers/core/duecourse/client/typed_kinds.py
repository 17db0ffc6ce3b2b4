"""Typed kinds: tasks whose payload and result have types, checked where one is added and where it runs."""

from collections.abc import Awaitable, Callable, Coroutine, Iterator
from contextlib import contextmanager
from dataclasses import replace
from functools import cached_property, update_wrapper
from typing import TYPE_CHECKING, Any, Generic, TypeVar, Unpack, cast, overload

from duecourse.base.json_text import Json, dump_json
from duecourse.errors import FieldError, InvalidInput, TaskCancelled, TaskDead
from duecourse.ledger.task import DEFAULT_QUEUE, AddResult, Again, Done, Drop, Outcome, Retry, Span, Status, Task
from duecourse.task_handlers import TaskHandler, is_async, task_handler

if TYPE_CHECKING:
    from pydantic import TypeAdapter

    from duecourse.client.async_client import AsyncClient
    from duecourse.client.client import Client
    from duecourse.client.typed_dicts import KindFields

# The types of a typed kind: those of its payload and its result, as JSON and back, by pydantic.

In = TypeVar("In")
Out = TypeVar("Out")
T = TypeVar("T")


class TypedJson(Generic[T]):
    """A type as JSON; `what` names it in errors. pydantic is loaded at the first use."""

    def __init__(self, what: str, kind: Any) -> None:
        self._what = what
        self._kind = kind

    @cached_property
    def _adapter(self) -> "TypeAdapter[T]":
        from pydantic import TypeAdapter

        return TypeAdapter(self._kind)

    def read(self, text: str) -> T:
        """The value in JSON text. Raises InvalidInput, naming every wrong field."""
        with self._naming():
            return self._adapter.validate_json(text)

    def write(self, value: Any) -> Json:
        """The value as JSON has it, from which `read` makes it again. Raises InvalidInput, as `read` would."""
        with self._naming():
            written = self._adapter.dump_python(self._adapter.validate_python(value), mode="json", by_alias=True)
            self._adapter.validate_json(dump_json(written))
        return written

    @contextmanager
    def _naming(self) -> Iterator[None]:
        from pydantic import ValidationError

        from duecourse.api.fields import field_errors

        try:
            yield
        except ValidationError as error:
            found = field_errors(error.errors(include_url=False, include_input=False))
            raise InvalidInput([FieldError(self._path(one.field), one.problem) for one in found]) from None
        except (ValueError, TypeError) as error:
            raise InvalidInput([FieldError(self._what, f"must be JSON: {error}")]) from None

    def _path(self, field: str) -> str:
        return self._what if field == "body" else f"{self._what}.{field}"


class KindTypes(Generic[In, Out]):
    """The shapes of one kind: of its payload and of its result."""

    def __init__(self, payload: Any, result: Any) -> None:
        self.payload: TypedJson[In] = TypedJson("payload", payload)
        self.result: TypedJson[Out] = TypedJson("result", result)

    def typed(self, task: Task) -> Task[In]:
        """The task, its payload as a value of the kind's type. Raises InvalidInput where it does not fit."""
        typed: Task[In] = replace(task, model=self.payload.read(dump_json(task.payload)))
        return typed

    def outcome(self, returned: Any) -> Outcome:
        """Outcome of a handler that returned a result or an outcome; a result that does not fit is a Drop."""
        if isinstance(returned, Again | Retry | Drop):
            return returned
        try:
            return Done(self.result.write(returned.result if isinstance(returned, Done) else returned))
        except InvalidInput as error:
            return Drop(str(error))

    def result_of(self, ended: Task) -> Out:
        """Result of a task that has ended. Raises TaskDead with its error, TaskCancelled, and InvalidInput."""
        if ended.status is Status.DEAD:
            raise TaskDead(f"Task {ended.id} is dead: {ended.error}")
        if ended.status is not Status.DONE:
            raise TaskCancelled
        return self.result.read(dump_json(ended.result))


# Kinds: the name, queue and types of tasks, with the client's operations and the handler of them.


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
        self.shapes: KindTypes[In, Out] = KindTypes(payload, result)
        self._chosen: Client | None = None

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.name!r})"

    @overload
    def on(self, client: "Client") -> "Kind[In, Out]": ...
    @overload
    def on(self, client: "AsyncClient") -> "AsyncKind[In, Out]": ...
    def on(self, client: "Client | AsyncClient") -> "Kind[In, Out] | AsyncKind[In, Out]":
        """The same kind by this client; by an AsyncClient, its verbs are awaited."""
        from duecourse.client.client import Client

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

    def handler(
        self, function: Callable[[Task[In]], Out | Outcome | Coroutine[Any, Any, Out | Outcome | None] | None]
    ) -> TaskHandler:
        """Make `function` a Lambda handler for tasks of this kind, as `task_handler` does.

        The function gets a task with a payload of the kind's type. It returns a result, or an outcome. A payload or a
        result that does not fit makes the task dead, with the reason: further attempts would find the same. The
        function may be async.
        """

        def run(task: Task) -> Outcome:
            try:
                typed = self.shapes.typed(task)
            except InvalidInput as error:
                return Drop(str(error))
            return self.shapes.outcome(function(typed))

        async def run_async(task: Task) -> Outcome:
            try:
                typed = self.shapes.typed(task)
            except InvalidInput as error:
                return Drop(str(error))
            return self.shapes.outcome(await cast(Awaitable[Any], function(typed)))

        made: Any = run_async if is_async(function) else run
        update_wrapper(made, function)
        return task_handler(kind=self.name)(made)

    @property
    def _client(self) -> "Client":
        from duecourse.client.client import Client  # a function that only handles tasks does without

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
