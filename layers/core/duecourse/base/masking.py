"""Masking of credentials: a mark shows that they exist, and nothing else.

A worker gets a task as it was given. Anyone who looks at it, gets its completion notification or reads a log sees MASK
in place of credentials. That covers headers and fields by their names, and the user, password and query values of
addresses. In any text it covers what is known by its form: private keys, JWTs, and the tokens of some services.
"""

import re
from functools import lru_cache
from itertools import pairwise
from typing import Any, TypeAlias

Json: TypeAlias = Any

MASK = "•••"
HEADERS = "headers"
"""A field of this name holds headers, of whatever kind the task is."""
IN_HEADERS = (
    "token", "secret", "key", "passw", "pwd", "auth", "signature", "credential", "cookie", "session", "csrf", "xsrf",
    "jwt", "bearer", "hmac",
)  # fmt: skip
"""A header is a credential where its name has one of these in it."""
HEADER_WORDS = frozenset({
    "pin", "sid", "ticket", "mfa", "totp", "saml", "accesscode", "securitycode", "verificationcode", "logincode",
    "unlockcode",
})  # fmt: skip
"""A header is one too where a word of its name, or two together, is one of these. Fields of these names are data."""
WORDS = frozenset({
    "token", "tokens", "secret", "secrets", "password", "passwords", "passwd", "pwd", "passphrase", "auth",
    "authorization", "credential", "credentials", "signature", "cookie", "cookies", "apikey", "accesskey", "secretkey",
    "privatekey", "signingkey", "accesstoken", "clientsecret", "jwt", "bearer", "sig", "hmac", "csrf", "xsrf", "otp",
    "passcode", "connectionstring", "dbpass", "userpass", "smtppass", "jsessionid", "phpsessid", "sessid",
    "encryptionkey", "subscriptionkey", "accountkey", "sharedkey", "masterkey", "sshkey", "serverkey", "servicekey",
    "storagekey", "consumerkey", "sessionkey", "licensekey", "functionkey", "clientassertion",
})  # fmt: skip
"""A field is one where a word of its name, or two together, is one of these; `key` alone, or `author`, is none."""
ENDINGS = ("token", "tokens", "secret", "password", "passwd", "passphrase", "pwd", "apikey", "accesskey", "secretkey")
"""A word that ends so is one too, such as `authtoken` and `PGPASSWORD`."""
ALONE = "pass"
"""A field of this very name with a text is a password; one with a number counts what passed."""

NAMING = frozenset({"poll", "webhook", "reminder", "task.series"})
"""Kinds whose payloads name credentials in `auth`."""
USUAL_NAME = 100
"""Maximum length of a name that is remembered: a payload's may be as long as the payload."""

