"""Calls with credentials by name: each is read at its call, sent to its hosts alone, and read again once rejected."""

import logging
import time

from urllib3.exceptions import LocationParseError
from urllib3.util import parse_url

from duecourse.adapters.http.tokens import Tokens
from duecourse.domain.credential import Credential, Key, OAuth, bearer, hidden, is_bound
from duecourse.domain.egress import STANDARD_PORTS
from duecourse.errors import CallTimedOut, DuecourseError, FieldError, InvalidInput
from duecourse.ports.credentials import Credentials
from duecourse.ports.http import HttpAnswer, HttpCaller, HttpRequest

EXPIRED, REJECTED = 401, frozenset({401, 403})
"""Status after which another token is fetched, and those after which a credential is read again."""
LATE_S = 15.0
"""Time of a call after which a rejection is its answer: another look at Secrets Manager could outlast the function."""
log = logging.getLogger("duecourse.http")


class Authorized:
    """An HttpCaller that adds the credential which a request names, and calls by `http`.

    A rejected credential is read again, and a token fetched again. If that gave another one, the call is repeated once.
    """

    def __init__(self, http: HttpCaller, credentials: Credentials) -> None:
        self._http = http
        self._credentials = credentials
        self._tokens = Tokens(http)

    def call(self, request: HttpRequest) -> HttpAnswer:
        """See HttpCaller. Raises InvalidInput too for a credential that is absent, wrong or for other hosts.

        Raises SecretUnavailable.
        """
        if request.auth is None:
            return self._http.call(request)
        one = _Call(request, time.monotonic() + request.timeout_ms / 1000)
        credential = self._credential(one)
        key = self._key(one, credential)
        answer = self._send(one, key)
        if answer.status not in REJECTED or one.took_s() > LATE_S:
            return answer
        newer = self._newer(one, credential, key, answer.status)
        return self._send(one, newer) if newer else answer

    def _credential(self, one: "_Call", rejected: Credential | None = None) -> Credential:
        found = self._credentials.get(one.name, one.left_s(), rejected)
        if not is_bound(found, *_place(one.request.url)):
            raise one.wrong("is not for this host: its hosts do not list the host of the URL")
        return found

    def _key(self, one: "_Call", credential: Credential, rejected: str | None = None) -> Key:
        if isinstance(credential, OAuth):
            key = bearer(self._tokens.get(one.name, credential, one.left_s(), rejected))
        else:
            key = credential.key
        if key.header in one.request.headers:
            raise one.wrong(f"sets the header {key.header}, which headers has too: leave one of them out")
        return key

    def _newer(self, one: "_Call", credential: Credential, key: Key, status: int) -> Key | None:
        """Another key in place of a rejected one; None where there is none, or none can be found."""
        try:
            newer = self._credential(one, credential)
            token = key.secrets[0] if status == EXPIRED and isinstance(newer, OAuth) and newer == credential else None
            found = self._key(one, newer, token)
        except DuecourseError as error:
            log.warning("a call was rejected, and its credential cannot be found anew: %s", error)
            return None
        return None if found == key else found

    def _send(self, one: "_Call", key: Key) -> HttpAnswer:
        request = one.request
        timeout_ms = int(one.left_s() * 1000)
        if timeout_ms <= 0:
            raise CallTimedOut(f"{request.label} failed: its credential took all of {request.timeout_ms / 1000:g} s")
        headers = {**request.headers, key.header: key.value}
        answer = self._http.call(request._replace(headers=headers, timeout_ms=timeout_ms))
        return answer._replace(body=hidden(answer.body, key.secrets))


class _Call:
    """One call with a credential, and the time (monotonic seconds) until which all of it may take."""

    def __init__(self, request: HttpRequest, until: float) -> None:
        assert request.auth is not None  # noqa: S101 - for the type: its maker looked
        self.request = request
        self.name = request.auth
        self._until = until
        self._began = time.monotonic()

    def left_s(self) -> float:
        """Seconds that are left."""
        return self._until - time.monotonic()

    def took_s(self) -> float:
        """Seconds that it has taken so far."""
        return time.monotonic() - self._began

    def wrong(self, problem: str) -> InvalidInput:
        """Error of its credential, by name."""
        return InvalidInput([FieldError(f"auth {self.name.name}", problem)])


def _place(url: str) -> tuple[str, int]:
    """Host and port of a URL, as the library that connects reads them."""
    try:
        parts = parse_url(url)
    except LocationParseError:
        return "", 0
    return parts.host or "", parts.port or STANDARD_PORTS.get(parts.scheme or "", 0)
