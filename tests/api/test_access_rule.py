"""The rule for who may do what: how it is written, whom it knows, and which roles a token has."""

import json
from typing import Any

import pytest

from duecourse.api.authorization import (
    NO_GRANT,
    ClaimRule,
    Grant,
    Identity,
    Role,
    TableRule,
    canonical_arn,
    principal_of,
)
from duecourse.api.request import read_identity
from duecourse.api.router import Api, needs, role_of
from duecourse.errors import InvalidSettings
from duecourse.settings import parse

SHOP = "arn:aws:iam::123456789012:role/shop"
NAME = "DUECOURSE_TENANT_FROM"


def rule(text: str) -> Any:
    return parse({NAME: text}).tenant_from


def table(**grants: Any) -> Any:
    return rule(f"principals:{json.dumps(grants)}")


@pytest.mark.parametrize("claim", ["org_id", "https://example.com/org", "custom:tenant"])
def test_a_rule_names_a_claim(claim: str) -> None:
    assert rule(f"claim:{claim}") == ClaimRule(claim)


def test_a_rule_is_a_table_of_principals() -> None:
    found = table(**{SHOP: "acme", "*": {"tenant": "-", "roles": ["worker"]}, "sub-7": {"roles": ["operator"]}})
    assert found == TableRule(
        {
            SHOP: Grant("acme", frozenset({Role.CALLER})),
            "*": Grant("-", frozenset({Role.WORKER})),
            "sub-7": Grant("", frozenset({Role.OPERATOR})),
        }
    )


@pytest.mark.parametrize(
    ("text", "field", "problem"),
    [
        ("org_id", "", "must be claim:<name of a claim>, or principals:"),
        ("header:x-tenant", "", "must be claim:<name of a claim>, or principals:"),
        ("claim:", "", "must name a claim"),
        ("claim:a b", "", "must name a claim"),
        ("principals:", "", "must be JSON such as"),
        ("principals:{}", "", "with at least one principal"),
        ("principals:[]", "", "with at least one principal"),
        ('principals:{"a": "b", "a": "c"}', ".a", "stands twice"),
        ('principals:{"a": 1}', ".a", "must be a tenant, or an object"),
        ('principals:{"a": "b c"}', ".a.tenant", "must be 1 to 64 characters"),
        ('principals:{"a": ""}', ".a.tenant", "must be 1 to 64 characters"),
        ('principals:{"a": {"tenant": null}}', ".a.tenant", "must be 1 to 64 characters"),
        ('principals:{"a": {}}', ".a.tenant", "is required, unless the roles have operator"),
        ('principals:{"a": {"roles": ["worker"]}}', ".a.tenant", "is required, unless the roles have operator"),
        ('principals:{"a": {"tenant": "b", "roles": []}}', ".a.roles", "caller, worker, operator"),
        ('principals:{"a": {"tenant": "b", "roles": "caller"}}', ".a.roles", "caller, worker, operator"),
        ('principals:{"a": {"tenant": "b", "roles": [["caller"]]}}', ".a.roles", "caller, worker, operator"),
        ('principals:{"a": {"tenant": "b", "role": "x"}}', ".a.role", "is not a known field"),
        ('principals:{"a b": "c"}', ".a b", "must be the ARN of a role or user"),
        ('principals:{"a*": "c"}', ".a*", "must be the ARN of a role or user"),
        (
            'principals:{"arn:aws:iam::123456789012:role/*": "c"}',
            ".arn:aws:iam::123456789012:role/*",
            "must be the ARN",
        ),
        ('principals:{"arn:aws:s3:::bucket": "c"}', ".arn:aws:s3:::bucket", "must be the ARN of a role or user"),
        (
            'principals:{"arn:aws:sts::123456789012:assumed-role/a/b": "c"}',
            ".arn:aws:sts::123456789012:assumed-role/a/b",
            "is a session",
        ),
    ],
)
def test_a_wrong_rule_is_told_by_name(text: str, field: str, problem: str) -> None:
    with pytest.raises(InvalidSettings) as caught:
        rule(text)
    [found] = caught.value.problems
    assert found.field == NAME + field
    assert problem in found.problem


def test_two_names_of_one_role_are_one_too_many() -> None:
    with pytest.raises(InvalidSettings, match="names the same role as an earlier one"):
        table(**{SHOP: "acme", "arn:aws:iam::123456789012:role/service/shop": "globex"})


def test_a_rule_and_a_header_for_tenants_exclude_each_other() -> None:
    with pytest.raises(InvalidSettings, match="DUECOURSE_TENANT_HEADER: must be empty beside DUECOURSE_TENANT_FROM"):
        parse({NAME: "claim:org_id", "DUECOURSE_TENANT_HEADER": "X-Tenant"})


