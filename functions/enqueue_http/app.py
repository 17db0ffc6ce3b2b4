"""The HTTP API: the routes put together, and their refusals as problem documents."""

import json
from typing import Any

from aws_lambda_powertools import Logger
from aws_lambda_powertools.event_handler import APIGatewayHttpResolver, Response
from aws_lambda_powertools.event_handler.exceptions import NotFoundError
from aws_lambda_powertools.event_handler.openapi.exceptions import RequestValidationError
from aws_lambda_powertools.utilities.typing import LambdaContext

from duecourse.errors import DuecourseError, InvalidInput
from duecourse.routes import health, leases, queues, reminders, tasks
from duecourse.wire import problems
from duecourse.wire.fields import field_errors
from duecourse.wire.http import parse_body

app = APIGatewayHttpResolver(enable_validation=True, json_body_deserializer=parse_body)
logger = Logger()

for part in (tasks, leases, reminders, queues, health):
    app.include_router(part.router)


def refuse(error: Exception) -> Response[str]:
    """Answer with a problem document; what is nobody's fault outside goes to the log."""
    problem = problems.describe(translate(error))
    if problem.status >= 500:
        logger.exception("refused", exc_info=error, status=problem.status)
    return Response(problem.status, problems.CONTENT_TYPE, json.dumps(problem.document), problem.headers)


def translate(error: Exception) -> Exception:
    """The router's own refusals in our words; any other error as it is."""
    match error:
        case DuecourseError():
            return error
        case NotFoundError():
            return problems.NoSuchRoute(f"Nothing answers to {app.current_event.http_method} {app.current_event.path}.")
        case _ if not problems.is_json(app.current_event.headers.get("content-type", "")):
            return problems.UnsupportedBody()
        case RequestValidationError():
            return InvalidInput(field_errors(error.errors()))
    return error


app.exception_handler(Exception)(refuse)


@logger.inject_lambda_context
def handler(event: dict[str, Any], context: LambdaContext) -> dict[str, Any]:
    """Answer one request of the HTTP API (payload format 2.0)."""
    return app.resolve(event, context)
