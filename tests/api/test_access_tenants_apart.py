"""Two tenants on one ledger: nothing that one does meets, changes or betrays what the other has."""

import json
import logging
from typing import Any

import pytest

from duecourse import Client
from duecourse.api.authorization import Role
from duecourse.ledger.embedded.ledger import EmbeddedLedger
from duecourse.ledger.task import DEFAULT_TENANT, Shard
from duecourse.settings import Settings, parse
from tests.support.callers import CallAs, Caller, scene, session, token
from tests.support.kinds import Web, answer
from tests.support.requests import MEETING, WEBHOOK, ask, wrong
from tests.support.wired import Wire

ACME, GLOBEX, OPERATOR = Caller("acme"), Caller("globex"), Caller("", (Role.OPERATOR,))
TASK = WEBHOOK | {"id": "a"}
HTTP = "http:acme-caller"


@pytest.mark.parametrize("mode", ["keep", "replace", "reject", "debounce"])
def test_an_id_that_another_tenant_has_is_free(ledger: EmbeddedLedger, call_as: CallAs, mode: str) -> None:
    assert call_as(ACME, "POST", "/tasks", TASK).status == 201
    before = ledger.get("default", "a", "acme")
    added = call_as(GLOBEX, "POST", "/tasks", TASK | {"on_duplicate": mode})
    assert (added.status, added.body["created"]) == (201, True)
    assert ledger.get("default", "a", "acme") == before


def test_an_id_in_a_batch_that_another_tenant_has_is_free(call_as: CallAs) -> None:
    assert call_as(ACME, "POST", "/tasks", TASK).status == 201
    [added] = call_as(GLOBEX, "POST", "/tasks/batch", {"tasks": [TASK]}).body["tasks"]
    assert added["created"]


def test_a_key_of_another_tenant_is_free_and_its_answer_is_not_told(call_as: CallAs) -> None:
    key = {"idempotency_key": '"one"'}
    first = call_as(ACME, "POST", "/tasks", WEBHOOK, **key)
    other = call_as(GLOBEX, "POST", "/tasks", WEBHOOK | {"delay": 7}, **key)
    assert (first.status, other.status) == (201, 201)
    assert first.body["task"]["id"] != other.body["task"]["id"]
    assert call_as(ACME, "POST", "/tasks", WEBHOOK, **key).body == first.body


def test_a_saved_answer_is_not_told_to_whoever_lost_the_role(call_as: CallAs) -> None:
    key = {"idempotency_key": '"one"'}
    assert call_as(ACME, "POST", "/tasks", WEBHOOK, **key).status == 201
    assert call_as(ACME._replace(roles=(Role.WORKER,)), "POST", "/tasks", WEBHOOK, **key).status == 403


def test_a_reminder_and_a_query_of_another_tenant_are_not_shared(call_as: CallAs, ledger: EmbeddedLedger) -> None:
    asked = {"url": "https://api.example.com/", "interval": "PT1H", "until": "status == 'ok'"}
    first, other = (call_as(who, "POST", "/queries", asked) for who in (ACME, GLOBEX))
    assert first.body["task"] == other.body["task"], "the id is a hash of what is asked"
    assert {ledger.get(first.body["queue"], first.body["task"], who.tenant) is None for who in (ACME, GLOBEX)} == {
        False
    }
    assert [call_as(who, "POST", "/reminders", MEETING).status for who in (ACME, GLOBEX)] == [201, 201]
    assert call_as(GLOBEX, "DELETE", "/reminders/standup").status == 204
    states = [task["state"] for task in call_as(ACME, "GET", "/reminders/standup").body["tasks"]]
    assert states == ["scheduled"]


