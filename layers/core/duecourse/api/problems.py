"""Errors as problem documents (RFC 9457): one table from the error tree to HTTP."""

from collections.abc import Callable, Iterable, Sequence
from typing import Any, NamedTuple

from duecourse import errors
from duecourse.base.value_classes import as_dict
from duecourse.errors import MAX_FIELD, Conflict, DuecourseError, InvalidInput

CONTENT_TYPE = "application/problem+json"
URN = "urn:duecourse:problem:"


class MalformedBody(DuecourseError):
    """The body is not JSON."""

    code = "malformed-body"


class MalformedKey(DuecourseError):
    """Idempotency-Key must be 1 to 255 printable ASCII characters in double quotes: "8e03978e-40d5-43e8-bc93"."""

    code = "malformed-key"


class BodyTooLarge(DuecourseError):
    """The body is over its limit: 256 KiB, or 6 MiB and 400,000 values for POST /tasks/batch."""

    code = "body-too-large"


class UnsupportedBody(DuecourseError):
    """The body must be JSON: send it with the header Content-Type: application/json."""

    code = "unsupported-body"


class NoSuchRoute(DuecourseError):
    """The API has no such method and path."""

    code = "no-such-route"

    def __init__(self, method: str = "", path: str = "", near: str = "") -> None:
        hint = f": did you mean {near}?" if near else "."
        super().__init__(f"Nothing answers to {method} {path[:MAX_FIELD]}{hint}" if path else None)


class MethodNotAllowed(DuecourseError):
    """The path has other methods than this one: the header Allow lists them."""

    code = "method-not-allowed"

    def __init__(self, method: str = "", path: str = "", allowed: Sequence[str] = ()) -> None:
        self.allowed = ", ".join(allowed)
        super().__init__(f"Nothing answers to {method} {path[:MAX_FIELD]}: it takes {self.allowed}." if path else None)


class Forbidden(DuecourseError):
    """The caller may not do this."""


class RoleMissing(Forbidden):
    """The caller lacks the role that this request needs."""

    code = "role-missing"

    def __init__(self, role: str = "", name: str = "", roles: Iterable[str] = ()) -> None:
        self.role = role
        has = ", ".join(sorted(roles)) or "no role"
        super().__init__(f"This request needs the role {role}; {name} has {has}." if role else None)


class UnverifiedCaller(Forbidden):
    """A load balancer verifies no caller. Set DUECOURSE_LOAD_BALANCER=open if each of its clients may do everything."""

    code = "unverified-caller"


class NoTenant(Forbidden):
    """The caller has no tenant: DUECOURSE_TENANT_FROM names none for it."""

    code = "no-tenant"


class ForeignTenant(Forbidden):
    """The caller may not name another tenant than its own."""

    code = "foreign-tenant"


class Internal(DuecourseError):
    """An internal error occurred; the log has its cause."""


class Problem(NamedTuple):
    """Problem: the HTTP status, the document, and headers beside the content type."""

    status: int
    document: dict[str, Any]
    headers: dict[str, str]


STATUS: dict[type[BaseException], int] = {
    MalformedBody: 400,
    MalformedKey: 400,
    UnicodeDecodeError: 400,
    Forbidden: 403,
    errors.TaskNotFound: 404,
    errors.QueueNotFound: 404,
    errors.QueryNotFound: 404,
    NoSuchRoute: 404,
    MethodNotAllowed: 405,
    Conflict: 409,
    errors.TaskDamaged: 409,
    errors.SealBroken: 409,
    BodyTooLarge: 413,
    UnsupportedBody: 415,
    InvalidInput: 422,
    errors.KeyReused: 422,
    errors.QuotaExceeded: 429,
    errors.EgressRejected: 500,
    errors.InvalidSettings: 500,
    errors.QueryFailed: 502,
    errors.StoreUnavailable: 503,
    errors.ResultsUnavailable: 503,
}


def _near(error: errors.TaskNotFound | errors.QueueNotFound) -> dict[str, Any]:
    return {"near": error.near} if error.near else {}


MEMBERS: dict[type[DuecourseError], Callable[[Any], dict[str, Any]]] = {
    Conflict: lambda error: {"reason": error.reason},
    errors.TaskNotFound: _near,
    errors.QueueNotFound: lambda error: {**({"queue": error.queue} if error.queue else {}), **_near(error)},
    errors.QueryFailed: lambda error: {"task": error.id, "queue": error.queue},
    RoleMissing: lambda error: {"role": error.role} if error.role else {},
    errors.QuotaExceeded: lambda error: {"quota": error.quota},
    errors.PartlyAdded: lambda error: {"tasks": [as_dict(part) for part in error.parts]},
    errors.BeyondQuota: lambda error: {
        "quota": error.quota,
        "errors": [as_dict(problem) for problem in error.problems],
    },
    InvalidInput: lambda error: {"errors": [as_dict(problem) for problem in error.problems]},
}
"""Further members of an error's document."""
RETRY_AFTER: dict[str, str] = {"Retry-After": "1"}


def problem_of(error: Exception) -> Problem:
    """Answer of the HTTP API to an error; an error that the table does not know is a 500 without details."""
    status = status_of(type(error))
    shown = _public_error(error, status)
    document = {
        "type": URN + shown.code,
        "title": (type(shown).__doc__ or "").strip(),
        "status": status,
        "detail": str(shown),
        **_members(shown),
    }
    return Problem(status, document, _headers(shown, status))


def status_of(kind: type[BaseException]) -> int:
    """HTTP status of an error."""
    return next((STATUS[cls] for cls in kind.__mro__ if cls in STATUS), 500)


def _public_error(error: Exception, status: int) -> DuecourseError:
    if status == 500:
        return Internal()
    if not isinstance(error, DuecourseError):
        return MalformedBody("The body is not UTF-8 text.")
    # Which host does not answer is the log's to tell; which tasks were added is not.
    return type(error)() if status == 503 and not isinstance(error, errors.PartlyAdded) else error


def _members(error: DuecourseError) -> dict[str, Any]:
    return next((members(error) for kind, members in MEMBERS.items() if isinstance(error, kind)), {})


def _headers(error: DuecourseError, status: int) -> dict[str, str]:
    if isinstance(error, errors.KeyInUse):
        return _retry_after(error.left_ms)
    if isinstance(error, errors.QuotaExceeded):
        return _retry_after(error.wait_ms)
    if isinstance(error, MethodNotAllowed):
        return {"Allow": error.allowed}
    return RETRY_AFTER if status == 503 else {}


def _retry_after(ms: int) -> dict[str, str]:
    return {"Retry-After": str(max(1, -(-ms // 1000)))}
