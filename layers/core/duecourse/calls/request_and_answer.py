"""Shared parts of kinds that call the web: the request from a payload, and the answer in words."""

import re
from collections.abc import Mapping
from datetime import UTC
from email.utils import parsedate_to_datetime

from duecourse.base.json_text import Json, dump_json
from duecourse.base.times import DAY_MS, parse_duration, to_ms
from duecourse.errors import FieldError, InvalidInput
from duecourse.guard.call_credentials import NAME, WRONG_NAME
from duecourse.guard.http_types import CredentialName, HttpAnswer, HttpRequest, is_reserved
from duecourse.ledger.task import Span

MAX_RETRY_AFTER_MS = DAY_MS
EXCERPT_LENGTH = 200
SECONDS = re.compile(r"[0-9]+(\.[0-9]+)?")
"""Number of seconds in an answer of others."""
CREDENTIAL_NAME = re.compile(NAME)


def to_request(
    payload: Json,
    method: str,
    timeout_ms: int,
    *,
    tenant: str,
    max_bytes: int,
    fixed: Mapping[str, str],
    text_as_is: bool = False,
) -> HttpRequest:
    """The request that `payload` describes, with `method` and `timeout_ms` as defaults, and a credential of `tenant`.

    `fixed` headers win over the payload's. With `text_as_is` a body that is text is sent unchanged, any other as JSON.
    Raises InvalidInput, naming the field.
    """
    if not isinstance(payload, dict):
        raise InvalidInput([FieldError("payload", "must be an object")])
    timeout = duration_ms(payload, "timeout") if payload.get("timeout") is not None else timeout_ms
    content_type, body = _body(payload.get("body"), text_as_is)
    headers = {**content_type, **_headers(payload.get("headers") or {}), **fixed}
    where, auth = text(payload, "url"), _auth(payload.get("auth"), tenant)
    return HttpRequest(text(payload, "method", method), where, headers, body, timeout, max_bytes, auth, tenant)


def text(payload: dict[str, Json], field: str, default: str | None = None) -> str:
    """A field that must be text. Raises InvalidInput."""
    value = payload.get(field)
    if value is None:
        value = default
    if not isinstance(value, str):
        raise InvalidInput([FieldError(f"payload.{field}", "must be text")])
    return value


def duration_ms(payload: dict[str, Json], field: str) -> int:
    """A field that must be a duration, in milliseconds. Raises InvalidInput."""
    try:
        return parse_duration(payload.get(field))  # type: ignore[arg-type]
    except ValueError as error:
        raise InvalidInput([FieldError(f"payload.{field}", str(error))]) from None


def _auth(name: Json, tenant: str) -> CredentialName | None:
    if name is None:
        return None
    if not isinstance(name, str) or not CREDENTIAL_NAME.fullmatch(name):
        raise InvalidInput([FieldError("payload.auth", WRONG_NAME)])
    return CredentialName(tenant, name)


def _headers(given: Json) -> dict[str, str]:
    if not isinstance(given, dict) or not all(isinstance(value, str) for value in given.values()):
        raise InvalidInput([FieldError("payload.headers", "must be an object of texts")])
    # A task of an older version, or from a broker, may still have some: it is sent without.
    return {name.lower(): value for name, value in given.items() if not is_reserved(name)}


def _body(body: Json, text_as_is: bool) -> tuple[dict[str, str], bytes | None]:
    if body is None:
        return {}, None
    if text_as_is and isinstance(body, str):
        return {"content-type": "text/plain; charset=utf-8"}, body.encode()
    return {"content-type": "application/json"}, dump_json(body).encode()


def retry_after(answer: HttpAnswer, called_at: int) -> int | None:
    """Milliseconds that the answer's `Retry-After` asks for, at most a day; None without a valid one.

    A date is counted from the answer's own `Date`, so that the two clocks need not agree, else from `called_at`
    (RFC 9110, 10.2.3).
    """
    value = answer.headers.get("retry-after", "").strip()
    if SECONDS.fullmatch(value):  # the standard has whole seconds; some services send fractions
        return round(min(float(value) * 1000, MAX_RETRY_AFTER_MS))
    until = _date(value)
    if until is None:
        return None
    since = _date(answer.headers.get("date", "")) or called_at
    return min(max(until - since, 0), MAX_RETRY_AFTER_MS)


def _date(value: str) -> int | None:
    try:
        moment = parsedate_to_datetime(value)
    except (TypeError, ValueError, OverflowError):
        return None
    return to_ms(moment if moment.tzinfo else moment.replace(tzinfo=UTC))


def seconds(ms: int | None) -> Span | None:
    """Milliseconds as an outcome's span; nothing and none at all both mean the task's own backoff."""
    return ms / 1000 if ms else None


def describe(request: HttpRequest, answer: HttpAnswer) -> str:
    """The call and its answer in one line, without what an address may hold of secrets."""
    beginning = excerpt(answer.body)
    return f"{request.label} answered {answer.status}" + (f": {beginning}" if beginning else "")


def excerpt(body: bytes) -> str:
    """The beginning of an answer as one readable line."""
    words = body[: 4 * EXCERPT_LENGTH].decode(errors="replace").split()
    line = "".join(c for c in " ".join(words) if c.isprintable())
    return line if len(line) <= EXCERPT_LENGTH else line[: EXCERPT_LENGTH - 1] + "…"
