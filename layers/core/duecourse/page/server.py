"""The page as an ASGI application: the front end's files, and the HTTP API beside them."""

import asyncio
import json
from collections.abc import Callable
from datetime import UTC, datetime
from threading import Thread
from typing import TYPE_CHECKING, TypeVar
from urllib.parse import urlencode

from starlette.requests import ClientDisconnect, Request
from starlette.responses import RedirectResponse, Response

from duecourse import __version__
from duecourse.api.problems import CONTENT_TYPE, RETRY_AFTER, URN
from duecourse.api.request import MAX_BATCH_BYTES
from duecourse.in_place import ApiRequest, ApiUnavailable, HttpApi
from duecourse.page.files import NO_STORE, index, plain_page, static_file
from duecourse.page.key import COOKIE, PageKey
from duecourse.page.requests import (
    OTHER_SITES,
    SAFE,
    Location,
    Rejected,
    foreign,
    is_reading,
    locate,
    normal_base,
    wrong_host,
)

if TYPE_CHECKING:
    from starlette.types import Receive, Scope, Send

T = TypeVar("T")

VIEWS = frozenset(["", "queues", "tasks", "dead", "schedules", "reminders", "queries", "watched", "limits", "search"])
"""First parts of the paths of views: the front end shows each of them."""
API, SESSION, STATIC = "/api/", "/api/-/session", "/static/"
POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; connect-src 'self'; "
    "font-src 'self'; form-action 'none'; frame-ancestors 'none'; base-uri 'self'"
)
HEADERS = {
    "Content-Security-Policy": POLICY,
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
}
"""Headers of every answer."""
PASSED_ON = ("content-type", "idempotency-key")
"""Headers of a request that the API gets: no cookie is among them, and no name of the caller."""
HANDED_BACK = ("content-type", "retry-after", "allow")
"""Headers of an answer that the browser gets, beside those of the page."""
AT_A_TIME = 8
"""Maximum number of requests to the API at a time: a browser has six connections."""

NO_KEY = Rejected(
    401,
    "page-key",
    "This page needs its key.",
    "Open the address that the command printed: its key is a new one at each start.",
)
READ_ONLY = Rejected(
    403, "page-read-only", "This page only shows.", "It was started read-only, so nothing can be changed."
)
NO_VIEW = Rejected(404, "page-no-view", "There is no such view.", "The page has no view at this address.")
ONLY_GET = Rejected(405, "page-method", "A view can only be read.", "Views and files take GET and HEAD.")
TOO_LARGE = Rejected(413, "body-too-large", "The body is over its limit.", "The body is over 6144 KiB.")


