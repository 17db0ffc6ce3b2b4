"""Calls to the web by urllib3: once, no redirects, bounded in time and size."""

import http.client
import io
import socket
import time
from collections.abc import Callable, Sequence
from typing import Any

from urllib3 import BaseHTTPResponse, HTTPConnectionPool, HTTPSConnectionPool, PoolManager, Timeout
from urllib3.connection import HTTPConnection, HTTPSConnection
from urllib3.exceptions import (
    ConnectTimeoutError,
    HTTPError,
    LocationParseError,
    LocationValueError,
    NameResolutionError,
    NewConnectionError,
    ProtocolError,
    SSLError,
)
from urllib3.exceptions import TimeoutError as CallTimeout
from urllib3.util.connection import allowed_gai_family

from duecourse import __version__
from duecourse.adapters.http.egress import allowed, check_place
from duecourse.errors import CallFailed, CallTimedOut, FieldError, InvalidInput
from duecourse.ports.http import HttpAnswer, HttpRequest

USER_AGENT = f"duecourse/{__version__}"
MAX_IDLE_S = 4.0
"""Time for which a connection is kept for the next call: less than the 5 s after which many servers hang up."""


class HttpOut:
    """An HttpCaller over one pool of connections, sized for `parallel` calls at a time; safe for threads."""

    def __init__(self, parallel: int) -> None:
        self._pools = PoolManager(num_pools=parallel, maxsize=parallel)
        self._pools.pool_classes_by_scheme = {"http": _Pool, "https": _TlsPool}

    def call(self, request: HttpRequest) -> HttpAnswer:
        """Send one request, once. Raises CallFailed (CallTimedOut), or InvalidInput where it can never be sent."""
        try:
            return _take(self._send(request), request.max_bytes)
        except LocationValueError as error:
            raise InvalidInput([FieldError("url", "is not an http or https address")]) from error
        except HTTPError as error:
            raise _failed(error)(f"{request.label} failed: {_why(error, request)}") from error
        except (http.client.InvalidURL, ValueError) as error:  # whose words hold what it could not send, keys too
            unfit = "has a method, a header or an address that HTTP cannot carry"
            raise InvalidInput([FieldError("request", unfit)]) from error

    def _send(self, request: HttpRequest) -> BaseHTTPResponse:
        return self._pools.request(
            request.method,
            request.url,
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


def _take(response: BaseHTTPResponse, max_bytes: int) -> HttpAnswer:
    whole = False
    try:
        body = response.read(max_bytes + 1, decode_content=True)
        whole = len(body) <= max_bytes
    except ValueError as error:  # of a chunk's negative length, say: it is the answer that is wrong, not the request
        raise ProtocolError("the answer cannot be read") from error
    finally:
        # A body that was not read to its end makes the connection useless for the next call.
        if not whole:
            response.close()
        response.release_conn()
    headers = {name.lower(): value for name, value in response.headers.items()}
    return HttpAnswer(response.status, headers, body[:max_bytes], whole)


def _failed(error: HTTPError) -> type[CallFailed]:
    # To urllib3 a connection that was refused at once is a timeout too.
    return CallTimedOut if isinstance(error, CallTimeout) and not isinstance(error, NewConnectionError) else CallFailed


def _why(error: HTTPError, request: HttpRequest) -> str:
    if isinstance(error, NameResolutionError):
        return "the host name is not known"
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


class _TimedReads(io.RawIOBase):
    """A socket's bytes, all of which must come before one deadline: a slow drip cannot hold a worker."""

    def __init__(self, source: io.RawIOBase, sock: socket.socket) -> None:
        self._source = source
        self._sock = sock
        self._deadline = time.monotonic() + (sock.gettimeout() or 0.0)

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any, /) -> int | None:
        left = self._deadline - time.monotonic()
        if left <= 0:
            raise TimeoutError("the answer took too long")
        self._sock.settimeout(left)
        return self._source.readinto(buffer)

    def close(self) -> None:
        self._source.close()
        super().close()


class _BoundedAnswer(http.client.HTTPResponse):
    """An answer whose head and body must both come within the timeout that its socket has as it begins."""

    def __init__(self, sock: socket.socket, *args: Any, **kwargs: Any) -> None:
        super().__init__(sock, *args, **kwargs)
        self.fp = io.BufferedReader(_TimedReads(self.fp.detach(), sock))


class _Bounded:
    """Bounds of both kinds of connection: on all its time, on its destination, and no use after idling."""

    response_class: Any = _BoundedAnswer
    timeout: Any
    _dns_host: Any
    _used_at = 0.0

    def request(self, *args: Any, **kwargs: Any) -> None:
        self._used_at = time.monotonic()
        super().request(*args, **kwargs)  # type: ignore[misc]

    def _new_conn(self) -> socket.socket:
        # Of urllib3, each address of a host would get the whole time, and the handshake after it once more.
        host, within_s, until = self._dns_host, self.timeout, time.monotonic() + self.timeout

        def dial(address: str, part_s: float) -> socket.socket:
            self._dns_host, self.timeout = address, part_s
            sock: socket.socket = super(_Bounded, self)._new_conn()  # type: ignore[misc]
            return self._checked(sock)

        try:
            return reached(dial, self._addresses(), _left_s(until))
        finally:
            self._dns_host, self.timeout = host, within_s  # by which a certificate is checked

    def _addresses(self) -> list[str]:
        host: str = self._dns_host
        try:
            found = socket.getaddrinfo(host, self.port, allowed_gai_family(), socket.SOCK_STREAM)  # type: ignore[attr-defined]
        except socket.gaierror as error:
            raise NameResolutionError(host, self, error) from error  # type: ignore[arg-type]
        except UnicodeError:
            raise LocationParseError(host) from None
        return allowed([str(place[0]) for *_, place in found], self.port)  # type: ignore[attr-defined]

    def _checked(self, sock: socket.socket) -> socket.socket:
        """A connection that leads where it should, seen from its other end too, before anything is said."""
        try:
            check_place(*sock.getpeername()[:2])
        except InvalidInput:
            sock.close()
            raise
        except OSError as error:  # it is gone already
            sock.close()
            raise NewConnectionError(self, f"no connection: {error}") from error  # type: ignore[arg-type]
        return sock

    @property
    def is_connected(self) -> bool:
        return time.monotonic() - self._used_at < MAX_IDLE_S and super().is_connected  # type: ignore[misc]


class _Connection(_Bounded, HTTPConnection):
    pass


class _TlsConnection(_Bounded, HTTPSConnection):
    pass


class _Pool(HTTPConnectionPool):
    ConnectionCls = _Connection


class _TlsPool(HTTPSConnectionPool):
    ConnectionCls = _TlsConnection
