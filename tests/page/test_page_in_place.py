"""The page of a client: the HTTP API on the client's ledger, served in place to an operator."""

import asyncio
import json
import logging
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

import duecourse
from duecourse import Client
from duecourse.app import App
from duecourse.in_place import ApiRequest, InPlaceApi
from duecourse.ledger.operations.ledger import Ledger
from duecourse.page import app as page_of
from duecourse.page.client_api import ClientApi
from duecourse.page.server import Page
from duecourse.settings import parse
from tests.support.asgi import Answered, request
from tests.support.ledger import LATER_MS, new
from tests.support.page import FRONT_END
from tests.support.requests import MEETING, WEBHOOK, ask
from tests.support.wired import Wire

LATER = {"delay": "PT1H"}


@pytest.fixture
def client() -> Iterator[Client]:
    with Client("memory://", targets={"report": "worker"}) as client:
        yield client


def send(page: Page, method: str, address: str, body: Any = None, **headers: str) -> Answered:
    given = {**FRONT_END, **{name.replace("_", "-"): value for name, value in headers.items()}}
    return request(page, method, f"/api{address}", given, b"" if body is None else json.dumps(body).encode())


@pytest.mark.parametrize(
    ("method", "path", "query", "body"),
    [
        ("GET", "/tasks/order-7", "", None),
        ("GET", "/tasks/order-7/why", "", None),
        ("GET", "/tasks/ordre-7", "", None),
        ("GET", "/tasks", "limit=1", None),
        ("GET", "/tasks", "stat=dead&limit=101", None),
        ("GET", "/tasks/order%2D7", "", None),
        ("GET", "/queues", "", None),
        ("GET", "/health", "", None),
        ("GET", "/nothing", "", None),
        ("PUT", "/tasks", "", None),
        ("POST", "/tasks", "", "{"),
        ("POST", "/tasks", "", {"kind": "webhook"}),
        ("POST", "/reminders/preview", "", MEETING),
        ("DELETE", "/tasks/order-8", "", None),
        ("OPTIONS", "/tasks", "", None),
    ],
)
def test_an_answer_in_place_is_the_one_of_the_http_function(
    app: App, method: str, path: str, query: str, body: Any
) -> None:
    app.ledger.add([new("order-7", delay_ms=LATER_MS), new("order-8", delay_ms=LATER_MS)])
    over_http = ask(method, path, body, query=query, content_type="application/json")
    app.ledger.add([new("order-8", delay_ms=LATER_MS)])  # which the first one may have deleted
    text = b"" if body is None else (body if isinstance(body, str) else json.dumps(body)).encode()
    pairs = dict(pair.split("=") for pair in query.split("&") if pair)
    api = InPlaceApi(app, "here", "page")
    in_place = api.send(ApiRequest(method, path, pairs, text, {"content-type": "application/json"}))
    assert in_place.status == over_http.status
    assert in_place.body.decode() == over_http.text
    kept = ("content-type", "allow", "retry-after")
    named = {name.lower(): value for name, value in over_http.headers.items()}
    assert {name: in_place.headers.get(name) for name in kept} == {name: named.get(name) for name in kept}


def test_a_task_is_added_shown_and_cancelled_through_the_page(client: Client) -> None:
    page = page_of(client)
    added = send(page, "POST", "/tasks", {"id": "r1", "kind": "report", "payload": {"month": 10}, **LATER})
    assert (added.status, client.get("r1").payload) == (201, {"month": 10})
    assert send(page, "GET", "/tasks/r1/why").document["timeline"][0]["by"] == "page"
    assert send(page, "DELETE", "/tasks/r1").status == 204
    assert client.list(state="scheduled").tasks == []


def test_an_asynchronous_client_has_a_page_too() -> None:
    async def ids() -> list[str]:
        async with duecourse.AsyncClient("memory://", targets={"report": "worker"}) as client:
            await client.add("report", {}, id="r1", delay="PT1H")
            answer = await asyncio.to_thread(send, page_of(client), "GET", "/tasks")
            return [task["id"] for task in answer.document["tasks"]]

    assert asyncio.run(ids()) == ["r1"]


def test_the_session_names_the_clients_store_without_its_password() -> None:
    with Client("redis://app:secret@ledger.example:6379/3", namespace="shop") as client:
        session = send(page_of(client), "GET", "/-/session").document
    assert session["place"] == "store redis://ledger.example:6379/3 (namespace shop)"
    assert session["tenant"] is None


