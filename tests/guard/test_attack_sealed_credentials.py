"""Credentials that callers send inline: whom they are for gets them, and nobody who reads anything else.

Anything is what the HTTP API answers, what a third party or the dead target is notified of, each log, and the bytes of
Redis's files.
"""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest
import redis
import urllib3

from duecourse.ledger.task import Ending, NewTask, Settlement, Shard
from duecourse_local.harness.options import Options
from duecourse_local.harness.stack import Stack
from tests.support.api import Api
from tests.support.emulator import local_stack
from tests.support.http_server import ReceivedRequest, Reply, Server, answering
from tests.support.level_ledger import level_ledger
from tests.support.matrix import MATRIX
from tests.support.wait import until
from tests.support.wired import wired_with

BEARER, KEY, COOKIE, FIELD, PATH = "bearer-c4d1", "key-9f2e77", "cookie-51ab", "field-77ab1c", "told-3e5f01"
SECRETS = (BEARER, KEY, COOKIE, FIELD, PATH)
HEADERS = {"Authorization": f"Bearer {BEARER}", "Cookie": f"session={COOKIE}", "Accept": "application/json"}


class Scene(NamedTuple):
    """A stack, its API, where its files are, and a server that is called and notified."""

    stack: Stack
    api: Api
    folder: Path
    server: Server

    def called(self, path: str) -> list[ReceivedRequest]:
        return [asked for asked in list(self.server.asked) if asked.path.startswith(path)]

    def poll(self, id: str, path: str = "/x", **fields: Any) -> dict[str, Any]:
        """A poll with credentials in each place."""
        body = {"order": 7, "client_secret": FIELD}
        payload = {"url": f"{self.server.url}{path}?key={KEY}", "headers": HEADERS, "body": body, "method": "POST"}
        payload |= {"interval": 1, "until": "ready"}
        return {"id": id, "kind": "poll", "payload": payload, **fields}

    def notify(self) -> dict[str, Any]:
        return {"url": f"{self.server.url}/told?token={PATH}", "include": ["payload", "result"]}

    def messages(self) -> str:
        """All that lies in the queue of deaths."""
        sqs = self.stack.session().client("sqs")
        url = sqs.get_queue_url(QueueName="dead")["QueueUrl"]
        found = sqs.receive_message(QueueUrl=url, MaxNumberOfMessages=10).get("Messages", [])
        return "".join(message["Body"] for message in found)

    def files(self) -> dict[str, bytes]:
        """The bytes of Redis's files, an RDB of now among them, and of the logs; no key is among them."""
        with redis.Redis.from_url(self.stack.store) as client:
            client.config_set("rdbcompression", "no")  # a text that is packed is found by no search
            client.save()
        return {
            str(path.relative_to(self.folder)): path.read_bytes()
            for part in ("redis", "logs")
            for path in (self.folder / part).rglob("*")
            if path.is_file()
        }


def reply(asked: ReceivedRequest) -> Reply:
    """A receiver of notifications takes them; an API that is not ready quotes its caller, and at last rejects it."""
    if asked.path.startswith("/told"):
        return Reply(204)
    if asked.path.startswith("/ready"):
        return Reply(200, b'{"ready": true, "n": 1}')
    return Reply(403, f"no: {asked.headers.get('authorization')} {asked.path} {asked.body.decode()}".encode())


@pytest.fixture
def scene(tmp_path: Path) -> Iterator[Scene]:
    environment = {"DUECOURSE_DEAD_TARGET": "sqs:dead", "DUECOURSE_LOG_TASKS": "on"}
    with (
        answering(reply) as server,
        local_stack(Options(tick=1, state=tmp_path, environment=environment)) as stack,
        urllib3.PoolManager(retries=False, timeout=30) as http,
    ):
        stack.session().client("sqs").create_queue(QueueName="dead")
        yield Scene(stack, Api(http, stack.api), tmp_path, server)


def found_in(texts: dict[str, bytes]) -> list[tuple[str, str]]:
    """Each credential, with where it is."""
    return [(secret, name) for secret in SECRETS for name, text in texts.items() if secret.encode() in text]


