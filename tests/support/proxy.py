"""A way to a server that can be made to fail: what goes between each client and the server passes through here."""

import contextlib
import socket
import threading
from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple, Self


class Link(NamedTuple):
    """One client's connection, and the one that was made for it to the server."""

    near: socket.socket
    far: socket.socket


class Proxy:
    """Forwards bytes between those who call at `listener` and the server that `dial` connects to."""

    def __init__(self, listener: socket.socket, dial: Callable[[], socket.socket]) -> None:
        self._listener = listener
        self._dial = dial
        self._open: set[socket.socket] = set()
        self._threads: list[threading.Thread] = []
        self.calls = 0
        """How many connections were made through here."""

    def __enter__(self) -> Self:
        self._spawn(self._accept)
        return self

    def __exit__(self, *_: object) -> None:
        for end in (self._listener, *self._open):
            shut(end)
        for thread in self._threads:
            thread.join()
        self._listener.close()

    def up(self, link: Link, data: bytes) -> None:
        """Pass on what the client says; an OSError hangs up on the server."""
        link.far.sendall(data)

    def down(self, link: Link, data: bytes) -> None:
        """Pass on what the server says; an OSError hangs up on the client."""
        link.near.sendall(data)

    def _accept(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                near, _ = self._listener.accept()
                self.calls += 1
                self._spawn(self._serve, near)

    def _serve(self, near: socket.socket) -> None:
        with near, contextlib.suppress(ConnectionRefusedError), self._dial() as far:
            self._open |= {near, far}
            link = Link(near, far)
            answers = self._spawn(self._pump, far, partial(self.down, link), near)
            self._pump(near, partial(self.up, link), far)
            answers.join()
            self._open -= {near, far}

    def _pump(self, source: socket.socket, pass_on: Callable[[bytes], None], sink: socket.socket) -> None:
        with contextlib.suppress(OSError):
            while data := source.recv(65_536):
                pass_on(data)
        shut(sink)

    def _spawn(self, target: Callable[..., None], *args: Any) -> threading.Thread:
        thread = threading.Thread(target=target, args=args, daemon=True)
        self._threads = [t for t in self._threads if t.is_alive() or t.ident is None]
        self._threads.append(thread)
        thread.start()
        return thread


def shut(end: socket.socket) -> None:
    """Hang up."""
    with contextlib.suppress(OSError):
        end.shutdown(socket.SHUT_RDWR)
