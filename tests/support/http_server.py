"""Tiny real servers for tests: one that answers as a function says, two that do as they like with the socket."""

import contextlib
import re
import socket
import ssl
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import NamedTuple


class ReceivedRequest(NamedTuple):
    """One request as it came; names of headers are in lower case."""

    method: str
    path: str
    headers: Mapping[str, str]
    body: bytes
    client: tuple[str, int]


class Reply(NamedTuple):
    status: int = 200
    body: bytes = b""
    headers: Mapping[str, str] = {}


class Server(NamedTuple):
    url: str
    asked: list[ReceivedRequest]


@contextmanager
def _serving(server: ThreadingHTTPServer) -> Iterator[str]:
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    try:
        yield f"http://{server.server_address[0]!s}:{server.server_port}"
    finally:
        server.shutdown()
        thread.join()
        server.socket.close()


@contextmanager
def answering(
    answer: Callable[[ReceivedRequest], Reply], place: tuple[str, int] = ("127.0.0.1", 0)
) -> Iterator[Server]:
    """An HTTP/1.1 server on a free port of 127.0.0.1, or at `place`, that keeps what it was asked."""
    asked: list[ReceivedRequest] = []

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"
        disable_nagle_algorithm = True

        def handle_one_request(self) -> None:
            self.raw_requestline = self.rfile.readline(65_537)
            if not self.raw_requestline or not self.parse_request():
                self.close_connection = True
                return
            self.answer()

        def answer(self) -> None:
            body = self.rfile.read(int(self.headers.get("content-length") or 0))
            headers = {name.lower(): value for name, value in self.headers.items()}
            asked.append(ReceivedRequest(self.command, self.path, headers, body, self.client_address))
            reply = answer(asked[-1])
            self.send_response(reply.status)
            for name, value in {"content-length": str(len(reply.body)), **reply.headers}.items():
                self.send_header(name, value)
            self.end_headers()
            self.wfile.write(reply.body)

        def log_message(self, *args: object) -> None:
            pass

    class Quiet(ThreadingHTTPServer):
        daemon_threads = False
        request_queue_size = 128

        def handle_error(self, *args: object) -> None:
            pass

    with _serving(Quiet(place, Handler)) as url:
        yield Server(url, asked)


@contextmanager
def misbehaving(behave: Callable[[socket.socket], None], tls: ssl.SSLContext | None = None) -> Iterator[str]:
    """A server that hands each connection to `behave` once the request's first bytes are there, then closes it."""
    listener = socket.create_server(("127.0.0.1", 0))
    threads: list[threading.Thread] = []

    def serve(raw: socket.socket) -> None:
        with raw, contextlib.suppress(OSError), tls.wrap_socket(raw, server_side=True) if tls else raw as connection:
            connection.recv(65_536)
            behave(connection)

    def accept() -> None:
        while True:
            try:
                connection, _ = listener.accept()
            except OSError:
                return
            threads.append(threading.Thread(target=serve, args=(connection,)))
            threads[-1].start()

    accepting = threading.Thread(target=accept)
    accepting.start()
    try:
        yield f"{'https' if tls else 'http'}://127.0.0.1:{listener.getsockname()[1]}"
    finally:
        listener.shutdown(socket.SHUT_RDWR)
        listener.close()
        accepting.join()
        for thread in threads:
            thread.join()


class Heard(NamedTuple):
    """One request to a server that keeps its connections, and the number of the connection that it came by."""

    path: str
    connection: int


class Keeping(NamedTuple):
    url: str
    heard: list[Heard]


@contextmanager
def keeping(say: Callable[[socket.socket, str], None], tls: ssl.SSLContext | None = None) -> Iterator[Keeping]:
    """A server that keeps each connection: `say` gets it, and the path, once a request's head is there.

    The rest of a request's body is read after that. All connections are closed at the end.
    """
    listener = socket.create_server(("127.0.0.1", 0))
    heard: list[Heard] = []
    opened: dict[int, socket.socket] = {}
    threads: list[threading.Thread] = []

    def serve(raw: socket.socket, number: int) -> None:
        with raw, contextlib.suppress(OSError), tls.wrap_socket(raw, server_side=True) if tls else raw as connection:
            opened[number] = connection  # of TLS: it has taken the raw one's place
            _converse(connection, lambda path: (heard.append(Heard(path, number)), say(connection, path)))

    def accept() -> None:
        with contextlib.suppress(OSError):
            while True:
                number = len(threads) + 1
                opened[number], _ = listener.accept()
                threads.append(threading.Thread(target=serve, args=(opened[number], number)))
                threads[-1].start()

    accepting = threading.Thread(target=accept)
    accepting.start()
    try:
        yield Keeping(f"{'https' if tls else 'http'}://127.0.0.1:{listener.getsockname()[1]}", heard)
    finally:
        listener.shutdown(socket.SHUT_RDWR)
        listener.close()
        accepting.join()
        for connection in list(opened.values()):
            with contextlib.suppress(OSError):
                connection.shutdown(socket.SHUT_RDWR)
        for thread in threads:
            thread.join()


def _converse(connection: socket.socket, answer: Callable[[str], object]) -> None:
    """Have each request of a connection answered at its head, then read its body."""
    data = b""
    while data := _up_to(connection, data, b"\r\n\r\n"):
        head, _, data = data.partition(b"\r\n\r\n")
        length = re.search(rb"(?i)content-length: *(\d+)", head)
        answer(head.split(b" ")[1].decode())
        left = int(length[1]) if length else 0
        while len(data) < left:
            left -= len(data)
            data = connection.recv(65_536)
            if not data:
                return
        data = data[left:]


def _up_to(connection: socket.socket, data: bytes, end: bytes) -> bytes:
    """The bytes so far and all that follow, once `end` is among them; none where the other side hung up."""
    while end not in data:
        more = connection.recv(65_536)
        if not more:
            return b""
        data += more
    return data
