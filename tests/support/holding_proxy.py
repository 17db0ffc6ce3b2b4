"""A way to Redis that holds up requests: their connection is closed, and the server gets them when the test says so."""

import re
import socket
from typing import NamedTuple

from duecourse.adapters.redis.scripts import load
from tests.support.proxy import Link, Proxy, shut
from tests.support.redis_server import RedisServer

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
