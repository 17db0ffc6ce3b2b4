"""Errors as problem documents (RFC 9457): one table from the error tree to HTTP."""

from binascii import Error as Base64Error
from typing import Any, NamedTuple

from duecourse import errors
from duecourse.errors import Conflict, DuecourseError, InvalidInput

CONTENT_TYPE = "application/problem+json"
URN = "urn:duecourse:problem:"


class MalformedBody(DuecourseError):
    """The body is not JSON."""

    code = "malformed-body"


class MalformedKey(DuecourseError):
    """Idempotency-Key must be 1 to 255 printable ASCII characters in double quotes: "8e03978e-40d5-43e8-bc93"."""

    code = "malformed-key"


class BodyTooLarge(DuecourseError):
    """The body is over its limit: 256 KiB, or 6 MiB for POST /tasks/batch."""

    code = "body-too-large"


class UnsupportedBody(DuecourseError):
    """The body must be JSON: send it with the header Content-Type: application/json."""

    code = "unsupported-body"


class NoSuchRoute(DuecourseError):
    """The API has no such method and path."""

    code = "no-such-route"


class Internal(DuecourseError):
    """An internal error occurred; the log has its cause."""


class Problem(NamedTuple):
    """Problem: the HTTP status, the document, and headers beside the content type."""

    status: int
    document: dict[str, Any]
    headers: dict[str, str | list[str]]


STATUS: dict[type[BaseException], int] = {
    MalformedBody: 400,
    MalformedKey: 400,
    Base64Error: 400,
    UnicodeDecodeError: 400,
    errors.TaskNotFound: 404,
    errors.QueueNotFound: 404,
    errors.QueryNotFound: 404,
    NoSuchRoute: 404,
    Conflict: 409,
    BodyTooLarge: 413,
    errors.ReminderTooLarge: 413,
    UnsupportedBody: 415,
    InvalidInput: 422,
    errors.KeyReused: 422,
    errors.InvalidSettings: 500,
    errors.QueryFailed: 502,
    errors.StoreUnavailable: 503,
    errors.ResultsUnavailable: 503,
}
RETRY_AFTER: dict[str, str | list[str]] = {"Retry-After": "1"}


def describe(error: Exception) -> Problem:
    """Problem document of an error; an error that the table does not know is a 500 without details."""
    status = status_of(type(error))
    shown = _shown(error, status)
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


def _shown(error: Exception, status: int) -> DuecourseError:
    if status == 500:
        return Internal()
    if not isinstance(error, DuecourseError):
        return MalformedBody("The body is not UTF-8 text.")
    # Which host does not answer is the log's to tell; which tasks were added is not.
    return type(error)() if status == 503 and not isinstance(error, errors.PartlyAdded) else error


def _members(error: DuecourseError) -> dict[str, Any]:
    if isinstance(error, Conflict):
        return {"reason": error.reason}
    if isinstance(error, errors.QueryFailed):
        return {"task": error.id, "queue": error.queue}
    if isinstance(error, errors.PartlyAdded):
        return {"tasks": [part._asdict() for part in error.parts]}
    if isinstance(error, InvalidInput):
        return {"errors": [problem._asdict() for problem in error.problems]}
    return {}


def _headers(error: DuecourseError, status: int) -> dict[str, str | list[str]]:
    if isinstance(error, errors.KeyInUse):
        return {"Retry-After": str(max(1, -(-error.left_ms // 1000)))}
    return RETRY_AFTER if status == 503 else {}