def test_a_tenant_sees_its_own_numbers_of_a_shared_queue(ledger: EmbeddedLedger, call_as: CallAs) -> None:
    for who, count in ((ACME, 3), (GLOBEX, 2)):
        for number in range(count):
            assert call_as(who, "POST", "/tasks", WEBHOOK | {"id": f"t-{number}", "delay": 0}).status == 201
    ledger.claim(Shard(), 4, lease_ms=60_000)
    running = {who: call_as(who, "GET", "/queues/default").body["queue"] for who in (ACME, GLOBEX)}
    assert sum(one["tasks"]["leased"] for one in running.values()) == 4
    for who, count in ((ACME, 3), (GLOBEX, 2)):
        tasks = running[who]["tasks"]
        assert tasks["scheduled"] + tasks["leased"] == count
        assert [part["running"] for part in running[who]["split"]] == [tasks["leased"]]
        assert running[who]["lateness"] == {"p50": None, "p99": None}
        assert "lapsed" not in running[who]
    asked = {"kind": "webhook", "payload": WEBHOOK["payload"], "repeat": {"every": "PT1H"}}
    assert call_as(ACME, "POST", "/schedules", asked).status == 201
    whole = call_as(OPERATOR, "GET", "/queues/default").body["queue"]
    assert (whole["tasks"]["scheduled"], whole["tasks"]["leased"], whole["schedules"]["count"]) == (1, 4, 1)
    assert call_as(OPERATOR, "GET", "/queues/default", query="tenant=acme").body["queue"] == running[ACME]


def test_an_operator_sees_whose_the_dead_are_and_replays_them(ledger: EmbeddedLedger, call_as: CallAs) -> None:
    of = scene(ledger, call_as, ACME, "acme")
    path = f"/queues/{of.queue}"
    assert call_as(OPERATOR, "GET", path).body["queue"]["dead_by_tenant"] == {"acme": 1}
    assert "dead_by_tenant" not in call_as(ACME, "GET", path).body["queue"]
    assert "dead_by_tenant" not in call_as(OPERATOR, "GET", path, query="tenant=acme").body["queue"]
    assert call_as(OPERATOR, "POST", f"{path}/dead/replay", {}, "tenant=acme").body["replayed"] == 1


def test_a_tenant_cannot_pause_a_queue_and_an_operator_can(ledger: EmbeddedLedger, call_as: CallAs) -> None:
    queue = scene(ledger, call_as, ACME, "acme").queue
    assert call_as(GLOBEX, "PATCH", f"/queues/{queue}", {"paused": True}).body["role"] == "operator"
    assert ledger.settings_of([queue])[0].paused is False
    assert call_as(OPERATOR, "PATCH", f"/queues/{queue}", {"paused": True}).status == 200
    assert ledger.settings_of([queue])[0].paused is True


def test_the_caller_is_in_the_history_of_its_task(ledger: EmbeddedLedger, call_as: CallAs) -> None:
    of = scene(ledger, call_as, ACME, "acme")
    at = f"queue={of.queue}"
    operator = OPERATOR._replace(tenant="")
    assert call_as(ACME, "PATCH", f"/tasks/{of.waiting}", {"delay": 60}, at).status == 200
    assert call_as(operator, "PATCH", f"/tasks/{of.waiting}", {"delay": 70}, f"{at}&tenant=acme").status == 200
    assert call_as(ACME, "POST", f"/tasks/{of.dead}/replay", None, at).status == 200
    assert call_as(ACME, "DELETE", f"/tasks/{of.dead}", None, at).status == 204
    assert sources(call_as, of.waiting, at)[-2:] == [HTTP, "http:none-operator"]
    assert sources(call_as, of.dead, at)[-2:] == [HTTP, HTTP]
    assert call_as(ACME, "POST", "/tasks", TASK).status == 201
    assert sources(call_as, "a", "") == [HTTP]
    [message] = call_as(ACME, "GET", f"/reminders/{of.reminder}").body["tasks"]
    assert sources(call_as, message["id"], "queue=reminders") == ["reminder:acme-caller"]


