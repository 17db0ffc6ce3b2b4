"""Hosts: the address that a name is or embeds, and a check for the machine's own services."""

import re
import socket
from ipaddress import IPv4Address, IPv6Address, IPv6Network, ip_address, ip_network
from typing import TypeAlias
from unicodedata import normalize
from urllib.parse import unquote

Address: TypeAlias = IPv4Address | IPv6Address

LINK_LOCAL = ("169.254.0.0/16", "fe80::/10")
EC2 = "fd00:ec2::/32"
"""Network of EC2's own services (metadata at fd00:ec2::254, credentials at ::23): link-local in all but name."""
ELSEWHERE = ("168.63.129.16", "100.100.100.200", "192.0.0.192", "fd20:ce::254", "fd00:42::42")
"""Metadata outside link-local: Azure (a public address, for all that), Alibaba, Oracle, Google, Scaleway."""
OWN = tuple(map(ip_network, (*LINK_LOCAL, EC2, *ELSEWHERE)))
LAST_FOUR = tuple(IPv6Network(text) for text in ("::/96", "::ffff:0:0/96", "::ffff:0:0:0/96", "64:ff9b::/96"))
"""IPv6 networks whose last four bytes are an IPv4 address: compatible, mapped, translated, NAT64."""
LOCAL_NAT64 = IPv6Network("64:ff9b:1::/48")
LOCAL_NAT64_PLACES = ((6, 7, 9, 10), (7, 9, 10, 11), (9, 10, 11, 12), (12, 13, 14, 15))
"""Bytes that may hold the IPv4 address under such a prefix, by the prefix's length (RFC 6052 leaves byte 8 out)."""


MAX_LABEL = 63
"""Maximum length of a part of a host's name, between two dots."""
LOOPBACK = ("127.0.0.1", "::1")
"""Addresses of `localhost`, and of each name that ends in it (RFC 6761)."""
_NUMERIC = re.compile(r"[0-9][0-9a-fx.]*")
"""Pattern of each host that may be an IPv4 address: `127.1`, `0x7f000001` and `017700000001` are."""


def literals(host: str) -> list[str]:
    """Numeric addresses that a URL's host is by itself, as a resolver reads it; none for a name."""
    text = normalize("NFKC", unquote(host)).lower().replace("\u3002", ".").removesuffix(".")
    if text == "localhost" or text.endswith(".localhost"):
        return list(LOOPBACK)
    try:
        if ":" in text:
            return [str(ip_address(text.partition("%")[0]))]
        return [socket.inet_ntoa(socket.inet_aton(text))] if _NUMERIC.fullmatch(text) else []
    except (ValueError, OSError):
        return []


def in_ascii(name: str) -> str:
    """A host's name as DNS has it, in ASCII; unchanged where it can be in none."""
    # Of a label that is too long to be one, what IDNA does takes the square of its length.
    if name.isascii() or max(map(len, name.split("."))) > MAX_LABEL:
        return name
    try:
        return name.encode("idna").decode()
    except UnicodeError:
        return name


def forms(address: str) -> set[Address]:
    """An address (a zone after % is left out), and every address that it embeds or maps to."""
    first = ip_address(address.partition("%")[0])
    return {first, *_embedded(first)} if isinstance(first, IPv6Address) else {first}


def is_own(address: str) -> bool:
    """True if an address, in any form, is for the machine's own use."""
    return any(form in network for form in forms(address) for network in OWN if form.version == network.version)


def is_here(form: Address) -> bool:
    """True if a form of an address is this machine: a loopback address, or none (which connects to loopback)."""
    return form.is_loopback or form.is_unspecified


def _embedded(address: IPv6Address) -> set[IPv4Address]:
    found = {address.sixtofour, *(address.teredo or ())}
    if any(address in network for network in LAST_FOUR):
        found.add(IPv4Address(address.packed[-4:]))
    if address in LOCAL_NAT64:
        found |= {IPv4Address(bytes(address.packed[at] for at in places)) for places in LOCAL_NAT64_PLACES}
    return {one for one in found if one is not None}
