"""The request being served: its App, its tenant, its Idempotency-Key, and what tells it from every other."""

import base64
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from functools import cached_property
from hashlib import sha256
from itertools import count
from typing import Any

from duecourse.domain.task import DEFAULT_TENANT, new_id
from duecourse.errors import FieldError, InvalidInput
from duecourse.wire.http.headers import CHANGING, KEY_HEADER, is_json, read_key
from duecourse.wire.http.problems import UnsupportedBody
from duecourse.wire.settings.variables import NAME, WRONG_NAME
from duecourse.wiring import App

TYPE, JSON, UNREAD = "content-type", "application/json", "application/octet-stream"


class Request:
    """One request (an event of the HTTP API, payload format 2.0), and the App that serves it."""

    def __init__(self, app: App, event: Mapping[str, Any], remaining_ms: Callable[[], int]) -> None:
        self.app = app
        self.remaining_ms = remaining_ms
        """Milliseconds that the function may still take."""
        self.since = 0
        """Time (epoch ms) since which this request may have been done in part; 0 where it is new."""
        self._event = event
        self._http: Mapping[str, Any] = event["requestContext"]["http"]
        self._headers: dict[str, str] = {name.lower(): value for name, value in event["headers"].items()}
        self._numbers = count()

    @cached_property
    def tenant(self) -> str:
        """Tenant, from the settings' header if there is one. Raises InvalidInput for an invalid tenant."""
        header = self.app.settings.tenant_header
        named = self._headers.get(header.lower(), DEFAULT_TENANT)
        if not NAME.fullmatch(named):
            raise InvalidInput([FieldError(header, WRONG_NAME)])
        return named

    def key(self) -> str | None:
        """The Idempotency-Key; None where the request has none, or changes nothing. Raises MalformedKey."""
        given = self._headers.get(KEY_HEADER.lower()) if self._http["method"] in CHANGING else None
        return None if given is None else read_key(given)

    def fingerprint(self) -> bytes:
        """32 bytes that differ where method, path, query or body do."""
        digest = sha256()
        for text in (self._http["method"], self._event["rawPath"], self._event.get("rawQueryString") or ""):
            digest.update(text.encode(errors="surrogatepass") + b"\0")
        digest.update(self._body())
        return digest.digest()

    def new_id(self) -> str:
        """Id of the next thing that the request leaves unnamed: with a key the same each time that it is sent."""
        if self._seed is None:
            return new_id()
        return sha256(f"{self._seed}\0{next(self._numbers)}".encode()).hexdigest()[:24]

    def typed(self) -> dict[str, Any]:
        """The event with a content type as the router compares them: JSON, however written, or one it never reads.

        It reads forms too, and bodies without a type as JSON: any page of the web may send both to any address.
        """
        event, given = self._event, self._headers.get(TYPE)
        if given is None and not event.get("body"):
            return dict(event)
        return {**event, "headers": {**self._headers, TYPE: JSON if is_json(given or "") else UNREAD}}

    def check(self) -> None:
        """Reject a body that is not said to be JSON, and an invalid tenant, whether or not its route reads them.

        Raises UnsupportedBody and InvalidInput.
        """
        if self._event.get("body") and not is_json(self._headers.get(TYPE, "")):
            raise UnsupportedBody
        _ = self.tenant

    @cached_property
    def _seed(self) -> str | None:
        key = self.key()
        return None if key is None else f"{self.tenant}\0{key}\0{self.fingerprint().hex()}"

    def _body(self) -> bytes:
        body = self._event.get("body") or ""
        if self._event.get("isBase64Encoded"):
            return base64.b64decode(body)
        return str(body).encode(errors="surrogatepass")


_served: ContextVar[Request] = ContextVar("served")
"""The request, one for each thread: the router gives a route its parameters only, and a harness may serve several."""


@contextmanager
def serving(asked: Request) -> Iterator[Request]:
    """Context in which `served` answers this request."""
    before = _served.set(asked)
    try:
        yield asked
    finally:
        _served.reset(before)


def served() -> Request:
    """The request that is served here."""
    return _served.get()


def app() -> App:
    """The App of that request."""
    return served().app


def tenant() -> str:
    """Tenant of that request. Raises InvalidInput if its header has no valid tenant."""
    return served().tenant
