"""Serves an application on a socket within the harness's own event loop."""

import asyncio
import socket
from contextlib import AsyncExitStack, suppress

import uvicorn
from starlette.requests import ClientDisconnect
from starlette.responses import Response
from starlette.types import ASGIApp, Receive, Scope, Send
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from .guard import HEADERS, Guard, Origin

MAX_HEAD = 64 * 1024
"""Maximum size of a request's head: API Gateway takes 10 KiB, and a head without an end would fill this process."""
REQUEST_WITHIN_S = 60.0
"""Longest time from a request's first byte to its last: half requests without end would fill this process."""
TOO_LATE = b"HTTP/1.1 408 Request Timeout\r\nConnection: close\r\nContent-Length: 0\r\n\r\n"
KEEP_ALIVE = 3_600
"""Seconds: clients keep idle connections for long, and a request on one just closed would fail."""


class BoundedRequests(HttpToolsProtocol):
    """uvicorn's protocol, which by itself reads heads of any size, and waits for ever for the rest of a request."""

    _in_head = False
    _head = 0
    _ends: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """See HttpToolsProtocol."""
        super().connection_made(transport)
        self._end_within(KEEP_ALIVE)

    def connection_lost(self, exc: Exception | None) -> None:
        """See HttpToolsProtocol."""
        self._end_within(None)
        super().connection_lost(exc)

    def on_message_begin(self) -> None:
        """See HttpToolsProtocol."""
        self._in_head, self._head = True, 0
        self._end_within(REQUEST_WITHIN_S)
        super().on_message_begin()

    def on_message_complete(self) -> None:
        """See HttpToolsProtocol."""
        self._end_within(None)
        super().on_message_complete()

    def on_headers_complete(self) -> None:
        """See HttpToolsProtocol."""
        self._in_head = False
        super().on_headers_complete()

    def data_received(self, data: bytes) -> None:
        """Read a piece of a request, or answer 400 to a head that is longer than MAX_HEAD."""
        super().data_received(data)
        self._head += len(data)
        if self._in_head and self._head > MAX_HEAD and not self.transport.is_closing():
            self.send_400_response("The head of the request is too large.")

    def _end_within(self, seconds: float | None) -> None:
        """End the connection after so many seconds, unless this is called again; None for no end."""
        if self._ends is not None:
            self._ends.cancel()
        self._ends = None if seconds is None else self.loop.call_later(seconds, self._end)

    def _end(self) -> None:
        """Hang up; a request whose answer has not begun is answered 408."""
        answering = self.cycle is not None and self.cycle.response_started and not self.cycle.response_complete
        if not answering and not self.transport.is_closing():
            self.transport.write(TOO_LATE)
        self.transport.close()


async def serve(application: ASGIApp, sock: socket.socket, guard: Guard | None, parts: AsyncExitStack) -> None:
    """Have `application` answer those whom `guard` lets in, on `sock` until `parts` closes; it may guard itself."""
    config = uvicorn.Config(
        guarded(application, guard) if guard else application,
        http=BoundedRequests,
        ws="none",
        lifespan="off",
        log_config=None,
        access_log=False,
        timeout_keep_alive=KEEP_ALIVE,
        timeout_graceful_shutdown=1,
    )
    server = uvicorn.Server(config)
    serving = asyncio.create_task(server.serve(sockets=[sock]))

    async def stop() -> None:
        server.should_exit = True
        await serving

    parts.push_async_callback(stop)
    while not server.started:
        await asyncio.sleep(0.005)


def guarded(application: ASGIApp, guard: Guard) -> ASGIApp:
    """The application, for requests that `guard` lets in."""

    async def answer(scope: Scope, receive: Receive, send: Send) -> None:
        rejection = guard.rejection(_origin(scope))
        refused = rejection and Response(rejection.body, rejection.status, media_type="application/json")
        with suppress(ClientDisconnect):  # the sender is gone in the middle of its request: nobody is to be told
            await (refused or application)(scope, receive, send)

    return answer


def _origin(scope: Scope) -> Origin:
    values: dict[str, list[str]] = {name: [] for name in HEADERS}
    for name, value in scope["headers"]:
        if (known := name.decode("latin-1")) in values:
            values[known].append(value.decode("latin-1"))
    return Origin(values, (scope.get("server") or ("",))[0])
