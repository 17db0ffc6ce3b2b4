"""Moto's server as a program of its own, which also lists the messages that it was given to send to people."""

import io
import json
import os
import signal
import socket
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from typing import Any

os.environ["MOTO_DISABLE_GLOBAL_CORS"] = "true"  # read as moto is imported: with it, any web page may read what it says

from moto.moto_server.werkzeug_app import DomainDispatcherApplication, MotoRequestHandler, create_backend_app
from werkzeug.serving import make_server

from ..guard import HEADERS, Guard, Origin

CORS = "access-control-"
REQUEST_WITHIN_S = 60.0
"""Longest time from a request's first byte to its last: half requests without end would fill this process."""
NEXT_WITHIN_S = 3_600.0
"""Longest time from a connection's begin, or the end of a request, to the first byte of the next."""
TOO_LATE = b"HTTP/1.1 408 Request Timeout\r\nConnection: close\r\nContent-Length: 0\r\n\r\n"
Application = Callable[[dict[str, Any], Callable[..., Any]], Iterable[bytes]]


class DeadlineReader(io.RawIOBase):
    """Requests of one connection; a request past its deadline gets 408, and its reader TimeoutError."""

    def __init__(self, connection: socket.socket) -> None:
        super().__init__()
        self._connection = connection
        self.restart()

    def restart(self) -> None:
        """Wait for another request."""
        self._has_begun = False
        self._ends_at = time.monotonic() + NEXT_WITHIN_S

    def readable(self) -> bool:
        """True."""
        return True

    def readinto(self, buffer: Any) -> int:
        """Read available bytes, before the deadline. Raises TimeoutError."""
        self._connection.settimeout(max(0.001, self._ends_at - time.monotonic()))
        try:
            count = self._connection.recv_into(buffer)
        except TimeoutError:
            with suppress(OSError):
                self._connection.sendall(TOO_LATE)
                self._connection.shutdown(socket.SHUT_RDWR)  # whoever reads the body may go on to answer
            raise
        if not self._has_begun:
            self._has_begun = True
            self._ends_at = time.monotonic() + REQUEST_WITHIN_S
        self._connection.settimeout(REQUEST_WITHIN_S)
        return count


class BoundedRequests(MotoRequestHandler):
    """Moto's handler, which by itself waits for ever for the rest of a request."""

    def setup(self) -> None:
        """See BaseRequestHandler."""
        super().setup()
        self.rfile.close()
        self._reader = DeadlineReader(self.connection)
        self.rfile = io.BufferedReader(self._reader)

    def handle_one_request(self) -> None:
        """See BaseHTTPRequestHandler."""
        self._reader.restart()
        super().handle_one_request()


def with_sent_messages(application: Application, path: str) -> Application:
    """Moto's application with one more `path`, which answers the sent messages."""

    def answer(environ: dict[str, Any], start_response: Callable[..., Any]) -> Iterable[bytes]:
        if environ["PATH_INFO"] != path:
            return application(environ, start_response)
        start_response("200 OK", [("content-type", "application/json")])
        return [json.dumps(sent()).encode()]

    return answer


def guarded(application: Application, guard: Guard) -> Application:
    """The application, for requests that `guard` lets in."""

    def answer(environ: dict[str, Any], start_response: Callable[..., Any]) -> Iterable[bytes]:
        keys = {name: f"HTTP_{name.upper().replace('-', '_')}" for name in HEADERS}
        given = {name: [environ[key]] if key in environ else [] for name, key in keys.items()}
        rejection = guard.rejection(Origin(given, environ["SERVER_NAME"]))
        if rejection is None:
            return application(environ, without_cors(start_response))
        start_response(f"{rejection.status} Refused", [("content-type", "application/json")])
        return [rejection.body]

    return answer


def without_cors(start_response: Callable[..., Any]) -> Callable[..., Any]:
    """The start of an answer without what would let pages elsewhere read it: a bucket may have CORS of its own."""

    def start(status: str, headers: list[tuple[str, str]], *error: Any) -> Any:
        return start_response(status, [one for one in headers if not one[0].lower().startswith(CORS)], *error)

    return start


def sent() -> dict[str, list[dict[str, str]]]:
    """Messages that went out: of an e-mail moto keeps the HTML part if there is one, else the text."""
    from moto.ses.models import ses_backends
    from moto.sns.models import sns_backends

    mails = [mail for backend in _each(ses_backends) for mail in backend.sent_messages]
    texts = [sms for backend in _each(sns_backends) for sms in backend.sms_messages.values()]
    return {
        "mails": [{"to": m.destinations["ToAddresses"][0], "subject": m.subject, "body": m.body} for m in mails],
        "sms": [{"to": number, "text": text} for number, text in texts],
    }


def _each(backends: Any) -> Iterator[Any]:
    return (region for account in list(backends.values()) for region in list(account.values()))


def main(descriptor: int, path: str, names: Sequence[str]) -> None:
    """Serve on a listening socket until a signal comes; `names` as `Guard` takes them."""
    with socket.socket(fileno=os.dup(descriptor)) as sock:
        host, port = sock.getsockname()
    os.environ.setdefault("MOTO_PORT", str(port))
    signal.signal(signal.SIGTERM, lambda *_: os._exit(0))  # to tear so many modules down takes most of a second
    application = guarded(with_sent_messages(DomainDispatcherApplication(create_backend_app), path), Guard(names))
    server = make_server(host, port, application, threaded=True, request_handler=BoundedRequests, fd=descriptor)
    server.log_startup()
    server.serve_forever()


if __name__ == "__main__":
    main(int(sys.argv[1]), sys.argv[2], sys.argv[3:])
