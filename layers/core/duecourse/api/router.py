"""Router of the HTTP API, with what routes share, `/health`, `/docs` and `/openapi.json`.

To add a route: its models in the `http.py` of its package, each field with a description (an answer's by `about`); its
function in the `routes.py` beside it. In the OpenAPI document, its docstring is the summary, and its return type the
answers (`Response[None]` is 204). `@rejects(…)` names the errors of state, `@needs(Role…)` the role. `tenant()` is the
owner. A route without `@rejects` is described as having all errors; `@rejects()` has none. A route without `@needs`
needs an operator.

A changing request with an Idempotency-Key is answered once (`api/idempotency.py`). After a crash its route runs again.
Then `current_request().new_id` gives the same ids, and a verb knows its own work by `current_request().keyed`. A POST
that changes nothing belongs to READING of `api/request.py`.

The router of a new room belongs to the list in `duecourse/routes.py`.

Then its row in `tests/support/routes_and_roles.py`, its path in `template.yaml` (DefinitionBody) and in
`tests/template/test_policies.py`, and saved events good and bad (`tests/api/test_http_saved_requests.py`). The same
verb in `client/` has a Pair in `tests/client/test_http_as_client.py`; a route without one is in OVER_HTTP_ALONE there.
Write its row in `docs/reference/http-api.md`, and run `make reference`.
"""

import base64
import json
import re
import threading
from collections.abc import Callable, Iterable, Sequence
from functools import cache
from hashlib import sha256
from importlib import import_module
from pathlib import Path as FilePath
from typing import Annotated, Any, TypeVar
from urllib.parse import unquote

from aws_lambda_powertools.event_handler import APIGatewayHttpResolver, Response
from aws_lambda_powertools.event_handler.api_gateway import Route
from aws_lambda_powertools.event_handler.content_types import APPLICATION_JSON
from aws_lambda_powertools.event_handler.middlewares import NextMiddleware
from aws_lambda_powertools.event_handler.openapi.params import Path, Query
from aws_lambda_powertools.event_handler.openapi.types import OpenAPIResponse
from aws_lambda_powertools.event_handler.router import APIGatewayHttpRouter
from pydantic import BeforeValidator
from typing_extensions import TypedDict

from duecourse.api import problems
from duecourse.api.authorization import Role
from duecourse.api.fields import AnyTaskId, Flag, Name, about
from duecourse.api.problems import CONTENT_TYPE, MethodNotAllowed, NoSuchRoute, Problem
from duecourse.api.request import Request, app, current_request
from duecourse.base.hints import near_name
from duecourse.errors import (
    MAX_FIELD,
    DuecourseError,
    FieldError,
    InvalidInput,
    StoreUnavailable,
    bounded,
)
from duecourse.ledger.task import DEFAULT_QUEUE

# Shared parts of routes: the fields for an id and a queue, their errors, and answers other than a plain 200.

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


def role_of(route: Route) -> Role | None:
    """Role that a route needs, None for none."""
    found: Role | None = getattr(route.func, ROLE, Role.OPERATOR)
    return found


def answer(status: int, body: Any, headers: dict[str, str] | None = None) -> Response[Any]:
    """A JSON answer that is not a plain 200."""
    return Response(status, APPLICATION_JSON, body, {**headers} if headers else None)


def described(description: str, model: Any, example: Any) -> OpenAPIResponse:
    """An answer as the OpenAPI document has it, with an example of its body."""
    content = {APPLICATION_JSON: {"model": model, "examples": {"answer": {"value": example}}}}
    return {"description": description, "content": content}  # type: ignore[typeddict-item]


def problem_response(problem: Problem) -> Response[Any]:
    """A problem document as an answer."""
    return Response(problem.status, CONTENT_TYPE, json.dumps(problem.document), {**problem.headers})


SIGNING = re.compile("x-amz-", re.IGNORECASE)
"""Beginning of the parameters by which a request may be signed in its URL, which are API Gateway's."""

MIN_LIKENESS = 0.7
"""Least likeness of a path that an error names beside the unknown one."""


