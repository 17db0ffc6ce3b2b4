"""Addresses that calls may reach: none that holds a function's own secrets."""

import os
import socket
from collections.abc import Sequence
from functools import lru_cache

from duecourse.domain.destination import Address, forms, is_here, is_own
from duecourse.errors import FieldError, InvalidInput

RUNTIME = "AWS_LAMBDA_RUNTIME_API"
"""Lambda tells a function by it where its runtime API answers: host:port."""


def allowed(addresses: Sequence[str], port: int) -> list[str]:
    """Those of a host's numeric addresses that may be called. Raises InvalidInput where none may."""
    found: list[str] = []
    rejected: InvalidInput | None = None
    for address in addresses:
        try:
            check_place(address, port)
            found.append(address)
        except InvalidInput as error:
            rejected = error
    if rejected and not found:
        raise rejected
    return found


def check_place(host: str, port: int) -> None:
    """Return unless this numeric address is that of a function's own secrets. Raises InvalidInput.

    Anyone who may add a task can name an address, and the owner of a host name decides where it leads. The metadata of
    the machine or the container is at a link-local address. Lambda's runtime API hands out the function's other events.
    """
    if is_own(host) or _is_runtime(host, port):
        raise InvalidInput([FieldError("url", f"leads to {host}, which is for the function's own use")])


def _is_runtime(host: str, port: int) -> bool:
    place = os.environ.get(RUNTIME, "")
    runtime, _, own_port = place.rpartition(":")
    if str(port) != own_port:
        return False
    asked, own = forms(host), _forms_of(runtime.strip("[]"))
    return bool(asked & own) or (any(map(is_here, asked)) and any(map(is_here, own)))


@lru_cache(maxsize=8)
def _forms_of(name: str) -> frozenset[Address]:
    """All forms of all addresses of a name; none where nobody knows it, for then nobody can call it by that."""
    try:
        found = socket.getaddrinfo(name, None, proto=socket.IPPROTO_TCP)
    except (socket.gaierror, UnicodeError):
        return frozenset()
    return frozenset(form for *_, place in found for form in forms(str(place[0])))
