"""A tenant's requests see and change what is its own, on every route."""

from collections.abc import Iterable
from functools import partial
from typing import Any

import pytest

from duecourse import Client, errors
from duecourse.app import PROCESS
from duecourse.ledger.embedded.ledger import EmbeddedLedger
from duecourse.ledger.task import DEFAULT_TENANT, Shard, Status
from duecourse.reminders.send import Letter, Message
from duecourse.settings import Settings
from duecourse_local.harness.environment import TENANTS
from tests.support.kinds import Web, answer
from tests.support.ledger import LEASE_MS
from tests.support.requests import MEETING, WEBHOOK, Answer, ask, wrong
from tests.support.wired import Wire
from tests.template.test_policies import template

TASK = WEBHOOK | {"id": "a"}
NOW = TASK | {"delay": 0}


@pytest.fixture(autouse=True)
def told_by_header(ledger: EmbeddedLedger, wire: Wire) -> None:
    """As in the harness."""
    wire(settings=Settings(tenant_header=TENANTS["DUECOURSE_TENANT_HEADER"]), ledger=ledger)


def of(tenant: str, method: str, path: str, body: Any = None, query: str = "") -> Answer:
    return ask(method, path, body, query=query, x_tenant=tenant)


def claimed(ledger: EmbeddedLedger, queue: str = "default") -> dict[str, str]:
    """The tokens of what is due, by tenant."""
    return {task.tenant: task.token for task in ledger.claim(Shard(queue), 10, lease_ms=LEASE_MS).tasks}


def test_one_id_is_two_tenants_two_tasks(ledger: EmbeddedLedger) -> None:
    assert of("acme", "POST", "/tasks", TASK).status == 201
    assert of("globex", "POST", "/tasks", TASK | {"kind": "poll", "payload": POLLING}).status == 201
    assert ask("POST", "/tasks", TASK).status == 201
    assert [of(tenant, "GET", "/tasks/a").body["task"]["kind"] for tenant in ("acme", "globex")] == ["webhook", "poll"]
    assert {task.tenant for t in ("acme", "globex", DEFAULT_TENANT) if (task := ledger.get("default", "a", t))} == {
        "acme",
        "globex",
        DEFAULT_TENANT,
    }


POLLING = {"url": "https://api.example.com/exports/42", "interval": "PT30S", "until": "done"}


def test_a_batch_is_its_tenants(ledger: EmbeddedLedger) -> None:
    assert of("acme", "POST", "/tasks/batch", {"tasks": [TASK]}).body["tasks"][0]["created"]
    assert ledger.get("default", "a", "acme")
    assert of("globex", "POST", "/tasks/batch", {"tasks": [TASK]}).body["tasks"][0]["created"]


@pytest.mark.parametrize(
    ("method", "path", "body"),
    [("GET", "/tasks/a", None), ("PATCH", "/tasks/a", {"delay": 1}), ("DELETE", "/tasks/a", None)],
)
def test_anothers_task_is_not_there(method: str, path: str, body: Any, ledger: EmbeddedLedger) -> None:
    of("acme", "POST", "/tasks", TASK)
    before = ledger.get("default", "a", "acme")
    for force in ("", "force") if method == "DELETE" else ("",):
        assert of("globex", method, path, body, query=force).status == 404
        assert ask(method, path, body, query=force).status == 404
    assert ledger.get("default", "a", "acme") == before
    assert of("acme", method, path, body).status in {200, 204}


def test_two_tenants_same_query_is_two_and_each_sees_its_own(ledger: EmbeddedLedger, wire: Wire) -> None:
    web = Web(answer(200, {"done": "acme's"}), answer(200, {"done": "globex's"}))
    wire(settings=PROCESS.app().settings, ledger=ledger, http=web)
    told = {tenant: of(tenant, "POST", "/queries", POLLING).body for tenant in ("acme", "globex")}
    assert [seen["data"]["done"] for seen in told.values()] == ["acme's", "globex's"]
    path = f"/queries/{told['acme']['task']}"
    assert {tenant: of(tenant, "GET", path).body for tenant in told} == told
    assert ask("GET", path).status == 404


@pytest.mark.parametrize(
    ("verb", "body", "status"),
    [("settle", {"outcome": "done"}, 200), ("extend", {"for": 60}, 200), ("save", {"state": {"page": 1}}, 204)],
)
def test_anothers_lease_is_not_touched(verb: str, body: dict[str, Any], status: int, ledger: EmbeddedLedger) -> None:
    of("acme", "POST", "/tasks", NOW)
    token = claimed(ledger)["acme"]
    before = ledger.get("default", "a", "acme")
    assert of("globex", "POST", f"/tasks/a/{verb}", body | {"token": token}).status == 404
    of("globex", "POST", "/tasks", NOW)
    assert of("globex", "POST", f"/tasks/a/{verb}", body | {"token": token}).status == 409
    assert ledger.get("default", "a", "acme") == before
    assert of("acme", "POST", f"/tasks/a/{verb}", body | {"token": token}).status == status


