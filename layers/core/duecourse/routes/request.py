"""The request being served: its App, its tenant, its Idempotency-Key, and what tells it from every other."""

import base64
import re
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from functools import cached_property
from hashlib import sha256
from itertools import count
from typing import Any

from duecourse.domain.task import DEFAULT_TENANT, NAME_PATTERN, new_id
from duecourse.errors import FieldError, InvalidInput
from duecourse.wire.http.problems import MalformedKey, UnsupportedBody, is_json
from duecourse.wiring import App

KEY_HEADER = "Idempotency-Key"
KEY = re.compile(r'"((?:[ !#-\[\]-~]|\\["\\]){1,255})"')
"""A String of RFC 9651: printable ASCII in double quotes, with a backslash before each quote or backslash in it."""
JSON, UNREAD = "application/json", "application/octet-stream"
CHANGING = frozenset({"POST", "PATCH", "PUT", "DELETE"})
TENANT = re.compile(NAME_PATTERN)


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
        self._numbers = count()

    @property
    def tenant(self) -> str:
        """Tenant, from the settings' header if there is one. Raises InvalidInput for an invalid tenant."""
        header = self.app.settings.tenant_header
        named = self._header(header) if header else None
        if named is None:
            return DEFAULT_TENANT
        if not TENANT.fullmatch(named):
            raise InvalidInput([FieldError(header, "must be 1 to 64 characters of A-Z a-z 0-9 . _ : @ -")])
        return named

    def key(self) -> str | None:
        """The Idempotency-Key; None where the request has none, or changes nothing. Raises MalformedKey."""
        given = self._header(KEY_HEADER) if self._http["method"] in CHANGING else None
        if given is None:
            return None
        found = KEY.fullmatch(given.strip(" "))
        if not found:
            raise MalformedKey
        return re.sub(r"\\(.)", r"\1", found[1])

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
        event, given = self._event, self._header("Content-Type")
        if given is None and not event.get("body"):
            return dict(event)
        others = {name: value for name, value in event["headers"].items() if name.lower() != "content-type"}
        return {**event, "headers": {**others, "content-type": JSON if is_json(given or "") else UNREAD}}

    def check_type(self) -> None:
        """Return unless the request has a body that is not said to be JSON. Raises UnsupportedBody."""
        if self._event.get("body") and not is_json(self._header("Content-Type") or ""):
            raise UnsupportedBody

    @cached_property
    def _seed(self) -> str | None:
        key = self.key()
        return None if key is None else f"{self.tenant}\0{key}\0{self.fingerprint().hex()}"

    def _body(self) -> bytes:
        body = self._event.get("body") or ""
        if self._event.get("isBase64Encoded"):
            return base64.b64decode(body)
        return str(body).encode(errors="surrogatepass")

    def _header(self, name: str) -> str | None:
        return next((value for header, value in self._event["headers"].items() if header.lower() == name.lower()), None)


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
