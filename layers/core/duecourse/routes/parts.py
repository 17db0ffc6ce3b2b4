"""What the routes share: where an id and a queue stand in a request, and answers that are not a plain 200."""

from typing import Annotated, Any
from urllib.parse import unquote

from aws_lambda_powertools import Metrics
from aws_lambda_powertools.event_handler import Response
from aws_lambda_powertools.event_handler.content_types import APPLICATION_JSON
from aws_lambda_powertools.event_handler.openapi.params import Path, Query
from aws_lambda_powertools.metrics import MetricUnit
from pydantic import BeforeValidator

from duecourse.wire.fields import AnyTaskId, Flag, Name

# No id holds a percent sign: what a gateway left encoded can be decoded without harm.
Id = Annotated[AnyTaskId, BeforeValidator(unquote), Path()]
NameInPath = Annotated[Name, BeforeValidator(unquote), Path()]
Queue = Annotated[Name, Query()]
Force = Annotated[Flag, Query()]

metrics = Metrics(namespace="duecourse")


def answer(status: int, body: Any, headers: dict[str, str | list[str]] | None = None) -> Response[Any]:
    """A JSON answer that is not a plain 200."""
    return Response(status, APPLICATION_JSON, body, headers)


def count_added(tasks: int) -> None:
    """Count tasks taken, in the log's embedded metric format."""
    metrics.add_metric("Added", MetricUnit.Count, tasks)
    metrics.flush_metrics()