def test_a_message_is_written_in_its_tenants_own_turn(ledger: EmbeddedLedger, wire: Wire) -> None:
    writers: list[str] = []

    def noting(letters: Iterable[Letter]) -> list[Message]:
        tenants = [letter.tenant for letter in letters]
        writers.extend(tenants)
        return [Message("", "Standup", "soon")] * len(tenants)

    wire(settings=PROCESS.app().settings, ledger=ledger, writer=noting)
    later = {"starts_at": "2099-03-02T09:00:00Z"}
    for method, path, body in (
        ("POST", "/reminders/preview", MEETING),
        ("POST", "/reminders", MEETING),
        ("POST", "/reminders/preview", {"id": "standup"}),
        ("PATCH", "/reminders/standup", later),
    ):
        writers.clear()
        assert of("acme", method, path, body).status in {200, 201}
        assert set(writers) == {"acme"}, (method, path)


@pytest.mark.parametrize(
    ("method", "body"), [("GET", None), ("PATCH", {"starts_at": "2099-03-02T09:00:00Z"}), ("DELETE", None)]
)
def test_anothers_reminder_is_not_there(method: str, body: Any, ledger: EmbeddedLedger) -> None:
    assert of("acme", "POST", "/reminders", MEETING).status == 201
    assert of("acme", "POST", "/reminders", MEETING).status == 200
    assert of("acme", "POST", "/reminders", MEETING | {"subject": "Another"}).status == 409
    before = ledger.group("reminders", "standup", "acme")
    assert of("globex", method, "/reminders/standup", body).status == 404
    assert of("globex", "POST", "/reminders", MEETING | {"subject": "Theirs"}).status == 201
    assert ledger.group("reminders", "standup", "acme") == before
    assert of("acme", method, "/reminders/standup", body).status in {200, 204}
    theirs = ledger.group("reminders", "standup", "globex")
    assert [(task.status, task.payload["subject"]) for task in theirs] == [(Status.SCHEDULED, "Theirs")]


def test_a_key_is_its_tenants(ledger: EmbeddedLedger) -> None:
    keyed = {"idempotency_key": '"one"'}
    made = {
        tenant: ask("POST", "/tasks", WEBHOOK, x_tenant=tenant, **keyed).body["task"]["id"]
        for tenant in ("acme", "globex", "acme")
    }
    assert made["acme"] != made["globex"]
    assert ledger.get("default", made["globex"], "acme") is None


@pytest.mark.parametrize("name", ["", "a/b", "a b", "{x}", "x" * 65, "é"])
def test_a_tenant_has_a_name_as_others_have(name: str, ledger: EmbeddedLedger) -> None:
    for method, path, body in [
        ("POST", "/tasks", TASK),
        ("POST", "/tasks/batch", {"tasks": [TASK]}),
        ("GET", "/tasks/a", None),
        ("POST", "/reminders", MEETING),
        ("POST", "/reminders/preview", MEETING),
        ("GET", "/queues", None),
        ("GET", "/queues/default", None),
        ("PATCH", "/queues/default", {"paused": True}),
    ]:
        problem = "must be 1 to 64 characters of A-Z a-z 0-9 . _ : @ -"
        assert wrong(of(name, method, path, body)) == {"X-Tenant": problem}
    assert ledger.shards() == []


def test_deployed_the_header_says_nothing(ledger: EmbeddedLedger, wire: Wire) -> None:
    variables = template()["Globals"]["Function"]["Environment"]["Variables"]
    assert "DUECOURSE_TENANT_HEADER" not in str(template()), "who may call may not choose whose tasks they see"
    assert "DUECOURSE_STORE" in variables
    wire(ledger=ledger)
    of("acme", "POST", "/tasks", TASK)
    assert ledger.get("default", "a", "acme") is None
    assert ledger.get("default", "a", DEFAULT_TENANT)


def test_a_client_is_one_tenants(ledger: EmbeddedLedger, wire: Wire) -> None:
    wire(settings=Settings(targets={"report": "lambda:Report"}), ledger=ledger)
    acme, globex = Client.from_env(tenant="acme"), Client.from_env(tenant="globex")
    acme.add(kind="report", payload={}, id="a", delay=60)
    acme.add_many([{"kind": "report", "payload": {}, "id": "b", "delay": 60}])
    for verb in (globex.get, globex.cancel, globex.replay, partial(globex.move, delay=1)):
        for id in ("a", "b"):
            with pytest.raises(errors.TaskNotFound, match=f"^Queue default has no task {id} of tenant globex.$"):
                verb(id)
    assert acme.move("a", delay=1).tenant == "acme"
    acme.cancel("b")
    with pytest.raises(errors.InvalidInput, match="tenant: must be 1 to 64"):
        Client.from_env(tenant="a/b")
