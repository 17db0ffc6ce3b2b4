"""A way to a server on TCP that can go deaf: what the server says is swallowed, and neither end is told."""

import contextlib
import socket
import threading
from collections.abc import Callable
from typing import Any


class DeafProxy:
    """Forwards bytes to `server`; while `deaf` is set, the server's answers go nowhere."""

    def __init__(self, server: tuple[str, int]) -> None:
        self._server = server
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._listener.getsockname()[1]
        self.deaf = threading.Event()
        self._open: list[socket.socket] = []
        self._threads: list[threading.Thread] = []

    def __enter__(self) -> "DeafProxy":
        self._spawn(self._accept)
        return self

    def __exit__(self, *_: object) -> None:
        for end in (self._listener, *self._open):
            _shut(end)
        for thread in self._threads:
            thread.join()
        for end in (self._listener, *self._open):
            end.close()

    def _accept(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                near, _ = self._listener.accept()
                far = socket.create_connection(self._server)
                self._open += [near, far]
                self._spawn(self._pump, near, far, None)
                self._spawn(self._pump, far, near, self.deaf)

    def _pump(self, source: socket.socket, sink: socket.socket, swallow: threading.Event | None) -> None:
        with contextlib.suppress(OSError):
            while data := source.recv(65_536):
                if swallow is None or not swallow.is_set():
                    sink.sendall(data)
        _shut(sink)

    def _spawn(self, target: Callable[..., None], *args: Any) -> None:
        thread = threading.Thread(target=target, args=args, daemon=True)
        self._threads.append(thread)
        thread.start()


def _shut(end: socket.socket) -> None:
    with contextlib.suppress(OSError):
        end.shutdown(socket.SHUT_RDWR)
