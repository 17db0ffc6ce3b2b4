"""Serves an application on a socket within the harness's own event loop."""

import asyncio
import socket
from contextlib import AsyncExitStack

import uvicorn
from starlette.responses import Response
from starlette.types import ASGIApp, Receive, Scope, Send

from .guard import HEADERS, Guard, Origin

KEEP_ALIVE = 3_600
"""Seconds: clients keep idle connections for long, and a request on one just closed would fail."""


async def serve(application: ASGIApp, sock: socket.socket, guard: Guard, parts: AsyncExitStack) -> None:
    """Have `application` answer those whom `guard` lets in, on `sock` until `parts` closes."""
    config = uvicorn.Config(
        guarded(application, guard),
        http="httptools",
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
        await (refused or application)(scope, receive, send)

    return answer


def _origin(scope: Scope) -> Origin:
    values: dict[str, list[str]] = {name: [] for name in HEADERS}
    for name, value in scope["headers"]:
        if (known := name.decode("latin-1")) in values:
            values[known].append(value.decode("latin-1"))
    return Origin(values, (scope.get("server") or ("",))[0])