def test_the_whole_name_of_the_longest_session_is_in_the_history(wire: Wire, ledger: EmbeddedLedger) -> None:
    wire(settings=table({"*": "acme"}), ledger=ledger)
    longest = session("r" * 64, "s" * 64)
    assert ask("POST", "/tasks", TASK, authorizer=longest).status == 201
    [added] = ask("GET", "/tasks/a/why", authorizer=longest).body["timeline"]
    assert added["by"] == f"http:{longest['iam']['userArn']}"


@pytest.mark.usefixtures("call_as")
def test_a_subject_of_any_characters_is_in_the_history_without_those_that_move_a_cursor() -> None:
    def added_by(subject: str) -> Any:
        caller = token(ACME, sub=subject)
        ask("POST", "/tasks", TASK | {"on_duplicate": "replace"}, authorizer=caller)
        ask("PATCH", "/tasks/a", {"delay": 5}, authorizer=caller)
        return ask("GET", "/tasks/a/why", authorizer=caller).body["timeline"][-1]["by"]

    assert added_by("auth0|5f\0\x1b[2J\u202e") == "http:auth0|5f??[2J?"
    assert added_by("ä" * 300).startswith("http:ää")
    assert added_by("ops@example.com") == "http:ops@example.com"


def sources(call_as: CallAs, id: str, query: str) -> list[str]:
    return [one["by"] for one in call_as(ACME, "GET", f"/tasks/{id}/why", None, query).body["timeline"] if "by" in one]


@pytest.mark.parametrize("field", ["tenant", "owner"])
def test_a_body_names_no_tenant(call_as: CallAs, field: str) -> None:
    assert field in wrong(call_as(ACME, "POST", "/tasks", TASK | {field: "globex"}))


@pytest.mark.parametrize("name", ["x-tenant", "x-duecourse-tenant", "tenant"])
def test_a_header_names_no_tenant(ledger: EmbeddedLedger, call_as: CallAs, name: str) -> None:
    assert call_as(ACME, "POST", "/tasks", TASK, **{name.replace("-", "_"): "globex"}).status == 201
    assert ledger.get("default", "a", "acme")
    assert ledger.get("default", "a", "globex") is None


@pytest.mark.parametrize("named", ["a/b", "", "a,b", "x" * 65])
def test_an_operator_names_a_tenant_that_can_be(call_as: CallAs, named: str) -> None:
    assert "tenant" in wrong(call_as(OPERATOR, "GET", "/tasks", query=f"tenant={named}"))


NOBODY: list[dict[str, Any]] = [
    {},
    {"iam": {"accessKey": "ASIAEXAMPLE"}},
    {"iam": None, "jwt": None},
    {"jwt": {"claims": None}},
    {"lambda": {"org_id": "acme", "duecourse_roles": "operator"}},
    {"claims": {"org_id": "acme", "duecourse_roles": "operator"}},
]
"""What `authorizer` says where no gateway of the kinds that are known has verified anything."""


@pytest.mark.parametrize("authorizer", NOBODY)
@pytest.mark.parametrize("rule", ["claim:org_id", 'principals:{"*": {"tenant": "acme", "roles": ["operator"]}}'])
def test_a_caller_whom_no_gateway_verified_may_do_nothing(wire: Wire, authorizer: Any, rule: str) -> None:
    wire(settings=parse({"DUECOURSE_TENANT_FROM": rule}))
    refused = ask("GET", "/tasks", authorizer=authorizer)
    assert (refused.status, refused.body["type"]) == (403, "urn:duecourse:problem:role-missing")


@pytest.mark.parametrize("tenant", ["", "-", "a/b", "x" * 65, "[acme]", "*", "a\nb", " acme"])
def test_a_token_whose_claim_is_no_tenant_may_do_nothing(call_as: CallAs, tenant: str) -> None:
    refused = call_as(Caller(tenant), "GET", "/tasks")
    assert (refused.status, refused.body["type"]) == (403, "urn:duecourse:problem:no-tenant")


