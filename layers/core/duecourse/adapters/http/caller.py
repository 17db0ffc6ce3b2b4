"""Calls to the web by urllib3: once, no redirects, bounded in time and size."""

import http.client
import logging
import os
from collections.abc import Hashable, Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from functools import partial
from typing import Any

from urllib3 import BaseHTTPResponse, PoolManager, Timeout
from urllib3.exceptions import (
    HTTPError,
    LocationValueError,
    NewConnectionError,
    ProtocolError,
    SSLError,
)
from urllib3.exceptions import TimeoutError as CallTimeout
from urllib3.util import parse_url

from duecourse import __version__
from duecourse.adapters.http.connections import Pool, TlsPool
from duecourse.adapters.http.crowd import Crowd
from duecourse.adapters.http.egress import Gate
from duecourse.adapters.http.reading import Lane
from duecourse.adapters.http.resolver import SystemResolver
from duecourse.domain.egress import Egress
from duecourse.errors import CallFailed, CallTimedOut, Crowded, FieldError, InvalidInput
from duecourse.ports.http import HttpAnswer, HttpRequest
from duecourse.ports.resolver import Resolver

HOST_CALLS = 50
USER_AGENT = f"duecourse/{__version__}"
TALKATIVE = ("urllib3.connection", "urllib3.connectionpool", "urllib3.response", "urllib3.util.retry")
"""Loggers of urllib3 that may write a URL, or a part of an answer."""
PIECE = 64 * 1024
"""Bytes of an answer that are read at a time."""


class HttpOut:
    """An HttpCaller over pools of connections, sized for `parallel` calls at a time; safe for threads and forks.

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
        gated = {"http": partial(Pool, **shared), "https": partial(TlsPool, **shared)}
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
