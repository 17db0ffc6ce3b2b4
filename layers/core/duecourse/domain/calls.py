"""Headers that a caller may not set in a request of ours: they frame it, name its host, or vouch for its sender."""

import re

RESERVED = (
    "host", "connection", "content-length", "transfer-encoding", "te", "trailer", "upgrade", "keep-alive",
    "proxy-connection", "expect", "http2-settings",
)  # fmt: skip
"""Headers of the connection: another value would break the request, or smuggle a second one past a proxy."""
MARKS = "webhook-"
"""Beginning of the headers that prove to a receiver that a webhook comes from here and is no repetition."""


def _in_any_case(name: str) -> str:
    return "".join(f"[{c.upper()}{c}]" if c.isalpha() else c for c in name)


RESERVED_PATTERN = f"^(?:(?:{'|'.join(map(_in_any_case, RESERVED))})$|{_in_any_case(MARKS)})"
"""The same as JSON Schema has patterns."""


def is_reserved(name: str) -> bool:
    """True if a caller may not set a header of this name."""
    return bool(re.search(RESERVED_PATTERN, name))
