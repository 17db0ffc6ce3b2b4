"""The router of the HTTP API."""

import re
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from aws_lambda_powertools.event_handler import APIGatewayHttpResolver, Response
from aws_lambda_powertools.event_handler.api_gateway import Route
from aws_lambda_powertools.event_handler.middlewares import NextMiddleware

from duecourse.domain.access import Role
from duecourse.domain.near import near_name
from duecourse.errors import MAX_FIELD, FieldError, InvalidInput, bounded
from duecourse.routes.parts import ROLE
from duecourse.routes.request import served
from duecourse.wire.http.problems import MethodNotAllowed, NoSuchRoute

SIGNING = re.compile("x-amz-", re.IGNORECASE)
"""Beginning of the parameters by which a request may be signed in its URL, which are API Gateway's."""

ALIKE = 0.7
"""Least likeness of a path that an error names beside the unknown one."""


class Api(APIGatewayHttpResolver):
    """The routes, and what a request to any of them must be like."""

    def has(self, route: Route) -> bool:
        """True for a route of this Api; False for the router's own, which answers where none was found."""
        return any(route is one for one in self._every)

    def role_of(self, route: Route) -> Role | None:
        """Role that a route needs, None for none."""
        found: Role | None = getattr(route.func, ROLE, Role.OPERATOR)
        return found

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

    def unmatched(self) -> Response[Any]:
        """Answer to a request that no route takes: OPTIONS of a path. Raises NoSuchRoute and MethodNotAllowed."""
        method, path = served().method, self.current_event.path
        matching = [route for route in self._every if route.rule.match(path)]
        # A path of its own, such as /tasks/batch, has its own methods, though it might be an id too.
        own = [route for route in matching if route.openapi_path == path] or matching
        allowed = {route.method for route in own}
        if not allowed:
            raise NoSuchRoute(method, path, near_path(path, [route.openapi_path for route in self._every]))
        allowed |= {"OPTIONS", *(["HEAD"] if "GET" in allowed else [])}
        if method != "OPTIONS":
            raise MethodNotAllowed(method, path, sorted(allowed))
        return Response(204, headers={"Allow": ", ".join(sorted(allowed))})


def near_path(path: str, known: Iterable[str]) -> str:
    """The known path that looks most like this one, "" for none; a parameter takes any text."""
    if len(path) > MAX_FIELD:
        return ""
    parts = path.strip("/").split("/")
    alike = [(likeness(parts, one.strip("/").split("/")), -one.count("{"), one) for one in known]
    best, _, found = max(alike)
    return found if best >= ALIKE else ""


def likeness(parts: Sequence[str], known: Sequence[str]) -> float:
    """Likeness of the parts that differ most, 0 to 1; 0 for another number of parts."""
    from difflib import SequenceMatcher  # for requests that no route takes

    pairs = [(a, b) for a, b in zip(parts, known, strict=False) if a != b and not b.startswith("{")]
    if len(parts) != len(known):
        return 0
    return min((SequenceMatcher(None, a, b).ratio() for a, b in pairs), default=1)


def check(api: Any, next_middleware: NextMiddleware) -> Response[Any]:
    """The middleware: reject what no route of this Api takes, whether or not the route reads it.

    A function, for the router looks into each middleware at its first request and keeps what it found at a function.
    """
    route = api.context["_route"]
    if not api.has(route):
        answer: Response[Any] = api.unmatched()
        return answer
    served().check(api.role_of(route))
    api.check_parameters()
    return next_middleware(api)
