"""Secrets by which webhooks are signed, as Standard Webhooks writes them, and the setting that names them."""

import base64
import secrets
from collections.abc import Mapping, Sequence
from typing import TypeAlias

from duecourse.base import json_text
from duecourse.base.json_text import Json
from duecourse.base.variables import NAME

Secrets: TypeAlias = Mapping[str, Sequence[str]]
"""Secrets by tenant: one, or two during a rotation; those of the tenant `-` for all that have none of their own."""
PREFIX = "whsec_"
LEAST_BYTES, MOST_BYTES = 24, 64
FORMAT_ERROR = f"must be {PREFIX} and the base64 of {LEAST_BYTES} to {MOST_BYTES} bytes"


def new_secret() -> str:
    """A fresh secret of 32 random bytes."""
    return PREFIX + base64.b64encode(secrets.token_bytes(32)).decode()


def check_secret(secret: object) -> str:
    """The same secret. Raises ValueError, with nothing of it in the text."""
    if not isinstance(secret, str) or not secret.startswith(PREFIX):
        raise ValueError(FORMAT_ERROR)
    try:
        key = base64.b64decode(secret.removeprefix(PREFIX), validate=True)
    except ValueError:
        raise ValueError(FORMAT_ERROR) from None
    if not LEAST_BYTES <= len(key) <= MOST_BYTES:
        raise ValueError(FORMAT_ERROR)
    return secret


# The secret that DUECOURSE_SIGNING_SECRET names, read without pydantic: a list of secrets for each tenant.

EXAMPLE = '{"-": ["whsec_…"], "acme": ["whsec_new…", "whsec_old…"]}'
MAX_SECRETS = 2
"""A new secret and an old one: more at once is no rotation, and makes each request larger."""


def read_secrets(text: str) -> Secrets:
    """The secrets by tenant. Raises ValueError, with no secret in its text."""
    try:
        found, twice = json_text.load(text)
    except (ValueError, RecursionError):
        found, twice = None, []
    if not isinstance(found, dict) or not found:
        raise ValueError(f"must be JSON such as {EXAMPLE}")
    if twice:
        raise ValueError("has a tenant twice")
    return {_tenant(name): _secrets(place, given) for place, (name, given) in enumerate(found.items(), 1)}


def _tenant(name: str) -> str:
    if not NAME.fullmatch(name) or name.startswith(PREFIX):
        raise ValueError("must have the name of a tenant before each list of secrets, or - for all others")
    return name


def _secrets(place: int, given: Json) -> tuple[str, ...]:
    if not isinstance(given, list) or not 1 <= len(given) <= MAX_SECRETS:
        raise ValueError(f"must have a list of one or two secrets for each tenant; that of tenant {place} is none")
    try:
        return tuple(map(check_secret, given))
    except ValueError as error:
        raise ValueError(f"has a malformed secret for tenant {place} of its list: each {error}") from None
