"""The operators' page on this machine: loopback only, opened by an address with a key."""

import socket
from secrets import token_urlsafe
from typing import TYPE_CHECKING, NamedTuple
from urllib.parse import urlencode

from duecourse.in_place import HttpApi

from .harness.addresses import PAGE_PORT, url_of

if TYPE_CHECKING:
    from duecourse.page.server import Page

NAMES = ("127.0.0.1", "localhost", "[::1]")
HTTP_PORT = 80
USUAL_PORT = f"{PAGE_PORT}, or a free one"
"""Default of the option for the page's port, in words."""


class LocalPage(NamedTuple):
    """The page's application, its address with the key, and an address that opens it once."""

    application: "Page"
    address: str
    address_once: str


def local_page(api: HttpApi, sock: socket.socket, *, read_only: bool = False) -> LocalPage:
    """The page on an API, for browsers that come to this socket. Raises ModuleNotFoundError without Starlette."""
    from duecourse.page.key import PageKey
    from duecourse.page.server import Page

    key = PageKey()
    # Browsers send a cookie to every port of a host, but to none of its other paths: another user's server on this
    # machine never gets it.
    base = f"/{token_urlsafe(6)}"
    page = Page(api, read_only=read_only, base=base, key=key, hosts=_hosts(sock))
    address, once = (f"{url_of(sock)}{base}/?{urlencode({'key': one})}" for one in (key.text, key.once()))
    return LocalPage(page, address, once)


def _hosts(sock: socket.socket) -> frozenset[str]:
    port: int = sock.getsockname()[1]
    bare = NAMES if port == HTTP_PORT else ()  # of which a browser leaves the port out
    return frozenset([*bare, *(f"{name}:{port}" for name in NAMES)])
