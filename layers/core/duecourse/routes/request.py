"""The request being served: whose it is, its Idempotency-Key, and what tells it from every other."""

import base64
import re
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from hashlib import sha256
from typing import Any

from duecourse.domain.task import DEFAULT_TENANT, NAME_PATTERN, ids_from
from duecourse.errors import FieldError, InvalidInput
from duecourse.wire.http.problems import MalformedKey, UnsupportedBody, is_json

KEY_HEADER = "Idempotency-Key"
KEY = re.compile(r'"((?:[ !#-\[\]-~]|\\["\\]){1,255})"')
"""A String of RFC 9651: printable ASCII in double quotes, with a backslash before each quote or backslash in it."""
JSON, UNREAD = "application/json", "application/octet-stream"
CHANGING = frozenset({"POST", "PATCH", "PUT", "DELETE"})
TENANT = re.compile(NAME_PATTERN)

_event: ContextVar[Mapping[str, Any]] = ContextVar("event", default={})  # noqa: B039 - never written to
_remaining: ContextVar[Callable[[], int]] = ContextVar("remaining")
_since: ContextVar[int] = ContextVar("since", default=0)


@contextmanager
def serving(event: Mapping[str, Any], tenant_of: Callable[[], str], remaining: Callable[[], int]) -> Iterator[None]:
    """Context in which this module answers for this event (HTTP API, payload format 2.0).

    Generated ids derive from the request's tenant and key, so that a request that is sent again makes the same tasks. A
    ContextVar, for a harness may serve several at once in one process.
    """
    before, left = _event.set(event), _remaining.set(remaining)
    try:
        with ids_from(_seed(tenant_of)):
            yield
    finally:
        _event.reset(before)
        _remaining.reset(left)


@contextmanager
def begun(since: int) -> Iterator[None]:
    """Context in which `since` has this value."""
    before = _since.set(since)
    try:
        yield
    finally:
        _since.reset(before)


def since() -> int:
    """Time (epoch ms) since which this request may have been done in part; 0 where it is new."""
    return _since.get()


def remaining_ms() -> int:
    """Milliseconds that the function may still take."""
    return _remaining.get()()


def tenant(header: str) -> str:
    """Tenant of the request, from this header if there is one. Raises InvalidInput for an invalid tenant."""
    named = _header(header) if header else None
    if named is None:
        return DEFAULT_TENANT
    if not TENANT.fullmatch(named):
        raise InvalidInput([FieldError(header, "must be 1 to 64 characters of A-Z a-z 0-9 . _ : @ -")])
    return named


def key() -> str | None:
    """The request's Idempotency-Key; None where it has none, or changes nothing. Raises MalformedKey."""
    given = _header(KEY_HEADER) if _http()["method"] in CHANGING else None
    if given is None:
        return None
    found = KEY.fullmatch(given.strip(" "))
    if not found:
        raise MalformedKey
    return re.sub(r"\\(.)", r"\1", found[1])


def fingerprint() -> bytes:
    """32 bytes that differ where method, path, query or body do."""
    event, digest = _event.get(), sha256()
    for text in (_http()["method"], event["rawPath"], event.get("rawQueryString") or ""):
        digest.update(text.encode(errors="surrogatepass") + b"\0")
    digest.update(_body(event))
    return digest.digest()


def typed(event: Mapping[str, Any]) -> dict[str, Any]:
    """The event with a content type that the router compares rightly: JSON, in any spelling, or one it never reads.

    The router also reads forms, and bodies without a type as JSON: any page of the web may send both to any address.
    """
    given = _header("Content-Type")
    if given is None and not event.get("body"):
        return dict(event)
    others = {name: value for name, value in event["headers"].items() if name.lower() != "content-type"}
    return {**event, "headers": {**others, "content-type": JSON if is_json(given or "") else UNREAD}}


def check_type() -> None:
    """Return unless the request has a body that is not said to be JSON. Raises UnsupportedBody."""
    if _event.get().get("body") and not is_json(_header("Content-Type") or ""):
        raise UnsupportedBody


def _body(event: Mapping[str, Any]) -> bytes:
    body = event.get("body") or ""
    if event.get("isBase64Encoded"):
        return base64.b64decode(body)
    return str(body).encode(errors="surrogatepass")


def _http() -> Mapping[str, Any]:
    http: Mapping[str, Any] = _event.get()["requestContext"]["http"]
    return http


def _header(name: str) -> str | None:
    return next((value for header, value in _event.get()["headers"].items() if header.lower() == name.lower()), None)


def _seed(tenant_of: Callable[[], str]) -> str:
    try:
        given = key()
        return "" if given is None else f"{tenant_of()}\0{given}\0{fingerprint().hex()}"
    except (MalformedKey, InvalidInput, ValueError):  # told where the request is served
        return ""
