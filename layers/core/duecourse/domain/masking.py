"""Masking of credentials: a mark shows that they exist, and nothing else.

A worker gets a task as it was given. Anyone who looks at it, gets its completion notification or reads a log sees MASK
in place of credentials. That covers headers and fields by their names, and the user, password and query values of
addresses.
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
WORDS = frozenset({
    "token", "tokens", "secret", "secrets", "password", "passwords", "passwd", "pwd", "passphrase", "auth",
    "authorization", "credential", "credentials", "signature", "cookie", "cookies", "apikey", "accesskey", "secretkey",
    "privatekey", "signingkey", "accesstoken", "clientsecret", "jwt", "bearer", "sig", "hmac", "csrf", "xsrf", "otp",
    "passcode", "connectionstring",
})  # fmt: skip
"""A field is one where a word of its name, or two together, is one of these; `key` alone, or `author`, is none."""

_SUSPECT = re.compile("://|sig|otp|passcode|connection|" + "|".join(IN_HEADERS), re.IGNORECASE)
"""Pattern of each text that may have something to mask."""
_NO_FORM = re.compile(r"\s|://")
_WORD = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+|[0-9]+")
_ADDRESS = re.compile(r"://([^\s\"'<>]+)")
_SEGMENT = re.compile(r"(;[^;/=]*=)[^;/]+")
_PARTS = re.compile(r"([^/?#]*)([^?#]*)(\?[^#]*)?(#.*)?", re.DOTALL)
_NAMED = re.compile(
    r"""(["'])([\w .-]{1,64})\1(\s{0,9}:\s{0,9})("(?:[^"\\]|\\.)*"?|'(?:[^'\\]|\\.)*'?|[^\s,"'{}\[\]]+)""", re.DOTALL
)
"""A name and its value, as JSON and Python write them."""
_SPOKEN = re.compile(r"(authorization['\"]?\s*[:=]\s*['\"]?(?:\w+ +)?|\bbearer +)[^\s'\",}]+", re.IGNORECASE)


def is_suspect(text: str) -> bool:
    """True if a text may have something to mask."""
    return _SUSPECT.search(text) is not None


def masked(value: Json) -> Json:
    """A payload as it is shown."""
    if isinstance(value, dict):
        return {name: _field(name, inside) for name, inside in value.items()}
    if isinstance(value, list):
        return [masked(inside) for inside in value]
    return masked_text(value) if isinstance(value, str) else value


def masked_text(text: str) -> str:
    """A text as it is shown: addresses in it without credentials, and those of a form's or JSON's fields left out."""
    if "://" in text:
        text = _ADDRESS.sub(lambda found: "://" + _address(found[1]), text)
    if not is_suspect(text):
        return text
    if "=" in text and not _NO_FORM.search(text):
        text = "&".join(map(_pair, text.split("&")))
    return _NAMED.sub(_named, text) if ":" in text else text


def masked_error(text: str) -> str:
    """The same for an error's text, which may quote a header."""
    text = masked_text(text)
    return _SPOKEN.sub(rf"\1{MASK}", text) if is_suspect(text) else text


def _field(name: str, value: Json) -> Json:
    if name.lower() == HEADERS and isinstance(value, dict):
        return {
            header: _hidden(inside) if _is_credential(header) else masked(inside) for header, inside in value.items()
        }
    return _hidden(value) if is_secret(name) else masked(value)


def _hidden(value: Json) -> Json:
    return value if value is None or isinstance(value, bool) else MASK


def _is_credential(header: str) -> bool:
    return any(word in header.lower() for word in IN_HEADERS) or is_secret(header)


@lru_cache(maxsize=1024)
def is_secret(name: str) -> bool:
    """True if a field of this name holds a credential."""
    words = [word.lower() for word in _WORD.findall(name)]
    return any(word in WORDS for word in words) or any(a + b in WORDS for a, b in pairwise(words))


def _address(rest: str) -> str:
    """Text after `://`, without credentials."""
    found = _PARTS.match(rest)
    place, path, query, fragment = found.groups("") if found else ("",) * 4
    user, at, host = place.rpartition("@")
    path = _SEGMENT.sub(rf"\1{MASK}", path) if ";" in path else path
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


def _pair(pair: str) -> str:
    """A field of a form."""
    name, equals, value = pair.partition("=")
    return f"{name}={MASK}" if equals and value and is_secret(name) else pair
