"""Contract of calls to addresses on the web."""

from collections.abc import Mapping
from typing import NamedTuple, Protocol
from urllib.parse import urlsplit

from duecourse.domain.credential import CredentialName
from duecourse.domain.task import DEFAULT_TENANT


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
