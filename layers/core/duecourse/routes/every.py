"""The HTTP API: the routes put together, and its rejections as problem documents."""

import base64
import logging
from typing import Any

from aws_lambda_powertools.event_handler import Response
from aws_lambda_powertools.event_handler.openapi.exceptions import RequestUnsupportedContentType, RequestValidationError

from duecourse.domain.task import Json
from duecourse.errors import DuecourseError, InvalidInput
from duecourse.routes import docs, health, leases, queries, queues, reminders, schedules, tasks
from duecourse.routes.api import Api, check
from duecourse.routes.idempotency import idempotent
from duecourse.routes.parts import rejection
from duecourse.routes.request import Request, served, serving
from duecourse.wire.http import problems
from duecourse.wire.http.body import MAX_BODY_BYTES, parse_body
from duecourse.wire.http.fields import field_errors
from duecourse.wire.http.gateways import read_request
from duecourse.wiring import App


def read_body(_sent: str) -> dict[str, Any]:
    """The JSON object in the body, within the bound of its route; the router hands on Base64 as it came."""
    return parse_body(served().text, tasks.BODY_BYTES.get(api.current_event.path, MAX_BODY_BYTES))


api = Api(enable_validation=True, response_validation_error_http_code=500, json_body_deserializer=read_body)
api.use([check, idempotent])
log = logging.getLogger("duecourse.enqueue_http")

for part in (tasks, leases, reminders, schedules, queues, queries, health):
    api.include_router(part.router)
docs.serve(api)


def reject(error: Exception) -> Response[str]:
    """Answer with a problem document; a 5xx, which no caller can mend, also goes to the log."""
    problem = problems.problem_of(translate(error))
    if problem.status >= 500:
        log.error("request rejected", exc_info=error, extra={"status": problem.status})
    return rejection(problem)


def translate(error: Exception) -> Exception:
    """The router's own rejections as errors of ours; any other error as it is."""
    match error:
        case DuecourseError():
            return error
        case RequestUnsupportedContentType():
            return problems.UnsupportedBody()
        case RequestValidationError():
            return InvalidInput(field_errors(error.errors()))
    return error


api.exception_handler(Exception)(reject)


def serve(app: App, event: Json, context: Any, source: str = "") -> dict[str, Any]:
    """Answer one request with this App; `source` is for one that did not come by HTTP.

    Raises InvalidInput for an event that is no request of API Gateway, a function URL or a load balancer.
    """
    asked = read_request(event, app.settings.base_path)
    with serving(Request(app, asked.event, context.get_remaining_time_in_millis, source)) as request:
        answer = api.resolve(request.typed(), context)
    return asked.answer(_headers_of(answer) if request.is_head else answer)


def _headers_of(answer: dict[str, Any]) -> dict[str, Any]:
    """An answer without its body, whose length its headers keep."""
    body = answer["body"] or ""
    length = len(base64.b64decode(body) if answer["isBase64Encoded"] else body.encode(errors="surrogatepass"))
    headers = {**answer["headers"], "Content-Length": str(length)}
    return {**answer, "headers": headers, "body": "", "isBase64Encoded": False}
