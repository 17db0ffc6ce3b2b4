"""Services that the demo calls: a slow API, a webhook receiver that fails at first, a receiver that blocks."""

import json
import threading
import time
from collections import defaultdict
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from types import TracebackType
from typing import Any, NamedTuple, Self

from ..harness.guard import HEADERS, Guard, Origin

GUARD = Guard()
PROCESSING = 2
"""Number of times that the slow API answers "processing" before it is done."""
FAILURES = 2
"""Number of times that the receiver fails."""
RECEIVING_S = 0.05
"""Time that the blocking receiver takes for each caller: one too many would be counted."""
LONGEST_BLOCK_S = 8.0
"""Longest time that the blocking receiver keeps a caller; shorter than the timeout of a webhook."""


class Delivery(NamedTuple):
    """One webhook as it arrived, and the status of the answer."""

    webhook_id: str
    body: Any
    status: int


class BlockingReceiver:
    """Receiver that keeps its callers until `released` is set, and counts them."""

    def __init__(self) -> None:
        self.released = threading.Event()
        self.callers = self.most_callers = 0
        self._lock = threading.Lock()

    def receive(self) -> None:
        """Keep one caller until the release."""
        with self._lock:
            self.callers += 1
            self.most_callers = max(self.most_callers, self.callers)
        self.released.wait(LONGEST_BLOCK_S)
        time.sleep(RECEIVING_S)
        with self._lock:
            self.callers -= 1


class FakeServices:
    """The services on one loopback port, from `with` to its end."""

    def __init__(self) -> None:
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), _handler_of(self))
        self._thread = threading.Thread(target=self._server.serve_forever, name="fake-services")
        self._lock = threading.Lock()
        self.blocking_receiver = BlockingReceiver()
        self.polls = 0
        self.deliveries: dict[str, list[Delivery]] = defaultdict(list)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self, _kind: type[BaseException] | None, _error: BaseException | None, _trace: TracebackType | None
    ) -> None:
        self.blocking_receiver.released.set()
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()

    @property
    def url(self) -> str:
        """Address of the services."""
        return f"http://127.0.0.1:{self._server.server_address[1]}"

    def export(self) -> dict[str, Any]:
        """The slow API's answer: "processing" twice, then "processed"."""
        with self._lock:
            self.polls += 1
            done = self.polls > PROCESSING
        return {"status": "processed", "data": {"rows": 1203}} if done else {"status": "processing"}

    def take(self, path: str, webhook_id: str, body: Any) -> int:
        """The receiver's status: /hooks/orders fails twice, every other request is accepted."""
        if path == "/hooks/depot":
            self.blocking_receiver.receive()
        with self._lock:
            past = self.deliveries[path]
            status = 503 if path == "/hooks/orders" and len(past) < FAILURES else 200
            past.append(Delivery(webhook_id, body, status))
        return status


def _handler_of(services: FakeServices) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        """GET /exports/<id> is the slow API, POST /hooks/<name> the receiver, /hooks/depot the blocking receiver."""

        def do_GET(self) -> None:
            if not self._rejected():
                self._answer(200, services.export())

        def do_POST(self) -> None:
            if self._rejected():
                return
            body = json.loads(self.rfile.read(int(self.headers["content-length"])))
            status = services.take(self.path, self.headers["webhook-id"], body)
            self._answer(status, {"taken": status == 200})

        def _rejected(self) -> bool:
            given = {name: self.headers.get_all(name, []) for name in HEADERS}
            rejection = GUARD.rejection(Origin(given, ""))
            if rejection:
                self.close_connection = True  # its body is not read
                self._answer(rejection.status, {"message": rejection.message})
            return rejection is not None

        def _answer(self, status: int, body: Any) -> None:
            data = json.dumps(body).encode()
            self.send_response(status)
            self.send_header("content-type", "application/json")
            self.send_header("content-length", str(len(data)))
            self.end_headers()
            self.wfile.write(data)

        def log_message(self, format: str, *args: Any) -> None:
            """Print nothing: the demo has lines of its own."""

    return Handler
