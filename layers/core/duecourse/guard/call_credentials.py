"""Credentials by name: their headers and hosts, tokens of OAuth, and the caller that adds one to a call."""

import json
import logging
import re
import time
from base64 import b64encode
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from functools import lru_cache
from math import isnan
from typing import Any, Protocol, TypeAlias
from urllib.parse import quote_plus, urlencode

from duecourse.base.host_addresses import Address, literals
from duecourse.base.masking import MASK
from duecourse.base.secret_cache import ExpiringCache, FetchedValue
from duecourse.errors import CallFailed, CallTimedOut, DuecourseError, EgressRejected, FieldError, InvalidInput
from duecourse.guard.egress import STANDARD_PORTS, HostRule, dns_name, effective_address
from duecourse.guard.http_types import CredentialName, HttpAnswer, HttpCaller, HttpRequest

# Form of a credential's name, by which a task refers to it.

NAME = r"[A-Za-z0-9._-]{1,64}"
"""Pattern of a credential's name: without a slash, so that no name leaves its tenant's part."""

WRONG_NAME = "must be the name of a credential, and not its value: 1 to 64 characters of A-Z a-z 0-9 . _ -"


# Credential: the header that it adds to a call, the hosts that may get it, and its traces in an answer.

CONFLICT = "must not contain Authorization beside auth: leave one of them out"
ENTITIES = {"&": ("amp",), "<": ("lt",), ">": ("gt",), '"': ("quot",), "'": ("apos",)}
NEVER_ESCAPED = "-._~"
"""Characters besides letters and digits that nothing escapes."""
MIN_SECRET_LENGTH = 8
"""Minimum length of a secret: one that is shorter would be found in most answers by chance."""


@dataclass(frozen=True, slots=True)
class SecretHeader:
    """One header with a secret, whose name is in lower case, and the texts that no answer may show."""

    header: str
    value: str = field(repr=False)
    secrets: tuple[str, ...] = field(repr=False)


@dataclass(frozen=True, slots=True)
class HeaderCredential:
    """Credential that is a header: a bearer token, a login, or any other."""

    hosts: tuple[HostRule, ...]
    key: SecretHeader


@dataclass(frozen=True, slots=True)
class OAuth:
    """Credential that `token_url` exchanges for tokens: OAuth's client credentials, in a header or in the body."""

    hosts: tuple[HostRule, ...]
    token_url: str
    client_id: str
    client_secret: str = field(repr=False)
    scope: str
    audience: str
    in_body: bool


Credential: TypeAlias = HeaderCredential | OAuth


def bearer_header(token: str) -> SecretHeader:
    """Header of a bearer token."""
    return SecretHeader("authorization", f"Bearer {token}", (token,))


def is_bound(credential: Credential, host: str, port: int) -> bool:
    """True if calls to this host of a URL, at this port, may carry the credential."""
    bare = host.strip("[]")
    places: list[Address] = [effective_address(address) for address in literals(bare)]
    return any(_covers(entry, dns_name(bare), places, port) for entry in credential.hosts)


def _covers(entry: HostRule, name: str, places: list[Address], port: int) -> bool:
    """True if an entry has the host by its name, or by the address that the name is; nothing is looked up."""
    if entry.network is None:
        return entry.covers(name, None, port)
    return any(entry.covers(name, place, port) for place in places)


def mask_secrets(body: bytes, secrets: Iterable[str]) -> bytes:
    """Mask the secrets of a call in its answer, also as JSON, HTML and URLs escape them; the answer becomes UTF-8.

    JSON is read in UTF-16 and UTF-32 as well, in which none of these would be found.
    """
    encoding = json.detect_encoding(body)
    if not encoding.startswith("utf-8"):
        body = body.decode(encoding, "replace").encode()
    for secret in secrets:
        body = _pattern(secret).sub(MASK.encode(), body)
    return body


@lru_cache(maxsize=256)
def _pattern(secret: str) -> re.Pattern[bytes]:
    return re.compile(f"{re.escape(secret)}|{''.join(map(_escapes_pattern, secret))}".encode())


def _escapes_pattern(letter: str) -> str:
    """Pattern of a character: letters and digits are always themselves, and most others may be escaped."""
    if (letter.isascii() and letter.isalnum()) or letter in NEVER_ESCAPED:
        return re.escape(letter)
    number = ord(letter)
    units = re.findall("....", letter.encode("utf-16-be").hex())
    spellings = (
        r"\\" + re.escape(letter),
        "".join(rf"\\u(?i:{unit})" for unit in units),
        "".join(f"%(?i:{byte:02x})" for byte in letter.encode()),
        rf"&#(?:0*{number}|[xX]0*(?i:{number:x}));",
        *(f"&{name};" for name in ENTITIES.get(letter, ())),
        *((r"\+",) if letter == " " else ()),
        re.escape(letter),
    )
    # The first that fits is kept: an answer of many backslashes could otherwise be read in ever more ways.
    return f"(?>{'|'.join(spellings)})"


class Credentials(Protocol):
    """Credentials by name; safe for threads and forks."""

    def get(self, name: CredentialName, within_s: float, rejected: Credential | None = None) -> Credential:
        """The credential, kept for some minutes; after a destination `rejected` one, it is read again for another.

        Raises InvalidInput for one that is absent, closed to us or wrong. Raises SecretUnavailable where its
        service does not answer, and CallTimedOut where another thread still reads it after so many seconds.
        """


# Tokens of OAuth's client credentials (RFC 6749, 4.4): fetched when a call needs one, kept while they last.

