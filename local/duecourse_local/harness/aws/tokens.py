"""JSON Web Tokens: issued by this machine, and checked as API Gateway's JWT authorizer does."""

import json
import time
from collections.abc import Mapping, Sequence
from typing import Any

from joserfc import jwt
from joserfc.errors import JoseError

from duecourse.api.authorization import ROLES_CLAIM

from .authorizer import AUDIENCE, ISSUER, TENANT_CLAIM, IdentityRejected, KeyFolder
from .events import Event, HttpRequest

ALGORITHMS = ["RS256"]
CHALLENGE = {"www-authenticate": "Bearer"}


class Tokens:
    """Tokens that these keys sign."""

    def __init__(self, keys: KeyFolder) -> None:
        self._key = keys.of_tokens()

    def issue(self, subject: str, tenant: str, roles: Sequence[str], lifetime_s: float) -> str:
        """A token for one subject; "" is no tenant."""
        now = int(time.time())
        claims = {
            "iss": ISSUER,
            "aud": AUDIENCE,
            "sub": subject,
            "iat": now,
            "exp": now + int(lifetime_s),
            **({TENANT_CLAIM: tenant} if tenant else {}),
            ROLES_CLAIM: list(roles),
        }
        return self.signed(claims)

    def signed(self, claims: Mapping[str, Any]) -> str:
        """A token with exactly these claims."""
        return jwt.encode({"alg": ALGORITHMS[0]}, dict(claims), self._key)

    def authorize(self, request: HttpRequest) -> Event:
        """Identity of the caller, as an event has it. Raises IdentityRejected without a valid token."""
        given = [value for name, value in request.headers if name == "authorization"]
        if len(given) != 1:
            raise _unauthorized()
        try:
            claims = jwt.decode(given[0].removeprefix("Bearer ").strip(), self._key, algorithms=ALGORITHMS).claims
        except (JoseError, ValueError) as error:
            raise _unauthorized() from error
        if not _is_valid(claims, time.time()):
            raise _unauthorized()
        return {"jwt": {"claims": {name: _text(value) for name, value in claims.items()}, "scopes": None}}


def _unauthorized() -> IdentityRejected:
    return IdentityRejected(401, "Unauthorized", CHALLENGE)


def _is_valid(claims: Mapping[str, Any], now: float) -> bool:
    audiences = claims.get("aud", claims.get("client_id"))
    named = audiences if isinstance(audiences, list) else [audiences]
    times = {name: claims.get(name, 0) for name in ("exp", "nbf", "iat")}
    if not all(isinstance(at, int | float) for at in times.values()):
        return False
    in_time = times["nbf"] <= now < times["exp"] and times["iat"] <= now + 1
    return claims.get("iss") == ISSUER and AUDIENCE in named and in_time


def _text(value: Any) -> str:
    """A claim as it is in an event: text, a list in brackets."""
    if isinstance(value, list):
        return f"[{' '.join(map(_text, value))}]"
    return value if isinstance(value, str) else json.dumps(value)
