"""The request being served: body, headers, caller, tenant and Idempotency-Key."""

import base64
import json
import re
from collections.abc import Callable, Mapping, Sequence
from contextvars import ContextVar
from functools import cached_property
from hashlib import sha256
from itertools import count
from typing import TYPE_CHECKING, Any

from duecourse.api.authorization import Identity, Principal, Role, principal_of
from duecourse.api.gateways import BALANCER
from duecourse.api.problems import (
    BodyTooLarge,
    ForeignTenant,
    MalformedBody,
    MalformedKey,
    NoTenant,
    RoleMissing,
    UnsupportedBody,
    UnverifiedCaller,
)
from duecourse.base import json_text
from duecourse.base.ids import new_id
from duecourse.base.metrics import AddedLine, measure
from duecourse.base.variables import NAME, WRONG_NAME
from duecourse.errors import FieldError, InvalidInput
from duecourse.ledger.operation_types import KeyedTry
from duecourse.ledger.task import DEFAULT_TENANT

if TYPE_CHECKING:
    from duecourse.app import App

# Identity of a caller, as API Gateway tells it to the function: it has verified the signature or the token.


def read_identity(authorizer: Any) -> Identity | None:
    """Identity in `requestContext.authorizer`: `iam.userArn`, or `jwt.claims`; None where nobody verified one."""
    given = authorizer if isinstance(authorizer, Mapping) else {}
    token, principal = given.get("jwt"), given.get("iam")
    if isinstance(token, dict) and isinstance(token.get("claims"), dict):
        return Identity(str(token["claims"].get("sub", "")), token["claims"])
    if isinstance(principal, dict) and principal.get("userArn"):
        return Identity(str(principal["userArn"]))
    return None


# The JSON object in a request's or a message's body.

MAX_BODY_BYTES = 256 * 1024
MAX_BATCH_BYTES = 6 * 1024 * 1024
"""Maximum size of a request at Lambda, the event around it included."""
BODY_BYTES = {"/tasks/batch": MAX_BATCH_BYTES}
"""Routes whose body may be larger than elsewhere, with the limit."""
MAX_VALUES = 400_000
"""Maximum number of values in a body: as objects, they take many times the memory of their text."""
PIECE = 65_536
"""Characters of a body that are looked at together."""
QUOTED = re.compile(r'"[^"]*"?')
"""A text between quotes; one that does not end goes to the end, so that a search looks at each character once."""


def parse_body(text: str, most: int = MAX_BODY_BYTES) -> dict[str, Any]:
    """The JSON object in a body of at most `most` bytes. Raises BodyTooLarge, MalformedBody or InvalidInput."""
    if len(text) > most or len(text.encode("utf-8", "surrogatepass")) > most:
        raise BodyTooLarge(f"The body is over {most // 1024} KiB.")
    if has_more_values(text, MAX_VALUES):
        raise BodyTooLarge(f"The body has more than {MAX_VALUES:,} values.")
    try:
        body, twice = json_text.load(text, _reject_constant)
    except (_Unfit, json.JSONDecodeError) as error:
        raise MalformedBody(f"The body is not JSON: {error}") from None
    except RecursionError:
        raise MalformedBody("The body is nested too deep.") from None
    except ValueError:  # Python's own bound; its words tell how to raise that
        raise MalformedBody("The body holds a number with too many digits.") from None
    if twice:
        raise InvalidInput(twice)
    if not isinstance(body, dict):
        raise InvalidInput([FieldError("body", "must be a JSON object")])
    return body


def has_more_values(text: str, most: int) -> bool:
    """True if a JSON text has more than so many values, without reading any of them."""
    if _marks(text) <= most:  # those within texts included: most bodies have fewer even so
        return False
    plain = text.replace("\\\\", "").replace('\\"', "")
    count, is_inside = 0, False
    for at in range(0, len(plain), PIECE):
        piece = '"' * is_inside + plain[at : at + PIECE]
        count, is_inside = count + _marks(QUOTED.sub("", piece)), piece.count('"') % 2 == 1
        if count > most:
            return True
    return False


def _marks(text: str) -> int:
    # Each value but the first of an object or a list has a comma before it; each other, a bracket of its own outside.
    return sum(text.count(mark) for mark in ",{[")


class _Unfit(ValueError):
    """A constant that Python accepts as JSON, and no other parser does."""


def _reject_constant(name: str) -> None:
    raise _Unfit(f"{name} is not a JSON value")


# Headers of requests: the type of a body, and the Idempotency-Key of a request that changes something.

CHANGING = frozenset({"POST", "PATCH", "PUT", "DELETE"})
"""Methods of the requests that may have a key."""
READING = frozenset({"/reminders/preview", "/schedules/preview"})
"""Routes of such a method that change nothing: no key makes a ledger keep their answers, which may hold credentials."""
KEY_HEADER = "Idempotency-Key"
KEY = re.compile(r'"([ !#-\[\]-~]|\\["\\]){1,255}"')
"""A String of RFC 9651: printable ASCII in double quotes, with a backslash before each quote or backslash in it."""