def test_credentials_reach_whom_they_are_for_and_nobody_who_reads(scene: Scene) -> None:
    api = scene.api
    seen: dict[str, Any] = {
        "the answer to an add": api.post("/tasks", scene.poll("dying", notify_done=scene.notify())),
        "the answer to a batch": api.call("POST", "/tasks/batch", {"tasks": [scene.poll("later", delay=3600)]}),
        "a replacement": api.call("POST", "/tasks", scene.poll("later", delay=1800, on_duplicate="replace")),
        "a move": api.call("PATCH", "/tasks/later", {"delay": 900}),
        "a done one": api.post("/tasks", scene.poll("ready", "/ready", notify_done=scene.notify())),
        "a query": api.call(
            "POST", "/queries", {**scene.poll("")["payload"], "url": f"{scene.server.url}/q?key={KEY}"}
        ),
    }
    sqs = scene.stack.session().client("sqs")
    sqs.send_message(
        QueueUrl=sqs.get_queue_url(QueueName="IntakeMessages")["QueueUrl"],
        MessageBody=json.dumps(scene.poll("by-message", delay=3600)),
    )
    until(lambda: api.task("by-message"))
    told = until(lambda: found if len(found := scene.called("/told")) == 2 else None)
    dead = until(scene.messages)
    for path in (
        "/tasks/dying",
        "/tasks/later",
        "/tasks/by-message",
        "/tasks",
        "/tasks?state=dead",
        "/tasks/dying/why",
    ):
        seen[path] = api.call("GET", path)

    [worked] = [asked for asked in scene.called("/x") if asked.headers["authorization"] == f"Bearer {BEARER}"]
    assert (worked.path, worked.headers["cookie"]) == (f"/x?key={KEY}", f"session={COOKIE}")
    assert json.loads(worked.body)["client_secret"] == FIELD
    assert [asked.path for asked in told] == [f"/told?token={PATH}"] * 2
    assert api.task("dying")["state"] == "dead"

    shown = {name: json.dumps(value).encode() for name, value in seen.items()}
    shown |= {"a notification": told[0].body, "another": told[1].body, "the dead target": dead.encode()}
    assert b"later" in shown["a move"]
    assert "•••".encode() in told[0].body
    assert b'"result"' in told[0].body + told[1].body
    assert api.task("dying")["payload"]["url"].endswith("/x?key=•••")
    files = scene.files()
    assert any(name.endswith(".rdb") for name in files)
    assert any("appendonly" in name for name in files)
    assert any(name.startswith("logs/") for name in files)
    assert found_in(shown | files) == []
    assert b'"seal"' in b"".join(files.values())
    assert b'"seal"' not in b"".join(shown.values())
    assert b"sealed:" not in b"".join(shown.values())


@MATRIX
def test_a_reminder_is_sealed_and_written_out_as_its_recipient_reads_it(scene: Scene) -> None:
    body = {
        "id": "review",
        "subject": "Review",
        "message": "The code is {{ data.password }}, at https://meet.example.com/?pwd=" + KEY,
        "starts_at": "2099-03-02T08:00:00Z",
        "remind_before": ["PT5M"],
        "recipients": [{"name": "Ops", "webhook": f"{scene.server.url}/hook?token={PATH}"}],
        "data": {"password": FIELD},
    }
    scene.api.post("/reminders", body)
    assert scene.api.call("POST", "/reminders", body)[0] == 200, "the same again"
    shown = [scene.api.call("GET", path) for path in ("/reminders/review", "/tasks?queue=reminders")]
    assert found_in({"shown": json.dumps(shown).encode(), **scene.files()}) == []
    (message,) = scene.api.call("POST", "/reminders/preview", {"id": "review"})[1]["messages"]
    assert message["text"] == f"The code is {FIELD}, at https://meet.example.com/?pwd={KEY}"
    assert message["recipient"]["webhook"].endswith("/hook?token=•••")


def test_a_ledger_in_a_folder_has_no_credential_on_the_disk(tmp_path: Path) -> None:
    payload = {"url": f"https://api.example.com/x?key={KEY}", "headers": HEADERS, "body": {"client_secret": FIELD}}
    with level_ledger(tmp_path / "ledger") as ledger, wired_with(ledger=ledger) as app:
        notify = f"https://hooks.example.com/?token={PATH}"
        app.ledger.add(app.seals.sealed([NewTask("a", "webhook", json.dumps(payload), notify=notify)]))
        [task] = ledger.claim(Shard(), 1, lease_ms=60_000).tasks
        ledger.settle(Shard(), [Settlement.of(task, Ending.DROP, detail="why")])
    files = {path.name: path.read_bytes() for path in (tmp_path / "ledger").rglob("*") if path.is_file()}
    assert b"api.example.com" in b"".join(files.values())
    assert found_in(files) == []


@MATRIX
def test_a_stack_without_a_key_names_the_way_without_credentials(tmp_path: Path) -> None:
    with (
        local_stack(Options(tick=0, state=tmp_path, environment={"DUECOURSE_SEAL_KEY": ""})) as stack,
        urllib3.PoolManager(retries=False, timeout=30) as http,
    ):
        api = Api(http, stack.api)
        payload = {"url": f"http://127.0.0.1:9/x?key={KEY}", "headers": HEADERS, "interval": 1, "until": "ready"}
        status, answer = api.call("POST", "/tasks", {"kind": "poll", "payload": payload})
        assert status == 422
        rejected = {error["field"]: error["problem"] for error in answer["errors"]}
        assert rejected.keys() == {"payload.url", "payload.headers.Authorization", "payload.headers.Cookie"}
        assert all("`auth`" in problem for problem in rejected.values())
        status, answer = api.call("POST", "/queries", payload)
        assert (status, {error["field"] for error in answer["errors"]}) == (
            422, {"url", "headers.Authorization", "headers.Cookie"},
        )  # fmt: skip
        plain = {"url": "http://127.0.0.1:9/x", "headers": {"Accept": "a/b"}, "interval": 1, "until": "ready"}
        assert api.call("POST", "/tasks", {"kind": "poll", "payload": plain, "delay": 3600})[0] == 201
