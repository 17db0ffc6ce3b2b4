"""Proxies that fail: to a server through which bytes are lost, held up, or swallowed."""

import contextlib
import re
import socket
import tempfile
import threading
from collections.abc import Callable
from functools import partial
from importlib.resources import files
from pathlib import Path
from typing import Any, NamedTuple, Self

from duecourse.ledger.connect import Client
from duecourse.ledger.script_calls import load
from tests.support.redis_server import RedisServer


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


class DeafProxy(Proxy):
    """While `deaf` is set, the server's answers go nowhere."""

    def __init__(self, server: tuple[str, int]) -> None:
        listener = socket.create_server(("127.0.0.1", 0))
        super().__init__(listener, lambda: socket.create_connection(server))
        self.port: int = listener.getsockname()[1]
        self.deaf = threading.Event()

    def down(self, link: Link, data: bytes) -> None:
        """Pass on what the server says, or not."""
        if not self.deaf.is_set():
            super().down(link, data)


VALID_UNTIL = re.compile(rb"\$13\r\n(\d{13})\r\n")
"""The clock of a script, its first argument."""


class HeldRequest(NamedTuple):
    """A request that its caller has given up, the verb of its script, and the server's time until which it is valid."""

    verb: str
    data: bytes
    valid_until: int


class HoldingProxy(Proxy):
    """Between a port of its own and a server's socket: it holds up the scripts of `verb`."""

    def __init__(self, server: RedisServer) -> None:
        listener = socket.create_server(("127.0.0.1", 0))
        self._server = str(server.socket)
        super().__init__(listener, self._dialled)
        self.url = f"redis://127.0.0.1:{listener.getsockname()[1]}/0"
        self.verb = ""
        self.held: list[HeldRequest] = []

    def up(self, link: Link, data: bytes) -> None:
        """Pass on what the client says, or keep it and hang up on the client."""
        if self.verb and load(self.verb).sha.encode() in data:
            found = VALID_UNTIL.search(data)
            self.held.append(HeldRequest(self.verb, data, int(found[1]) if found else 0))
            shut(link.near)
            raise ConnectionAbortedError
        super().up(link, data)

    def deliver(self, request: HeldRequest) -> bytes:
        """The beginning of the server's answer to a request that was held up."""
        with self._dialled() as late:
            late.sendall(request.data)
            return late.recv(65_536)

    def _dialled(self) -> socket.socket:
        far = socket.socket(socket.AF_UNIX)
        far.connect(self._server)
        return far


class LossyProxy(Proxy):
    """Between a unix socket of its own and the server's; `lose_next_reply` arms it once.

    `drop_silently` lets the connections that are open swallow what they are sent, as a gateway does after a long pause.
    """

    def __init__(self, server: Path) -> None:
        self._folder = tempfile.TemporaryDirectory(prefix="duecourse-proxy-")
        path = f"{self._folder.name}/proxy.sock"
        super().__init__(_listening(path), lambda: _dialled(str(server)))
        self._armed = threading.Event()
        self._command = b""
        self._then: Callable[[], None] = lambda: None
        self._ran: set[socket.socket] = set()
        self._dropped: set[socket.socket] = set()
        self.lost = 0
        self.url = f"unix://{path}"

    def __exit__(self, *_: object) -> None:
        super().__exit__()
        self._folder.cleanup()

    def lose_next_reply(self, of: bytes = b"EVALSHA", then: Callable[[], None] = lambda: None) -> None:
        """Drop the connection instead of the next answer to such a command, after the server has run it.

        `then` is done before the client learns of it.
        """
        self._command, self._then = of, then
        self._armed.set()

    def drop_silently(self) -> None:
        """Forget the connections that are open, and tell neither end."""
        self._dropped |= self._open

    def up(self, link: Link, data: bytes) -> None:
        """Pass on what the client says, unless its connection was dropped."""
        if link.near in self._dropped:
            return
        if self._armed.is_set() and self._command in data:
            self._ran.add(link.near)
        super().up(link, data)

    def down(self, link: Link, data: bytes) -> None:
        """Pass on what the server says, or lose it, and the connection with it."""
        if link.near in self._ran and not data.startswith(b"-"):
            self._armed.clear()
            self.lost += 1
            self._then()
            shut(link.far)
            raise ConnectionAbortedError
        self._ran.discard(link.near)
        super().down(link, data)


def load_scripts(client: Client) -> None:
    """Have the server know all scripts: else the reply that is lost is that it does not know one."""
    for script in Path(str(files("duecourse.ledger") / "lua")).glob("*.lua"):
        client.script_load(load(script.stem).text)


def _listening(path: str) -> socket.socket:
    listener = socket.socket(socket.AF_UNIX)
    listener.bind(path)
    listener.listen()
    return listener


def _dialled(path: str) -> socket.socket:
    far = socket.socket(socket.AF_UNIX)
    far.connect(path)
    return far
