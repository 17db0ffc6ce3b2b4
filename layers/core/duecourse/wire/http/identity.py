"""Identity of a caller, as API Gateway tells it to the function: it has verified the signature or the token."""

from collections.abc import Mapping
from typing import Any

from duecourse.domain.access import Identity


def read_identity(authorizer: Any) -> Identity | None:
    """Identity in `requestContext.authorizer`: `iam.userArn`, or `jwt.claims`; None where nobody verified one."""
    given = authorizer if isinstance(authorizer, Mapping) else {}
    token, principal = given.get("jwt"), given.get("iam")
    if isinstance(token, dict) and isinstance(token.get("claims"), dict):
        return Identity(str(token["claims"].get("sub", "")), token["claims"])
    if isinstance(principal, dict) and principal.get("userArn"):
        return Identity(str(principal["userArn"]))
    return None
