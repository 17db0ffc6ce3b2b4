"""A way to Redis that a storm's faults are on: replies are cut, bytes are held up, connections fall silent."""

import socket
import threading
import time
from typing import Self

from tests.support.proxies import Link, Proxy, shut


class Weather(Proxy):
    """Between everyone and one server, at a port of its own; fair until told otherwise."""

    def __init__(self, server: tuple[str, int], port: int = 0) -> None:
        listener = socket.create_server(("127.0.0.1", port))
        super().__init__(listener, lambda: socket.create_connection(server))
        self.port: int = listener.getsockname()[1]
        self._cut_until = self._held_until = 0.0
        self._silent: set[socket.socket] = set()
        self._lock = threading.Lock()
        self.cut = self.held = 0

    def __enter__(self) -> Self:
        super().__enter__()
        return self

    def cut_replies(self, seconds: float) -> None:
        """For a while, hang up in place of each reply to a script: the server has run it."""
        self._cut_until = time.monotonic() + seconds

    def hold_bytes(self, seconds: float) -> None:
        """For a while, keep what clients send; the server gets it afterwards, though the client may have gone."""
        self._held_until = time.monotonic() + seconds

    def fall_silent(self) -> None:
        """Let the connections that are open swallow all that they get, and tell neither end."""
        self._silent |= set(self._open)

    def hang_up(self) -> None:
        """End the connections that are open."""
        for end in list(self._open):
            shut(end)

    def up(self, link: Link, data: bytes) -> None:
        """Pass on what a client says, unless it is held up or its connection is silent."""
        if link.near in self._silent:
            return
        left = self._held_until - time.monotonic()
        if left > 0 and b"EVALSHA" in data:
            self.held += 1
            time.sleep(left)
        super().up(link, data)

    def down(self, link: Link, data: bytes) -> None:
        """Pass on what the server says, unless it is cut off or its connection is silent."""
        if link.near in self._silent:
            return
        if time.monotonic() < self._cut_until and not data.startswith(
            (b"*3\r\n$7\r\nmessage", b"*4\r\n$8\r\npmessage")
        ):
            self.cut += 1
            shut(link.far)
            raise ConnectionAbortedError
        super().down(link, data)