MAX_ANSWER_BYTES = 64 * 1024
DEFAULT_LIFETIME_S = 300.0
"""Time for which a token is kept whose answer has no `expires_in`."""
MAX_LIFETIME_S = 86_400.0
REFRESH_EARLY_S = 60.0
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
        self._cache: ExpiringCache[tuple[CredentialName, OAuth], str] = ExpiringCache(
            now, owner=lambda key: key[0].tenant
        )

    def get(self, name: CredentialName, oauth: OAuth, within_s: float, rejected: str | None = None) -> str:
        """A token that is in time, another one than the `rejected` unless that is quite new.

        Raises CallFailed where none is given, CallTimedOut after so many seconds, and InvalidInput where `token_url`
        must not be called.
        """
        until = time.monotonic() + within_s
        return self._cache.get((name, oauth), lambda: self._fetch(name, oauth, until), within_s, rejected)

    def _fetch(self, name: CredentialName, oauth: OAuth, until: float) -> FetchedValue[str]:
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


def _token(request: HttpRequest, answer: HttpAnswer) -> FetchedValue[str]:
    found = _decoded(answer)
    if answer.status != 200:
        raise CallFailed(f"no token: {request.label} answered {answer.status}{_code(found)}")
    token = found.get("access_token")
    if not isinstance(token, str) or not TOKEN.fullmatch(token):
        raise CallFailed(f"no token: {request.label} answered without an access_token that a header can carry")
    if str(found.get("token_type", "bearer")).lower() != "bearer":
        raise CallFailed(f"no token: {request.label} answered with one of another type than Bearer")
    return FetchedValue(token, _cache_s(found.get("expires_in")))


def _decoded(answer: HttpAnswer) -> dict[str, Any]:
    try:
        found = json.loads(answer.body)
    except (ValueError, RecursionError):
        return {}
    return found if isinstance(found, dict) else {}


def _code(found: dict[str, Any]) -> str:
    code = found.get("error")
    return f" ({code})" if isinstance(code, str) and CODE.fullmatch(code) else ""


def _cache_s(expires_in: Any) -> float:
    if isinstance(expires_in, str) and SECONDS.fullmatch(expires_in):
        expires_in = float(expires_in)
    is_number = isinstance(expires_in, int | float) and not isinstance(expires_in, bool)
    if not is_number or (isinstance(expires_in, float) and isnan(expires_in)):  # no time ever reaches NaN
        return DEFAULT_LIFETIME_S
    lives_s = float(min(max(expires_in, 0), MAX_LIFETIME_S))
    return lives_s - min(REFRESH_EARLY_S, lives_s / 2)


# Calls with credentials by name: each is read at its call, sent to its hosts alone, and read again once rejected.

EXPIRED, REJECTED = 401, frozenset({401, 403})
"""Status after which another token is fetched, and those after which a credential is read again."""
RETRY_WITHIN_S = 15.0
"""Time of a call after which a rejection is its answer: another look at Secrets Manager could outlast the function."""
log = logging.getLogger("duecourse.guard")


class AuthenticatingCaller:
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
        if answer.status not in REJECTED or one.took_s() > RETRY_WITHIN_S:
            return answer
        newer = self._newer(one, credential, key, answer.status)
        return self._send(one, newer) if newer else answer

    def _credential(self, one: "_Call", rejected: Credential | None = None) -> Credential:
        found = self._credentials.get(one.name, one.left_s(), rejected)
        if not is_bound(found, *_host_and_port(one.request.url)):
            raise one.wrong("is not for this host: its hosts do not list the host of the URL")
        return found

    def _key(self, one: "_Call", credential: Credential, rejected: str | None = None) -> SecretHeader:
        if isinstance(credential, OAuth):
            key = bearer_header(self._tokens.get(one.name, credential, one.left_s(), rejected))
        else:
            key = credential.key
        if key.header in one.request.headers:
            raise one.wrong(f"sets the header {key.header}, which headers has too: leave one of them out")
        return key

    def _newer(self, one: "_Call", credential: Credential, key: SecretHeader, status: int) -> SecretHeader | None:
        """Another key in place of a rejected one; None where there is none, or none can be found."""
        try:
            newer = self._credential(one, credential)
            token = key.secrets[0] if status == EXPIRED and isinstance(newer, OAuth) and newer == credential else None
            found = self._key(one, newer, token)
        except DuecourseError as error:
            log.warning("a call was rejected, and its credential cannot be found anew: %s", error)
            return None
        return None if found == key else found

    def _send(self, one: "_Call", key: SecretHeader) -> HttpAnswer:
        request = one.request
        timeout_ms = int(one.left_s() * 1000)
        if timeout_ms <= 0:
            raise CallTimedOut(f"{request.label} failed: its credential took all of {request.timeout_ms / 1000:g} s")
        headers = {**request.headers, key.header: key.value}
        answer = self._http.call(request._replace(headers=headers, timeout_ms=timeout_ms))
        return answer._replace(body=mask_secrets(answer.body, key.secrets))


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


def _host_and_port(url: str) -> tuple[str, int]:
    """Host and port of a URL, as the library that connects reads them."""
    from urllib3.exceptions import LocationParseError  # for those who call: many read this module's values alone
    from urllib3.util import parse_url

    try:
        parts = parse_url(url)
    except LocationParseError:
        return "", 0
    return parts.host or "", parts.port or STANDARD_PORTS.get(parts.scheme or "", 0)
