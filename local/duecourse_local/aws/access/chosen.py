"""The chosen proof of identity: its check, and the template's parameters for it."""

import json
from collections.abc import Callable, Mapping
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, TypeAlias

from ..account import ACCOUNT
from ..events import Event, HttpRequest

if TYPE_CHECKING:
    from .signatures import Signatures
    from .tokens import Tokens

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
"""Answers an event's `authorizer`, empty where nothing is checked. Raises Rejected."""
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
    from .keys import Keys  # cryptography takes a fifth of a second, and most stacks ask for no proof
    from .tokens import Tokens

    return Tokens(Keys(state / FOLDER))


def signatures(state: Path) -> "Signatures":
    """The access keys of a state folder."""
    from .keys import Keys
    from .signatures import Signatures

    return Signatures(Keys(state / FOLDER))


def parameters(auth: Auth) -> Mapping[str, str]:
    """The template's parameters for it."""
    if auth == Auth.JWT:
        return {"Auth": auth, "JwtIssuer": ISSUER, "JwtAudience": AUDIENCE, "TenantFrom": f"claim:{TENANT_CLAIM}"}
    if auth == Auth.IAM:
        table = {f"arn:aws:iam::{ACCOUNT}:role/{role}": grant for role, grant in GRANTS.items()}
        return {"Auth": auth, "TenantFrom": f"principals:{json.dumps(table)}"}
    return {}
