"""One call to the web: its request, its answer, the Protocol of its sender, and the headers that it reserves."""

import re
from collections.abc import Mapping
from typing import NamedTuple, Protocol
from urllib.parse import urlsplit

from duecourse.ledger.task import DEFAULT_TENANT


class CredentialName(NamedTuple):
    """Name of a credential, and the tenant whose it is."""

    tenant: str
    name: str

    def secret(self, prefix: str) -> str:
        """Name of the secret that holds it. Secrets Manager knows no colon, and a tenant has no plus."""
        return f"{prefix}{self.tenant.replace(':', '+')}/{self.name}"


class HttpRequest(NamedTuple):
    """One call; `timeout_ms` bounds it all, from the look-up of the host's name to the answer's last byte.

    At most `max_bytes` of the answer's body are read. With `auth` the call carries that credential, in any header.
    No connection is shared with another `tenant`.

    Without `needs_body`, an answer counts once its status is there, whether or not its body can be read.
    """

    method: str
    url: str
    headers: Mapping[str, str]
    body: bytes | None
    timeout_ms: int
    max_bytes: int
    auth: CredentialName | None = None
    tenant: str = DEFAULT_TENANT
    needs_body: bool = True

    @property
    def label(self) -> str:
        """The call in a few words for logs and errors: without user, password, query and fragment."""
        try:
            parts = urlsplit(self.url)
        except ValueError:
            return f"{self.method} (malformed URL)"
        return f"{self.method} {parts.scheme}://{parts.netloc.rpartition('@')[2]}{parts.path}"[:200]


class HttpAnswer(NamedTuple):
    """Answer; names of headers are in lower case. `whole` is False if the body is cut: too long, or broken off."""

    status: int
    headers: Mapping[str, str]
    body: bytes
    whole: bool = True


class HttpCaller(Protocol):
    """A way out to the web."""

    def call(self, request: HttpRequest) -> HttpAnswer:
        """Send one request, once, and follow no redirect.

        An answer other than 2xx counts without its body, too. Raises CallFailed where no answer came, and CallTimedOut
        where its time was over before that. Raises EgressRejected where no call may go, and any other InvalidInput
        where the request can never be sent.
        """


# Headers that a caller may not set in a request of ours: they frame it, name its host, or vouch for its sender.

RESERVED = (
    "host", "connection", "content-length", "transfer-encoding", "te", "trailer", "upgrade", "keep-alive",
    "expect", "http2-settings",
)  # fmt: skip
"""Headers of the connection: another value would break the request, or smuggle a second one past a proxy."""
RESERVED_PREFIXES = ("webhook-", "proxy-")
"""Beginnings of the headers that prove to a receiver that a webhook comes from here, and of those for a proxy."""


def _in_any_form(name: str) -> str:
    """Pattern of a name in any case, with any sign for `-`: to an application behind CGI or WSGI they are one."""
    return "".join(f"[{c.upper()}{c}]" if c.isalpha() else "[^0-9A-Za-z]" if c == "-" else c for c in name)


RESERVED_PATTERN = f"^(?:(?:{'|'.join(map(_in_any_form, RESERVED))})$|{'|'.join(map(_in_any_form, RESERVED_PREFIXES))})"
"""The same as JSON Schema has patterns."""


def is_reserved(name: str) -> bool:
    """True if a caller may not set a header of this name."""
    return bool(re.search(RESERVED_PATTERN, name))