_SUSPECT = (
    "sealed:", "sig", "otp", "pass", "connection", "sess", "assertion", "basic ", "token", "secret", "key", "pwd",
    "auth", "credential", "cookie", "srf", "jwt", "bearer", "hmac",
)  # fmt: skip
"""Parts of each text that may have something to mask, in lower case. A pattern of them all takes ten times as long."""
_SUSPECT_HEADERS = ("pin", "sid", "ticket", "mfa", "saml", "code")
"""The same for texts with headers: elsewhere these parts are in too many words."""
_BEGINNINGS = ("eyJ", "k_live_", "ghp_", "gho_", "ghs_", "github_pat_", "glpat-", "xox", "AKIA", "ASIA", "whsec_")
"""Beginnings of what is a credential by its form, besides those that have a part in `_SUSPECT`."""
_IN_ADDRESS = "@;?#"
"""Marks of the parts of an address that are masked: an address without any hides nothing."""
_WORD = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+|[0-9]+")
SEALED_ADDRESS = re.compile(r"sealed:([\w.-]{1,8192}):(https?://.*)", re.DOTALL)
"""An address as a ledger keeps it (guard/seals.py): the seal, and the address as it is shown."""
_ADDRESS = re.compile(r"://([^\s\"'<>]+)")
_WHOLE = re.compile(r"([A-Za-z][A-Za-z0-9+.-]{0,30}://)(\S+)")
"""A text that is one address, in which quotes are no end of it."""
_INNER = re.compile(r"(?<=://)[^/?#\s]*@")
"""User of an address within another's path."""
_SEGMENT = re.compile(r"(;[^;/=]*=)[^;/]+")
_PARTS = re.compile(r"([^/?#]*)([^?#]*)(\?[^#]*)?(#.*)?", re.DOTALL)
_NAMED = re.compile(
    r"""(["'])([\w .-]{1,64})\1(\s{0,9}:\s{0,9})"""
    r"""("(?:[^"\\]|\\.)*"?|'(?:[^'\\]|\\.)*'?|\{[^{}]*\}?|\[[^\[\]]*\]?|[^\s,"'{}\[\]]+)""",
    re.DOTALL,
)
"""A name and its value, as JSON and Python write them."""
_ASSIGNED = re.compile(r"""(?<![\w.\[\]%-])([\w.\[\]%-]{1,64}+)=("[^"]*"?|'[^']*'?|[^&;\s"'<>]+)""")
"""A name and its value, as forms, connection strings and XML's attributes write them."""
_ELEMENT = re.compile(r"(<([\w:.-]{1,64}+)(?:\s[^<>]*)?>)[^<>]+")
_SCHEME = re.compile(r"\b((?:bearer|basic) +)[\w.~+/=-]{16,}", re.IGNORECASE)
_FORM = re.compile(
    r"""-----BEGIN\ [A-Z0-9 ]{0,40}PRIVATE\ KEY.*?(?:-----END\ [A-Z0-9 ]{0,40}PRIVATE\ KEY(?:\ BLOCK)?-----|\Z)
    |(?<![A-Za-z0-9_-])(?:
        eyJ[A-Za-z0-9_-]{8,}+\.eyJ[A-Za-z0-9_-]{8,}+(?:\.[A-Za-z0-9_-]*)*
        |[sr]k_live_[A-Za-z0-9]{10,}
        |gh[ops]_[A-Za-z0-9]{20,}|github_pat_[A-Za-z0-9_]{20,}|glpat-[A-Za-z0-9_.-]{16,}
        |xox[a-z]-[A-Za-z0-9-]{10,}
        |(?:AKIA|ASIA)[A-Z0-9]{16}(?![A-Za-z0-9])
        |whsec_[A-Za-z0-9+/=]{16,}
    )""",
    re.DOTALL | re.VERBOSE,
)
"""Credentials by their form: a private key in PEM, a JWT, keys and tokens of Stripe, GitHub, GitLab, Slack and AWS, a
secret of Standard Webhooks."""
_SPOKEN = re.compile(r"(authorization['\"]?\s*[:=]\s*['\"]?(?:\w+ +)?|\bbearer +)[^\s'\",}]+", re.IGNORECASE)


def is_suspect(text: str) -> bool:
    """True if a text may have something to mask."""
    lowered = text.lower()
    # Each add looks here: loops over parts take two thirds of the time that `any` over calls takes.
    for part in _SUSPECT:
        if part in lowered:
            return True
    for beginning in _BEGINNINGS:
        if beginning in text:
            return True
    return ("://" in text and any(map(text.__contains__, _IN_ADDRESS))) or (
        HEADERS in lowered and any(map(lowered.__contains__, _SUSPECT_HEADERS))
    )


def masked(value: Json) -> Json:
    """A payload as it is shown."""
    if isinstance(value, dict):
        shown = {name: _field(name, inside) for name, inside in value.items()}
        return {**shown, "value": _hidden(value["value"])} if _is_pair(value) else shown
    if isinstance(value, list):
        if len(value) == 2 and all(isinstance(inside, str) for inside in value) and is_secret(value[0]):
            return [value[0], MASK]
        return [masked(inside) for inside in value]
    return masked_text(value) if isinstance(value, str) else value


def masked_payload(kind: str, value: Json) -> Json:
    """A payload of this kind as it is shown. Where `auth` names a credential it is shown: a name is no secret."""
    shown = masked(value)
    return _with_names(shown, value) if kind in NAMING else shown


def _with_names(shown: Json, value: Json) -> Json:
    if not isinstance(value, dict):
        return shown
    if isinstance(value.get("recipients"), list):
        pairs = zip(shown["recipients"], value["recipients"], strict=True)
        return {**shown, "recipients": [_with_names(*pair) for pair in pairs]}
    if isinstance(value.get("recipient"), dict):
        return {**shown, "recipient": _with_names(shown["recipient"], value["recipient"])}
    return {**shown, "auth": value["auth"]} if isinstance(value.get("auth"), str) else shown


