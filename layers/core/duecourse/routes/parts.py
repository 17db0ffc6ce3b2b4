"""Shared parts of routes: the fields for an id and a queue, their errors, and answers other than a plain 200."""

import json
from collections.abc import Callable
from typing import Annotated, Any, TypeVar
from urllib.parse import unquote

from aws_lambda_powertools.event_handler import Response
from aws_lambda_powertools.event_handler.content_types import APPLICATION_JSON
from aws_lambda_powertools.event_handler.openapi.params import Path, Query
from aws_lambda_powertools.event_handler.openapi.types import OpenAPIResponse
from pydantic import BeforeValidator

from duecourse.domain.access import Role
from duecourse.domain.task import DEFAULT_QUEUE
from duecourse.errors import DuecourseError
from duecourse.metrics import AddedLine, measure
from duecourse.wire.http.fields import AnyTaskId, Flag, Name
from duecourse.wire.http.problems import CONTENT_TYPE, Problem

# No id holds a percent sign: what a gateway left encoded can be decoded without harm.
Id = Annotated[AnyTaskId, BeforeValidator(unquote), Path(description="Id of the task.", examples=["order-7"])]
ReminderId = Annotated[
    Name, BeforeValidator(unquote), Path(description="Id of the reminder, given or generated.", examples=["standup"])
]
QueueInPath = Annotated[
    Name, BeforeValidator(unquote), Path(description="Name of the queue.", examples=[DEFAULT_QUEUE])
]
Queue = Annotated[Name, Query(description="Queue of the task.")]
Force = Annotated[
    Flag, Query(description="Cancel a running task too: its worker loses the lease. A bare `?force` means true.")
]

ROLE = "role"
"""Attribute in which a route's function keeps the role that it needs, None for no role."""
REJECTS = "rejects"
"""Attribute in which a route's function keeps its errors."""
F = TypeVar("F", bound=Callable[..., Any])


def rejects(*kinds: type[DuecourseError]) -> Callable[[F], F]:
    """Name the errors (404, 409, 422, 429) of a route; a route that names none is described as having all."""

    def mark(route: F) -> F:
        setattr(route, REJECTS, kinds)
        return route

    return mark


def needs(role: Role | None) -> Callable[[F], F]:
    """Name the role that a route needs, None for none; without this, a route needs an operator."""

    def mark(route: F) -> F:
        setattr(route, ROLE, role)
        return route

    return mark


def answer(status: int, body: Any, headers: dict[str, str] | None = None) -> Response[Any]:
    """A JSON answer that is not a plain 200."""
    return Response(status, APPLICATION_JSON, body, {**headers} if headers else None)


def described(description: str, model: Any, example: Any) -> OpenAPIResponse:
    """An answer as the OpenAPI document has it, with an example of its body."""
    content = {APPLICATION_JSON: {"model": model, "examples": {"answer": {"value": example}}}}
    return {"description": description, "content": content}  # type: ignore[typeddict-item]


def rejection(problem: Problem) -> Response[Any]:
    """A problem document as an answer."""
    return Response(problem.status, CONTENT_TYPE, json.dumps(problem.document), {**problem.headers})


def count_added(tasks: int) -> None:
    """Count tasks taken."""
    measure(AddedLine(Added=tasks))
