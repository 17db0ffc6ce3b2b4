"""Credentials of a caller: the one who is called gets them, and nobody who looks."""

import json
from collections.abc import Iterator
from typing import Any

import pytest

from duecourse.app import App
from duecourse.ledger.embedded.ledger import EmbeddedLedger
from duecourse.ledger.keys import requests_keys
from duecourse.ledger.task import Ending, Shard
from duecourse.settings import Settings
from duecourse_local.harness.options import LOOPBACK
from tests.support.engine import ample
from tests.support.http_server import Reply, answering
from tests.support.ledger import claim, settle
from tests.support.requests import MEETING, ask
from tests.support.wired import wired_with

KEY = '"8e03978e-40d5-43e8-bc93-6894a57f9324"'
HEADERS = {"Authorization": "Bearer HIDDEN", "Cookie": "HIDDEN", "x-api-key": "HIDDEN", "accept": "a/b"}


@pytest.fixture(autouse=True)
def app(ledger: EmbeddedLedger) -> Iterator[App]:
    """Parts that call for real, on the same ledger."""
    with wired_with(Settings(egress_allow=LOOPBACK), ledger=ledger) as app:
        yield app


def poll(url: str, **fields: Any) -> dict[str, Any]:
    payload = {"url": f"{url}/x?key=HIDDEN", "headers": HEADERS, "interval": 5, "until": "ready"}
    return {"id": "a", "kind": "poll", "payload": payload, **fields}


def seen(*paths: str) -> str:
    """All that is shown at these paths."""
    answers = [ask("GET", *path.split("?")[:1], query=path.partition("?")[2]) for path in paths]
    assert all(answer.status == 200 for answer in answers)
    return json.dumps([answer.body for answer in answers], ensure_ascii=False)


VIEWS = ("/tasks/a", "/tasks", "/tasks?state=scheduled", "/tasks/a/why")


def test_a_task_is_worked_with_its_credentials_and_shown_without_them(app: App) -> None:
    with answering(lambda _: Reply(500, b"no")) as server:
        notify = {"url": f"{server.url}/told?token=HIDDEN", "include": ["payload"]}
        # With the usual backoff, a random part of a second, a slow drain meets the task again and calls twice.
        later = {"backoff": "PT1H", "jitter": False}
        added = ask("POST", "/tasks", poll(server.url, notify_done=notify, retry=later))
        assert app.drainer.drain([Shard()], ample).retried == 1
    (asked,) = server.asked
    assert (asked.path, asked.headers["authorization"]) == ("/x?key=HIDDEN", "Bearer HIDDEN")
    moved = ask("PATCH", "/tasks/a", {"delay": 60})
    assert (added.status, moved.status) == (201, 200)
    shown = seen(*VIEWS)
    assert "answered 500" in shown
    assert "HIDDEN" not in added.text + moved.text + shown
    task = ask("GET", "/tasks/a").body["task"]
    assert task["payload"]["headers"] == dict.fromkeys(HEADERS, "•••") | {"accept": "a/b"}
    assert task["payload"]["url"].endswith("/x?key=•••")
    assert task["notify_done"]["url"].endswith("/told?token=•••")
    assert task["notify_done"]["include"] == ["payload"]


def test_a_replayed_answer_is_masked_as_the_first_was(ledger: EmbeddedLedger) -> None:
    body = poll("http://127.0.0.1:9", delay=60)
    first, again = (ask("POST", "/tasks", body, idempotency_key=KEY) for _ in range(2))
    assert (first.status, first) == (201, again)
    assert "HIDDEN" not in first.text
    assert "HIDDEN" not in ledger.get("default", "a").payload_json  # type: ignore[union-attr]


def test_an_error_that_tells_of_credentials_is_kept_and_shown_without_them(ledger: EmbeddedLedger) -> None:
    ask("POST", "/tasks", poll("http://127.0.0.1:9"))
    (task,) = claim(ledger)
    error = "401 for https://a:HIDDEN@b.example/?c=HIDDEN with Authorization: Bearer HIDDEN"
    body = {"token": task.token, "outcome": "retry", "error": error}
    assert ask("POST", "/tasks/a/settle", body).status == 200
    shown = seen(*VIEWS)
    assert "401 for https://•••@b.example" in shown
    assert "HIDDEN" not in shown


def test_a_query_is_shown_without_its_credentials_and_answered_in_full() -> None:
    found = {"ready": True, "download": "https://files.example.com/x?signature=GIVEN"}
    with answering(lambda _: Reply(body=json.dumps(found).encode())) as server:
        payload = poll(server.url)["payload"]
        answer = ask("POST", "/queries", payload)
    assert (answer.status, answer.body["data"]) == (200, found), "what an API answered is what was asked for"
    id, queue = answer.body["task"], answer.body["queue"]
    shown = seen(f"/queries/{id}", f"/tasks/{id}?queue={queue}", f"/tasks?queue={queue}")
    assert "HIDDEN" not in shown
    assert "signature=GIVEN" in shown


def test_a_query_that_fails_tells_nothing_of_them() -> None:
    with answering(lambda _: Reply(403, b"no")) as server:
        answer = ask("POST", "/queries", poll(server.url)["payload"])
    assert answer.status == 502
    assert "HIDDEN" not in answer.text


def test_a_reminder_is_shown_without_them_and_written_out_as_it_is_read() -> None:
    hook = {"name": "Ada", "webhook": "https://hooks.example.com/in?key=HIDDEN"}
    more = {"recipients": [hook], "data": {"password": "HIDDEN", "link": "https://meet.example.com/?pwd=HIDDEN"}}
    link = "Join https://meet.example.com/?pwd=HIDDEN"
    body = MEETING | more | {"subject": link, "message": link, "html": link}
    assert ask("POST", "/reminders", body).status == 201
    shown = seen("/reminders/standup", "/tasks?queue=reminders")
    assert "HIDDEN" not in shown
    (message,) = ask("POST", "/reminders/preview", {"id": "standup"}).body["messages"]
    assert message["recipient"]["webhook"] == "https://hooks.example.com/in?key=•••"
    assert message["text"] == "Join https://meet.example.com/?pwd=HIDDEN", "this is what Ada reads"


def test_a_preview_is_answered_and_never_kept(ledger: EmbeddedLedger) -> None:
    body = MEETING | {"data": {"password": "HIDDEN"}, "message": "{{ data.password }}"}
    for _ in range(2):
        assert "HIDDEN" in ask("POST", "/reminders/preview", body, idempotency_key=KEY).text
    assert ledger.client.hgetall(requests_keys("duecourse")[0]) == {}


def test_a_notification_that_waits_is_shown_without_its_address(ledger: EmbeddedLedger) -> None:
    notify = {"url": "http://127.0.0.1:9/told?token=HIDDEN"}
    ask("POST", "/tasks", poll("http://127.0.0.1:9", notify_done=notify))
    settle(ledger, *claim(ledger), Ending.DROP, detail="no")
    shown = seen("/tasks")
    assert "/told?token=•••" in shown
    assert "HIDDEN" not in shown
