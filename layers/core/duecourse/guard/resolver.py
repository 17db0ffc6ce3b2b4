"""Addresses of a host: looked up on a thread that may be given up, and checked before any call."""

import logging
import os
import queue
import socket
import threading
import time
from collections.abc import Callable, Sequence
from functools import lru_cache
from typing import Any, TypeAlias
from urllib.parse import urlsplit

from urllib3.util.connection import allowed_gai_family

from duecourse.base.host_addresses import Address, forms, is_here, literals
from duecourse.errors import CallFailed, CallTimedOut, EgressRejected, FieldError, InvalidInput
from duecourse.guard.egress import IN_CLEAR, OWN_USE, STANDARD_PORTS, Egress

# Look-up of a host by the system's resolver, on a thread that is given up on where the look-up takes too long.

MAX_LOOKUP_S = 5.0
"""Maximum time of one look-up; glibc's own is up to 30 s, and nobody can stop it before."""
MAX_LOOKUPS = 128
"""Maximum number of look-ups at a time, given up or not. Of them 96 are for calls that wait as long as a look-up may
take: 16 parallel ones, each given up after 5 s of 30."""
SHORT_CALLS_SHARE = 4
"""One slot in so many is for calls of less time: given up after 0.1 s, each leaves 300 look-ups behind, not six."""
MAX_ADDRESSES = 16
"""Maximum number of a host's addresses that are used."""

LookUp = Callable[..., list[Any]]
"""`socket.getaddrinfo`, or a double of it."""
Resolve: TypeAlias = Callable[[str, int, float], list[str]]
"""`SystemResolver()`, or a double of it: host, port and seconds to numeric addresses."""


