"""Headers that a caller may not set in a request of ours: they frame it, name its host, or vouch for its sender."""

import re

RESERVED = (
    "host", "connection", "content-length", "transfer-encoding", "te", "trailer", "upgrade", "keep-alive",
    "expect", "http2-settings",
)  # fmt: skip
"""Headers of the connection: another value would break the request, or smuggle a second one past a proxy."""
BEGINNINGS = ("webhook-", "proxy-")
"""Beginnings of the headers that prove to a receiver that a webhook comes from here, and of those for a proxy."""


def _in_any_form(name: str) -> str:
    """Pattern of a name in any case, with any sign for `-`: to an application behind CGI or WSGI they are one."""
    return "".join(f"[{c.upper()}{c}]" if c.isalpha() else "[^0-9A-Za-z]" if c == "-" else c for c in name)


RESERVED_PATTERN = f"^(?:(?:{'|'.join(map(_in_any_form, RESERVED))})$|{'|'.join(map(_in_any_form, BEGINNINGS))})"
"""The same as JSON Schema has patterns."""


def is_reserved(name: str) -> bool:
    """True if a caller may not set a header of this name."""
    return bool(re.search(RESERVED_PATTERN, name))
