"""Calls to the web by urllib3: once, no redirects, bounded in time and size."""

import http.client
import logging
import os
import socket
import ssl
import time
from collections.abc import Callable, Hashable, Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from functools import partial
from typing import Any

from urllib3 import BaseHTTPResponse, HTTPConnectionPool, HTTPSConnectionPool, PoolManager, Timeout
from urllib3.connection import HTTPConnection, HTTPSConnection
from urllib3.exceptions import (
    ConnectTimeoutError,
    HTTPError,
    LocationValueError,
    NewConnectionError,
    ProtocolError,
    SSLError,
)
from urllib3.exceptions import TimeoutError as CallTimeout
from urllib3.util import parse_url
from urllib3.util.wait import wait_for_read

from duecourse import __version__
from duecourse.adapters.http.crowd import Crowd
from duecourse.adapters.http.egress import Gate
from duecourse.adapters.http.reading import BoundedAnswer, Lane
from duecourse.adapters.http.resolver import SystemResolver
from duecourse.domain.egress import Egress, carries_credentials
from duecourse.errors import CallFailed, CallTimedOut, Crowded, EgressRejected, FieldError, InvalidInput
from duecourse.ports.http import HttpAnswer, HttpRequest
from duecourse.ports.resolver import Resolver

HOST_CALLS = 50
USER_AGENT = f"duecourse/{__version__}"
TALKATIVE = ("urllib3.connection", "urllib3.connectionpool", "urllib3.response", "urllib3.util.retry")
"""Loggers of urllib3 that may write a URL, or a part of an answer."""
PIECE = 64 * 1024
"""Bytes of an answer that are read at a time."""
ERRORS = 400
"""Least status of an error."""
MAX_IDLE_S = 4.0
"""Time for which a connection is kept for the next call: less than the 5 s after which many servers hang up."""


class HttpOut:
    """An HttpCaller over one pool of connections, sized for `parallel` calls at a time; safe for threads and forks.

    Each connection goes where `egress` allows, of the addresses that `resolve` finds; by default, to public ones. At
    most `at_once` calls are under way to one address and port. No call goes to `servers`, which are this process's own.
    """

    def __init__(
        self,
        parallel: int,
        egress: Egress | None = None,
        resolve: Resolver | None = None,
        at_once: int = HOST_CALLS,
        servers: Sequence[tuple[str, int]] = (),
    ) -> None:
        self._parallel = parallel
        self._crowd = Crowd(at_once)
        self._gate = Gate(egress or Egress(), resolve or SystemResolver(), servers)
        self._open_pools()
        for logger in map(logging.getLogger, TALKATIVE):
            logger.addFilter(_is_not_calling)  # a logger has the same filter once

    def _open_pools(self) -> None:
        self._pid = os.getpid()
        self._lane = Lane()
        self._pools = PoolManager(num_pools=self._parallel, maxsize=self._parallel)
        shared: dict[str, Any] = {"gate": self._gate, "lane": self._lane, "crowd": self._crowd}
        gated = {"http": partial(_Pool, **shared), "https": partial(_TlsPool, **shared)}
        self._pools.pool_classes_by_scheme = gated  # type: ignore[assignment]
        self._pools.key_fn_by_scheme = dict.fromkeys(gated, _users)  # type: ignore[arg-type]

    def call(self, request: HttpRequest) -> HttpAnswer:
        """Send one request, once.

        Raises CallFailed (CallTimedOut), HostCrowded, EgressRejected, or another InvalidInput where it can never be
        sent.
        """
        try:
            with _unlogged():
                return _take(self._send(request), request)
        except CallFailed as error:  # of the look-up
            raise type(error)(f"{request.label} failed: {error}") from error
        except LocationValueError as error:
            raise InvalidInput([FieldError("url", "is not an http or https address")]) from error
        except HTTPError as error:
            raise _failed(error)(f"{request.label} failed: {_why(error, request)}") from error
        except (http.client.InvalidURL, ValueError) as error:  # whose words hold what it could not send, keys too
            unfit = "has a method, a header or an address that HTTP cannot carry"
            raise InvalidInput([FieldError("request", unfit)]) from error
        finally:
            self._crowd.leave()
            self._lane.leave()

    def _send(self, request: HttpRequest) -> BaseHTTPResponse:
        if self._pid != os.getpid():
            self._open_pools()  # in a forked child: on its parent's connections each would read answers to the other
        url = parse_url(request.url)
        users = {"tenant": request.tenant, "secret": request.auth is not None}
        return self._pools.connection_from_host(url.host, url.port, url.scheme, users).urlopen(
            request.method,
            url.request_uri,
            body=request.body,
            headers={"user-agent": USER_AGENT, **request.headers},
            timeout=Timeout(total=request.timeout_ms / 1000),
            retries=False,
            redirect=False,
            preload_content=False,
        )

    def close(self) -> None:
        """Give up the idle connections."""
        self._pools.clear()


