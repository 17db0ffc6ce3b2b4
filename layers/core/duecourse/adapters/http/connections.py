"""Connections of calls to the web: where each may lead, and when one is kept for the next call.

HTTP does not say to which request an answer belongs. A byte that is still to come on a kept connection would be read
as the next call's answer. Each doubt about the end of a request or an answer therefore closes the connection.
"""

import socket
import ssl
import time
from collections.abc import Callable, Sequence
from typing import Any

from urllib3 import HTTPConnectionPool, HTTPSConnectionPool
from urllib3.connection import HTTPConnection, HTTPSConnection
from urllib3.exceptions import ConnectTimeoutError, NewConnectionError
from urllib3.util.wait import wait_for_read

from duecourse.adapters.http.crowd import Crowd
from duecourse.adapters.http.egress import Gate
from duecourse.adapters.http.reading import BoundedAnswer, Lane
from duecourse.domain.egress import carries_credentials
from duecourse.errors import EgressRejected

SENT_BYTES = 64 * 1024
"""Bytes of a request that are sent before another look at the answer."""
ERRORS = 400
"""Least status of an error."""
MAX_IDLE_S = 4.0
"""Time for which a connection is kept for the next call: less than the 5 s after which many servers hang up."""


def reached(dial: Callable[[str, float], socket.socket], addresses: Sequence[str], within_s: float) -> socket.socket:
    """A connection by `dial` to the first of a host's addresses that answers, each within its part of the time left.

    The socket's timeout is the time that is left then. Raises the ConnectTimeoutError (NewConnectionError) of the last
    address.
    """
    until, waiting = time.monotonic() + within_s, list(addresses)
    while True:
        address = waiting.pop(0)
        try:
            sock = dial(address, _left_s(until) / (len(waiting) + 1))
        except ConnectTimeoutError:
            if not waiting:
                raise
        else:
            sock.settimeout(_left_s(until))
            return sock


def _left_s(until: float) -> float:
    """Seconds until then; never 0, which would mean not to wait at all."""
    return max(until - time.monotonic(), 0.001)


def _peer(sock: socket.socket) -> tuple[str, int]:
    """Address and port of a connection's other end. Raises OSError where it is gone."""
    address, port = sock.getpeername()[:2]
    return address, port


def _has_more(sock: socket.socket) -> bool:
    """True if there is something to read, or the other end hung up; TLS may have decrypted more than was read."""
    return wait_for_read(sock, timeout=0.0) or (isinstance(sock, ssl.SSLSocket) and sock.pending() > 0)


class _Bounded:
    """Bounds of both kinds of connection: on all its time, on its destination, and no use after idling."""

    timeout: Any
    port: Any
    sock: Any
    _dns_host: Any
    _used_at = 0.0
    _answer: BoundedAnswer | None = None
    _is_sent = False
    _is_early = False
    """True if an answer may have begun before the last part of a request was sent."""
    _has_body = False
    _in_clear = False
    """True while what is sent has credentials in it, and no TLS around it."""

    def __init__(self, *args: Any, gate: Gate, lane: Lane, crowd: Crowd, secret: bool = False, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._gate = gate
        self._crowd = crowd
        self._secret = secret
        self._lane = lane

    def response_class(self, sock: socket.socket, *args: Any, **kwargs: Any) -> BoundedAnswer:
        """The answer that this connection reads next."""
        self._answer = BoundedAnswer(sock, *args, lane=self._lane, **kwargs)
        return self._answer

    def request(self, *args: Any, **kwargs: Any) -> None:
        if self.sock is not None:  # kept from another call
            self._crowd.enter(_peer(self.sock))
        self._used_at = time.monotonic()
        self._answer, self._is_sent, self._is_early = None, False, False
        self._has_body = kwargs.get("body") is not None
        super().request(*args, **kwargs)  # type: ignore[misc]
        self._is_sent = True

    def send(self, data: Any) -> None:
        """Send a part of a request, and notice an answer that begins before the last of it."""
        for start in range(0, len(data), SENT_BYTES):
            self._is_early = self._is_early or self._may_be_early(start)
            super().send(data[start : start + SENT_BYTES])  # type: ignore[misc]

    def _may_be_early(self, sent: int) -> bool:
        """True if an answer may have begun, with so many bytes of this part sent."""
        if isinstance(self.sock, ssl.SSLSocket):
            return sent > 0  # nobody can tell: TLS has messages of its own, such as tickets
        return self.sock is not None and _has_more(self.sock)

    def _new_conn(self) -> socket.socket:
        # Of urllib3, each address of a host would get the whole time, and the handshake after it once more.
        host, within_s, until = self._dns_host, self.timeout, time.monotonic() + self.timeout

        def dial(address: str, part_s: float) -> socket.socket:
            self._dns_host, self.timeout = address, part_s
            self._crowd.enter((address, self.port))
            sock: socket.socket = super(_Bounded, self)._new_conn()  # type: ignore[misc]
            return self._checked(sock, host)

        try:
            addresses = self._gate.addresses(host, self.port, within_s, in_clear=self._in_clear)
            return reached(dial, addresses, _left_s(until))
        finally:
            self._dns_host, self.timeout = host, within_s  # by which a certificate is checked

    def _checked(self, sock: socket.socket, host: str) -> socket.socket:
        """A connection that leads where it should, seen from its other end too, before anything is said."""
        try:
            self._gate.check(host, *_peer(sock), in_clear=self._in_clear)
        except EgressRejected:
            sock.close()
            raise
        except OSError as error:  # it is gone already
            sock.close()
            raise NewConnectionError(self, f"no connection: {error}") from error  # type: ignore[arg-type]
        return sock

    @property
    def is_at_rest(self) -> bool:
        """True if the last request and its answer went through whole, and nothing more has come.

        With an error, a server may have left the request's body unread: it would take that for the next request.
        """
        answer, sock = self._answer, self.sock
        if sock is None or answer is None or not (self._is_sent and answer.is_complete) or self._is_early:
            return False
        return not (self._has_body and answer.status >= ERRORS) and not _has_more(sock)

    @property
    def is_connected(self) -> bool:
        is_fresh = time.monotonic() - self._used_at < MAX_IDLE_S
        return is_fresh and self.sock is not None and not _has_more(self.sock)


class Connection(_Bounded, HTTPConnection):  # type: ignore[misc]
    """Connection without TLS."""

    def request(self, *args: Any, **kwargs: Any) -> None:
        """Send a request: credentials only to a host that is listed, on a connection that is kept too."""
        self._in_clear = self._secret or carries_credentials(kwargs["headers"])
        if self.sock is not None:
            self._gate.check(self._dns_host, *_peer(self.sock), in_clear=self._in_clear)
        super().request(*args, **kwargs)


class TlsConnection(_Bounded, HTTPSConnection):  # type: ignore[misc]
    """Connection by TLS."""


class _Kept:
    """Pool of one tenant's connections, of which each that is not at rest is closed."""

    def __init__(self, *args: Any, tenant: str, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.tenant = tenant

    def _put_conn(self, conn: Any) -> None:
        if conn and not conn.is_at_rest:
            conn.close()  # the pool opens it again
        super()._put_conn(conn)  # type: ignore[misc]


class Pool(_Kept, HTTPConnectionPool):
    """Connections without TLS."""

    ConnectionCls = Connection


class TlsPool(_Kept, HTTPSConnectionPool):
    """Connections by TLS."""

    ConnectionCls = TlsConnection
