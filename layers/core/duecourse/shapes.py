"""Shapes of a typed kind: the types of its payload and its result, as JSON and back, by pydantic."""

from collections.abc import Iterator
from contextlib import contextmanager
from functools import cached_property
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from duecourse.domain.outcomes import Again, Done, Drop, Outcome, Retry
from duecourse.domain.task import Json, Status, Task, dump_json
from duecourse.domain.values import replaced
from duecourse.errors import FieldError, InvalidInput, TaskCancelled, TaskDead

if TYPE_CHECKING:
    from pydantic import TypeAdapter

In = TypeVar("In")
Out = TypeVar("Out")
T = TypeVar("T")


class Shape(Generic[T]):
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

        from duecourse.wire.http.fields import field_errors

        try:
            yield
        except ValidationError as error:
            found = field_errors(error.errors(include_url=False, include_input=False))
            raise InvalidInput([FieldError(self._path(one.field), one.problem) for one in found]) from None
        except (ValueError, TypeError) as error:
            raise InvalidInput([FieldError(self._what, f"must be JSON: {error}")]) from None

    def _path(self, field: str) -> str:
        return self._what if field == "body" else f"{self._what}.{field}"


class Shapes(Generic[In, Out]):
    """The shapes of one kind: of its payload and of its result."""

    def __init__(self, payload: Any, result: Any) -> None:
        self.payload: Shape[In] = Shape("payload", payload)
        self.result: Shape[Out] = Shape("result", result)

    def typed(self, task: Task) -> Task[In]:
        """The task, its payload as a value of the kind's type. Raises InvalidInput where it does not fit."""
        typed: Task[In] = replaced(task, model=self.payload.read(dump_json(task.payload)))
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
