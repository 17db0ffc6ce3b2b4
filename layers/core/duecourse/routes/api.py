"""The router of the HTTP API."""

import re
from collections.abc import Iterator, Sequence
from typing import Any

from aws_lambda_powertools.event_handler import APIGatewayHttpResolver, Response
from aws_lambda_powertools.event_handler.api_gateway import Route
from aws_lambda_powertools.event_handler.middlewares import NextMiddleware

from duecourse.domain.access import Role
from duecourse.domain.near import near_name
from duecourse.errors import MAX_FIELD, FieldError, InvalidInput, bounded
from duecourse.routes.parts import ROLE
from duecourse.routes.request import served

SIGNING = re.compile("x-amz-", re.IGNORECASE)
"""Beginning of the parameters by which a request may be signed in its URL, which are API Gateway's."""


class Api(APIGatewayHttpResolver):
    """The routes, and what a request to any of them must be like."""

    def role_of(self, route: Route) -> Role | None:
        """Role that a route needs; None for the router's own answer where no route was found."""
        if hasattr(route.func, ROLE):
            found: Role | None = getattr(route.func, ROLE)
            return found
        return Role.OPERATOR if route in self._every else None

    def check_parameters(self) -> None:
        """Reject a query parameter that its route does not have: a misspelt filter finds all. Raises InvalidInput."""
        given = self.current_event.query_string_parameters
        if not given:
            return
        asked = (self.current_event.http_method, self.request.route)
        for route in self.described:
            if (route.method, route.openapi_path) == asked:
                known = [*(one.alias for one in route.dependant.query_params), *served().own_parameters]
                listed = f"known: {', '.join(known) or 'none'}"
                unknown = [name for name in given if name not in known and not SIGNING.match(name)]
                if unknown:
                    nears = [(name[:MAX_FIELD], near_name(name, known)) for name in unknown]
                    problem = "is not a parameter of this route"
                    raise InvalidInput(
                        bounded([FieldError(name, f"{problem}{near}; {listed}") for name, near in nears])
                    )

    @property
    def described(self) -> Iterator[Route]:
        """The routes that the document has."""
        return (route for route in self._every if route.include_in_schema)

    @property
    def _every(self) -> Sequence[Route]:
        return (*self._static_routes, *self._dynamic_routes)


def check(api: Any, next_middleware: NextMiddleware) -> Response[Any]:
    """The middleware: reject what no route of this Api takes, whether or not the route reads it.

    A function, for the router looks into each middleware at its first request and keeps what it found at a function.
    """
    served().check(api.role_of(api.context["_route"]))
    api.check_parameters()
    return next_middleware(api)
