"""A way to Redis that loses the reply to a command which the server has run."""

import contextlib
import socket
import tempfile
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any


class LossyProxy:
    """Forwards bytes between a unix socket of its own and the server's; `lose_next_reply` arms it once.

    `drop_silently` lets the connections that are open swallow what they are sent, as a gateway does after a long pause.
    """

    def __init__(self, server: Path) -> None:
        self._server = server
        self._folder = tempfile.TemporaryDirectory(prefix="duecourse-proxy-")
        self._listener = socket.socket(socket.AF_UNIX)
        self._armed = threading.Event()
        self._command = b""
        self._open: set[socket.socket] = set()
        self._dropped: set[socket.socket] = set()
        self._threads: list[threading.Thread] = []
        self.lost = 0
        self.url = f"unix://{self._folder.name}/proxy.sock"

    def __enter__(self) -> "LossyProxy":
        self._listener.bind(self.url.removeprefix("unix://"))
        self._listener.listen()
        self._spawn(self._accept)
        return self

    def __exit__(self, *_: object) -> None:
        for end in (self._listener, *self._open):
            _shut(end)
        for thread in self._threads:
            thread.join()
        self._listener.close()
        self._folder.cleanup()

    def lose_next_reply(self, of: bytes = b"EVAL") -> None:
        """Drop the connection instead of the next answer to such a command (EVALSHA or EVAL), after it was run."""
        self._command = of
        self._armed.set()

    def drop_silently(self) -> None:
        """Forget the connections that are open, and tell neither end."""
        self._dropped |= self._open

    def _accept(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                near, _ = self._listener.accept()
                self._spawn(self._serve, near)

    def _serve(self, near: socket.socket) -> None:
        with near, socket.socket(socket.AF_UNIX) as far:
            far.connect(str(self._server))
            self._open |= {near, far}
            ran = threading.Event()
            down = self._spawn(self._down, near, far, ran)
            self._up(near, far, ran)
            down.join()
            self._open -= {near, far}

    def _up(self, near: socket.socket, far: socket.socket, ran: threading.Event) -> None:
        with contextlib.suppress(OSError):
            while data := near.recv(65_536):
                if near in self._dropped:
                    continue
                if self._armed.is_set() and self._command in data:
                    ran.set()
                far.sendall(data)
        _shut(far)

    def _down(self, near: socket.socket, far: socket.socket, ran: threading.Event) -> None:
        with contextlib.suppress(OSError):
            while data := far.recv(65_536):
                if ran.is_set() and not data.startswith(b"-"):
                    self._armed.clear()
                    self.lost += 1
                    break
                ran.clear()
                near.sendall(data)
        _shut(near)
        _shut(far)

    def _spawn(self, target: Callable[..., None], *args: Any) -> threading.Thread:
        thread = threading.Thread(target=target, args=args, daemon=True)
        self._threads = [t for t in self._threads if t.is_alive() or t.ident is None]
        self._threads.append(thread)
        thread.start()
        return thread


def _shut(end: socket.socket) -> None:
    with contextlib.suppress(OSError):
        end.shutdown(socket.SHUT_RDWR)
