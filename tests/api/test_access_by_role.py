"""Every route for every role, on things of its own tenant and of another; a route without an entry fails."""

import pytest

from duecourse.api.authorization import Role
from duecourse.ledger.embedded.ledger import EmbeddedLedger
from tests.support.callers import UNKNOWN, CallAs, Caller, Scene, scene, things
from tests.support.functions import load
from tests.support.requests import Answer
from tests.support.routes_and_roles import CASES, Case
from tests.support.stores import Beginning

ACME = Caller("acme", (Role.CALLER, Role.WORKER))
NEEDING = {route: case for route, case in CASES.items() if case.role}
OF_TENANTS = {route: case for route, case in NEEDING.items() if case.foreign}


BEGINNING = Beginning[Scene]()


@pytest.fixture
def own(ledger: EmbeddedLedger, call_as: CallAs) -> Scene:
    return BEGINNING.given(ledger, lambda: scene(ledger, call_as, ACME, "acme"))


def asked(call_as: CallAs, who: Caller, route: str, of: Scene, query: str = "") -> Answer:
    asking = CASES[route].ask(of)
    queries = "&".join(filter(None, (asking.query, query)))
    return call_as(who, route.partition(" ")[0], asking.path, asking.body, queries)


def of_another(case: Case) -> Caller:
    """A caller of another tenant, with the role that the route needs."""
    return Caller("globex", (case.role or Role.CALLER,))


def test_every_route_of_the_function_has_an_entry() -> None:
    api = load("enqueue_http").api
    routes = {f"{route.method} {route.openapi_path}" for route in api.every_route()}
    assert routes == CASES.keys()


@pytest.mark.parametrize("route", CASES)
def test_whoever_has_the_role_does_it_to_its_own(call_as: CallAs, own: Scene, route: str) -> None:
    role = CASES[route].role
    who = Caller("acme", (role,) if role else ())
    assert asked(call_as, who, route, own).status == CASES[route].own


@pytest.mark.parametrize("role", [*Role, None])
@pytest.mark.parametrize("route", NEEDING)
def test_whoever_lacks_the_role_is_told_which_and_changes_nothing(
    ledger: EmbeddedLedger, call_as: CallAs, own: Scene, route: str, role: Role | None
) -> None:
    needed = CASES[route].role
    before = things(ledger, own, "acme")
    answer = asked(call_as, Caller("acme", (role,) if role else ()), route, own)
    if role in (needed, Role.OPERATOR):
        assert answer.status == CASES[route].own
        return
    assert (answer.status, answer.body["type"], answer.body["role"]) == (
        403,
        "urn:duecourse:problem:role-missing",
        needed,
    )
    assert things(ledger, own, "acme") == before


@pytest.mark.parametrize("route", OF_TENANTS)
def test_the_things_of_another_tenant_are_unknown_and_stay_as_they_are(
    ledger: EmbeddedLedger, call_as: CallAs, own: Scene, route: str
) -> None:
    case, before = CASES[route], things(ledger, own, "acme")
    answer = asked(call_as, of_another(case), route, own)
    assert answer.status == case.foreign
    assert things(ledger, own, "acme") == before
    if case.foreign == 404:
        unknown = asked(call_as, of_another(case), route, UNKNOWN)
        assert without(answer, own) == without(unknown, UNKNOWN)


@pytest.mark.parametrize("route", ["GET /tasks", "GET /queues"])
def test_a_list_has_nothing_of_another_tenant(call_as: CallAs, own: Scene, route: str) -> None:
    assert own.queue in asked(call_as, ACME, route, own).text
    seen = asked(call_as, Caller("globex"), route, own).text
    assert not [name for name in (*own.ids, own.queue, "acme") if name in seen]


def test_a_replay_of_the_dead_takes_none_of_another_tenant(call_as: CallAs, own: Scene) -> None:
    route = "POST /queues/{queue}/dead/replay"
    assert asked(call_as, Caller("globex"), route, own).body["replayed"] == 0
    assert asked(call_as, ACME, route, own).body["replayed"] == 1


@pytest.mark.parametrize("route", OF_TENANTS)
def test_only_an_operator_names_another_tenant(ledger: EmbeddedLedger, call_as: CallAs, own: Scene, route: str) -> None:
    before = things(ledger, own, "acme")
    refused = asked(call_as, of_another(CASES[route]), route, own, "tenant=acme")
    assert (refused.status, refused.body["type"]) == (403, "urn:duecourse:problem:foreign-tenant")
    assert refused == asked(call_as, of_another(CASES[route]), route, UNKNOWN, "tenant=nobody")
    assert things(ledger, own, "acme") == before
    operator = Caller("", (Role.OPERATOR,))
    assert asked(call_as, operator, route, own, "tenant=acme").status == CASES[route].own


def without(answer: Answer, of: Scene) -> str:
    """An answer's text without the ids that were asked for."""
    text = answer.text
    for name in sorted(of, key=len, reverse=True):
        text = text.replace(name, "…")
    return text
