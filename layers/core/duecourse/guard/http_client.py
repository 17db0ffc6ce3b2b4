"""HTTP client by urllib3: one try, no redirects, bounded in time, size and calls to one place."""

import http.client
import io
import logging
import os
import re
import socket
import ssl
import threading
import time
from collections import Counter
from collections.abc import Callable, Hashable, Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from functools import partial
from typing import Any, TypeAlias

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
from urllib3.exceptions import (
    TimeoutError as CallTimeout,
)
from urllib3.util import parse_url
from urllib3.util.wait import wait_for_read

from duecourse import __version__
from duecourse.base.cpu_turns import cpu_s
from duecourse.errors import CallFailed, CallTimedOut, Crowded, EgressRejected, FieldError, HostCrowded, InvalidInput
from duecourse.guard.egress import Egress, carries_credentials
from duecourse.guard.http_types import HttpAnswer, HttpRequest
from duecourse.guard.resolver import AddressGate, Resolve, SystemResolver

# Bound on the calls of a process that are under way to one place, whatever names lead there.

PeerAddress: TypeAlias = tuple[str, int]
"""Address and port of a connection's other end."""


class HostConcurrencyLimit:
    """Calls under way by place, at most `most` at each; each thread has one call at a time."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._begin()

    def _begin(self) -> None:
        self._process = os.getpid()
        self._lock = threading.Lock()
        self._at: Counter[PeerAddress] = Counter()
        self._mine = threading.local()

    def enter(self, place: PeerAddress) -> None:
        """Count this thread's call at a place, and no longer at another. Raises HostCrowded."""
        if self._process != os.getpid():
            self._begin()  # in a forked child, the calls of its parent's threads are not under way
        if getattr(self._mine, "place", None) == place:
            return
        self.leave()
        with self._lock:
            if self._at[place] >= self._most:
                raise HostCrowded
            self._at[place] += 1
        self._mine.place = place

    def leave(self) -> None:
        """Count this thread's call nowhere: it is over, or never began."""
        place = getattr(self._mine, "place", None)
        if place is None:
            return
        self._mine.place = None
        with self._lock:
            self._at[place] -= 1
            if not self._at[place]:
                del self._at[place]


# Reading of answers: each within its time and a bounded time of the processor, and to an end that can be proved.
#
# A destination chooses its answer: interim answers, chunks of a byte and packed nothing go on without end, and Python
# reads them on and on. Such a thread would take its part of the processor from all others.

QUICK_S = 0.005
"""Seconds of the processor that an answer may take before it is read under the lock; one of 1 MiB takes 2 to 15 ms."""
MOST_S = 0.25
"""Maximum seconds of the processor for one answer."""
WAIT_S = 0.25
"""Maximum wait for the slow_reads: it holds a thread meanwhile, which others need."""
MAX_INTERIM = 20
"""Maximum number of interim answers (1xx) before an answer."""
SWITCHING, FINAL = 101, 200
"""Status of an answer after which no HTTP follows, and the least one that is not interim."""
HTTP_1_1 = 11
"""Version, as http.client has it, whose connections stay open."""
WITHOUT_BODY = frozenset({204, 205, 304})
"""Statuses whose answers have no body, whatever their headers say."""
LENGTH = re.compile(r"[0-9]{1,18}")


class SlowReadLock:
    """Lock for answers that take long to read: one thread of a process holds it at a time."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._of_thread = threading.local()

    def enter(self, within_s: float) -> bool:
        """Wait for the lock; False if it is not free in time."""
        self._of_thread.inside = self._lock.acquire(timeout=within_s)
        return bool(self._of_thread.inside)

    def leave(self) -> None:
        """Release the lock, if this thread holds it."""
        if getattr(self._of_thread, "inside", False):
            self._of_thread.inside = False
            self._lock.release()


class _BoundedReads(io.RawIOBase):
    """A socket's bytes, all of which must come before one deadline: a slow drip cannot hold a worker."""

    def __init__(self, source: io.RawIOBase, sock: socket.socket, slow_reads: SlowReadLock) -> None:
        self._source = source
        self._sock = sock
        self._slow_reads = slow_reads
        self._deadline = time.monotonic() + (sock.gettimeout() or 0.0)
        self._began = cpu_s()
        self.ended = False

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any, /) -> int | None:
        if self.ended:
            return None
        self._slow_reads.leave()  # to wait for the network takes nothing from others
        self._sock.settimeout(self._left_s())
        count = self._source.readinto(buffer)
        self._take_turn()
        return count

    def close(self) -> None:
        self._source.close()
        super().close()

    def _take_turn(self) -> None:
        used_s = cpu_s() - self._began
        if used_s > MOST_S:
            raise CallFailed(f"the answer takes more than {MOST_S:g} s of the processor to read")
        if used_s > QUICK_S and not self._slow_reads.enter(min(WAIT_S, self._left_s())):
            raise Crowded

    def _left_s(self) -> float:
        left = self._deadline - time.monotonic()
        if left <= 0:
            raise TimeoutError("the answer took too long")
        return left


