"""The gate of all calls to the web: which addresses of a host they may reach, and what may be said there."""

import logging
import os
import time
from collections.abc import Sequence
from functools import lru_cache
from urllib.parse import urlsplit

from duecourse.domain.destination import Address, forms, is_here, literals
from duecourse.domain.egress import IN_CLEAR, OWN_USE, STANDARD_PORTS, Egress
from duecourse.errors import CallFailed, EgressRejected, InvalidInput
from duecourse.ports.resolver import Resolver

log = logging.getLogger("duecourse.http")

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
KNOWN_S = 60.0
"""Time for which the addresses of a server of this process's own are kept: a store's name may move to another."""


class Gate:
    """Gate of a policy, and of this process's own environment, for the addresses that `resolve` finds.

    `servers` are the host and port of each server that is this process's own besides, such as its store.
    """

    def __init__(self, egress: Egress, resolve: Resolver, servers: Sequence[tuple[str, int]] = ()) -> None:
        self._egress = egress
        self._resolve = resolve
        self._servers = list(servers)
        self._forms_of = lru_cache(maxsize=64)(self._looked_up)

    def addresses(self, host: str, port: int, within_s: float, *, in_clear: bool = False) -> list[str]:
        """Those of a host's addresses that may be called, looked up once; `in_clear`, with credentials and no TLS.

        Raises EgressRejected where none may, and as a Resolver does.
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
        places = [*_own_places(), *self._servers]
        owns = [self._known_forms(host) for host, own_port in places if own_port == port]
        return any(asked & own or (any(map(is_here, asked)) and any(map(is_here, own))) for own in owns)

    def _known_forms(self, name: str) -> frozenset[Address]:
        try:
            return self._forms_of(name, int(time.monotonic() // KNOWN_S))
        except (CallFailed, InvalidInput):  # nobody knows it now, and nobody can call it by that; not kept
            return frozenset()

    def _looked_up(self, name: str, _while: int) -> frozenset[Address]:
        """All forms of all addresses of a name, kept while the second argument stays the same."""
        found = literals(name) or self._resolve(name, HTTP_PORT, OWN_LOOKUP_S)
        return frozenset(form for address in found for form in forms(address))


def _own_places() -> list[tuple[str, int]]:
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
