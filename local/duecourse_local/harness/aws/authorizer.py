"""Proof of identity that API Gateway demands: the chosen check, its keys, and the template's parameters for it."""

import json
import secrets
from collections.abc import Callable, Mapping
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, TypeAlias

from .account import ACCOUNT
from .events import Event, HttpRequest
from .secrets import load_or_create

if TYPE_CHECKING:
    from joserfc.jwk import RSAKey

    from .signatures import Signatures
    from .tokens import Tokens


class IdentityRejected(Exception):
    """The request carries no proof, or a wrong one: status, message and headers of API Gateway's answer."""

    def __init__(self, status: int, message: str, headers: Mapping[str, str] | None = None) -> None:
        super().__init__(message)
        self.status = status
        self.headers = headers or {}


BITS = 2048


class KeyFolder:
    """The keys in one folder, which only its owner may read."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def of_tokens(self) -> "RSAKey":
        """Private key that signs tokens."""
        from joserfc.jwk import RSAKey  # cryptography takes a fifth of a second, and most stacks ask for no proof

        return RSAKey.import_key(
            load_or_create(self._folder / "tokens.pem", lambda: RSAKey.generate_key(BITS).as_pem(private=True))
        )

    def of_signatures(self) -> bytes:
        """Secret from which the secret of each access key follows."""
        return load_or_create(self._folder / "signatures", lambda: secrets.token_bytes(32))


ISSUER, AUDIENCE = "https://duecourse.localhost/", "duecourse"
TENANT_CLAIM = "org_id"
FOLDER = "auth"
"""Folder of the keys, in the state folder."""


class Auth(StrEnum):
    """Proof of identity, as in the template's parameter; NONE is for a laptop only."""

    NONE = "none"
    IAM = "iam"
    JWT = "jwt"


Authorize: TypeAlias = Callable[[HttpRequest], Event]
"""Answers an event's `authorizer`, empty where nothing is checked. Raises IdentityRejected."""
GRANTS = {
    "acme": "acme",
    "globex": "globex",
    "worker": {"tenant": "*", "roles": ["worker"]},
    "operator": {"roles": ["operator"]},
}
"""Roles of the local account, and what each is granted where DUECOURSE_TENANT_FROM is not set."""


def authorizer(auth: Auth, state: Path) -> Authorize:
    """The check, with keys that are kept in the state folder."""
    if auth == Auth.NONE:
        return lambda _request: {}
    return tokens(state).authorize if auth == Auth.JWT else signatures(state).authorize


def tokens(state: Path) -> "Tokens":
    """The tokens of a state folder."""
    from .tokens import Tokens  # cryptography comes along

    return Tokens(KeyFolder(state / FOLDER))


def signatures(state: Path) -> "Signatures":
    """The access keys of a state folder."""
    from .signatures import Signatures

    return Signatures(KeyFolder(state / FOLDER))


def parameters(auth: Auth) -> Mapping[str, str]:
    """The template's parameters for it."""
    if auth == Auth.JWT:
        return {"Auth": auth, "JwtIssuer": ISSUER, "JwtAudience": AUDIENCE, "TenantFrom": f"claim:{TENANT_CLAIM}"}
    if auth == Auth.IAM:
        table = {f"arn:aws:iam::{ACCOUNT}:role/{role}": grant for role, grant in GRANTS.items()}
        return {"Auth": auth, "TenantFrom": f"principals:{json.dumps(table)}"}
    return {}
