"""Serves an application on a socket within the harness's own event loop."""

import asyncio
import socket
from contextlib import AsyncExitStack

import uvicorn
from starlette.applications import Starlette

KEEP_ALIVE = 3_600
"""Seconds: clients keep idle connections for long, and a request on one just closed would fail."""


async def serve(application: Starlette, sock: socket.socket, parts: AsyncExitStack) -> None:
    """Have `application` answer on `sock` until `parts` closes."""
    config = uvicorn.Config(
        application,
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
