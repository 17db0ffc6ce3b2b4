"""Secrets by which webhooks are signed, as Standard Webhooks writes them: whsec_ and base64."""

import base64
import secrets
from collections.abc import Mapping, Sequence
from typing import TypeAlias

Secrets: TypeAlias = Mapping[str, Sequence[str]]
"""Secrets by tenant: one, or two during a rotation; those of the tenant `-` for all that have none of their own."""
PREFIX = "whsec_"
LEAST_BYTES, MOST_BYTES = 24, 64
FORM = f"must be {PREFIX} and the base64 of {LEAST_BYTES} to {MOST_BYTES} bytes"


def new_secret() -> str:
    """A fresh secret of 32 random bytes."""
    return PREFIX + base64.b64encode(secrets.token_bytes(32)).decode()


def check_secret(secret: object) -> str:
    """The same secret. Raises ValueError, with nothing of it in the text."""
    if not isinstance(secret, str) or not secret.startswith(PREFIX):
        raise ValueError(FORM)
    try:
        key = base64.b64decode(secret.removeprefix(PREFIX), validate=True)
    except ValueError:
        raise ValueError(FORM) from None
    if not LEAST_BYTES <= len(key) <= MOST_BYTES:
        raise ValueError(FORM)
    return secret
