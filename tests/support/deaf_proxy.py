"""A way to a server on TCP that can go deaf: what the server says is swallowed, and neither end is told."""

import socket
import threading

from tests.support.proxy import Link, Proxy


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