@pytest.mark.parametrize(
    ("arn", "known"),
    [
        ("arn:aws:sts::123456789012:assumed-role/shop/i-0a", SHOP),
        ("arn:aws:sts::123456789012:assumed-role/shop/role/other", SHOP),
        ("arn:aws:iam::123456789012:role/a/b/shop", SHOP),
        (SHOP, SHOP),
        ("arn:aws-cn:sts::123456789012:assumed-role/shop/x", "arn:aws-cn:iam::123456789012:role/shop"),
        ("arn:aws:sts::210987654321:assumed-role/shop/x", "arn:aws:iam::210987654321:role/shop"),
        ("arn:aws:iam::123456789012:user/shop", "arn:aws:iam::123456789012:user/shop"),
        ("arn:aws:iam::123456789012:root", "arn:aws:iam::123456789012:root"),
    ],
)
def test_a_session_is_known_as_its_role(arn: str, known: str) -> None:
    assert canonical_arn(arn) == known


@pytest.mark.parametrize(
    ("identity", "tenant"),
    [
        (Identity(SHOP), "acme"),
        (Identity("arn:aws:sts::123456789012:assumed-role/shop/x"), "acme"),
        (Identity("arn:aws:sts::210987654321:assumed-role/shop/x"), ""),
        (Identity("arn:aws:iam::123456789012:user/shop"), ""),
        (Identity("sub-7", {"sub": "sub-7"}), "globex"),
        (Identity(SHOP, {"sub": SHOP}), ""),
        (Identity("sub-7"), ""),
        (Identity("", {}), ""),
    ],
)
def test_a_table_knows_principals_by_their_arns_and_tokens_by_their_subjects(identity: Identity, tenant: str) -> None:
    assert table(**{SHOP: "acme", "sub-7": "globex"}).grant(identity).tenant == tenant


def test_an_entry_for_all_others_is_for_those_without_one() -> None:
    found = table(**{SHOP: "acme", "*": "shared"})
    assert [found.grant(Identity(name)).tenant for name in (SHOP, "arn:aws:iam::1:user/x")] == ["acme", "shared"]


@pytest.mark.parametrize(
    ("claims", "roles"),
    [
        ({}, ""),
        ({"duecourse_roles": "caller"}, "caller"),
        ({"duecourse_roles": "[caller worker]"}, "caller worker"),
        ({"duecourse_roles": ["caller", "operator", 7]}, "caller operator"),
        ({"duecourse_roles": "[admin]"}, ""),
        ({"duecourse_roles": "operators"}, ""),
        ({"duecourse_roles": "x operator"}, ""),
        ({"duecourse_roles": "caller operator"}, ""),
        ({"duecourse_roles": " operator"}, ""),
        ({"duecourse_roles": ["x operator"]}, ""),
        ({"duecourse_roles": "[x operator]"}, ""),
        ({"duecourse_roles": "[operator"}, ""),
        ({"duecourse_roles": "[]"}, ""),
        ({"scp": ["x duecourse/operator"]}, ""),
        ({"duecourse_roles": 7}, ""),
        ({"scope": "openid duecourse/caller"}, "caller"),
        ({"scope": "duecourse:worker other"}, "worker"),
        ({"scp": "[duecourse.operator]"}, "operator"),
        ({"scope": "operator caller"}, ""),
        ({"scope": "notduecourse/operator duecourse/operator/x xduecourse:operator"}, ""),
        ({"roles": "operator", "groups": "duecourse/operator", "permissions": "duecourse:operator"}, ""),
    ],
)
def test_a_token_has_the_roles_of_its_claim_and_its_scopes(claims: dict[str, Any], roles: str) -> None:
    grant = ClaimRule("org_id").grant(Identity("x", {"org_id": "acme", **claims}))
    assert grant == Grant("acme", frozenset(map(Role, roles.split())))


def test_a_signed_request_has_no_claims() -> None:
    assert ClaimRule("org_id").grant(Identity(SHOP)) == NO_GRANT


@pytest.mark.parametrize("given", [None, "", "x", ["jwt"], 5, {}, {"jwt": []}, {"iam": "arn:aws:iam::1:role/ops"}])
def test_what_is_no_authorizer_names_nobody(given: object) -> None:
    assert read_identity(given) is None


@pytest.mark.parametrize(
    ("subject", "name"), [("shop\x1b[31m\n\u202ex", "shop?[31m??x"), ("", "a token without a subject")]
)
def test_a_callers_name_is_one_that_logs_and_terminals_can_take(subject: str, name: str) -> None:
    assert principal_of(Identity(subject, {}), ClaimRule("tenant")).name == name


def test_a_route_that_names_no_role_needs_an_operator() -> None:
    """Its author may have forgotten it; every route of ours names one."""
    made = Api()

    @made.get("/forgotten")
    def forgotten() -> None: ...

    @made.get("/named")
    @needs(Role.CALLER)
    def named() -> None: ...

    @made.get("/open")
    @needs(None)
    def without() -> None: ...

    roles = {route.openapi_path: role_of(route) for route in made.every_route()}
    assert roles == {"/forgotten": Role.OPERATOR, "/named": Role.CALLER, "/open": None}
