"""Egress: calls on a caller's word, the addresses that they may reach, and the exceptions that an operator lists."""

import re
from collections.abc import Iterable, Mapping
from functools import lru_cache
from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network, ip_address, ip_network
from typing import NamedTuple, TypeAlias
from urllib.parse import urlsplit

from duecourse.base.host_addresses import OWN, Address, in_ascii, is_own, literals
from duecourse.base.masking import is_credential
from duecourse.guard.http_types import is_reserved

# By default, calls may reach public unicast addresses alone. An address is judged as the one to which it leads: an
# IPv4 address in IPv6's mapped or NAT64 form is that IPv4 address. Any other form that embeds one is not public.

Network: TypeAlias = IPv4Network | IPv6Network

STANDARD_PORTS = {"http": 80, "https": 443}
MAX_PORT = 65_535
NOT_PUBLIC = tuple(
    map(ip_network, ("192.0.0.0/24", "192.88.99.0/24", "224.0.0.0/4", "2001::/23", "2002::/16", "3fff::/20"))
)
"""Networks that `is_global` of some Python takes for public: protocol assignments, 6to4, multicast, documentation."""
UNICAST = IPv6Network("2000::/3")
"""All of IPv6 that is public; outside it are loopback, private, site-local, multicast and unassigned addresses."""
SAME_AS_IPV4 = (IPv6Network("::ffff:0:0/96"), IPv6Network("64:ff9b::/96"))
"""Networks whose addresses lead to the IPv4 address in their last four bytes: mapped, and NAT64."""

OWN_USE = "leads to an address for the machine's own use, such as metadata, which is never called"
PRIVATE = "leads to an address that is not public, and DUECOURSE_EGRESS_ALLOW does not list it"
IN_CLEAR = (
    "would carry a header with credentials over plain http: use https, or have DUECOURSE_EGRESS_ALLOW list the host"
)
EXPECTED = "is not a host, a .suffix, an address or a network, each with an optional :port"

_LABEL = r"[a-z0-9_]([a-z0-9_-]{0,61}[a-z0-9_])?"
_NAME = re.compile(rf"\.?{_LABEL}(\.{_LABEL})*")
_PARTS = re.compile(
    r"\[(?P<bracketed>[^\]]+)\](:(?P<its_port>\d+))?|(?P<network>[^\s\[\]]*/\d+)(:(?P<network_port>\d+))?"
    r"|(?P<six>[^\s\[\]/]*:[^\s\[\]/]*:[^\s\[\]/]*)|(?P<host>[^\s\[\]/:]+)(:(?P<port>\d+))?",
    re.ASCII,
)
"""Pattern of an entry: what is in brackets, a network, an IPv6 address, or anything else; each but the third with a
port."""


class HostRule(NamedTuple):
    """Hosts that are listed: a name, a suffix (with its dot) or a network; `port` None is any port."""

    name: str = ""
    network: Network | None = None
    port: int | None = None

    def covers(self, name: str, address: Address | None, port: int) -> bool:
        """True for a call to this name, at this address of it, at this port; an address of None may be any."""
        if self.port not in (None, port):
            return False
        if self.network is not None:
            return address is None or _within(address, self.network)
        return name.endswith(self.name) if self.name.startswith(".") else name == self.name


class Egress(NamedTuple):
    """The policy of one process: public addresses, and `entries` besides."""

    entries: tuple[HostRule, ...] = ()

    @classmethod
    def of(cls, text: str) -> "Egress":
        """The policy with these exceptions. Raises ValueError, naming the entry that is wrong."""
        return cls(tuple(_entry(part) for part in map(str.strip, text.split(",")) if part))

    def problem_at(self, host: str, address: str, port: int) -> str:
        """Reason why a call to this host must not go to this numeric address of it, or ""."""
        if is_own(address):
            return OWN_USE
        return "" if is_public(address) or self.lists(host, address, port) else PRIVATE

    def lists(self, host: str, address: str | None, port: int) -> bool:
        """True if an exception covers this address of the host, or for None might cover one."""
        name, judged = dns_name(host), None if address is None else effective_address(address)
        return any(entry.covers(name, judged, port) for entry in self.entries)

    def problem_of(self, url: str, headers: Mapping[str, str]) -> str:
        """Reason why no call with these headers can go to this URL, as far as nothing is looked up; or ""."""
        parts = urlsplit(url)
        problem, may_be_in_clear = _url_verdict(self, parts.scheme, parts.netloc)
        return problem or ("" if may_be_in_clear or not carries_credentials(headers) else IN_CLEAR)