class BoundedAnswer(http.client.HTTPResponse):
    """An answer whose head and body must both come within the timeout that its socket has as it begins.

    Interim answers are read and left out. A head that breaks off after its status line is an empty one: the status is
    there, and reading the body fails.
    """

    is_complete = False
    """True once the whole answer was read, its end was beyond doubt, and no byte came after it."""

    def __init__(self, sock: socket.socket, *args: Any, slow_reads: SlowReadLock, **kwargs: Any) -> None:
        super().__init__(sock, *args, **kwargs)
        self._reads = _BoundedReads(self.fp.detach(), sock, slow_reads)
        self.fp = io.BufferedReader(self._reads)
        self._is_head = kwargs.get("method") == "HEAD"
        self._answered = False
        self._flaw: Exception | None = None

    def begin(self) -> None:
        """Read the head."""
        try:
            super().begin()
        except (http.client.HTTPException, OSError, CallFailed, Crowded) as error:
            if not self._answered:
                raise
            self._flaw, self.headers = error, http.client.HTTPMessage()
            self.msg, self.chunked, self.length, self.will_close = self.headers, False, None, True
        if len({length.strip() for text in self._all("content-length") for length in text.split(",")}) > 1:
            self._flaw = http.client.HTTPException("two different lengths of one body")
            del self.headers["content-length"]  # urllib3 would give up the status with it

    def read(self, amt: int | None = None) -> bytes:
        """Read so many bytes of the body. Raises the error of a head that broke off."""
        if self._flaw:
            raise self._flaw
        return super().read(amt)

    def _read_status(self) -> tuple[str, int, str]:
        for _ in range(MAX_INTERIM):
            line: tuple[str, int, str] = super()._read_status()  # type: ignore[misc]
            if line[1] == SWITCHING:
                raise CallFailed("the server switched to another protocol, which nobody requested")
            if line[1] >= FINAL:
                self._answered, (_, self.status, self.reason) = True, line
                return line
            http.client.parse_headers(self.fp)
        raise CallFailed(f"the server sent more than {MAX_INTERIM} interim answers")

    def _close_conn(self) -> None:
        self._reads.ended = True  # so that to peek reads nothing more
        self.is_complete = not self.fp.peek(1) and not self.length and self._has_certain_end()
        super()._close_conn()  # type: ignore[misc]

    def _has_certain_end(self) -> bool:
        """True if every reader of HTTP sees the end of this answer at the same byte."""
        lengths, codings = self._all("content-length"), self._all("transfer-encoding")
        if self.version != HTTP_1_1 or self._flaw or any("close" in text.lower() for text in self._all("connection")):
            return False
        if self._is_head or self.status in WITHOUT_BODY:
            return not codings and lengths in ([], ["0"])
        if codings:
            return not lengths and [coding.lower() for coding in codings] == ["chunked"]
        return len(lengths) == 1 and LENGTH.fullmatch(lengths[0]) is not None

    def _all(self, name: str) -> list[str]:
        return [text.strip() for text in self.headers.get_all(name, [])] if self.headers else []


# Connections of calls to the web: where each may lead, and when one is kept for the next call.
#
# HTTP does not say to which request an answer belongs. A byte that is still to come on a kept connection would be read
# as the next call's answer. Each doubt about the end of a request or an answer therefore closes the connection.

SENT_BYTES = 64 * 1024
"""Bytes of a request that are sent before another look at the answer."""
ERRORS = 400
"""Least status of an error."""
MAX_IDLE_S = 4.0
"""Time for which a connection is kept for the next call: less than the 5 s after which many servers hang up."""


def connect_first(
    dial: Callable[[str, float], socket.socket], addresses: Sequence[str], within_s: float
) -> socket.socket:
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


class _BoundedConnection:
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

    def __init__(
        self,
        *args: Any,
        gate: AddressGate,
        slow_reads: SlowReadLock,
        host_limit: HostConcurrencyLimit,
        secret: bool = False,
        **kwargs: Any,
    ) -> None:
        super().__init__(*args, **kwargs)
        self._gate = gate
        self._host_limit = host_limit
        self._secret = secret
        self._slow_reads = slow_reads

    def response_class(self, sock: socket.socket, *args: Any, **kwargs: Any) -> BoundedAnswer:
        """The answer that this connection reads next."""
        self._answer = BoundedAnswer(sock, *args, slow_reads=self._slow_reads, **kwargs)
        return self._answer

    def request(self, *args: Any, **kwargs: Any) -> None:
        if self.sock is not None:  # kept from another call
            self._host_limit.enter(_peer(self.sock))
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
            self._host_limit.enter((address, self.port))
            sock: socket.socket = super(_BoundedConnection, self)._new_conn()  # type: ignore[misc]
            return self._checked(sock, host)

        try:
            addresses = self._gate.addresses(host, self.port, within_s, in_clear=self._in_clear)
            return connect_first(dial, addresses, _left_s(until))
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