def read_key(text: str) -> str:
    """The key in the header's text. Raises MalformedKey."""
    text = text.strip(" ")
    if not KEY.fullmatch(text):
        raise MalformedKey
    return re.sub(r"\\(.)", r"\1", text[1:-1])


def is_json(content_type: str) -> bool:
    """True if a body of this content type is accepted."""
    return content_type.partition(";")[0].strip().lower() == "application/json"


HTTP = "http"
"""Source of the tasks in the bodies below."""


# The request being served: its App, its caller and tenant, its Idempotency-Key, and what tells it from every other.

TENANT = "tenant"
"""Query parameter in which a caller names a tenant."""
TYPE, JSON, UNREAD = "content-type", "application/json", "application/octet-stream"


class Request:
    """One request (an event of payload format 2.0, as `read_request` makes it), and the App that serves it.

    `local` is the caller of a request that did not come by HTTP: a program, for which no rule of the settings counts.
    """

    def __init__(
        self, app: "App", event: Mapping[str, Any], remaining_ms: Callable[[], int], local: Principal | None = None
    ) -> None:
        self.app = app
        self._local = local
        self.remaining_ms = remaining_ms
        """Milliseconds that the function may still take."""
        self.keyed: KeyedTry | None = None
        """The try of a request with an Idempotency-Key; None where it has none."""
        self.parameters: Mapping[str, str] = event["queryStringParameters"]
        self._event = event
        self._context: Mapping[str, Any] = event["requestContext"]
        self.method: str = self._context["http"]["method"]
        self.is_head = self.method == "HEAD"
        """True for HEAD: the request is served as a GET whose answer has no body."""
        self._headers: Mapping[str, str] = event["headers"]
        self._numbers = count()

    @cached_property
    def principal(self) -> Principal | None:
        """Caller with its tenant and roles; None where the settings have no rule, and every caller may do all."""
        if self._local:
            return self._local
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
    def visible_tenant(self) -> str | None:
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
        return self.parameters.get(TENANT)

    @cached_property
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
        """Id of the next object without one; with an Idempotency-Key the same for each repeat of the request."""
        if self._seed is None:
            return new_id()
        return sha256(f"{self._seed}\0{next(self._numbers)}".encode()).hexdigest()[:24]

    def measure_added(self, tasks: int) -> None:
        """Print the metric of a request that adds tasks; nothing in a program whose output is its own."""
        if self._local is None:
            measure(AddedLine(Added=tasks))

    def source(self, word: str) -> str:
        """Source in a task's log: the word, and the caller if known; the name alone of a program's own caller."""
        if self._local:
            return self._local.name
        return word if self.principal is None else f"{word}:{self.principal.name}"

    def router_event(self) -> dict[str, Any]:
        """The event for the router, which reads no other types of a body than JSON, and no encoded body.

        It would read forms too, and bodies without a type as JSON: any page of the web may send both to any address.
        """
        http = {**self._context["http"], "method": "GET" if self.is_head else self.method}
        event = {**self._event, "requestContext": {**self._context, "http": http}, "isBase64Encoded": False}
        given = self._headers.get(TYPE)
        if given is None and not event["body"]:
            return {**event, "headers": self._headers}
        return {**event, "headers": {**self._headers, TYPE: JSON if is_json(given or "") else UNREAD}}

    def body(self) -> dict[str, Any]:
        """The JSON object in the body, within the bound of its route.

        Raises as `parse_body`; InvalidInput for wrong Base64, and UnicodeDecodeError.
        """
        text = self._decoded.decode() if self._event["isBase64Encoded"] else self._event["body"]
        return parse_body(text, BODY_BYTES.get(self._event["rawPath"], MAX_BODY_BYTES))

    def check(self, role: Role | None) -> None:
        """Reject a caller without the role that the route needs, and faults in parts that the route may not read.

        That is a body that is not said to be JSON, a tenant that is invalid or not the caller's, and an Idempotency-Key
        of another form. A route without a role has no tenant. Raises UnverifiedCaller, RoleMissing, NoTenant,
        ForeignTenant, UnsupportedBody, MalformedKey and InvalidInput.
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
        _ = self.key

    @cached_property
    def _seed(self) -> str | None:
        key = self.key
        return None if key is None else f"{self.tenant}\0{key}\0{self.fingerprint().hex()}"

    @cached_property
    def _decoded(self) -> bytes:
        try:
            return base64.b64decode(self._event["body"], validate=True)
        except ValueError:
            raise InvalidInput([FieldError("body", "must be Base64, as isBase64Encoded says")]) from None


SERVED: ContextVar[Request] = ContextVar("served")
"""The request, one for each thread: the router gives a route its parameters only, and a harness may serve several."""
current_request = SERVED.get
"""Getter of the request that this thread serves."""


def read_body(_sent: str) -> dict[str, Any]:
    """The JSON object in the body of the current request; the router hands on Base64 as it came."""
    return current_request().body()


def app() -> "App":
    """App of the current request."""
    return current_request().app


def tenant() -> str:
    """Tenant of the current request. Raises InvalidInput for an invalid one, ForeignTenant and NoTenant."""
    return current_request().tenant


def request_source(word: str = HTTP) -> str:
    """Source of the current request in a task's log: the word, and the caller if known."""
    return current_request().source(word)