class Api(APIGatewayHttpResolver):
    """The routes, and the checks of every request.

    A cold start imports the routes of tasks alone; those of `include_later` come with the first request for them.
    """

    def __init__(self, *given: Any, **named: Any) -> None:
        super().__init__(*given, **named)
        self.later: dict[str, str] = {}
        """Modules of routes that were not asked for yet, by the first or the last part of their paths."""
        self._including = threading.RLock()

    def include_later(self, part: str, module: str) -> None:
        """Have a module's `router` serve the paths that begin or end with this part, once one of them is asked for."""
        self.later[part] = module

    def include(self, part: str) -> None:
        """Import the routes of paths that begin or end with this part, unless they are there."""
        with self._including:
            if module := self.later.get(part):
                self.include_router(import_module(module).router)
                # Now: a thread that finds them gone from here finds them whole.
                self.later = {name: one for name, one in self.later.items() if one != module}

    def every_route(self) -> Sequence[Route]:
        """All routes, those too that were not asked for yet."""
        for part in [*self.later]:
            self.include(part)
        return self._every

    def has(self, route: Route) -> bool:
        """True for a route of this Api; False for the router's own, which answers where none was found."""
        return route in self._static_routes or route in self._dynamic_routes

    def check_parameters(self, request: Request) -> None:
        """Reject a query parameter that its route does not have: a misspelt filter finds all. Raises InvalidInput."""
        asked = (self.current_event.http_method, self.request.route)
        for route in self._every:
            if route.include_in_schema and (route.method, route.openapi_path) == asked:
                known = [*(one.alias for one in route.dependant.query_params), *request.own_parameters]
                listed = f"known: {', '.join(known) or 'none'}"
                unknown = [name for name in request.parameters if name not in known and not SIGNING.match(name)]
                if unknown:
                    nears = [(name[:MAX_FIELD], near_name(name, known)) for name in unknown]
                    problem = "is not a parameter of this route"
                    raise InvalidInput(
                        bounded([FieldError(name, f"{problem}{near}; {listed}") for name, near in nears])
                    )

    @property
    def _every(self) -> Sequence[Route]:
        return (*self._static_routes, *self._dynamic_routes)

    def unmatched(self) -> Response[Any]:
        """Answer to a request that no route takes: OPTIONS of a path. Raises NoSuchRoute and MethodNotAllowed."""
        method, path = current_request().method, self.current_event.path
        every = self.every_route()
        matching = [route for route in every if route.rule.match(path)]
        # A path of its own, such as /tasks/batch, has its own methods, though it might be an id too.
        own = [route for route in matching if route.openapi_path == path] or matching
        allowed = {route.method for route in own}
        if not allowed:
            raise NoSuchRoute(method, path, near_path(path, [route.openapi_path for route in every]))
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
    return found if best >= MIN_LIKENESS else ""


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
    request = current_request()
    request.check(role_of(route))
    if request.parameters:
        api.check_parameters(request)
    return next_middleware(api)


class Health(TypedDict):
    """State of the service."""

    status: Annotated[str, about("State of the service: `ok` or `unavailable`.", "ok")]
    store: Annotated[str, about("State of the store: `ok` or `unavailable`.", "ok")]


# `/health`: whether tasks can be taken.

router = APIGatewayHttpRouter()  # type: ignore[no-untyped-call]


UNAVAILABLE: Health = {"status": "unavailable", "store": "unavailable"}
ANSWERS: dict[int, OpenAPIResponse] = {
    200: {"description": "The service accepts tasks."},
    503: described("The store does not answer.", Health, UNAVAILABLE),
}


@router.get("/health", responses=ANSWERS)
@needs(None)
def health() -> Response[Health]:
    """Report whether the service accepts tasks."""
    try:
        app().ledger.ping()
    except StoreUnavailable:
        return answer(503, UNAVAILABLE, problems.RETRY_AFTER)
    return answer(200, {"status": "ok", "store": "ok"})


# `/openapi.json` and `/docs`: what the API says of itself, and a page to read it with that needs nothing else.

DOCUMENT = FilePath(__file__).with_name("openapi.json")
"""The OpenAPI document, written by `make reference`: it is the same for every request."""
POLICY = (
    "default-src 'none'; script-src {scripts}; style-src 'unsafe-inline'; img-src data:; font-src data:; "
    "connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)
"""Swagger UI sets styles on its elements as it goes; its scripts are the page's own, named by their hashes."""
OWN_URL = 'currentUrl.pathname + "?format=json"'
"""Path at which Powertools' page expects the document, which has a route of its own here."""
SCRIPT = re.compile(r"<script>(.*?)</script>", re.DOTALL)


def add_document_routes(app: Api) -> None:
    """Add `/openapi.json` and `/docs`, which are no part of the document."""

    @app.get("/openapi.json", include_in_schema=False, compress=True, enable_validation=False)
    @needs(None)
    def openapi() -> Response[Any]:
        return Response(200, APPLICATION_JSON, document())

    @app.get("/docs", include_in_schema=False, compress=True, enable_validation=False)
    @needs(None)
    def docs() -> Response[Any]:
        page, policy = _page()
        headers: dict[str, str | list[str]] = {
            "Content-Security-Policy": policy,
            "X-Content-Type-Options": "nosniff",
            "Referrer-Policy": "no-referrer",
        }
        return Response(200, "text/html; charset=utf-8", page, headers)


@cache
def document() -> str:
    """The document as compact JSON text."""
    return json.dumps(json.loads(DOCUMENT.read_bytes()), separators=(",", ":"), ensure_ascii=False)


@cache
def _page() -> tuple[str, str]:
    """The page, with the assets that Powertools brings along in it, and its Content-Security-Policy."""
    from aws_lambda_powertools.event_handler.openapi import swagger_ui

    assets = FilePath(swagger_ui.__file__).parent
    script, style = (assets.joinpath(name).read_text() for name in ("swagger-ui-bundle.min.js", "swagger-ui.min.css"))
    spec = document().replace("</", "<\\/")
    page = swagger_ui.generate_swagger_html(spec, script, style, swagger_base_url="", oauth2_config=None)
    page = page.replace(OWN_URL, '"openapi.json"')
    hashes = (base64.b64encode(sha256(found.encode()).digest()).decode() for found in SCRIPT.findall(page))
    return page, POLICY.format(scripts=" ".join(f"'sha256-{one}'" for one in hashes))