class Connection(_BoundedConnection, HTTPConnection):  # type: ignore[misc]
    """Connection without TLS."""

    def request(self, *args: Any, **kwargs: Any) -> None:
        """Send a request: credentials only to a host that is listed, on a connection that is kept too."""
        self._in_clear = self._secret or carries_credentials(kwargs["headers"])
        if self.sock is not None:
            self._gate.check(self._dns_host, *_peer(self.sock), in_clear=self._in_clear)
        super().request(*args, **kwargs)


class TlsConnection(_BoundedConnection, HTTPSConnection):  # type: ignore[misc]
    """Connection by TLS."""


class _PoolRules:
    """Pool of one tenant's connections, of which each that is not at rest is closed."""

    def __init__(self, *args: Any, tenant: str, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.tenant = tenant

    def _put_conn(self, conn: Any) -> None:
        if conn and not conn.is_at_rest:
            conn.close()  # the pool opens it again
        super()._put_conn(conn)  # type: ignore[misc]


class Pool(_PoolRules, HTTPConnectionPool):
    """Connections without TLS."""

    ConnectionCls = Connection


class TlsPool(_PoolRules, HTTPSConnectionPool):
    """Connections by TLS."""

    ConnectionCls = TlsConnection


# The client: one call, from its request to its answer or error.

HOST_CALLS = 50
USER_AGENT = f"duecourse/{__version__}"
VERBOSE_LOGGERS = ("urllib3.connection", "urllib3.connectionpool", "urllib3.response", "urllib3.util.retry")
"""Loggers of urllib3 that may write a URL, or a part of an answer."""
CHUNK_BYTES = 64 * 1024
"""Bytes of an answer that are read at a time."""


class GuardedHttpClient:
    """An HttpCaller over pools of connections, sized for `parallel` calls at a time; safe for threads and forks.

    Each connection goes where `egress` allows, of the addresses that `resolve` finds; by default, to public ones. At
    most `at_once` calls are under way to one address and port. No call goes to `servers`, which are this process's own.
    """

    def __init__(
        self,
        parallel: int,
        egress: Egress | None = None,
        resolve: Resolve | None = None,
        at_once: int = HOST_CALLS,
        servers: Sequence[tuple[str, int]] = (),
    ) -> None:
        self._parallel = parallel
        self._host_limit = HostConcurrencyLimit(at_once)
        self._gate = AddressGate(egress or Egress(), resolve or SystemResolver(), servers)
        self._open_pools()
        for logger in map(logging.getLogger, VERBOSE_LOGGERS):
            logger.addFilter(_is_not_calling)  # a logger has the same filter once

    def _open_pools(self) -> None:
        self._pid = os.getpid()
        self._slow_reads = SlowReadLock()
        self._pools = PoolManager(num_pools=self._parallel, maxsize=self._parallel)
        shared: dict[str, Any] = {"gate": self._gate, "slow_reads": self._slow_reads, "host_limit": self._host_limit}
        gated = {"http": partial(Pool, **shared), "https": partial(TlsPool, **shared)}
        self._pools.pool_classes_by_scheme = gated  # type: ignore[assignment]
        self._pools.key_fn_by_scheme = dict.fromkeys(gated, _pool_key)  # type: ignore[arg-type]

    def call(self, request: HttpRequest) -> HttpAnswer:
        """Send one request, once.

        Raises CallFailed (CallTimedOut), HostCrowded, EgressRejected, or another InvalidInput where it can never be
        sent.
        """
        try:
            with _unlogged():
                return _read_answer(self._send(request), request)
        except CallFailed as error:  # of the look-up
            raise type(error)(f"{request.label} failed: {error}") from error
        except LocationValueError as error:
            raise InvalidInput([FieldError("url", "is not an http or https address")]) from error
        except HTTPError as error:
            raise _error_type(error)(f"{request.label} failed: {_error_text(error, request)}") from error
        except (http.client.InvalidURL, ValueError) as error:  # whose words hold what it could not send, keys too
            unfit = "has a method, a header or an address that HTTP cannot carry"
            raise InvalidInput([FieldError("request", unfit)]) from error
        finally:
            self._host_limit.leave()
            self._slow_reads.leave()

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


def _pool_key(context: dict[str, Any]) -> Hashable:
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


def _read_answer(response: BaseHTTPResponse, request: HttpRequest) -> HttpAnswer:
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
    while len(body) < most and (piece := response.read(min(CHUNK_BYTES, most - len(body)), decode_content=True)):
        body += piece
    return bytes(body)


def _error_type(error: HTTPError) -> type[CallFailed]:
    # To urllib3 a connection that was refused at once is a timeout too.
    return CallTimedOut if isinstance(error, CallTimeout) and not isinstance(error, NewConnectionError) else CallFailed


def _error_text(error: HTTPError, request: HttpRequest) -> str:
    if isinstance(error, NewConnectionError):
        return f"no connection ({getattr(error.__cause__, 'strerror', None) or 'unreachable'})"
    if isinstance(error, CallTimeout):
        return f"no whole answer within {request.timeout_ms / 1000:g} s"
    if isinstance(error, SSLError):
        return f"no secure connection ({error})"[:200]
    return f"the connection broke off ({type(error).__name__})"
