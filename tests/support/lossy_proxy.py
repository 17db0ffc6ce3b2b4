"""A way to Redis that loses the reply to a command which the server has run."""

import socket
import tempfile
import threading
from collections.abc import Callable
from importlib.resources import files
from pathlib import Path

from duecourse.adapters.redis.connect import Client
from duecourse.adapters.redis.scripts import load
from tests.support.proxy import Link, Proxy, shut


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
    for script in Path(str(files("duecourse.adapters.redis") / "lua")).glob("*.lua"):
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
