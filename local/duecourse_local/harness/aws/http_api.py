"""API Gateway's HTTP API: the route of a request, its event of format 2.0, and the function's answer."""

import base64
import json
import re
from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

from starlette.applications import Starlette
from starlette.convertors import PathConvertor, register_url_convertor
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route as StarletteRoute
from starlette.types import Receive, Scope, Send

from duecourse.api.problems import CONTENT_TYPE

from ..logs import Log
from ..template import Function, Route
from .authorizer import Authorize, IdentityRejected
from .events import HttpRequest, http_event
from .functions import Functions
from .invocation import Answer, Busy, Invocation, LambdaError, error_text

SEGMENT = re.compile(r"^\{([^}+]+)(\+?)\}$")
LITERAL, VARIABLE, GREEDY = range(3)


class Match(NamedTuple):
    """The function that serves a request, its route key and the path's variables."""

    function: Function
    key: str
    parameters: Mapping[str, str]


class _Compiled(NamedTuple):
    order: tuple[object, ...]
    route: Route
    function: Function
    pattern: re.Pattern[str]


class Routes:
    """The routes of all functions."""

    def __init__(self, functions: Iterable[Function]) -> None:
        compiled = [_compile(route, function) for function in functions for route in function.routes]
        self._routes = sorted(compiled, key=lambda c: c.order)

    def match(self, method: str, path: str) -> Match | None:
        """The most specific route for a request, or None."""
        for compiled in self._routes:
            found = compiled.pattern.match(path)
            if found and compiled.route.method in (method, "ANY"):
                return Match(compiled.function, compiled.route.key, found.groupdict())
        return None


def _compile(route: Route, function: Function) -> _Compiled:
    if route.path == "$default":
        return _Compiled((True,), route, function, re.compile(""))
    segments = [_segment(text) for text in route.path.strip("/").split("/")]
    order = (False, tuple(rank for rank, _ in segments), route.method == "ANY")
    pattern = re.compile("^/" + "/".join(pattern for _, pattern in segments) + "/?$", re.DOTALL)
    return _Compiled(order, route, function, pattern)


def _segment(text: str) -> tuple[int, str]:
    match = SEGMENT.match(text)
    if not match:
        return LITERAL, re.escape(text)
    name, greedy = match.groups()
    return (GREEDY, f"(?P<{name}>.+)") if greedy else (VARIABLE, f"(?P<{name}>[^/]+)")


MAX_BODY = 10 * 1024 * 1024
INTEGRATION_TIMEOUT = 30.0


class TooLarge(Exception):
    """The request's body is over the limit."""


class Unusable(Exception):
    """The function failed, or its answer is no response."""


class Gateway:
    """The one endpoint behind every path and method (a class, since Starlette lets those take any method).

    Each answer that a function did not give is a line in `log`: the request, the function and the reason.
    """

    def __init__(self, routes: Routes, functions: Functions, authorize: Authorize, log: Log) -> None:
        self._routes = routes
        self._functions = functions
        self._authorize = authorize
        self._log = log

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one request."""
        response = await self._serve(Request(scope, receive))
        await response(scope, receive, send)

    async def _serve(self, request: Request) -> Response:
        match = self._routes.match(request.method, request.scope["path"])
        if match is None:
            return _message(404, "Not Found")
        try:
            http_request = await _read(request)
            event = http_event(http_request, match.key, match.parameters, self._authorize(http_request))
        except TooLarge:
            return _message(413, "Request Entity Too Large")
        except IdentityRejected as rejected:
            return _message(rejected.status, str(rejected), rejected.headers)
        return await self._answer(match, request, Invocation(payload_of(event)))

    async def _answer(self, match: Match, request: Request, invocation: Invocation) -> Response:
        name = match.function.name
        try:
            return _response(await self._functions.invoke(name, invocation, INTEGRATION_TIMEOUT))
        except TimeoutError:
            response, why = _message(503, "Service Unavailable"), f"no answer within {INTEGRATION_TIMEOUT:g} s"
        except Busy as busy:
            response, why = _busy(busy), busy.detail
        except (LambdaError, Unusable) as error:
            response, why = _message(500, "Internal Server Error"), str(error)
        path = request.scope["raw_path"].decode("ascii", "backslashreplace")
        line = f"{request.method} {path}"
        self._log.note("ERROR", f"{line} was answered {response.status_code} for {name}: {why}")
        return response


def payload_of(event: Mapping[str, Any]) -> bytes:
    """An event as Lambda gets and counts it: in UTF-8, with a backslash before each quote and backslash of the body."""
    return json.dumps(event, ensure_ascii=False).encode(errors="surrogatepass")


class _Any(PathConvertor):
    """Any path at all: Starlette's own ends at a line break."""

    regex = r"(?s:.*)"


