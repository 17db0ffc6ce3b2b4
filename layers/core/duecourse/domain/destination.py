"""Destination of an address: what it embeds, and a check for the machine's own services, such as metadata."""

from ipaddress import IPv4Address, IPv6Address, IPv6Network, ip_address, ip_network
from typing import TypeAlias

Address: TypeAlias = IPv4Address | IPv6Address

OWN = tuple(map(ip_network, ("169.254.0.0/16", "fe80::/10", "fd00:ec2::/32")))
"""Link-local, and the network of EC2's own services (its metadata at fd00:ec2::254), which is that in all but name."""
LAST_FOUR = tuple(IPv6Network(text) for text in ("::/96", "::ffff:0:0/96", "::ffff:0:0:0/96", "64:ff9b::/96"))
"""IPv6 networks whose last four bytes are an IPv4 address: compatible, mapped, translated, NAT64."""
LOCAL_NAT64 = IPv6Network("64:ff9b:1::/48")
LOCAL_NAT64_PLACES = ((6, 7, 9, 10), (7, 9, 10, 11), (9, 10, 11, 12), (12, 13, 14, 15))
"""Bytes that may hold the IPv4 address under such a prefix, by the prefix's length (RFC 6052 leaves byte 8 out)."""


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
