"""Requests that no route takes: 404 with a near path, 405 with the methods of the path, HEAD and OPTIONS."""

import json
from typing import Any

import pytest

from duecourse.ledger.embedded.ledger import EmbeddedLedger
from duecourse.settings import Settings, read_access
from tests.support.functions import invoke, saved
from tests.support.ledger import bring
from tests.support.requests import WEBHOOK, ask
from tests.support.wired import Wire


def raw(method: str, path: str, body: str | None = None, **headers: str) -> dict[str, Any]:
    """What the function answers, as it stands."""
    event = saved("enqueue_http/unknown_route")
    event["requestContext"]["http"] |= {"method": method, "path": path}
    event["headers"] |= {name.replace("_", "-"): value for name, value in headers.items()}
    answer: dict[str, Any] = invoke("enqueue_http", event | {"rawPath": path, "body": body})
    return answer


@pytest.mark.parametrize(
    ("path", "near"),
    [
        ("/task", "/tasks"),
        ("/queue/default", "/queues/{queue}"),
        ("/tasks/a/wy", "/tasks/{id}/why"),
        ("/reminder/preview", "/reminders/preview"),
        ("/openapi", "/openapi.json"),
        ("/", ""),
        ("/nothing/at/all", ""),
        ("/" + "t" * 9_000, ""),
        ("/tasks/", "/tasks"),
        ("//tasks", "/tasks"),
    ],
)
def test_an_unknown_path_is_not_found_and_a_near_one_is_named(path: str, near: str) -> None:
    answer = ask("GET", path)
    assert (answer.status, answer.headers["Content-Type"]) == (404, "application/problem+json")
    assert answer.body["type"] == "urn:duecourse:problem:no-such-route"
    assert answer.body["detail"].startswith(f"Nothing answers to GET {path[:200]}")
    assert answer.body["detail"].endswith(f": did you mean {near}?" if near else ".")
    assert len(answer.text) < 1_000


@pytest.mark.parametrize("method", ["POST", "PATCH", "PUT", "DELETE"])
@pytest.mark.parametrize("kind", ["", "text/plain", "application/x-www-form-urlencoded", "application/json"])
def test_an_unknown_path_is_not_found_whatever_the_body_is(method: str, kind: str) -> None:
    answer = ask(method, "/nothing", "a=1", content_type=kind)
    assert (answer.status, answer.body["type"]) == (404, "urn:duecourse:problem:no-such-route")


ALLOWED = {
    "/tasks": "GET, HEAD, OPTIONS, POST",
    "/tasks/a": "DELETE, GET, HEAD, OPTIONS, PATCH",
    "/tasks/batch": "OPTIONS, POST",
    "/tasks/a/why": "GET, HEAD, OPTIONS",
    "/queues/default": "GET, HEAD, OPTIONS, PATCH",
    "/queues/default/purge": "OPTIONS, POST",
    "/health": "GET, HEAD, OPTIONS",
    "/docs": "GET, HEAD, OPTIONS",
}
"""Methods of some paths."""


@pytest.mark.parametrize("path", ALLOWED)
def test_another_method_is_not_allowed_and_those_of_the_path_are_named(path: str) -> None:
    served = {"GET", "HEAD", "PATCH", "DELETE"} if path == "/tasks/batch" else set()  # as a task with this id
    for method in {"GET", "POST", "PUT", "PATCH", "DELETE", "TRACE", "QUERY"} - {*ALLOWED[path].split(", "), *served}:
        answer = ask(method, path, "a=1", content_type="text/plain")
        assert (answer.status, answer.headers["Allow"]) == (405, ALLOWED[path])
        assert answer.headers["Content-Type"] == "application/problem+json"
        assert answer.body["type"] == "urn:duecourse:problem:method-not-allowed"
        assert answer.body["detail"] == f"Nothing answers to {method} {path}: it takes {ALLOWED[path]}."


@pytest.mark.parametrize("path", ALLOWED)
def test_options_names_the_methods_and_offers_no_other_origin_anything(path: str) -> None:
    answer = raw("OPTIONS", path, origin="https://example.com", access_control_request_method="POST")
    assert (answer["statusCode"], answer["headers"]["Allow"], answer["body"] or "") == (204, ALLOWED[path], "")
    assert not [name for name in answer["headers"] if name.lower().startswith("access-control")]
    assert raw("OPTIONS", "/nothing")["statusCode"] == 404


@pytest.mark.parametrize("accept", ["identity", "gzip"])
@pytest.mark.parametrize(
    "path", ["/tasks", "/tasks/a", "/tasks/a/why", "/queues", "/queues/nope", "/health", "/docs", "/nope"]
)
def test_head_is_answered_as_get_without_the_body(path: str, accept: str, ledger: EmbeddedLedger) -> None:
    bring(ledger, "scheduled")
    got, head = (raw(method, path, accept_encoding=accept) for method in ("GET", "HEAD"))
    length = head["headers"].pop("Content-Length")
    named = {"statusCode", "headers"}
    assert (head["body"], head["isBase64Encoded"]) == ("", False)
    assert head["statusCode"] == got["statusCode"]
    assert path == "/nope" or {name: head[name] for name in named} == {name: got[name] for name in named}
    if path not in {"/nope", "/tasks/a/why"}:  # they say HEAD, or how long it is still to wait
        sent = got["body"].encode()
        assert int(length) == (len(sent) if not got["isBase64Encoded"] else len(sent) * 3 // 4 - sent.count(b"="))


def test_head_needs_the_role_of_get(wire: Wire) -> None:
    wire(
        Settings(tenant_from=read_access('principals:{"*": {"tenant": "acme", "roles": ["worker"]}}')),
        ledger=EmbeddedLedger(),
    )
    assert (raw("HEAD", "/tasks")["statusCode"], raw("HEAD", "/tasks/batch")["statusCode"]) == (403, 403)
    assert (raw("HEAD", "/health")["statusCode"], raw("HEAD", "/nope")["statusCode"]) == (200, 404)


def test_a_wrong_method_takes_no_key(ledger: EmbeddedLedger) -> None:
    keyed = {"content_type": "application/json", "idempotency_key": '"k"'}
    assert raw("PUT", "/tasks", json.dumps(WEBHOOK), **keyed)["statusCode"] == 405
    assert raw("POST", "/tasks", json.dumps(WEBHOOK), **keyed)["statusCode"] == 201
    assert len(ledger.shards()) == 1