class Page:
    """The page on an HTTP API; `hosts` are the names that it answers to, None for any name.

    Without a key, the page lets every request in: the application around it has the login.
    """

    def __init__(
        self,
        api: HttpApi,
        *,
        read_only: bool = False,
        base: str = "",
        key: PageKey | None = None,
        hosts: frozenset[str] | None = None,
    ) -> None:
        self._api = api
        self._read_only = read_only
        self._base = normal_base(base)
        self._key = key
        self._hosts = hosts
        self._slots = asyncio.Semaphore(AT_A_TIME)

    async def __call__(self, scope: "Scope", receive: "Receive", send: "Send") -> None:
        """Serve one request; the start and the end of the server need no work."""
        if scope["type"] != "http":
            return
        request = Request(scope, receive)
        try:
            answer = await self._answer(request, locate(scope, self._base))
        except ClientDisconnect:
            return
        answer.headers.update(HEADERS)
        if request.method == "HEAD":
            answer.body = b""  # its length stays in the headers
        await answer(scope, receive, send)

    async def _answer(self, request: Request, at: Location) -> Response:
        if rejected := wrong_host(request, self._hosts):
            return _problem(rejected)
        if self._key and (answer := self._unlock(self._key, request, at)):
            return answer
        if at.path.startswith(API):
            return await self._api_answer(request, at.path)
        if request.method not in SAFE:
            return _plain(ONLY_GET, {"Allow": ", ".join(SAFE)})
        if at.path.startswith(STATIC):
            name, known = at.path.removeprefix(STATIC), request.headers.get("if-none-match", "")
            return static_file(name, known) or _plain(NO_VIEW)
        return index(at.base) if at.path.split("/")[1] in VIEWS else _plain(NO_VIEW)

    def _unlock(self, key: PageKey, request: Request, at: Location) -> Response | None:
        """None for a request with the cookie; else the exchange of the key for it, or a rejection."""
        if (given := request.query_params.get("key")) and request.method in SAFE and key.opens(given):
            rest = urlencode([pair for pair in request.query_params.multi_items() if pair[0] != "key"])
            answer = RedirectResponse(at.base + at.path + (f"?{rest}" if rest else ""), 303, NO_STORE)
            answer.set_cookie(COOKIE, key.cookie, path=at.base or "/", httponly=True, samesite="strict")
            return answer
        if key.is_cookie(request.cookies.get(COOKIE, "")):
            return None
        if at.path.startswith(API):
            return _problem(NO_KEY)
        # A link in a chat or a terminal's window: the browser sends the cookie with requests of this site alone.
        if request.headers.get("sec-fetch-site") in OTHER_SITES and request.method in SAFE:
            return plain_page(200, "One moment", "The page opens.", reloads=True)
        return _plain(NO_KEY)

    async def _api_answer(self, request: Request, path: str) -> Response:
        if rejected := foreign(request):
            return _problem(rejected)
        if path == SESSION:
            return _json(200, self._session()) if request.method in SAFE else _problem(ONLY_GET)
        body = b"" if request.method in SAFE else await _body(request)
        asked = "/" + path.removeprefix(API)
        if body is None:
            return _problem(TOO_LARGE)
        if self._read_only and not is_reading(request.method, asked, body):
            return _problem(READ_ONLY)
        return await self._send(_api_request(request, asked, body))

    async def _send(self, request: ApiRequest) -> Response:
        try:
            async with self._slots:
                answer = await _on_thread(lambda: self._api.send(request))
        except ApiUnavailable as error:
            away = Rejected(503, "page-unavailable", "The store or the API does not answer.", str(error))
            return _problem(away, RETRY_AFTER)
        headers = {name: answer.headers[name] for name in HANDED_BACK if name in answer.headers}
        return Response(answer.body, answer.status, {**headers, **NO_STORE})

    def _session(self) -> dict[str, object]:
        return {
            "read_only": self._read_only,
            "version": __version__,
            "place": self._api.name,
            "tenant": self._api.tenant,
            "now": datetime.now(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z"),
        }


def _api_request(request: Request, path: str, body: bytes) -> ApiRequest:
    # HEAD is read as GET, and its answer sent without the body.
    method = "GET" if request.method in SAFE else request.method
    headers = {name: request.headers[name] for name in PASSED_ON if name in request.headers}
    return ApiRequest(method, path, dict(request.query_params), body, headers)


async def _body(request: Request) -> bytes | None:
    """The whole body, None for one over the limit: it is read to its end all the same, or its sender sees no answer."""
    body, length = bytearray(), 0
    async for chunk in request.stream():
        length += len(chunk)
        if length <= MAX_BATCH_BYTES:
            body += chunk
    return bytes(body) if length <= MAX_BATCH_BYTES else None


async def _on_thread(work: Callable[[], T]) -> T:
    """Result of work on a thread of its own, for which nobody waits when the program ends: an API may hang."""
    loop = asyncio.get_running_loop()
    done: asyncio.Future[T] = loop.create_future()

    def end(set_result: Callable[[], None]) -> None:
        if not done.cancelled():
            set_result()

    def run() -> None:
        try:
            result = work()
        except Exception as error:  # noqa: BLE001 - handed to the request that waits
            ended, failure = done.set_exception, error
            loop.call_soon_threadsafe(end, lambda: ended(failure))
        else:
            loop.call_soon_threadsafe(end, lambda: done.set_result(result))

    Thread(target=run, name="duecourse-page", daemon=True).start()
    return await done


def _json(status: int, document: object) -> Response:
    return Response(json.dumps(document), status, NO_STORE, "application/json")


def _problem(rejected: Rejected, headers: dict[str, str] | None = None) -> Response:
    status, code, title, detail = rejected
    document = {"type": URN + code, "title": title, "status": status, "detail": detail}
    return Response(json.dumps(document), status, {**NO_STORE, **(headers or {})}, CONTENT_TYPE)


def _plain(rejected: Rejected, headers: dict[str, str] | None = None) -> Response:
    answer = plain_page(rejected.status, rejected.title, rejected.detail)
    answer.headers.update(headers or {})
    return answer
