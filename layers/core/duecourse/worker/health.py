"""Health of a worker on a port: `/live` while its parent runs, `/ready` while it can work tasks."""

import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread
from typing import Any

from duecourse.errors import StoreMisused, StoreUnavailable

Ping = Callable[[], object]
"""Asks the store to answer. Raises StoreUnavailable."""


def health(ping: Ping, ready: Callable[[], int], wanted: int, left_out: Callable[[], int]) -> dict[str, Any]:
    """State of the worker: of its store, of its processes, and the number of shards that they leave out."""
    try:
        ping()
        store = "ok"
    except (StoreUnavailable, StoreMisused):
        store = "unavailable"
    processes = {"ready": ready(), "wanted": wanted}
    status = "ok" if store == "ok" and processes["ready"] else "unavailable"
    return {"status": status, "store": store, "processes": processes, "left_out": left_out()}


@contextmanager
def served(port: int, look: Callable[[], dict[str, Any]]) -> Iterator[int]:
    """Serve health on this port of every address, 0 for a free one; answers the port."""

    class Answer(BaseHTTPRequestHandler):
        """One request."""

        timeout = 10.0  # seconds for a request: a silent caller holds its thread no longer

        def do_GET(self) -> None:
            """Answer /live and /ready."""
            if self.path == "/live":
                self._answer(HTTPStatus.OK, {"status": "ok"})
            elif self.path == "/ready":
                found = look()
                is_ok = found["status"] == "ok"
                self._answer(HTTPStatus.OK if is_ok else HTTPStatus.SERVICE_UNAVAILABLE, found)
            else:
                self._answer(HTTPStatus.NOT_FOUND, {"status": "unknown", "paths": ["/live", "/ready"]})

        def _answer(self, status: HTTPStatus, body: dict[str, Any]) -> None:
            text = json.dumps(body).encode()
            self.send_response(status)
            self.send_header("content-type", "application/json")
            self.send_header("content-length", str(len(text)))
            self.end_headers()
            self.wfile.write(text)

        def log_message(self, format: str, *arguments: Any) -> None:
            """Log nothing: probes come each few seconds."""

    with ThreadingHTTPServer(("", port), Answer) as server:
        thread = Thread(target=server.serve_forever, kwargs={"poll_interval": 0.1}, name="health", daemon=True)
        thread.start()
        try:
            yield server.server_port
        finally:
            server.shutdown()
            thread.join()
