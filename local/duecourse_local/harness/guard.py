"""Guard of the harness's servers: programs that name this machine are answered, web pages from elsewhere are not.

A web page may send requests to any address, this machine's among them, and have its own name lead there (DNS
rebinding). Browsers report it: `Host` is the name that the page used, `Origin` and `Sec-Fetch-Site` are its origin.
"""

import json
import re
from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

OWN_NAMES = frozenset({"localhost", "127.0.0.1", "::1"})
HEADERS = ("host", "origin", "sec-fetch-site")
FOREIGN_SITES = ("cross-site", "same-site")
"""Words of browsers for a page of another name, and for a page at another port of this name."""
HOST = re.compile(r"(?:\[([0-9a-f:.]+)\]|([^\s/?#@:,\[\]]+?)\.?)(?::\d{1,5})?")
NAME = re.compile(r"[a-z0-9]([a-z0-9-]*[a-z0-9])?(\.[a-z0-9]([a-z0-9-]*[a-z0-9])?)*", re.IGNORECASE)
BY_NAME = "for another name of this machine, such as a container's for it, start `up` with --allow-host."
BY_PAGES = "A program may call it; a page may only if this harness served the page."


class Origin(NamedTuple):
    """Origin of one request: all values of each of HEADERS, and the address at which it came in."""

    values: Mapping[str, Sequence[str]]
    address: str


class Rejection(NamedTuple):
    """Rejection of a request: the status and the reason."""

    status: int
    message: str

    @property
    def body(self) -> bytes:
        """The reason as JSON."""
        return json.dumps({"message": self.message}).encode()


class Guard:
    """Check of requests; `names` are further names of this machine, such as `host.docker.internal` for containers.

    None is known unless asked for: the network of a café may answer for any name but these.
    """

    def __init__(self, names: Iterable[str] = ()) -> None:
        self._names = OWN_NAMES | {name.lower().rstrip(".") for name in names}

    def rejection(self, origin: Origin) -> Rejection | None:
        """The rejection of a request, None if it may be answered."""
        hosts, origins, sites = (origin.values[name] for name in HEADERS)
        name = _named(hosts)
        if not name or not (name in self._names or name == origin.address or name.endswith(".localhost")):
            given = ", ".join(hosts)[:100] or "no name"
            return Rejection(421, f"This harness answers to localhost, not to {given}: {BY_NAME}")
        own = {f"{scheme}://{hosts[0].lower()}" for scheme in ("http", "https")}
        if any(origin.lower() not in own for origin in origins):
            return Rejection(
                403, f"This harness answers no web page of another origin ({origins[0][:100]}). {BY_PAGES}"
            )
        if any(foreign in site.lower() for site in sites for foreign in FOREIGN_SITES):
            return Rejection(
                403, f"This harness answers no web page of another site or port. {BY_PAGES} Type an address to open it."
            )
        return None


def _named(hosts: Sequence[str]) -> str:
    """The name or address in the one `Host` header, "" where there is not one of them."""
    found = HOST.fullmatch(hosts[0].lower()) if len(hosts) == 1 else None
    return (found[1] or found[2]) if found else ""