def test_the_page_of_a_tenants_client_has_that_tenants_tasks_alone() -> None:
    fields = {"payload": {}, "delay": "PT1H"}
    with (
        Client("memory://", targets={"report": "worker"}, namespace="of-tenants") as everyone,
        Client("memory://", targets={"report": "worker"}, namespace="of-tenants", tenant="acme") as acme,
        Client("memory://", targets={"report": "worker"}, namespace="of-tenants", tenant="globex") as globex,
    ):
        for client in (everyone, acme, globex):
            client.add("report", id="r1", **fields)
        acme.add("report", id="r2", **fields)
        page, operators = page_of(acme), page_of(everyone)
        assert send(page, "GET", "/-/session").document["tenant"] == "acme"
        assert ids_of(send(page, "GET", "/tasks")) == {"r1", "r2"}
        assert ids_of(send(page, "GET", "/tasks?tenant=acme")) == {"r1", "r2"}
        for tenant in ("globex", "-", ""):
            answer = send(page, "DELETE", f"/tasks/r1?tenant={tenant}")
            assert (answer.status, answer.document["type"]) == (403, "urn:duecourse:problem:foreign-tenant")
        assert ids_of(send(operators, "GET", "/tasks")) == {"r1"}
        assert ids_of(send(operators, "GET", "/tasks?tenant=acme")) == {"r1", "r2"}
        [queue] = send(page, "GET", "/queues").document["queues"]
        assert queue["tasks"]["scheduled"] == 2
        [queue] = send(operators, "GET", "/queues").document["queues"]
        assert queue["tasks"]["scheduled"] == 4


def ids_of(answer: Answered) -> set[str]:
    return {task["id"] for task in answer.document["tasks"]}


RULES = [{"DUECOURSE_TENANT_FROM": "claim:org_id"}, {"DUECOURSE_TENANT_HEADER": "X-Tenant"}]


@pytest.mark.parametrize("rule", RULES, ids=str)
def test_rules_for_callers_of_http_do_not_bind_the_page(
    wire: Wire, ledger: Ledger, rule: dict[str, str], caplog: pytest.LogCaptureFixture
) -> None:
    wire(parse(rule), ledger=ledger)
    with Client.from_env() as client, caplog.at_level(logging.WARNING):
        page = page_of(client)
        assert send(page, "POST", "/tasks", WEBHOOK).status == 201
        assert send(page, "PATCH", "/queues/default", {"paused": True}).status == 200
        assert send(page, "GET", "/tasks", x_tenant="acme").document["tasks"]
    assert caplog.records == []


def test_a_page_without_a_rule_for_callers_warns_of_nothing_and_prints_nothing(
    client: Client, caplog: pytest.LogCaptureFixture, capsys: pytest.CaptureFixture[str]
) -> None:
    with caplog.at_level(logging.WARNING):
        assert send(page_of(client), "POST", "/tasks", WEBHOOK).status == 201
        assert send(page_of(client), "POST", "/tasks/batch", {"tasks": [WEBHOOK]}).status == 200
        assert send(page_of(client), "POST", "/reminders", MEETING).status in {201, 422}
    assert (caplog.records, capsys.readouterr()) == ([], ("", ""))


def test_a_request_with_a_key_is_done_once(client: Client) -> None:
    page = page_of(client)
    answers = [send(page, "POST", "/tasks", {**WEBHOOK, **LATER}, idempotency_key='"k1"') for _ in range(2)]
    assert answers[0].document["task"]["id"] == answers[1].document["task"]["id"]
    assert len(client.list().tasks) == 1


@pytest.fixture
def often_switched() -> Iterator[None]:
    """Threads take turns after so few steps that whatever two of them share is seen."""
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    yield
    sys.setswitchinterval(before)


@pytest.mark.usefixtures("often_switched")
def test_requests_at_the_same_time_get_their_own_answers(client: Client) -> None:
    for number in range(8):
        client.add("report", {}, id=f"r{number}", delay="PT1H")
    api = ClientApi(client)

    def ask_for(number: int) -> bool:
        answers = [api.send(ApiRequest("GET", f"/tasks/r{number}", {"queue": "default"})) for _ in range(30)]
        return {answer.document["task"]["id"] for answer in answers} == {f"r{number}"}

    with ThreadPoolExecutor(8) as threads:
        assert all(threads.map(ask_for, range(8)))


def test_the_page_of_a_closed_client_says_so(client: Client) -> None:
    page = page_of(client)
    client.close()
    answer = send(page, "GET", "/queues")
    assert (answer.status, answer.document["type"]) == (503, "urn:duecourse:problem:page-unavailable")
    assert "closed" in answer.document["detail"]


def test_a_store_that_is_away_is_the_apis_own_503() -> None:
    with Client("redis://127.0.0.1:9/0") as client:
        answer = send(page_of(client), "GET", "/queues")
    assert (answer.status, answer.headers["retry-after"]) == (503, "1")
    assert answer.document["type"] == "urn:duecourse:problem:store-unavailable"


def test_a_read_only_page_of_a_client_changes_nothing(client: Client) -> None:
    page = page_of(client, read_only=True)
    assert send(page, "POST", "/tasks", WEBHOOK).status == 403
    assert send(page, "GET", "/tasks").document["tasks"] == []
