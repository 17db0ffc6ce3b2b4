"""The request being served: its App, its caller and tenant, its Idempotency-Key, and what tells it from every other."""

import base64
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from functools import cached_property
from hashlib import sha256
from itertools import count
from typing import Any

from duecourse.domain.access import Principal, Role, principal_of
from duecourse.domain.idempotency import KeyedTry
from duecourse.domain.task import DEFAULT_TENANT, new_id
from duecourse.errors import FieldError, InvalidInput
from duecourse.wire.http.gateways import BALANCER
from duecourse.wire.http.headers import CHANGING, KEY_HEADER, READING, is_json, read_key
from duecourse.wire.http.identity import read_identity
from duecourse.wire.http.problems import ForeignTenant, NoTenant, RoleMissing, UnsupportedBody, UnverifiedCaller
from duecourse.wire.http.usual import HTTP
from duecourse.wire.settings.variables import NAME, WRONG_NAME
from duecourse.wiring import App

TENANT = "tenant"
"""Query parameter in which a caller names a tenant."""
TYPE, JSON, UNREAD = "content-type", "application/json", "application/octet-stream"


class Request:
    """One request (an event of payload format 2.0, as `read_request` makes it), and the App that serves it."""

    def __init__(self, app: App, event: Mapping[str, Any], remaining_ms: Callable[[], int], source: str = "") -> None:
        self.app = app
        self.source = source
        """Source of a request that did not come by HTTP; "" for one that did."""
        self.remaining_ms = remaining_ms
        """Milliseconds that the function may still take."""
        self.keyed: KeyedTry | None = None
        """The try of a request with an Idempotency-Key; None where it has none."""
        self._event = event
        self._context: Mapping[str, Any] = event["requestContext"]
        self.method: str = self._context["http"]["method"]
        self._headers = {name.lower(): str(value) for name, value in event["headers"].items()}
        self._numbers = count()

    @property
    def since(self) -> int:
        """Time (epoch ms) since which this request may have been done in part; 0 where it is new."""
        return self.keyed.since if self.keyed else 0

    @cached_property
    def principal(self) -> Principal | None:
        """Caller with its tenant and roles; None where the settings have no rule, and every caller may do all."""
        access = self.app.access
        if access is None:
            return None
        return principal_of(read_identity(self._context.get("authorizer")), access)

    @cached_property
    def tenant(self) -> str:
        """Tenant: the caller's, or the one that a caller names who may.

        Raises InvalidInput for an invalid tenant, ForeignTenant and NoTenant.
        """
        if self.principal is None:
            return self._of_header()
        named = self._named
        if named is None:
            if not self.principal.tenant:
                raise NoTenant(f"DUECOURSE_TENANT_FROM names no tenant for {self.principal.name}.")
            return self.principal.tenant
        if not NAME.fullmatch(named):
            raise InvalidInput([FieldError(TENANT, WRONG_NAME)])
        if named != self.principal.tenant and not self.principal.names_tenants:
            raise ForeignTenant
        return named

    @property
    def narrowed(self) -> str | None:
        """Tenant whose part of a queue the caller may see; None where the caller may see all of it."""
        everything = self.principal is None or (self.principal.is_operator and self._named is None)
        return None if everything else self.tenant

    @property
    def own_parameters(self) -> Sequence[str]:
        """Query parameters that every route takes."""
        return () if self.principal is None else (TENANT,)

    def _of_header(self) -> str:
        header = self.app.settings.tenant_header
        named = self._headers.get(header.lower(), DEFAULT_TENANT)
        if not NAME.fullmatch(named):
            raise InvalidInput([FieldError(header, WRONG_NAME)])
        return named

    @property
    def _named(self) -> str | None:
        given: str | None = self._event["queryStringParameters"].get(TENANT)
        return given

    def key(self) -> str | None:
        """The Idempotency-Key; None where the request has none, or changes nothing. Raises MalformedKey."""
        changes = self.method in CHANGING and self._event["rawPath"] not in READING
        given = self._headers.get(KEY_HEADER.lower()) if changes else None
        return None if given is None else read_key(given)

    def fingerprint(self) -> bytes:
        """32 bytes that differ where method, path, query or body do."""
        digest = sha256()
        for text in (self.method, self._event["rawPath"], self._event["rawQueryString"]):
            digest.update(text.encode(errors="surrogatepass") + b"\0")
        body = self._event["body"]
        digest.update(self._decoded if self._event["isBase64Encoded"] else body.encode(errors="surrogatepass"))
        return digest.digest()

    def new_id(self) -> str:
        """Id of the next thing that the request leaves unnamed: with a key the same each time that it is sent."""
        if self._seed is None:
            return new_id()
        return sha256(f"{self._seed}\0{next(self._numbers)}".encode()).hexdigest()[:24]

    @property
    def is_head(self) -> bool:
        """True where headers alone are asked for: the request is served as a GET whose body is left out."""
        return self.method == "HEAD"

    def typed(self) -> dict[str, Any]:
        """The event for the router, which reads no other types of a body than JSON, and no encoded body.

        It would read forms too, and bodies without a type as JSON: any page of the web may send both to any address.
        """
        http = {**self._context["http"], "method": "GET" if self.is_head else self.method}
        event = {**self._event, "requestContext": {**self._context, "http": http}, "isBase64Encoded": False}
        given = self._headers.get(TYPE)
        if given is None and not event["body"]:
            return {**event, "headers": self._headers}
        return {**event, "headers": {**self._headers, TYPE: JSON if is_json(given or "") else UNREAD}}

    @property
    def text(self) -> str:
        """The body. Raises InvalidInput for wrong Base64, and UnicodeDecodeError."""
        return self._decoded.decode() if self._event["isBase64Encoded"] else self._event["body"]

    def check(self, role: Role | None) -> None:
        """Reject a caller without the role that the route needs, and what is wrong whether or not the route reads it.

        That is a body that is not said to be JSON, and a tenant that is invalid or not the caller's. A route without a
        role has no tenant. Raises UnverifiedCaller, RoleMissing, NoTenant, ForeignTenant, UnsupportedBody and
        InvalidInput.
        """
        unverified = self.principal is None and BALANCER in self._context
        if role and unverified and not self.app.settings.opens_load_balancer:
            raise UnverifiedCaller
        if self.principal and role and not self.principal.may(role):
            raise RoleMissing(role, self.principal.name, self.principal.grant.roles)
        if self._event["body"] and not is_json(self._headers.get(TYPE, "")):
            raise UnsupportedBody
        if self._event["isBase64Encoded"]:
            _ = self._decoded
        if role or self.principal is None:
            _ = self.tenant

    @cached_property
    def _seed(self) -> str | None:
        key = self.key()
        return None if key is None else f"{self.tenant}\0{key}\0{self.fingerprint().hex()}"

    @cached_property
    def _decoded(self) -> bytes:
        try:
            return base64.b64decode(self._event["body"], validate=True)
        except ValueError:
            raise InvalidInput([FieldError("body", "must be Base64, as isBase64Encoded says")]) from None


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
    """Tenant of that request. Raises InvalidInput for an invalid one, ForeignTenant and NoTenant."""
    return served().tenant


def by(word: str = HTTP) -> str:
    """Source of that request in a task's log: the word, and the caller where it is known."""
    asked = served().principal
    return served().source or (word if asked is None else f"{word}:{asked.name}")