def test_a_principal_outside_the_table_may_do_nothing(wire: Wire, ledger: EmbeddedLedger) -> None:
    wire(settings=table({arn("role/shop"): "acme"}), ledger=ledger)
    assert ask("GET", "/tasks", authorizer=session("shop")).status == 200
    assert ask("GET", "/tasks", authorizer=session("shop-2")).status == 403
    assert ask("GET", "/tasks", authorizer=token(Caller("acme"), sub=arn("role/shop"))).status == 403


def test_whoever_serves_every_tenant_names_one(wire: Wire, ledger: EmbeddedLedger) -> None:
    wire(settings=table({arn("role/backend"): {"tenant": "*"}}), ledger=ledger)
    backend = session("backend")
    assert ask("POST", "/tasks", TASK, query="tenant=globex", authorizer=backend).status == 201
    assert ask("POST", "/tasks", TASK, authorizer=backend).status == 201
    assert all(ledger.get("default", "a", tenant) for tenant in ("globex", DEFAULT_TENANT))
    assert ask("GET", "/queues/default", authorizer=backend, query="tenant=acme").status == 404
    assert ask("PATCH", "/queues/default", {}, authorizer=backend).status == 403


def test_a_query_in_the_name_of_a_caller_limits_its_host_once(wire: Wire, ledger: EmbeddedLedger) -> None:
    """Each caller's verbs know what those of the others have set."""
    app = wire(
        settings=parse({"DUECOURSE_TENANT_FROM": "claim:org_id"}), ledger=ledger, http=Web(*[answer(200, 1)] * 2)
    )
    asked = {"url": "https://api.example.com/", "interval": "PT1H", "until": "`true`"}
    for who in (ACME, GLOBEX):
        assert ask("POST", "/queries", asked, authorizer=token(who)).status == 200
    assert list(app.queries._remembered) == ["query:api.example.com"]


def test_a_client_in_python_is_trusted_with_any_tenant(call_as: CallAs) -> None:
    Client.from_env("acme").add(id="a", kind="webhook", payload=WEBHOOK["payload"], delay=60)
    assert call_as(ACME, "GET", "/tasks/a").status == 200
    assert sources(call_as, "a", "") == ["client"]


def test_without_a_rule_every_caller_may_do_everything_to_one_tenant(wire: Wire, ledger: EmbeddedLedger) -> None:
    wire(settings=Settings(), ledger=ledger)
    callers = [session("shop"), session("other"), token(Caller("acme", ())), {}]
    assert [ask("POST", "/tasks", TASK, authorizer=one).status for one in callers] == [201, 200, 200, 200]
    assert ask("PATCH", "/queues/default", {"paused": True}, authorizer=session("other")).status == 200
    assert ask("GET", "/tasks/a/why").body["timeline"][0]["by"] == "http"
    assert "tenant" in wrong(ask("GET", "/tasks", query="tenant=acme"))


def test_without_a_rule_one_warning_a_start_says_so(
    wire: Wire, ledger: EmbeddedLedger, caplog: pytest.LogCaptureFixture
) -> None:
    wire(settings=Settings(), ledger=ledger)
    assert {ask("GET", "/health").status, ask("GET", "/tasks").status, ask("GET", "/queues").status} == {200}
    warned = [one for one in caplog.records if "DUECOURSE_TENANT_FROM" in one.getMessage()]
    assert [one.levelno for one in warned] == [logging.WARNING]


@pytest.mark.parametrize("variable", ["DUECOURSE_TENANT_FROM=claim:org_id", "DUECOURSE_TENANT_HEADER=X-Tenant"])
def test_no_warning_where_tenants_are_told_apart(
    wire: Wire, ledger: EmbeddedLedger, variable: str, caplog: pytest.LogCaptureFixture
) -> None:
    wire(settings=parse(dict([variable.split("=")])), ledger=ledger)
    assert ask("GET", "/health").status == 200
    assert caplog.records == []


def table(grants: dict[str, Any]) -> Settings:
    return parse({"DUECOURSE_TENANT_FROM": f"principals:{json.dumps(grants)}"})


def arn(resource: str) -> str:
    return f"arn:aws:iam::123456789012:{resource}"