@lru_cache(maxsize=1024)
def _url_verdict(egress: Egress, scheme: str, netloc: str) -> tuple[str, bool]:
    """Reason why no call can go to this part of a URL, or "", and False if its credentials need TLS.

    Kept, for most tasks of a process go to a few hosts.
    """
    parts = urlsplit(f"{scheme}://{netloc}")
    host, port = parts.hostname or "", parts.port or STANDARD_PORTS.get(scheme, 0)
    found = literals(host)
    problems = [egress.problem_at(host, address, port) for address in found]
    if problems and all(problems):
        return problems[0], False
    places: list[str | None] = [*found] or [None]
    return "", scheme != "http" or any(egress.lists(host, address, port) for address in places)


def is_public(address: str) -> bool:
    """True if a numeric address leads to public unicast."""
    judged = effective_address(address)
    if isinstance(judged, IPv6Address) and judged not in UNICAST:
        return False
    return judged.is_global and not any(_within(judged, network) for network in NOT_PUBLIC)


def carries_credentials(names: Iterable[str]) -> bool:
    """True if one of these headers is shown masked, which all credentials are; an Idempotency-Key is none."""
    return any(is_credential(name) and not is_reserved(name) and name.lower() != "idempotency-key" for name in names)


def dns_name(host: str) -> str:
    """A host's name as DNS has it: in lower case, without the last dot, in ASCII."""
    return in_ascii(host.lower().removesuffix("."))


def _entry(text: str) -> HostRule:
    found = _PARTS.fullmatch(text)
    if not found:
        raise ValueError(f"{text[:80]!r} {EXPECTED}")
    port = found["its_port"] or found["network_port"] or found["port"]
    number = int(port.lstrip("0")[:6] or 0) if port else None  # as many digits as tell that it is too large
    if number is not None and not 0 < number <= MAX_PORT:
        raise ValueError(f"{text[:80]!r} has a port that is not between 1 and {MAX_PORT}")
    place = found["bracketed"] or found["network"] or found["six"]
    return _network(text, place, number) if place else _named(text, found["host"], number)


def _named(text: str, host: str, port: int | None) -> HostRule:
    if literals(host) and not host.lower().endswith("localhost"):
        return _network(text, host, port)
    name = host.lower().removesuffix(".")
    if not _NAME.fullmatch(name):
        raise ValueError(f"{text[:80]!r} {EXPECTED} (a name that is not ASCII as xn--…)")
    return HostRule(name=name, port=port)


def _network(text: str, place: str, port: int | None) -> HostRule:
    try:
        network = ip_network(place)
    except ValueError as error:
        raise ValueError(f"{text[:80]!r} {EXPECTED}: {error}") from None
    if any(_holds(own, network) for own in OWN):
        raise ValueError(f"{text[:80]!r} is for the machine's own use, which is never called")
    if isinstance(network, IPv6Network) and any(_holds(same, network) for same in SAME_AS_IPV4):
        raise ValueError(f"{text[:80]!r} leads to IPv4: give the IPv4 address or network")
    return HostRule(network=network, port=port)


def effective_address(address: str) -> Address:
    """The address to which one leads."""
    first = ip_address(address.partition("%")[0])
    if isinstance(first, IPv6Address) and any(first in network for network in SAME_AS_IPV4):
        return IPv4Address(first.packed[-4:])
    return first


def _within(address: Address, network: Network) -> bool:
    return address.version == network.version and address in network


def _holds(outer: Network, inner: Network) -> bool:
    if isinstance(outer, IPv4Network):
        return isinstance(inner, IPv4Network) and inner.subnet_of(outer)
    return isinstance(inner, IPv6Network) and inner.subnet_of(outer)
