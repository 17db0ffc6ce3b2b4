"""Requests to an ASGI application, without a server."""

import asyncio
import json
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple
from urllib.parse import unquote

Headers = Mapping[str, str | Sequence[str]]


class Answered(NamedTuple):
    """Answer of an application, with each header that it has, names in lower case."""

    status: int
    pairs: list[tuple[str, str]]
    body: bytes

    @property
    def headers(self) -> dict[str, str]:
        return dict(self.pairs)

    @property
    def text(self) -> str:
        return self.body.decode()

    @property
    def document(self) -> Any:
        return json.loads(self.body)


def request(
    application: Any,
    method: str,
    address: str,
    headers: Headers | None = None,
    body: bytes = b"",
    **scope: Any,
) -> Answered:
    """Answer to one request; `address` is the path and the query as they are sent, `scope` further parts of it."""
    return asyncio.run(answer_of(application, method, address, headers, body, **scope))


async def answer_of(
    application: Any,
    method: str,
    address: str,
    headers: Headers | None = None,
    body: bytes = b"",
    **scope: Any,
) -> Answered:
    """The same within an event loop."""
    path, _, query = address.partition("?")
    given = {"host": "ops.example", **(headers or {})}
    pairs = [(name, one) for name, value in given.items() for one in ([value] if isinstance(value, str) else value)]
    asked = {
        "type": "http",
        "asgi": {"version": "3.0"},
        "http_version": "1.1",
        "method": method,
        "scheme": "http",
        "path": unquote(path),
        "raw_path": path.encode(),
        "query_string": query.encode(),
        "root_path": "",
        "headers": [(name.lower().encode(), value.encode()) for name, value in pairs],
        "client": ("127.0.0.1", 50_000),
        "server": ("127.0.0.1", 80),
        **scope,
    }
    sent: list[Any] = []
    pieces = [body[at : at + 65_536] for at in range(0, len(body), 65_536)] or [b""]

    async def receive() -> dict[str, Any]:
        if not pieces:
            await asyncio.Future()  # the client stays
        return {"type": "http.request", "body": pieces.pop(0), "more_body": bool(pieces)}

    async def send(message: Any) -> None:
        sent.append(message)

    await application(asked, receive, send)
    start, *rest = sent
    found = [(name.decode(), value.decode()) for name, value in start["headers"]]
    return Answered(start["status"], found, b"".join(one.get("body", b"") for one in rest))
