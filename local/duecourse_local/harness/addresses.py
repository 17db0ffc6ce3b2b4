"""Addresses: listening sockets on loopback, and URLs of stores as messages show them."""

import socket
from collections.abc import Mapping

from duecourse.ledger.address import split
from duecourse.settings import Settings

from ..errors import HarnessError

LOOPBACK = "127.0.0.1"
MAX_PORT = 65_535


def listen(port: int, option: str) -> socket.socket:
    """A listening socket; port 0 picks a free one. Raises HarnessError, naming the option that changes the port."""
    # named as TCP, for asyncio switches Nagle's algorithm off only then, and an answer would take 44 ms with it
    sock = socket.socket(socket.AF_INET, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        sock.bind((LOOPBACK, port))
        sock.listen()  # at once: with SO_REUSEADDR a second socket could be bound to a port that nobody listens on yet
    except OSError as error:
        sock.close()
        raise HarnessError(f"port {port} cannot be used ({error.strerror}): choose another with {option}") from None
    return sock


PAGE_PORT = 3002
"""Usual port of the operators' page."""


def listen_for_page(port: int | None, option: str) -> socket.socket:
    """A listening socket for the page: at this port, else at the usual one or, if that is taken, at a free one."""
    if port is not None:
        return listen(port, option)
    try:
        return listen(PAGE_PORT, option)
    except HarnessError:
        return listen(0, option)


def check_free(ports: Mapping[str, int]) -> None:
    """Return if each port, by the option that names it, can be listened on. Raises HarnessError, with all that cannot.

    Each is listened on for a moment: a user who has one port taken often has the others taken too.
    """
    taken = []
    for option, port in ports.items():
        try:
            listen(port, option).close()
        except HarnessError as error:
            taken.append(str(error))
    if taken:
        free = " ".join(f"{option.partition(',')[0]} 0" for option in ports)
        raise HarnessError(f"{'; '.join(taken)}. Any free ones: duecourse up {free}")


def url_of(sock: socket.socket) -> str:
    """URL at which a socket answers."""
    return f"http://{LOOPBACK}:{sock.getsockname()[1]}"


def free_port(port: int, option: str) -> int:
    """`port`, or a free one for 0, for a child that binds it by itself. Raises HarnessError."""
    with listen(port, option) as sock:
        found: int = sock.getsockname()[1]
        return found


SCHEMES = ("memory://", "leveldb://")
"""The stores that one process at a time has open."""


def ledger_name(given: Settings) -> str:
    """Name of a ledger's place for a message: nothing is read for it, and no password is in it."""
    return f"the URL in the secret {given.store_secret}" if given.store_secret else without_password(given.store)


def without_password(url: str) -> str:
    """`url` without its password, for logs and messages."""
    login = split(url).login or ""
    user, colon, _ = login.partition(":")
    return url.replace(f"{login}@", f"{user}:***@", 1) if colon else url
