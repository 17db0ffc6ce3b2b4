"""Credential: the header that it adds to a call, the hosts that may get it, and its traces in an answer."""

import json
import re
from collections.abc import Iterable
from dataclasses import dataclass, field
from functools import lru_cache
from typing import NamedTuple, TypeAlias

from duecourse.domain.destination import Address, literals
from duecourse.domain.egress import Entry, leads_to, plain
from duecourse.domain.masking import MASK

NAME = r"[A-Za-z0-9._-]{1,64}"
"""Pattern of a credential's name: without a slash, so that no name leaves its tenant's part."""
WRONG_NAME = "must be the name of a credential, and not its value: 1 to 64 characters of A-Z a-z 0-9 . _ -"
CONFLICT = "must not contain Authorization beside auth: leave one of them out"
ENTITIES = {"&": ("amp",), "<": ("lt",), ">": ("gt",), '"': ("quot",), "'": ("apos",)}
PLAIN = "-._~"
"""Characters besides letters and digits that nothing escapes."""
LEAST = 8
"""Minimum length of a secret: one that is shorter would be found in most answers by chance."""


class CredentialName(NamedTuple):
    """Name of a credential, and the tenant whose it is."""

    tenant: str
    name: str

    def secret(self, prefix: str) -> str:
        """Name of the secret that holds it. Secrets Manager knows no colon, and a tenant has no plus."""
        return f"{prefix}{self.tenant.replace(':', '+')}/{self.name}"


@dataclass(frozen=True, slots=True)
class Key:
    """One header with a secret, whose name is in lower case, and the texts that no answer may show."""

    header: str
    value: str = field(repr=False)
    secrets: tuple[str, ...] = field(repr=False)


@dataclass(frozen=True, slots=True)
class Fixed:
    """Credential that is a header: a bearer token, a login, or any other."""

    hosts: tuple[Entry, ...]
    key: Key


@dataclass(frozen=True, slots=True)
class OAuth:
    """Credential that `token_url` exchanges for tokens: OAuth's client credentials, in a header or in the body."""

    hosts: tuple[Entry, ...]
    token_url: str
    client_id: str
    client_secret: str = field(repr=False)
    scope: str
    audience: str
    in_body: bool


Credential: TypeAlias = Fixed | OAuth


def bearer(token: str) -> Key:
    """Key of a bearer token."""
    return Key("authorization", f"Bearer {token}", (token,))


def is_bound(credential: Credential, host: str, port: int) -> bool:
    """True if calls to this host of a URL, at this port, may carry the credential."""
    bare = host.strip("[]")
    places: list[Address] = [leads_to(address) for address in literals(bare)]
    return any(_covers(entry, plain(bare), places, port) for entry in credential.hosts)


def _covers(entry: Entry, name: str, places: list[Address], port: int) -> bool:
    """True if an entry has the host by its name, or by the address that the name is; nothing is looked up."""
    if entry.network is None:
        return entry.covers(name, None, port)
    return any(entry.covers(name, place, port) for place in places)


def hidden(body: bytes, secrets: Iterable[str]) -> bytes:
    """An answer in UTF-8 without the secrets of its call, in the spellings of JSON, HTML and URLs too.

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
    return re.compile(f"{re.escape(secret)}|{''.join(map(_spelled, secret))}".encode())


def _spelled(letter: str) -> str:
    """Pattern of a character: letters and digits are always themselves, and most others may be escaped."""
    if (letter.isascii() and letter.isalnum()) or letter in PLAIN:
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