def _users(context: dict[str, Any]) -> Hashable:
    """Users of one pool: calls of one tenant to one place, with a credential by name or without.

    So no fault of a server, nor of the reading of its answers, brings one to another tenant.
    """
    return tuple(context[part] for part in ("scheme", "host", "port", "tenant", "secret"))


_calling: ContextVar[bool] = ContextVar("calling", default=False)


@contextmanager
def _unlogged() -> Iterator[None]:
    """Have urllib3 log nothing of this thread's call: it would write whole URLs, and headers that answers malformed.

    What it warns of is the server's doing, and what it tells at the level DEBUG is every address with its query.
    """
    before = _calling.set(True)
    try:
        yield
    finally:
        _calling.reset(before)


def _is_not_calling(_: logging.LogRecord) -> bool:
    return not _calling.get()


def _take(response: BaseHTTPResponse, request: HttpRequest) -> HttpAnswer:
    whole, body = False, b""
    try:
        body = _read(response, request.max_bytes + 1)
        whole = len(body) <= request.max_bytes
    except (HTTPError, CallFailed, Crowded, ValueError) as error:
        if _needs_body(request, response.status):
            if isinstance(error, ValueError):  # of a chunk's negative length, say: the request is not what is wrong
                raise ProtocolError("the answer cannot be read") from error
            raise
    finally:
        # A body that was not read to its end makes the connection useless for the next call.
        if not whole:
            response.close()
        response.release_conn()
    headers = {name.lower(): value for name, value in response.headers.items()}
    return HttpAnswer(response.status, headers, body[: request.max_bytes], whole)


def _needs_body(request: HttpRequest, status: int) -> bool:
    """True if an answer is worth nothing without its body; of any other, the status decides once it is there."""
    return request.needs_body and 200 <= status < 300


def _read(response: BaseHTTPResponse, most: int) -> bytes:
    """At most so many bytes, in pieces: a small one cannot take long to unpack, whatever is in it."""
    body = bytearray()
    while len(body) < most and (piece := response.read(min(PIECE, most - len(body)), decode_content=True)):
        body += piece
    return bytes(body)


def _failed(error: HTTPError) -> type[CallFailed]:
    # To urllib3 a connection that was refused at once is a timeout too.
    return CallTimedOut if isinstance(error, CallTimeout) and not isinstance(error, NewConnectionError) else CallFailed


def _why(error: HTTPError, request: HttpRequest) -> str:
    if isinstance(error, NewConnectionError):
        return f"no connection ({getattr(error.__cause__, 'strerror', None) or 'unreachable'})"
    if isinstance(error, CallTimeout):
        return f"no whole answer within {request.timeout_ms / 1000:g} s"
    if isinstance(error, SSLError):
        return f"no secure connection ({error})"[:200]
    return f"the connection broke off ({type(error).__name__})"


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
    """True if there was something to read before the last part of a request was sent."""
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
        for start in range(0, len(data), PIECE):
            self._is_early = self._is_early or (self.sock is not None and _has_more(self.sock))
            super().send(data[start : start + PIECE])  # type: ignore[misc]

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


class _Connection(_Bounded, HTTPConnection):  # type: ignore[misc]
    def request(self, *args: Any, **kwargs: Any) -> None:
        """Send a request: credentials only to a host that is listed, on a connection that is kept too."""
        self._in_clear = self._secret or carries_credentials(kwargs["headers"])
        if self.sock is not None:
            self._gate.check(self._dns_host, *_peer(self.sock), in_clear=self._in_clear)
        super().request(*args, **kwargs)


class _TlsConnection(_Bounded, HTTPSConnection):  # type: ignore[misc]
    pass


class _Kept:
    """Pool of one tenant's connections, of which each that is not at rest is closed."""

    def __init__(self, *args: Any, tenant: str, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.tenant = tenant

    def _put_conn(self, conn: Any) -> None:
        if conn and not conn.is_at_rest:
            conn.close()  # the pool opens it again
        super()._put_conn(conn)  # type: ignore[misc]


class _Pool(_Kept, HTTPConnectionPool):
    ConnectionCls = _Connection


class _TlsPool(_Kept, HTTPSConnectionPool):
    ConnectionCls = _TlsConnection
