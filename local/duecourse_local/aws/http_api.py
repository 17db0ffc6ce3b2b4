"""API Gateway's HTTP API: requests become format 2.0 events, functions' answers become responses."""

import base64
import json
from collections.abc import Mapping
from typing import Any

from starlette.applications import Starlette
from starlette.convertors import PathConvertor, register_url_convertor
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route
from starlette.types import Receive, Scope, Send

from duecourse.wire.http.problems import CONTENT_TYPE

from ..stack.logs import Log
from .access.chosen import Authorize
from .access.rejection import Rejected
from .events import HttpRequest, http_event
from .functions import Functions
from .invocation import Answer, Busy, Invocation, LambdaError, error_text
from .routes import Match, Routes

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
            asked = await _read(request)
            event = http_event(asked, match.key, match.parameters, self._authorize(asked))
        except TooLarge:
            return _message(413, "Request Entity Too Large")
        except Rejected as rejected:
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
        asked = f"{request.method} {path}"
        self._log.note("ERROR", f"{asked} was answered {response.status_code} for {name}: {why}")
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
    return Starlette(routes=[Route("/{path:any}", Gateway(routes, functions, authorize, log))])


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
