"""The same doors over HTTP: the harness asks for the proof that a deployment asks for, and tells functions the same."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from duecourse.api.authorization import Role
from duecourse.app import PROCESS
from duecourse.ledger.operations.ledger import Ledger
from duecourse_local.errors import HarnessError
from duecourse_local.harness.aws import authorizer
from duecourse_local.harness.aws.account import ACCOUNT
from duecourse_local.harness.aws.authorizer import Auth
from duecourse_local.harness.options import Options
from duecourse_local.harness.stack import Stack
from tests.support.authenticated_stack import ACME, AuthenticatedStack, authenticated_stack
from tests.support.callers import UNKNOWN, Caller, scene, things
from tests.support.commands import in_this_process, up
from tests.support.matrix import MATRIX, in_turn
from tests.support.requests import WEBHOOK, Answer
from tests.support.routes_and_roles import CASES

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module", params=in_turn(Auth.JWT, Auth.IAM))
def stage(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[AuthenticatedStack]:
    with authenticated_stack(Auth(request.param), tmp_path_factory.mktemp("state")) as stage:
        yield stage


@pytest.fixture
def ledger(stage: AuthenticatedStack) -> Ledger:
    """The ledger of that stack, which is one of this process."""
    assert stage.api
    return PROCESS.app().ledger


def asked(stage: AuthenticatedStack, who: Caller, route: str, of: Any) -> Answer:
    asking = CASES[route].ask(of)
    body = asking.body | {"url": stage.report} if route == "POST /queries" else asking.body
    return stage.call_as(who, route.partition(" ")[0], asking.path, body, asking.query)


@pytest.mark.parametrize("route", CASES)
def test_every_route_is_for_its_role_and_its_tenant_alone(
    stage: AuthenticatedStack, ledger: Ledger, route: str
) -> None:
    case, number = CASES[route], list(CASES).index(route)
    own = scene(ledger, stage.call_as, Caller("acme"), f"{stage.auth}-{number}")
    before = things(ledger, own, "acme")
    for role in Role if case.role else ():
        if role not in (case.role, Role.OPERATOR):
            answers = [asked(stage, Caller(tenant, (role,)), route, own) for tenant in ("acme", "globex")]
            assert [(one.status, one.body["role"]) for one in answers] == [(403, case.role)] * 2
    if case.role and case.foreign:
        stranger = Caller("globex", (case.role,))
        foreign = asked(stage, stranger, route, own)
        assert foreign.status == case.foreign
        assert case.foreign != 404 or foreign.body["type"] == asked(stage, stranger, route, UNKNOWN).body["type"]
    assert things(ledger, own, "acme") == before
    mine = Caller("acme", (case.role,) if case.role else ())
    assert asked(stage, mine, route, own).status == case.own


def test_the_caller_is_in_the_history(stage: AuthenticatedStack) -> None:
    assert stage.call_as(ACME, "POST", "/tasks", WEBHOOK | {"id": "why"}).status == 201
    [added] = stage.call_as(ACME, "GET", "/tasks/why/why").body["timeline"]
    name = "acme-caller-worker"
    arn = f"arn:aws:sts::{ACCOUNT}:assumed-role/{name}/local"
    assert added["by"] == f"http:{arn if stage.auth == Auth.IAM else name}"


def test_a_header_names_no_tenant(stage: AuthenticatedStack, ledger: Ledger) -> None:
    assert stage.call_as(ACME, "POST", "/tasks", WEBHOOK | {"id": "mine"}, x_tenant="globex").status == 201
    assert ledger.get("default", "mine", "acme")
    assert ledger.get("default", "mine", "globex") is None


def test_nobody_is_let_in_without_a_proof(stage: AuthenticatedStack) -> None:
    refused = stage.send("GET", "/tasks", None, {})
    expected = (401, {"message": "Unauthorized"}) if stage.auth == Auth.JWT else (403, {"message": "Forbidden"})
    assert (refused.status, refused.body) == expected
    assert stage.send("GET", "/health", None, {}).status == refused.status
    assert stage.send("GET", "/nowhere", None, {}).status == refused.status, "the default route has the same authorizer"


def test_a_caller_without_a_role_reads_the_documents_alone(stage: AuthenticatedStack) -> None:
    nobody = Caller("acme", ())
    assert [stage.call_as(nobody, "GET", path).status for path in ("/health", "/docs", "/tasks")] == [200, 200, 403]


def test_the_keys_are_for_their_owner_alone(stage: AuthenticatedStack) -> None:
    authorizer.tokens(stage.folder), authorizer.signatures(stage.folder)
    folder = stage.folder / "auth"
    assert folder.stat().st_mode & 0o777 == 0o700
    modes = {path.name: path.stat().st_mode & 0o777 for path in folder.iterdir()}
    assert modes == dict.fromkeys(("tokens.pem", "signatures"), 0o600)


@MATRIX
def test_up_asks_for_what_it_is_told_to_and_its_functions_know_their_callers(tmp_path: Path) -> None:
    """As a user runs it: functions in processes of their own, and the rule that comes with the option."""
    state = tmp_path / "state"
    with up(state, "--auth", "jwt", "--no-bridge", "--tick", "0") as stack:
        first = AuthenticatedStack(Auth.JWT, stack.line["api"], state, "")
        assert first.send("GET", "/tasks", None, {}).status == 401
        assert first.call_as(Caller("acme"), "POST", "/tasks", WEBHOOK | {"id": "a"}).status == 201
        assert first.call_as(Caller("globex"), "GET", "/tasks/a").status == 404
        assert first.call_as(Caller("", (Role.OPERATOR,)), "GET", "/tasks/a", query="tenant=acme").status == 200
        assert first.call_as(Caller("acme"), "PATCH", "/queues/default", {"paused": True}).body["role"] == "operator"


@pytest.mark.parametrize(
    ("auth", "given", "said"),
    [
        (Auth.NONE, {"DUECOURSE_TENANT_FROM": "claim:org_id"}, "needs --auth iam or --auth jwt"),
        (
            Auth.JWT,
            {"DUECOURSE_TENANT_FROM": "", "DUECOURSE_TENANT_HEADER": "X-Tenant"},
            "with --auth jwt each caller proves its tenant",
        ),
        (Auth.IAM, {"DUECOURSE_TENANT_FROM": ""}, "turns tenants and roles off: with --auth iam, give it a rule"),
    ],
)
def test_tenants_that_do_not_fit_the_proof_are_rejected_before_anything_starts(
    auth: Auth, given: dict[str, str], said: str, tmp_path: Path
) -> None:
    options = Options(state=tmp_path / "state", auth=auth, environment=given)
    with pytest.raises(HarnessError, match=said), Stack(options):
        pass
    assert not (tmp_path / "state").exists()


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (("token", "--tenant", "a b"), "must be 1 to 64 characters"),
        (("token", "--role", "boss"), "boss"),
        (("token", "--lifetime", "soon"), "duration"),
        (("credentials", "a/b"), "must be 1 to 64 characters"),
    ],
)
def test_a_command_names_what_is_wrong(words: tuple[str, ...], told: str, tmp_path: Path) -> None:
    failed = in_this_process(*words, "--state", str(tmp_path))
    assert failed.exit_code == 2
    assert told in failed.output
    assert not (tmp_path / "auth").exists()
