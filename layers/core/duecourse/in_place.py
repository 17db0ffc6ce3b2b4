"""The HTTP API without HTTP: its routes serve each request in this process, on an App."""

import base64
import json
from collections.abc import Mapping
from http import HTTPStatus
from threading import Lock
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol
from urllib.parse import urlencode

from duecourse.api.authorization import Grant, Principal, Role
from duecourse.api.problems import ForeignTenant, problem_of
from duecourse.ledger.task import DEFAULT_TENANT

if TYPE_CHECKING:
    from duecourse.app import App

TENANT = "tenant"
"""Query parameter that names the tenant of a request."""
TIME_MS = 30_000
"""Time for one request, as API Gateway allows."""
NO_HEADERS: Mapping[str, str] = {}


class ApiRequest(NamedTuple):
    """Request for the HTTP API: the path is percent-encoded, and headers have names in lower case."""

    method: str
    path: str
    query: Mapping[str, str] = NO_HEADERS
    body: bytes = b""
    headers: Mapping[str, str] = NO_HEADERS


class ApiAnswer(NamedTuple):
    """Answer of the HTTP API, a rejection too: status, JSON text and headers."""

    status: int
    body: bytes
    headers: Mapping[str, str] = NO_HEADERS

    @property
    def is_rejection(self) -> bool:
        """True if the body is a problem document."""
        return self.status >= HTTPStatus.BAD_REQUEST

    @property
    def document(self) -> dict[str, Any]:
        """The body's JSON object; {} for an empty body."""
        found: dict[str, Any] = json.loads(self.body or b"{}")
        return found


class ApiUnavailable(Exception):
    """The store or the API does not answer."""


class HttpApi(Protocol):
    """The HTTP API of a ledger, in this process or behind a URL."""

    name: str
    """Name of the place, for people; no password is in it."""
    tenant: str | None
    """Tenant of requests that name none; None for the caller's own."""

    def send(self, request: ApiRequest) -> ApiAnswer:
        """Answer to one request. Raises ApiUnavailable."""


class _Context:
    def get_remaining_time_in_millis(self) -> int:
        return TIME_MS


_turn = Lock()
"""The router keeps the request that it serves in one place for all threads, so requests take turns."""


class InPlaceApi:
    """The HTTP API on an App of this process; the caller is an operator called `source`.

    An operator of one `tenant` may name no other; one without a tenant may name any.
    """

    def __init__(
        self, app: "App", name: str, source: str, tenant: str | None = None, *, is_bound: bool = False
    ) -> None:
        self.name = name
        self.tenant = tenant
        self._app = app
        self._is_bound = is_bound
        self._operator = Principal(source, Grant(tenant or DEFAULT_TENANT, frozenset({Role.OPERATOR})))

    def send(self, request: ApiRequest) -> ApiAnswer:
        """See HttpApi."""
        from duecourse.routes import serve  # pydantic and the router take a third of a second

        query = with_tenant(request.query, self.tenant)
        if self._is_bound and query.get(TENANT) != self.tenant:
            return problem_answer(ForeignTenant())
        with _turn:
            answer = serve(self._app, _event(request._replace(query=query)), _Context(), self._operator)
        body = answer["body"] or ""
        content = base64.b64decode(body) if answer["isBase64Encoded"] else body.encode(errors="surrogatepass")
        return ApiAnswer(answer["statusCode"], content, {n.lower(): v for n, v in answer["headers"].items()})


def with_tenant(query: Mapping[str, str], tenant: str | None) -> dict[str, str]:
    """A query with the tenant of a request that names none; the name "" is that of no tenant in particular."""
    words = {TENANT: tenant or "", **query}
    return {name: value for name, value in words.items() if value or name != TENANT}


def problem_answer(error: Exception) -> ApiAnswer:
    """The answer to an error that the routes never saw."""
    problem = problem_of(error)
    return ApiAnswer(problem.status, json.dumps(problem.document).encode(), problem.headers)


def _event(request: ApiRequest) -> dict[str, Any]:
    """The request as payload 2.0 of API Gateway."""
    return {
        "version": "2.0",
        "routeKey": "$default",
        "rawPath": request.path,
        "rawQueryString": urlencode(request.query),
        "headers": dict(request.headers),
        "queryStringParameters": dict(request.query),
        "requestContext": {"stage": "$default", "http": {"method": request.method, "path": request.path}},
        "body": base64.b64encode(request.body).decode(),
        "isBase64Encoded": True,
    }