register_url_convertor("any", _Any())


def http_api(routes: Routes, functions: Functions, authorize: Authorize, log: Log) -> Starlette:
    """The application that serves `routes` to those whom `authorize` lets in."""
    return Starlette(routes=[StarletteRoute("/{path:any}", Gateway(routes, functions, authorize, log))])


async def _read(request: Request) -> HttpRequest:
    body = await _body(request)
    port = request.url.port or 80
    peer = request.client.host if request.client else "127.0.0.1"
    forwarded = [("x-forwarded-for", peer), ("x-forwarded-port", str(port)), ("x-forwarded-proto", request.url.scheme)]
    return HttpRequest(
        method=request.method,
        path=request.scope["path"],
        query=request.scope["query_string"].decode("latin-1"),
        headers=[*((n.lower(), v) for n, v in request.headers.items()), *forwarded],
        body=body,
        source_ip=peer,
        protocol=f"HTTP/{request.scope['http_version']}",
        sent_path=request.scope["raw_path"].decode("latin-1"),
    )


async def _body(request: Request) -> bytes:
    """The whole body. Raises TooLarge, after reading to the end: a sender that is cut off would not see the 413."""
    body, length = bytearray(), 0
    async for chunk in request.stream():
        length += len(chunk)
        if length <= MAX_BODY:
            body += chunk
    if length > MAX_BODY:
        raise TooLarge
    return bytes(body)


def _message(status: int, message: str, headers: Mapping[str, str] | None = None) -> Response:
    return JSONResponse({"message": message}, status, headers)


def _busy(busy: Busy) -> Response:
    """Answer where no slot is free: API Gateway's own for a throttled function, else a 503 of this stack.

    AWS would start another process. So no client has to know this 503, and its text says how to go on.
    """
    if busy.throttled:
        return _message(500, "Internal Server Error")
    problem = {"type": "about:blank", "title": "Service Unavailable", "status": 503, "detail": f"{busy.detail}."}
    return JSONResponse(problem, 503, {"Retry-After": "1"}, CONTENT_TYPE)


def _response(answer: Answer) -> Response:
    """A function's answer as a response: an object with a statusCode is one, any other value is its body.

    Raises Unusable.
    """
    if answer.error:
        raise Unusable(error_text(answer))
    value = json.loads(answer.payload)
    if not isinstance(value, dict) or "statusCode" not in value:
        body = value if isinstance(value, str) else json.dumps(value)
        return Response(body, media_type="application/json")
    try:
        return _structured(value)
    except (TypeError, ValueError, AttributeError) as error:
        raise Unusable(f"its answer is no response: {error}") from error


def _structured(value: dict[str, Any]) -> Response:
    body = value.get("body") or ""
    content = base64.b64decode(body) if value.get("isBase64Encoded") else body.encode()
    response = Response(content, int(value["statusCode"]))
    response.headers["content-type"] = "text/plain;charset=UTF-8"
    for name, given in (value.get("headers") or {}).items():
        response.headers[name] = _header(given)
    for cookie in value.get("cookies") or []:
        response.headers.append("set-cookie", cookie)
    return response


def _header(value: object) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)
