"""Authorization of the HTTP API: tenant and roles of a caller, by the claims of its token or by a table."""

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import NamedTuple, TypeAlias

from duecourse.base.ids import NAME_PATTERN
from duecourse.ledger.task import DEFAULT_TENANT

EVERY = "*"
"""Key of the grant for every other principal, and tenant of a grant that may name any tenant."""
ROLES_CLAIM = "duecourse_roles"
SCOPE_CLAIMS = ("scope", "scp")
"""Claims with the scopes of a token, as API Gateway reads them."""
SCOPE = re.compile(r"duecourse[:/.](\w+)")
TENANT = re.compile(NAME_PATTERN)
ARN = "arn:"
SESSION = re.compile(r"arn:([^:]+):sts::([^:]*):assumed-role/([^/]+)/.+", re.DOTALL)
ROLE_ARN = re.compile(r"arn:([^:]+):iam::([^:]*):role/(?:.*/)?([^/]+)", re.DOTALL)


class Role(StrEnum):
    """Role of a caller: an operator may do everything, the other two what their name says."""

    CALLER = "caller"
    WORKER = "worker"
    OPERATOR = "operator"


ROLES = {str(role): role for role in Role}
NO_ROLES: frozenset[Role] = frozenset()


class Identity(NamedTuple):
    """Identity that API Gateway verified: an IAM principal's ARN, or a token's subject and its claims."""

    name: str
    claims: Mapping[str, object] | None = None


class Grant(NamedTuple):
    """Grant of a principal: its tenant ("" for none, EVERY for any), and its roles."""

    tenant: str
    roles: frozenset[Role]


NO_GRANT = Grant("", NO_ROLES)


class Principal(NamedTuple):
    """One caller, and its grant."""

    name: str
    grant: Grant

    def may(self, role: Role) -> bool:
        """True if the caller has the role, or is an operator."""
        return role in self.grant.roles or self.is_operator

    @property
    def is_operator(self) -> bool:
        """True for an operator."""
        return Role.OPERATOR in self.grant.roles

    @property
    def names_tenants(self) -> bool:
        """True if the caller may name any tenant."""
        return self.is_operator or self.grant.tenant == EVERY

    @property
    def tenant(self) -> str:
        """Tenant of the caller's requests that name none; "" for a caller without a tenant."""
        own = self.grant.tenant
        return DEFAULT_TENANT if own == EVERY or (self.is_operator and not own) else own


UNKNOWN_CALLER = Principal("an unknown caller", NO_GRANT)
"""Caller without a verified identity."""


@dataclass(frozen=True, slots=True)
class ClaimRule:
    """Rule `claim:<name>`: that claim of a token names the tenant; ROLES_CLAIM and the scopes name the roles."""

    claim: str

    def grant(self, who: Identity) -> Grant:
        """Grant of a caller; NO_GRANT without a token."""
        claims = who.claims or {}
        tenant = claims.get(self.claim)
        named = isinstance(tenant, str) and tenant != DEFAULT_TENANT and TENANT.fullmatch(tenant)
        return Grant(str(tenant) if named else "", frozenset(_roles(claims)))


@dataclass(frozen=True, slots=True)
class TableRule:
    """Rule `principals:<JSON>`: a table of IAM principals by ARN, and of tokens by subject."""

    grants: Mapping[str, Grant]

    def grant(self, who: Identity) -> Grant:
        """Grant of a caller: its own, else that of EVERY; NO_GRANT without both."""
        is_arn = who.name.startswith(ARN)
        # An issuer may write any subject, and an ARN is no token's: each finds its own kind of key only.
        own = self.grants.get(canonical_arn(who.name)) if is_arn == (who.claims is None) else None
        return own or self.grants.get(EVERY, NO_GRANT)


Access: TypeAlias = ClaimRule | TableRule


def principal_of(who: Identity | None, access: Access) -> Principal:
    """A caller with its grant; unprintable characters of its name are replaced."""
    # An issuer may write any subject, and the name goes to logs and terminals.
    if who is None:
        return UNKNOWN_CALLER
    name = "".join(one if one.isprintable() else "?" for one in who.name)
    return Principal(name or "a token without a subject", access.grant(who))


def canonical_arn(arn: str) -> str:
    """ARN of a principal as the table has it: a role's ARN for its sessions, without the role's path.

    AWS leaves the path out of a session's ARN. Within an account, roles of different paths have different names.
    """
    found = SESSION.fullmatch(arn) or ROLE_ARN.fullmatch(arn)
    return "arn:{}:iam::{}:role/{}".format(*found.groups()) if found else arn


def is_session(arn: str) -> bool:
    """True for the ARN of a role's session, whose last part its caller chose."""
    return SESSION.fullmatch(arn) is not None


def _roles(claims: Mapping[str, object]) -> Iterator[Role]:
    words = _role_words(claims.get(ROLES_CLAIM))
    for name in SCOPE_CLAIMS:
        words += [found[1] for word in _scopes(claims.get(name)) if (found := SCOPE.fullmatch(word))]
    return (ROLES[word] for word in words if word in ROLES)


def _role_words(claim: object) -> list[str]:
    """Roles in a claim: a list, or a text that is one role; API Gateway writes a list as `[a b]`.

    There `["x operator"]` and `["x", "operator"]` are the same text: with an unknown word in it no role counts.
    """
    if isinstance(claim, str) and claim.startswith("[") and claim.endswith("]"):
        words = claim[1:-1].split(" ")
        return words if all(word in ROLES for word in words) else []
    return [claim] if isinstance(claim, str) else _texts(claim)


def _scopes(claim: object) -> list[str]:
    """Scopes in a claim: a list, or a text with spaces between them (RFC 6749, 3.3); no scope has a space."""
    return claim.removeprefix("[").removesuffix("]").split() if isinstance(claim, str) else _texts(claim)


def _texts(claim: object) -> list[str]:
    return [word for word in claim if isinstance(word, str)] if isinstance(claim, list) else []
