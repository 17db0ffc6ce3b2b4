"""The router of the HTTP API, and the OpenAPI document of its routes: Powertools', with what that cannot know."""

import json
import re
from collections.abc import Iterator
from functools import cached_property
from typing import Any, get_args, get_origin, get_type_hints

from aws_lambda_powertools.event_handler import APIGatewayHttpResolver, ApiGatewayResolver, Response
from aws_lambda_powertools.event_handler.api_gateway import Route
from aws_lambda_powertools.event_handler.middlewares import NextMiddleware

from duecourse.errors import MAX_FIELD, FieldError, InvalidInput, bounded
from duecourse.routes.parts import REJECTS
from duecourse.routes.request import served
from duecourse.wire.http.headers import CHANGING

Operation = dict[str, Any]
SIGNING = re.compile("x-amz-", re.IGNORECASE)
"""Beginning of the parameters by which a request may be signed in its URL, which are API Gateway's."""
DESCRIPTION = (
    "Delayed and polled tasks for AWS Lambda. Instants are RFC 3339 with an offset; durations are seconds or ISO 8601 "
    "(`PT5M`), at most 100 years. Bodies are JSON, with `Content-Type: application/json`. Errors are problem documents "
    "(RFC 9457); a rejected request changes nothing. A deployed API requires signed requests (SigV4, service "
    '`execute-api`); API Gateway answers others with 403 and `{"message":"Forbidden"}`.'
)


class Api(APIGatewayHttpResolver):
    """The routes, and what can be said of them."""

    @cached_property
    def document(self) -> dict[str, Any]:
        """The OpenAPI document, made at its first use: it takes a tenth of a second and is seldom asked for."""
        from duecourse import __version__
        from duecourse.wire.http import openapi

        made = json.loads(self.get_openapi_json_schema(title="duecourse", version=__version__, description=DESCRIPTION))
        for route in self.described:
            operation = made["paths"][route.openapi_path][route.method.lower()]
            operation |= _words(route)
            rejected = getattr(route.func, REJECTS, None)
            operation |= {} if rejected is None else {REJECTS: rejected}
            operation["responses"] = _successes(route, operation["responses"])
        return openapi.completed(made)

    def check(self, app: ApiGatewayResolver, next_middleware: NextMiddleware) -> Response[Any]:
        """The middleware: reject what no route takes, whether or not it reads that."""
        served().check()
        self._check_parameters(app)
        return next_middleware(app)

    def _check_parameters(self, app: ApiGatewayResolver) -> None:
        """Reject a query parameter that its route does not have: a misspelt filter finds all. Raises InvalidInput."""
        asked = (app.current_event.http_method, app.request.route)
        given = app.current_event.query_string_parameters or {}
        for route in self.described if given else ():
            if (route.method, route.openapi_path) == asked:
                known = [one.alias for one in route.dependant.query_params]
                problem = f"is not a parameter of this route; known: {', '.join(known) or 'none'}"
                unknown = [name for name in given if name not in known and not SIGNING.match(name)]
                if unknown:
                    raise InvalidInput(bounded([FieldError(name[:MAX_FIELD], problem) for name in unknown]))

    @property
    def described(self) -> Iterator[Route]:
        """The routes that the document has."""
        return (route for route in (*self._static_routes, *self._dynamic_routes) if route.include_in_schema)


def _words(route: Route) -> Operation:
    """Operation id and summary of a route, from its function's name and docstring."""
    head, *rest = route.func.__name__.split("_")
    first, _, more = (route.func.__doc__ or "").strip().partition("\n")
    return {
        "operationId": head + "".join(map(str.capitalize, rest)),
        "summary": first.rstrip("."),
        **({"description": " ".join(more.split())} if more.strip() else {}),
        "tags": [route.path.split("/")[1]],
    }


def _successes(route: Route, described: dict[str, Any]) -> dict[str, Any]:
    """The answers of a route that is served: those it names, else what its return type and method tell."""
    if route.responses:
        return {status: described[status] for status in map(str, route.responses)}
    plain = described[str(route.status_code)]
    answer = get_type_hints(route.func).get("return")
    if get_origin(answer) is not Response:
        return {str(route.status_code): plain}
    if get_args(answer) == (type(None),):
        return {"204": {"description": "Success; the answer has no body."}}
    return {"201": plain, "200": plain} if route.method in CHANGING - {"DELETE"} else {"200": plain}
