"""Tokens of OAuth's client credentials (RFC 6749, 4.4): fetched when a call needs one, kept while they last."""

import json
import re
import time
from base64 import b64encode
from collections.abc import Callable
from math import isnan
from typing import Any
from urllib.parse import quote_plus, urlencode

from duecourse.adapters.kept import Kept, Read
from duecourse.domain.credential import CredentialName, OAuth
from duecourse.errors import CallFailed, CallTimedOut, EgressRejected, FieldError, InvalidInput
from duecourse.ports.http import HttpAnswer, HttpCaller, HttpRequest

MAX_ANSWER_BYTES = 64 * 1024
UNKNOWN_S = 300.0
"""Time for which a token is kept whose answer has no `expires_in`."""
MOST_S = 86_400.0
EARLY_S = 60.0
"""Time before its end at which the next token is fetched; half of its time, if that is less."""
SECONDS = re.compile(r"[0-9]{1,400}(\.[0-9]{1,400})?")
"""Number of seconds that an answer has as text."""
TOKEN = re.compile(r"[!-~]{1,16384}")
CODE = re.compile(r"[a-z_]{1,40}")
"""Pattern of an error's name in an answer, the one part of it that is shown."""


class Tokens:
    """Tokens by name and credential: another secret has another token."""

    def __init__(self, http: HttpCaller, now: Callable[[], float] = time.time) -> None:
        self._http = http
        self._kept: Kept[tuple[CredentialName, OAuth], str] = Kept(now, owner=lambda key: key[0].tenant)

    def get(self, name: CredentialName, oauth: OAuth, within_s: float, rejected: str | None = None) -> str:
        """A token that is in time, another one than the `rejected` unless that is quite new.

        Raises CallFailed where none is given, CallTimedOut after so many seconds, and InvalidInput where `token_url`
        must not be called.
        """
        until = time.monotonic() + within_s
        return self._kept.get((name, oauth), lambda: self._fetch(name, oauth, until), within_s, rejected)

    def _fetch(self, name: CredentialName, oauth: OAuth, until: float) -> Read[str]:
        request = _request(name, oauth, until)
        try:
            answer = self._http.call(request)
        except EgressRejected as error:
            raise InvalidInput(
                [FieldError(f"auth {name.name}", f"has a token_url that {error.problems[0].problem}")]
            ) from error
        return _token(request, answer)


def _request(name: CredentialName, oauth: OAuth, until: float) -> HttpRequest:
    timeout_ms = int((until - time.monotonic()) * 1000)
    if timeout_ms <= 0:
        raise CallTimedOut("no time is left to fetch a token")
    fields = {"grant_type": "client_credentials", "scope": oauth.scope, "audience": oauth.audience}
    headers = {"content-type": "application/x-www-form-urlencoded", "accept": "application/json"}
    if oauth.in_body:
        fields |= {"client_id": oauth.client_id, "client_secret": oauth.client_secret}
    else:  # each is encoded as a form's field first (RFC 6749, 2.3.1)
        login = f"{quote_plus(oauth.client_id)}:{quote_plus(oauth.client_secret)}"
        headers["authorization"] = f"Basic {b64encode(login.encode()).decode()}"
    body = urlencode({field: value for field, value in fields.items() if value})
    return HttpRequest("POST", oauth.token_url, headers, body.encode(), timeout_ms, MAX_ANSWER_BYTES, name, name.tenant)


def _token(request: HttpRequest, answer: HttpAnswer) -> Read[str]:
    found = _decoded(answer)
    if answer.status != 200:
        raise CallFailed(f"no token: {request.label} answered {answer.status}{_code(found)}")
    token = found.get("access_token")
    if not isinstance(token, str) or not TOKEN.fullmatch(token):
        raise CallFailed(f"no token: {request.label} answered without an access_token that a header can carry")
    if str(found.get("token_type", "bearer")).lower() != "bearer":
        raise CallFailed(f"no token: {request.label} answered with one of another type than Bearer")
    return Read(token, _kept_s(found.get("expires_in")))


def _decoded(answer: HttpAnswer) -> dict[str, Any]:
    try:
        found = json.loads(answer.body)
    except (ValueError, RecursionError):
        return {}
    return found if isinstance(found, dict) else {}


def _code(found: dict[str, Any]) -> str:
    code = found.get("error")
    return f" ({code})" if isinstance(code, str) and CODE.fullmatch(code) else ""


def _kept_s(expires_in: Any) -> float:
    if isinstance(expires_in, str) and SECONDS.fullmatch(expires_in):
        expires_in = float(expires_in)
    is_number = isinstance(expires_in, int | float) and not isinstance(expires_in, bool)
    if not is_number or (isinstance(expires_in, float) and isnan(expires_in)):  # no time ever reaches NaN
        return UNKNOWN_S
    lives_s = float(min(max(expires_in, 0), MOST_S))
    return lives_s - min(EARLY_S, lives_s / 2)
