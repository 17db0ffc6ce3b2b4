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
KEEP_ALIVE = 3_600
"""Seconds: clients keep idle connections for long, and a request on one just closed would fail."""


class BoundedHeads(HttpToolsProtocol):
    """uvicorn's protocol, which by itself reads heads of any size."""

    _in_head = False
    _head = 0

    def on_message_begin(self) -> None:
        """See HttpToolsProtocol."""
        self._in_head, self._head = True, 0
        super().on_message_begin()

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


async def serve(application: ASGIApp, sock: socket.socket, guard: Guard, parts: AsyncExitStack) -> None:
    """Have `application` answer those whom `guard` lets in, on `sock` until `parts` closes."""
    config = uvicorn.Config(
        guarded(application, guard),
        http=BoundedHeads,
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
    """The application, for those whom `guard` lets in."""

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