class SystemResolver:
    """Resolver over getaddrinfo, which has no time limit of its own; safe for threads.

    Calls of less time than a look-up may take have slots of their own. So short timeouts, with names that nobody
    resolves, take no slots of other calls.

    What is an address already, in any spelling that the system reads, is answered at once: no thread, no look-up.
    """

    def __init__(
        self, look_up: LookUp = socket.getaddrinfo, limit_s: float = MAX_LOOKUP_S, at_once: int = MAX_LOOKUPS
    ) -> None:
        self._look_up = look_up
        self._limit_s = limit_s
        self._hasty = threading.BoundedSemaphore(max(at_once // SHORT_CALLS_SHARE, 1))
        self._patient = threading.BoundedSemaphore(max(at_once - at_once // SHORT_CALLS_SHARE, 1))

    def __call__(self, host: str, port: int, within_s: float, /) -> list[str]:
        """Numeric addresses of a host, each once, in the order in which to try them.

        Raises CallFailed where nobody knows the host, CallTimedOut where the look-up takes too long, and InvalidInput
        where no host can have this name.
        """
        try:
            return self._found(host, port, socket.AI_NUMERICHOST)
        except socket.gaierror:
            pass  # a name
        except UnicodeError:
            raise InvalidInput([FieldError("url", "is not an http or https address")]) from None
        limit_s = min(within_s, self._limit_s)
        found = self._aside(host, port, limit_s)
        if isinstance(found, queue.Empty):
            raise CallTimedOut(f"the host name was not resolved within {limit_s:.2g} s") from found
        if isinstance(found, OSError):
            raise CallFailed("the host name is not known") from found
        return found

    def _aside(self, host: str, port: int, limit_s: float) -> list[str] | OSError | queue.Empty:
        """Addresses that a thread finds within the limit; a late one is left to itself, and keeps its slot."""
        until, slots = time.monotonic() + limit_s, self._hasty if limit_s < self._limit_s else self._patient
        if not slots.acquire(timeout=limit_s):
            return queue.Empty()
        answer: queue.SimpleQueue[list[str] | OSError] = queue.SimpleQueue()

        def look_up() -> None:
            try:
                answer.put(self._found(host, port, 0))
            except OSError as error:
                answer.put(error)
            finally:
                slots.release()

        threading.Thread(target=look_up, name="look-up", daemon=True).start()
        try:
            return answer.get(timeout=max(until - time.monotonic(), 0.001))
        except queue.Empty as late:
            return late

    def _found(self, host: str, port: int, flags: int) -> list[str]:
        places = self._look_up(host, port, allowed_gai_family(), socket.SOCK_STREAM, 0, flags)
        return list(dict.fromkeys(str(place[0]) for *_, place in places))[:MAX_ADDRESSES]


# The gate of all calls to the web: which addresses of a host they may reach, and what may be said there.

log = logging.getLogger("duecourse.guard")

RUNTIME = "AWS_LAMBDA_RUNTIME_API"
"""Lambda tells a function by it where its runtime API answers: host:port."""
CREDENTIALS = "AWS_CONTAINER_CREDENTIALS_FULL_URI"
"""URL at which a function with SnapStart, or a container, is handed its role's credentials."""
ENDPOINT = "AWS_ENDPOINT_URL"
"""URL of a service of AWS that this process calls with its own credentials; with _ and its name, of that one alone.

An emulator takes any credentials: who reaches it through this process is an operator there.
"""
HTTP_PORT = 80
OWN_LOOKUP_S = 2.0
OWN_SERVERS_CACHE_S = 60.0
"""Time for which the addresses of a server of this process's own are kept: a store's name may move to another."""


class AddressGate:
    """Checks by a policy, and by this process's own environment, for the addresses that `resolve` finds.

    `servers` are the host and port of each server that is this process's own besides, such as its store.
    """

    def __init__(self, egress: Egress, resolve: Resolve, servers: Sequence[tuple[str, int]] = ()) -> None:
        self._egress = egress
        self._resolve = resolve
        self._servers = list(servers)
        self._forms_of = lru_cache(maxsize=64)(self._looked_up)

    def addresses(self, host: str, port: int, within_s: float, *, in_clear: bool = False) -> list[str]:
        """Addresses of a host that may be called, looked up once; `in_clear` means with credentials and without TLS.

        Raises EgressRejected where none may, and as SystemResolver does.
        """
        problems = {
            address: self._problem_at(host, address, port, in_clear) for address in self._resolve(host, port, within_s)
        }
        good = [address for address, problem in problems.items() if not problem]
        if not good:
            # The caller is not told the address: that of an internal name is nobody's business outside.
            log.warning("a call to %s was rejected: it leads to %s", host, ", ".join(problems) or "no address")
            raise EgressRejected(next(iter(problems.values()), OWN_USE))
        return good

    def check(self, host: str, address: str, port: int, *, in_clear: bool = False) -> None:
        """Return if the other end of a connection, seen from here, may be spoken to so. Raises EgressRejected."""
        if problem := self._problem_at(host, address, port, in_clear):
            raise EgressRejected(problem)

    def _problem_at(self, host: str, address: str, port: int, in_clear: bool) -> str:
        if self._is_ours(address, port):
            return OWN_USE
        problem = self._egress.problem_at(host, address, port)
        return problem or (IN_CLEAR if in_clear and not self._egress.lists(host, address, port) else "")

    def _is_ours(self, address: str, port: int) -> bool:
        """True if an address is where this process gets events and credentials, or calls with its own."""
        asked = forms(address)
        places = [*_own_endpoints(), *self._servers]
        owns = [self._known_forms(host) for host, own_port in places if own_port == port]
        return any(asked & own or (any(map(is_here, asked)) and any(map(is_here, own))) for own in owns)

    def _known_forms(self, name: str) -> frozenset[Address]:
        try:
            return self._forms_of(name, int(time.monotonic() // OWN_SERVERS_CACHE_S))
        except (CallFailed, InvalidInput):  # nobody knows it now, and nobody can call it by that; not kept
            return frozenset()

    def _looked_up(self, name: str, _while: int) -> frozenset[Address]:
        """All forms of all addresses of a name, kept while the second argument stays the same."""
        found = literals(name) or self._resolve(name, HTTP_PORT, OWN_LOOKUP_S)
        return frozenset(form for address in found for form in forms(address))


def _own_endpoints() -> list[tuple[str, int]]:
    """Host and port of each, as the environment says now."""
    urls = [f"//{os.environ.get(RUNTIME, '')}", os.environ.get(CREDENTIALS, "")]
    urls += [url for name, url in os.environ.items() if name == ENDPOINT or name.startswith(f"{ENDPOINT}_")]
    found = []
    for url in urls:
        try:
            parts = urlsplit(url)
            found.append((parts.hostname or "", parts.port or STANDARD_PORTS.get(parts.scheme, HTTP_PORT)))
        except ValueError:
            continue
    return [place for place in found if place[0]]