def masked_text(text: str) -> str:
    """A text as it is shown: addresses in it without credentials, and those of a form's or JSON's fields left out."""
    if text.startswith("sealed:") and (sealed := SEALED_ADDRESS.fullmatch(text)):
        text = sealed[2]
    if whole := _WHOLE.fullmatch(text):
        text = whole[1] + _address(whole[2])
    elif "://" in text:
        text = _ADDRESS.sub(lambda found: "://" + _address(found[1]), text)
    if not is_suspect(text):
        return text
    if "=" in text:
        text = _ASSIGNED.sub(_assigned, text)
    if "<" in text:
        text = _ELEMENT.sub(lambda found: found[1] + MASK if is_secret(found[2]) else found[0], text)
    return _FORM.sub(MASK, _NAMED.sub(_named, _SCHEME.sub(rf"\1{MASK}", text)))


def masked_error(text: str) -> str:
    """The same for an error's text, which may quote a header."""
    text = masked_text(text)
    return _SPOKEN.sub(rf"\1{MASK}", text) if is_suspect(text) else text


def _field(name: Json, value: Json) -> Json:
    if not isinstance(name, str):  # a number, in a payload from Python that is no JSON yet
        return masked(value)
    if name.lower() == HEADERS and isinstance(value, dict):
        return {
            header: _hidden(inside) if is_credential(header) else masked(inside) for header, inside in value.items()
        }
    is_password = name.lower() == ALONE and isinstance(value, str)
    return _hidden(value) if is_password or is_secret(name) else masked(value)


def _is_pair(value: dict[str, Json]) -> bool:
    """True for a header or a parameter as an object of its own: `{"name": "X-Api-Key", "value": …}`."""
    named = value.get("name", value.get("key"))
    return "value" in value and isinstance(named, str) and is_secret(named)


def _hidden(value: Json) -> Json:
    return value if value is None or isinstance(value, bool) else MASK


def is_credential(header: str) -> bool:
    """True if a header of this name holds a credential."""
    return any(word in header.lower() for word in IN_HEADERS) or is_secret(header) or _has(header, HEADER_WORDS)


def is_secret(name: str) -> bool:
    """True if a field of this name holds a credential."""
    return _is_secret(name) if len(name) <= USUAL_NAME else _is_secret.__wrapped__(name)


@lru_cache(maxsize=1024)
def _is_secret(name: str) -> bool:
    found = _has(name, WORDS) or any(word.lower().endswith(ENDINGS) for word in _WORD.findall(name))
    # Whatever is shown as a credential is found in a text by its parts: what is not suspect is not sealed.
    return found and is_suspect(name)


def _has(name: str, words: frozenset[str]) -> bool:
    """True if a word of the name, or two together, is one of these."""
    own = [word.lower() for word in _WORD.findall(name)]
    return any(word in words for word in own) or any(a + b in words for a, b in pairwise(own))


def _address(rest: str) -> str:
    """Text after `://`, without credentials."""
    found = _PARTS.match(rest)
    place, path, query, fragment = found.groups("") if found else ("",) * 4
    user, at, host = place.rpartition("@")
    path = _SEGMENT.sub(rf"\1{MASK}", path) if ";" in path else path
    path = _INNER.sub(f"{MASK}@", path) if "@" in path else path
    fragment = "#" + _values(fragment[1:]) if "=" in fragment else fragment
    return (f"{MASK}{at}" if user else "") + host + path + (f"?{_values(query[1:])}" if query else "") + fragment


def _values(query: str) -> str:
    return "&".join(_value(pair) for pair in query.split("&"))


def _value(pair: str) -> str:
    name, equals, value = pair.partition("=")
    return f"{name}={MASK if value else ''}" if equals else MASK if pair else ""


def _named(found: re.Match[str]) -> str:
    """A field of JSON within a text."""
    quote, name, colon, value = found.groups()
    if not is_secret(name) or value in {"null", "None"}:
        return found[0]
    own = value[0] if value[0] in "\"'" else ""
    return f"{quote}{name}{quote}{colon}{own}{MASK}{own}"


def _assigned(found: re.Match[str]) -> str:
    """A field of a form."""
    name, value = found.groups()
    own = value[0] if value[0] in "\"'" else ""
    return f"{name}={own}{MASK}{own}" if is_secret(name) else found[0]
