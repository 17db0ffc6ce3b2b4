"""Lambda's Runtime API for one process: it asks for invocations here, and brings its answers."""

import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from queue import SimpleQueue
from typing import NamedTuple

PREFIX = "/2018-06-01/runtime/"


class Invocation(NamedTuple):
    """An invocation on its way to the process: the event, and the headers that describe it."""

    event: bytes
    headers: dict[str, str]


class Told(NamedTuple):
    """What came of it: an answer, an error of the handler or of its loading, or, empty, the process asking for more."""

    body: bytes
    is_error: bool = False
    ready: bool = False


class RuntimeApi:
    """One server on a free port; `asked` goes to the process, `told` comes from it."""

    def __init__(self) -> None:
        api = self
        self.asked: SimpleQueue[Invocation | None] = SimpleQueue()
        self.told: SimpleQueue[Told] = SimpleQueue()

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"
            disable_nagle_algorithm = True

            def do_GET(self) -> None:
                api.told.put(Told(b"", ready=True))
                asked = api.asked.get()
                if asked is None:
                    self.close_connection = True
                    return
                self._answer(200, asked.event, asked.headers)

            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers.get("content-length", 0)))
                self._answer(202, b'{"status":"OK"}', {})
                api.told.put(Told(body, is_error=self.path.endswith("/error")))

            def _answer(self, status: int, body: bytes, headers: dict[str, str]) -> None:
                self.send_response(status)
                for name, value in {"Content-Type": "application/json", **headers}.items():
                    self.send_header(name, value)
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, format: str, *args: object) -> None:
                """Say nothing."""

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._server.daemon_threads = True
        threading.Thread(target=self._server.serve_forever, daemon=True).start()

    @property
    def address(self) -> str:
        """Host and port, as AWS_LAMBDA_RUNTIME_API has them."""
        return f"127.0.0.1:{self._server.server_address[1]}"

    def close(self) -> None:
        """Stop, and let a process that waits go."""
        self.asked.put(None)
        self._server.shutdown()
        self._server.server_close()
