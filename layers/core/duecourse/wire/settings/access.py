"""DUECOURSE_TENANT_FROM, read without pydantic: `claim:<name>`, or `principals:` and a JSON object."""

import re

from duecourse.domain.access import ARN, EVERY, NOTHING, Access, FromClaim, FromTable, Grant, Role, is_session, known_as
from duecourse.domain.near import near_name, unknown_field
from duecourse.domain.task import Json
from duecourse.errors import FieldError, InvalidInput
from duecourse.wire.settings.variables import NAME, WRONG_NAME, json_such_as, problems_at

CLAIM, PRINCIPALS = "claim:", "principals:"
CLAIM_NAME = re.compile(r"[!-~]{1,128}")
PRINCIPAL = re.compile(r"arn:aws[a-z-]*:(iam|sts)::\d{12}:[!-)+-~]{1,600}")
SUBJECT = re.compile(r"[!-)+-~]{1,255}")
EXAMPLE = (
    '{"arn:aws:iam::123456789012:role/shop": "acme", "arn:aws:iam::123456789012:role/ops": {"roles": ["operator"]}}'
)
FIELDS = {"tenant", "roles"}
WORDS = ", ".join(Role)


def read_access(text: str) -> Access:
    """The rule in a text. Raises ValueError, or InvalidInput that names the wrong principals."""
    if text.startswith(CLAIM):
        return _claim(text.removeprefix(CLAIM))
    if text.startswith(PRINCIPALS):
        return json_such_as(PRINCIPALS + EXAMPLE, _table)(text.removeprefix(PRINCIPALS))
    raise ValueError(f"must be {CLAIM}<name of a claim>, or {PRINCIPALS}{EXAMPLE}")


def _claim(name: str) -> FromClaim:
    if not CLAIM_NAME.fullmatch(name):
        raise ValueError(f"must name a claim of the token, such as {CLAIM}org_id")
    return FromClaim(name)


def _table(value: Json) -> FromTable:
    if not isinstance(value, dict) or not value:
        raise ValueError(f"must be {PRINCIPALS} and a JSON object with at least one principal")
    grants, problems = dict[str, Grant](), list[FieldError]()
    for name, given in value.items():
        try:
            known = _name(name)
            if known in grants:
                raise ValueError("names the same role as an earlier one")  # noqa: TRY301 - beside the readers' own
            grants[known] = _grant(given)
        except (ValueError, InvalidInput) as error:
            problems += problems_at(name, error)
    if problems:
        raise InvalidInput(problems)
    return FromTable(grants)


def _name(name: str) -> str:
    if name == EVERY:
        return name
    if is_session(name):
        raise ValueError("is a session, whose name its caller chooses: give the role's own ARN, arn:aws:iam::…")
    if not (PRINCIPAL if name.startswith(ARN) else SUBJECT).fullmatch(name):
        raise ValueError(f"must be the ARN of a role or user, the subject of a token, or {EVERY} for all others")
    return known_as(name)


def _grant(value: Json) -> Grant:
    if isinstance(value, str):
        return Grant(_tenant(value), frozenset({Role.CALLER}))
    if not isinstance(value, dict):
        raise ValueError('must be a tenant, or an object such as {"tenant": "acme", "roles": ["caller"]}')  # noqa: TRY004
    unknown = [FieldError(str(name), unknown_field(name, FIELDS)) for name in value if name not in FIELDS]
    if unknown:
        raise InvalidInput(unknown)
    roles = _roles(value.get("roles", [Role.CALLER]))
    if "tenant" not in value and Role.OPERATOR not in roles:
        raise InvalidInput([FieldError("tenant", f"is required, unless the roles have {Role.OPERATOR}")])
    return Grant(_tenant(value["tenant"]) if "tenant" in value else NOTHING.tenant, roles)


def _roles(value: Json) -> frozenset[Role]:
    unknown = [word for word in value if word not in list(Role)] if isinstance(value, list) else []
    if not isinstance(value, list) or not value or unknown:
        near = near_name(unknown[0], Role) if unknown else ""
        raise InvalidInput([FieldError("roles", f"must be a list of at least one of: {WORDS}{near}")])
    return frozenset(map(Role, value))


def _tenant(value: Json) -> str:
    if not isinstance(value, str) or (value != EVERY and not NAME.fullmatch(value)):
        raise InvalidInput([FieldError("tenant", f"{WRONG_NAME}, or {EVERY} for any")])
    return value
