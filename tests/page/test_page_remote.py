"""The page on an API behind a URL: requests with the operator's own proof, answers as they came."""

import json
from collections.abc import Callable
from itertools import count

import pytest

from duecourse.page.server import Page
from duecourse_local.cli.remote_api import RemoteApi
from tests.support.asgi import Answered, request
from tests.support.http_server import ReceivedRequest, Reply, answering
from tests.support.page import FRONT_END

PROBLEM = {"type": "urn:duecourse:problem:task-not-found", "title": "No such task.", "status": 404, "detail": "none"}
KEYS = {"AWS_ACCESS_KEY_ID": "AKIAEXAMPLE", "AWS_SECRET_ACCESS_KEY": "s", "AWS_SESSION_TOKEN": "t"}


def asked_through(
    answer: Callable[[ReceivedRequest], Reply], method: str, address: str, body: bytes = b"", **given: object
) -> tuple[Answered, list[ReceivedRequest]]:
    """What the page answers, and what the API was asked."""
    with answering(answer) as server:
        api = RemoteApi(server.url, **{"token": None, "tenant": None, "keys": {}, **given})  # type: ignore[arg-type]
        headers = {**FRONT_END, "cookie": "duecourse_page=secret", "idempotency-key": '"k1"'}
        return request(Page(api), method, f"/api{address}", headers, body), server.asked


def test_a_request_goes_to_the_same_path_with_its_query_and_body() -> None:
    answer, [asked] = asked_through(
        lambda _: Reply(201, b'{"task":  {}}', {"content-type": "application/json"}),
        "POST",
        "/tasks/a%2Fb%20c/move?queue=a%26b&force",
        b'{"delay": 1e2}',
    )
    assert (asked.method, asked.path) == ("POST", "/tasks/a%2Fb%20c/move?queue=a%26b&force=")
    assert asked.body == b'{"delay": 1e2}'
    assert (asked.headers["content-type"], asked.headers["idempotency-key"]) == ("application/json", '"k1"')
    assert (answer.status, answer.body) == (201, b'{"task":  {}}')


def test_no_cookie_and_no_name_of_the_page_goes_to_the_api() -> None:
    _, [asked] = asked_through(lambda _: Reply(200, b"{}"), "GET", "/queues", tenant="acme")
    assert {"cookie", "origin", "referer", "x-duecourse-page"}.isdisjoint(asked.headers)
    assert asked.path == "/queues?tenant=acme"


def test_each_request_is_signed_with_the_operators_credentials() -> None:
    _, asked = asked_through(lambda _: Reply(200, b"{}"), "GET", "/queues", keys=KEYS)
    assert asked[0].headers["authorization"].startswith("AWS4-HMAC-SHA256 Credential=AKIAEXAMPLE/")


def test_a_token_that_is_made_for_each_request_does_not_grow_old() -> None:
    numbers = count(1)
    proofs = [
        asked_through(lambda _: Reply(200, b"{}"), "GET", "/queues", token=lambda: f"token-{next(numbers)}")[1][0]
        for _ in range(2)
    ]
    assert [one.headers["authorization"] for one in proofs] == ["Bearer token-1", "Bearer token-2"]


@pytest.mark.parametrize("status", [404, 409, 422, 503])
def test_a_problem_of_the_api_comes_back_unchanged(status: int) -> None:
    text = json.dumps({**PROBLEM, "status": status}, indent=2).encode()
    headers = {"content-type": "application/problem+json", "retry-after": "3"}
    answer, _ = asked_through(lambda _: Reply(status, text, headers), "GET", "/tasks/a")
    assert (answer.status, answer.body) == (status, text)
    assert {name: answer.headers[name] for name in headers} == headers


def test_a_message_of_api_gateway_becomes_a_problem_with_advice() -> None:
    answer, _ = asked_through(lambda _: Reply(403, b'{"message":"Forbidden"}'), "GET", "/queues")
    assert (answer.status, answer.headers["content-type"]) == (403, "application/problem+json")
    assert answer.document["detail"].startswith("Forbidden (403 of API http://127.0.0.1:")
    assert answer.document["detail"].endswith("set AWS credentials or give --token)")


@pytest.mark.parametrize(
    ("reply", "reason"),
    [
        (Reply(200, b"<html>"), "is not the HTTP API of duecourse"),
        (Reply(404, b'{"detail": "Not Found"}'), "no duecourse API there"),
        (Reply(500, b'{"message":"Internal Server Error"}'), "answers 500: Internal Server Error"),
        (Reply(302, b"", {"location": "https://login.example/"}), "it answers 302 without its JSON"),
    ],
    ids=["a page", "another API", "a function that failed", "a login"],
)
def test_what_is_no_answer_of_the_api_is_503_with_the_reason(reply: Reply, reason: str) -> None:
    answer, asked = asked_through(lambda _: reply, "GET", "/queues")
    assert (answer.status, answer.document["type"]) == (503, "urn:duecourse:problem:page-unavailable")
    assert reason in answer.document["detail"]
    assert len(asked) == 1


def test_an_api_that_does_not_listen_is_unavailable() -> None:
    api = RemoteApi("http://127.0.0.1:9", None, None, {})
    answer = request(Page(api), "GET", "/api/queues")
    assert (answer.status, answer.headers["retry-after"]) == (503, "1")
    assert "API http://127.0.0.1:9 (unsigned) does not answer" in answer.document["detail"]


def test_a_tenant_goes_in_a_header_where_the_api_has_no_rule_for_it() -> None:
    unknown = {"errors": [{"field": "tenant", "problem": "is not a parameter of this route; known: none"}]}

    def answer(asked: ReceivedRequest) -> Reply:
        return Reply(422, json.dumps(unknown).encode()) if "tenant=" in asked.path else Reply(200, b"{}")

    answered, asked = asked_through(answer, "GET", "/tasks?limit=1&tenant=acme")
    assert answered.status == 200
    assert [one.path for one in asked] == ["/tasks?tenant=acme&limit=1", "/tasks?limit=1"]
    assert asked[1].headers["x-tenant"] == "acme"
