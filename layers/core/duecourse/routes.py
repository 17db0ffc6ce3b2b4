"""The HTTP API: the routes put together, and its rejections as problem documents."""

import base64
import logging
from typing import Any

from aws_lambda_powertools.event_handler import Response
from aws_lambda_powertools.event_handler.openapi.exceptions import RequestUnsupportedContentType, RequestValidationError

from duecourse.api import problems, router
from duecourse.api.authorization import Principal
from duecourse.api.fields import field_errors
from duecourse.api.gateways import read_request
from duecourse.api.idempotency import idempotent
from duecourse.api.request import SERVED, Request, read_body
from duecourse.api.router import Api, check, problem_response
from duecourse.app import App
from duecourse.base.json_text import Json
from duecourse.errors import DuecourseError, InvalidInput
from duecourse.tasks import routes as tasks_routes

api = Api(enable_validation=True, response_validation_error_http_code=500, json_body_deserializer=read_body)
api.use([check, idempotent])
log = logging.getLogger("duecourse.enqueue_http")

api.include_router(tasks_routes.router)
for name in ("begin", "settle", "extend", "save"):
    api.include_later(name, "duecourse.running.routes")
for name in ("reminders", "schedules", "queues", "queries"):
    api.include_later(name, f"duecourse.{name}.routes")
api.include_later("health", router.__name__)
router.add_document_routes(api)


def reject(error: Exception) -> Response[str]:
    """Answer with a problem document; a 5xx, which no caller can mend, also goes to the log."""
    problem = problems.problem_of(translate(error))
    if problem.status >= 500:
        log.error("request rejected", exc_info=error, extra={"status": problem.status})
    return problem_response(problem)


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


def serve(app: App, event: Json, context: Any, local: Principal | None = None) -> dict[str, Any]:
    """Answer one request with this App; `local` is the caller of one that did not come by HTTP.

    Raises InvalidInput for an event that is no request of API Gateway, a function URL or a load balancer.
    """
    asked = read_request(event, app.settings.base_path)
    path = asked.event["rawPath"].lstrip("/")
    for part in (path.partition("/")[0], path.rpartition("/")[2]):
        if part in api.later:
            api.include(part)
    request = Request(app, asked.event, context.get_remaining_time_in_millis, local)
    before = SERVED.set(request)
    try:
        # Next: `read_body` (api/request.py), `check` (api/router.py), `idempotent` (api/idempotency.py), then the
        # route's function, such as `add_task` in tasks/routes.py.
        answer = api.resolve(request.router_event(), context)
    finally:
        SERVED.reset(before)
    return asked.answer(_headers_of(answer) if request.is_head else answer)


def _headers_of(answer: dict[str, Any]) -> dict[str, Any]:
    """An answer without its body, whose length its headers keep."""
    body = answer["body"] or ""
    length = len(base64.b64decode(body) if answer["isBase64Encoded"] else body.encode(errors="surrogatepass"))
    headers = {**answer["headers"], "Content-Length": str(length)}
    return {**answer, "headers": headers, "body": "", "isBase64Encoded": False}
