"""Credentials under harmless names: headers such as `X-Pin`, and what anybody knows by its form, in every place."""

import json
from collections.abc import Iterator
from typing import Any

import pytest

from duecourse.app import App
from duecourse.ledger.api_query import queue_of
from duecourse.ledger.embedded.ledger import EmbeddedLedger
from duecourse.ledger.keys import keys_of
from duecourse.ledger.task import Shard
from duecourse.settings import Settings
from duecourse_local.harness.options import LOOPBACK
from tests.support.engine import ample
from tests.support.http_server import Reply, Server, answering
from tests.support.requests import ask
from tests.support.wired import wired_with

HEADERS = {
    "X-Pin": "4711-hidden",
    "X-Ticket": "hidden-1",
    "X-Sid": "hidden-2",
    "X-Access-Code": "hidden-3",
    "X-Otp": "hidden",
}
FORMS = {
    "stripe": "sk_live_51H8hiddenhidden", "github": "ghp_hidden2F292c6912E7710c838347Ae178",
    "slack": "xoxb-123456789012-hidden", "aws": "AKIAIOSFODNN7HIDDENX",
    "jwt": "eyJhbGciOiJhidden.eyJzdWIiOiIxMhidden.c2ln",
    "pem": "-----BEGIN RSA PRIVATE KEY-----\nMIIhidden\n-----END RSA PRIVATE KEY-----",
}  # fmt: skip
IN_HEADERS = {name: value for name, value in FORMS.items() if "\n" not in value}


@pytest.fixture
def server() -> Iterator[Server]:
    with answering(lambda _asked: Reply(400, b"no")) as server:
        yield server


@pytest.fixture
def app(ledger: EmbeddedLedger) -> Iterator[App]:
    with wired_with(Settings(egress_allow=LOOPBACK), ledger=ledger) as app:
        yield app


def requests(url: str) -> list[dict[str, Any]]:
    """Each place in turn: headers by name, headers by value, the path, the body as a field and within a text."""
    named = [{"url": f"{url}/x", "headers": {name: value}} for name, value in HEADERS.items()]
    valued = [{"url": f"{url}/x", "headers": {"x-trace": f"a {value}"}} for value in IN_HEADERS.values()]
    in_path = [{"url": f"{url}/x/{value}"} for value in IN_HEADERS.values()]
    in_body = [{"url": f"{url}/x", "body": body} for one in FORMS.values() for body in ({"note": one}, f"see {one}")]
    return [*named, *valued, *in_path, *in_body]


def records_text(ledger: EmbeddedLedger, queue: str) -> str:
    """All that the ledger keeps of a queue's tasks."""
    return repr(ledger.client.hgetall(keys_of("duecourse", Shard(queue)).tasks))


def is_hidden(text: str) -> bool:
    return "hidden" not in text.lower()


@pytest.mark.parametrize("kind", ["poll", "webhook"])
def test_a_task_is_kept_and_shown_without_it_and_called_with_it(
    app: App, ledger: EmbeddedLedger, server: Server, kind: str
) -> None:
    more = {"interval": 5, "until": "@"} if kind == "poll" else {}
    wanted = requests(server.url)
    once = {"retry": {"jitter": False}}  # a wait that is drawn may be none at all
    answers = [ask("POST", "/tasks", {"kind": kind, "payload": {**one, **more}, **once}) for one in wanted]
    assert {answer.status for answer in answers} == {201}
    views = [*answers, ask("GET", "/tasks", query="limit=100")]
    assert [view.text for view in views if not is_hidden(view.text)] == []
    assert "•••" in json.dumps(views[-1].body, ensure_ascii=False)
    assert is_hidden(records_text(ledger, "default"))
    while app.drainer.drain([Shard()], ample).claimed:
        pass
    assert is_hidden(records_text(ledger, "default"))
    got = [json.dumps([asked.path, dict(asked.headers), asked.body.decode()]) for asked in server.asked]
    assert len(got) == len(wanted)
    assert [one for one in got if is_hidden(one)] == []


def test_a_query_is_kept_and_shown_without_it_and_called_with_it(
    app: App, ledger: EmbeddedLedger, server: Server
) -> None:
    for one in requests(server.url):
        answer = ask("POST", "/queries", {**one, "interval": 5, "until": "@"})
        assert answer.status == 502
        queue = queue_of(answer.body["task"])
        shown = ask("GET", f"/queries/{answer.body['task']}")
        assert is_hidden(answer.text + shown.text + records_text(ledger, queue))
    assert len(server.asked) == len(requests(server.url))
    assert app.queues


def test_a_notification_goes_to_an_address_with_it_that_nobody_is_shown(
    app: App, ledger: EmbeddedLedger, server: Server
) -> None:
    notify = {"url": f"{server.url}/told/{FORMS['slack']}"}
    body = {"id": "a", "kind": "webhook", "payload": {"url": server.url}, "retry": {"max_attempts": 1}}
    added = ask("POST", "/tasks", {**body, "notify_done": notify})
    assert is_hidden(added.text + records_text(ledger, "default"))
    while app.drainer.drain([Shard()], ample).claimed:
        pass
    assert server.asked[-1].path == f"/told/{FORMS['slack']}"
    assert is_hidden(ask("GET", "/tasks", query="limit=100").text)
    assert is_hidden(records_text(ledger, "default"))
