"""Health of a worker on a port: `/live` while its parent runs, `/ready` while it can work tasks."""

import asyncio
import json
import os
import socket
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from http import HTTPStatus
from pathlib import Path
from threading import Thread
from typing import Any

from duecourse.errors import StoreMisused, StoreUnavailable

Ping = Callable[[], object]
"""Asks the store to answer. Raises StoreUnavailable."""
Health = dict[str, Any]

REQUEST_S = 5.0
"""Time that a caller has to send a request, and to take the answer."""
LOOK_S = 5.0
"""Time that the store has to answer; after that the worker is not ready."""
MOST = 64
"""The most connections at the same time; further ones are closed at once."""
MAX_REQUEST = 8_192
"""Maximum size of a request, in bytes."""
LOOPBACK, EVERYWHERE = "127.0.0.1", ""
MARKS = (Path("/.dockerenv"), Path("/run/.containerenv"))
"""Files that Docker and Podman put into each container."""
NAMES = ("KUBERNETES_SERVICE_HOST", "ECS_CONTAINER_METADATA_URI_V4")
"""Variables that Kubernetes and ECS set in each container."""


def health(ping: Ping, ready: Callable[[], int], wanted: int, left_out: Callable[[], int]) -> Health:
    """State of the worker: of its store, of its processes, and the number of shards that they leave out."""
    try:
        ping()
        store = "ok"
    except (StoreUnavailable, StoreMisused):
        store = "unavailable"
    processes = {"ready": ready(), "wanted": wanted}
    status = "ok" if store == "ok" and processes["ready"] else "unavailable"
    return {"status": status, "store": store, "processes": processes, "left_out": left_out()}


def default_host() -> str:
    """Every address in a container, where probes come from outside; else this machine's own."""
    is_marked = any(mark.exists() for mark in MARKS) or any(name in os.environ for name in NAMES)
    return EVERYWHERE if is_marked or os.getpid() == 1 else LOOPBACK


@contextmanager
def served(host: str, port: int, look: Callable[[], Health]) -> Iterator[int]:
    """Serve health at this address, "" for every one, and this port, 0 for a free one; answers the port.

    One thread serves all connections, and another asks the store. Raises OSError where it cannot listen.
    """
    listener = _listening(host, port)
    loop = asyncio.new_event_loop()
    server = loop.run_until_complete(_start(listener, _Answers(look)))
    thread = Thread(target=loop.run_forever, name="health", daemon=True)
    thread.start()
    try:
        yield listener.getsockname()[1]
    finally:
        loop.call_soon_threadsafe(loop.stop)
        thread.join()
        loop.run_until_complete(_stop(server))
        loop.close()


def _listening(host: str, port: int) -> socket.socket:
    if host == EVERYWHERE and socket.has_dualstack_ipv6():
        return socket.create_server((host, port), family=socket.AF_INET6, dualstack_ipv6=True)
    return socket.create_server((host, port), family=socket.AF_INET6 if ":" in host else socket.AF_INET)


async def _start(listener: socket.socket, answers: "_Answers") -> asyncio.Server:
    return await asyncio.start_server(answers.serve, sock=listener, limit=MAX_REQUEST)


async def _stop(server: asyncio.Server) -> None:
    server.close()
    serving = asyncio.all_tasks() - {asyncio.current_task()}
    for task in serving:
        task.cancel()
    await asyncio.gather(*serving, return_exceptions=True)
    await asyncio.sleep(0)  # transports are closed by the loop, one turn later


class _Answers:
    """Answers requests; those that come while the store is asked share one look at it."""

    def __init__(self, look: Callable[[], Health]) -> None:
        self._look = look
        self._looking: asyncio.Future[Health] | None = None
        self._open = 0

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Answer one request of a connection. A caller that hangs up, or is slow, is no news."""
        self._open += 1
        try:
            with suppress(OSError, TimeoutError, asyncio.IncompleteReadError, asyncio.LimitOverrunError):
                if self._open <= MOST:
                    async with asyncio.timeout(REQUEST_S):
                        request = await reader.readuntil(b"\r\n\r\n")
                    status, body = await self._answer(request)
                    async with asyncio.timeout(REQUEST_S):
                        writer.write(_written(status, body, is_head=request.startswith(b"HEAD ")))
                        await writer.drain()
        finally:
            self._open -= 1
            writer.close()

    async def _answer(self, request: bytes) -> tuple[HTTPStatus, Health]:
        method, path = (*request.split(b" ", 2), b"", b"")[:2]
        if method not in {b"GET", b"HEAD"}:
            return HTTPStatus.METHOD_NOT_ALLOWED, {"status": "unknown", "methods": ["GET", "HEAD"]}
        if path == b"/live":
            return HTTPStatus.OK, {"status": "ok"}
        if path != b"/ready":
            return HTTPStatus.NOT_FOUND, {"status": "unknown", "paths": ["/live", "/ready"]}
        found = await self._found()
        return HTTPStatus.OK if found["status"] == "ok" else HTTPStatus.SERVICE_UNAVAILABLE, found

    async def _found(self) -> Health:
        if self._looking is None or self._looking.done():
            self._looking = asyncio.get_running_loop().run_in_executor(None, self._look)
        try:
            return await asyncio.wait_for(asyncio.shield(self._looking), LOOK_S)
        except TimeoutError:
            return {"status": "unavailable", "store": "unavailable"}


def _written(status: HTTPStatus, body: Health, *, is_head: bool) -> bytes:
    text = json.dumps(body).encode()
    head = f"HTTP/1.1 {status.value} {status.phrase}\r\nContent-Type: application/json\r\n"
    head += f"Content-Length: {len(text)}\r\nConnection: close\r\n\r\n"
    return head.encode() + (b"" if is_head else text)
