"""Lambda's Runtime API, as `awslambdaric` calls it: one listening port a process tells the callers apart.

(Its client takes the address for host and port, so a path prefix cannot name the process.)
"""

import asyncio
import re
from collections.abc import Mapping
from http import HTTPStatus
from typing import Protocol

import httptools

from .guard import HEADERS, Guard, Origin

PREFIX = "/2018-06-01/runtime/"
GUARD = Guard()
REPORT = re.compile(r"^invocation/([^/]+)/(response|error)$")


class Runtime(Protocol):
    """Calls of one function process."""

    def wants_next(self, connection: "RuntimeConnection") -> None:
        """The process is ready for an invocation: `connection.reply` brings it."""

    def responded(self, request_id: str, body: bytes) -> None:
        """The handler returned."""

    def failed(self, request_id: str, body: bytes) -> None:
        """The handler raised."""

    def init_failed(self, body: bytes) -> None:
        """The handler's module could not be loaded."""


class RuntimeConnection(asyncio.Protocol):
    """One HTTP connection of a function process."""

    def __init__(self, runtime: Runtime) -> None:
        self._runtime = runtime
        self._parser = httptools.HttpRequestParser(self)
        self._url = b""
        self._body = bytearray()
        self._given: dict[str, list[str]] = {}
        self._transport: asyncio.Transport | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Take the transport; asyncio has switched Nagle's algorithm off (a call would cost 44 ms with it)."""
        assert isinstance(transport, asyncio.Transport)  # noqa: S101 - for the type
        self._transport = transport

    def connection_lost(self, _error: Exception | None) -> None:
        """Forget the transport."""
        self._transport = None

    def data_received(self, data: bytes) -> None:
        """Parse what came."""
        try:
            self._parser.feed_data(data)
        except httptools.HttpParserError:
            self.close()

    @property
    def open(self) -> bool:
        """True if the process can still be answered."""
        return self._transport is not None and not self._transport.is_closing()

    def close(self) -> None:
        """Hang up."""
        if self._transport is not None:
            self._transport.close()

    def reply(self, status: int, body: bytes, headers: Mapping[str, str] | None = None) -> None:
        """Answer the request at hand with JSON."""
        lines = [
            f"HTTP/1.1 {status} {HTTPStatus(status).phrase}",
            "Content-Type: application/json",
            f"Content-Length: {len(body)}",
            *(f"{name}: {value}" for name, value in (headers or {}).items()),
        ]
        if self._transport is not None:
            self._transport.write("\r\n".join([*lines, "", ""]).encode() + body)

    def on_message_begin(self) -> None:
        """Parser: a request begins."""
        self._url, self._body, self._given = b"", bytearray(), {name: [] for name in HEADERS}

    def on_url(self, url: bytes) -> None:
        """Parser: a piece of the address."""
        self._url += url

    def on_header(self, name: bytes, value: bytes) -> None:
        """Parser: a header; large bodies are announced and want to be asked for."""
        if (known := name.decode("latin-1").lower()) in self._given:
            self._given[known].append(value.decode("latin-1"))
        if name.lower() == b"expect" and value.lower() == b"100-continue" and self._transport is not None:
            self._transport.write(b"HTTP/1.1 100 Continue\r\n\r\n")

    def on_body(self, body: bytes) -> None:
        """Parser: a piece of the body."""
        self._body += body

    def on_message_complete(self) -> None:
        """Parser: the request is whole."""
        rejection = GUARD.rejection(Origin(self._given, ""))
        if rejection:
            self.reply(rejection.status, rejection.body)
            self.close()
            return
        call = self._url.decode().removeprefix(PREFIX)
        body = bytes(self._body)
        if call == "invocation/next":
            self._runtime.wants_next(self)
        elif call == "init/error":
            self.reply(202, b'{"status":"OK"}')
            self._runtime.init_failed(body)
        else:
            self._report(call, body)

    def _report(self, call: str, body: bytes) -> None:
        match = REPORT.match(call)
        if not match:
            self.reply(404, b'{"errorMessage":"no such call","errorType":"InvalidRequest"}')
            return
        self.reply(202, b'{"status":"OK"}')
        taken = self._runtime.responded if match[2] == "response" else self._runtime.failed
        taken(match[1], body)
