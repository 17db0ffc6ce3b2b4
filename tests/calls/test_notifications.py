"""Who is told of a task's end, what is told, and how often it is tried."""

import json
from collections.abc import Iterator
from typing import Any
from urllib.parse import unquote

import pytest

from duecourse import Client
from duecourse.app import PROCESS, App
from duecourse.errors import InvalidInput, ResultsUnavailable
from duecourse.ledger.embedded.ledger import EmbeddedLedger
from duecourse.ledger.task import DEAD, MAX_PAYLOAD_BYTES, MAX_RESULT_BYTES, Ending, OnDuplicate
from duecourse.running.task_event import decode_tasks
from duecourse.settings import Settings
from duecourse.tasks.http import show_task
from duecourse_local.harness.options import LOOPBACK
from tests.support.clock import HandClock
from tests.support.engine import Broker, Lambda, Table, ample
from tests.support.http_server import Reply, answering
from tests.support.ledger import SHARD, claim, claim_one, new, settle, stored_task
from tests.support.wired import Wire, wired_with

TARGETS = {"audit": "lambda:Audit", "report": "lambda:Report"}


@pytest.fixture
def ledger(clock: HandClock) -> EmbeddedLedger:
    return EmbeddedLedger(clock, deaths=True)


@pytest.fixture
def invoker() -> Lambda:
    return Lambda()


@pytest.fixture
def broker() -> Broker:
    return Broker()


@pytest.fixture
def table() -> Table:
    return Table()


@pytest.fixture(autouse=True)
def app(ledger: EmbeddedLedger, invoker: Lambda, broker: Broker, table: Table) -> Iterator[App]:
    given = Settings(targets=TARGETS, dead_target="sqs:dead", egress_allow=LOOPBACK)
    with wired_with(given, ledger=ledger, results=table, invoker=invoker, brokers={"sqs": broker}) as app:
        yield app


def drain() -> Any:
    """Work what is due."""
    return PROCESS.app().drainer.drain([SHARD], ample)


def published(broker: Broker) -> list[Any]:
    """What the dead target got: the payloads."""
    return [event["tasks"][0]["payload"] for event in broker.queues["dead"].values()]


def test_a_url_gets_the_whole_task_in_the_manner_of_standard_webhooks(ledger: EmbeddedLedger, clock: HandClock) -> None:
    with answering(lambda _: Reply()) as server:
        task = claim_one(ledger, notify=f"{server.url}/done result", payload='{"a":1}')
        clock.advance(5)
        settle(ledger, task, Ending.DONE, result='{"ok":true}')
        assert drain().done == 1
    (asked,) = server.asked
    notification = f"a~{task.generation}.1~n"
    assert (asked.method, asked.path) == ("POST", "/done")
    assert unquote(asked.headers["webhook-id"]).startswith(f"{notification}:")
    assert asked.headers["webhook-timestamp"] == str(clock.at // 1000)
    told = json.loads(asked.body)
    assert (told["type"], told["timestamp"]) == ("task.done", "2026-09-21T14:13:20.005Z")
    data = told["data"]
    assert (data["id"], data["state"], data["tenant"], "payload" in data) == ("a", "done", "-", False)
    assert (data["result"], data["history"][0]["outcome"]) == ({"ok": True}, "done")
    assert "error" not in data
    assert ledger.get("default", notification)


@pytest.mark.parametrize("include", ["", " payload", " result", " payload result"])
def test_payload_and_result_are_told_to_those_who_asked_for_them(ledger: EmbeddedLedger, include: str) -> None:
    with answering(lambda _: Reply()) as server:
        task = claim_one(ledger, notify=f"{server.url}/done{include}", payload='{"a":1}')
        settle(ledger, task, Ending.DONE, result='{"ok":true}')
        drain()
    (asked,) = server.asked
    told = json.loads(asked.body)["data"]
    assert {name: told[name] for name in ("payload", "result") if name in told} == {
        name: value for name, value in {"payload": {"a": 1}, "result": {"ok": True}}.items() if name in include
    }


SECRET = {
    "url": "https://user:hidden@api.example.com/x?key=hidden",
    "headers": {"Authorization": "Bearer hidden", "Accept": "a/b"},
    "body": {"api_key": "hidden", "order": 7},
}
SHOWN = {
    "url": "https://•••@api.example.com/x?key=•••",
    "headers": {"Authorization": "•••", "Accept": "a/b"},
    "body": {"api_key": "•••", "order": 7},
}


def test_a_payload_is_told_to_whom_it_was_asked_for_and_its_credentials_to_nobody(
    ledger: EmbeddedLedger, broker: Broker, invoker: Lambda
) -> None:
    payload = json.dumps(SECRET)
    with answering(lambda _: Reply()) as server:
        notify = {"url": f"{server.url}/in?token=hidden", "target": "audit"}
        for name, address in notify.items():
            ledger.add([new(f"{name}False", notify=address, payload=payload)])
            ledger.add([new(f"{name}True", notify=f"{address} payload", payload=payload)])
        for task in claim(ledger):
            settle(ledger, task, Ending.DROP, detail="GET https://a:hidden@b.example/?c=hidden failed")
        drain()
    told = [json.loads(asked.body)["data"] for asked in server.asked]
    told += [task.payload["data"] for _, event in invoker.sent for task in decode_tasks(event)]
    assert {asked.path for asked in server.asked} == {"/in?token=hidden"}, "the one who is told is called as asked"
    assert {one["id"]: one.get("payload") for one in told} == {
        "urlFalse": None, "urlTrue": SHOWN, "targetFalse": None, "targetTrue": SHOWN,
    }  # fmt: skip
    deaths = [one["data"] for one in published(broker)]
    assert [one["payload"] for one in deaths] == [SHOWN] * 4
    assert "hidden" not in json.dumps([*told, *deaths])
    assert {one["error"] for one in deaths} == {"GET https://•••@b.example/?c=••• failed"}


def test_who_is_told_what_is_shown_as_it_was_asked() -> None:
    given = {"url": "https://a.example/in?token=hidden", "include": ["payload"]}
    task = Client.from_env().add(kind="report", payload={}, notify_done=given).task
    assert show_task(task)["notify_done"] == {"url": "https://a.example/in?token=•••", "include": ["payload"]}
    task = Client.from_env().add(kind="report", payload={}, notify_done={"target": "audit", "include": []}).task
    assert show_task(task)["notify_done"] == {"target": "audit"}
    named = {"url": "https://a.example/in", "include": ["payload"], "auth": "api-token"}
    task = Client.from_env().add(kind="report", payload={}, notify_done=named).task
    assert show_task(task)["notify_done"] == named
    with pytest.raises(InvalidInput, match=r"notify_done\.auth: needs a url"):
        Client.from_env().add(kind="report", payload={}, notify_done={"target": "audit", "auth": "billing"})
    with pytest.raises(InvalidInput, match=r"notify_done\.include"):
        Client.from_env().add(kind="report", payload={}, notify_done={"target": "audit", "include": ["secrets"]})


def test_a_url_that_fails_is_tried_again_with_the_same_id(ledger: EmbeddedLedger, clock: HandClock) -> None:
    answers = iter([Reply(500), Reply(204)])
    with answering(lambda _: next(answers)) as server:
        settle(ledger, claim_one(ledger, notify=server.url), Ending.DROP, detail="no use")
        assert drain().retried == 1
        clock.advance(3_600_000)
        assert drain().done >= 1
    first, second = (asked for asked in server.asked)
    assert first.headers["webhook-id"] == second.headers["webhook-id"]
    assert json.loads(first.body) == json.loads(second.body)
    assert (json.loads(first.body)["type"], json.loads(first.body)["data"]["error"]) == ("task.dead", "no use")


def test_a_kinds_target_is_handed_a_task_of_that_kind(ledger: EmbeddedLedger, invoker: Lambda) -> None:
    settle(ledger, claim_one(ledger, notify="audit"), Ending.DONE)
    drain()
    ((function, event),) = invoker.sent
    (task,) = decode_tasks(event)
    assert (function, task.kind, task.payload["type"]) == ("Audit", "audit", "task.done")
    assert ledger.shard_of(task.queue, task.id, task.group) == SHARD
    assert settle(ledger, task, Ending.DONE) == "done"


def test_the_dead_target_is_told_of_each_death_with_its_error_and_history(
    ledger: EmbeddedLedger, broker: Broker
) -> None:
    ledger.add([new("a"), new("b")])
    for task in claim(ledger):
        settle(ledger, task, Ending.DROP, detail=f"no {task.id}")
    assert drain().done == 2
    told = published(broker)
    assert [(one["type"], one["data"]["id"], one["data"]["error"]) for one in told] == [
        ("task.dead", "a", "no a"),
        ("task.dead", "b", "no b"),
    ]
    assert told[0]["data"]["history"][0]["outcome"] == "drop"


def test_a_task_that_has_begun_anew_is_told_as_far_as_it_is_known(ledger: EmbeddedLedger, broker: Broker) -> None:
    task = claim_one(ledger)
    settle(ledger, task, Ending.DROP, detail="no use")
    ledger.add([new(on_duplicate=OnDuplicate.REPLACE, delay_ms=99)])
    drain()
    (told,) = published(broker)
    assert told["data"] == {
        "id": "a",
        "queue": "default",
        "run": 1,
        "state": "dead",
        "tenant": "-",
        "generation": task.generation,
        "error": "no use",
    }


def test_a_task_that_is_gone_is_told_as_far_as_it_is_known(ledger: EmbeddedLedger, broker: Broker) -> None:
    settle(ledger, claim_one(ledger), Ending.DROP, detail="no use")
    ledger.cancel("default", ["a"])
    drain()
    assert published(broker)[0]["data"]["error"] == "no use"


def test_a_death_that_was_replayed_since_is_told_as_a_death(ledger: EmbeddedLedger, broker: Broker) -> None:
    settle(ledger, claim_one(ledger), Ending.DROP, detail="no use")
    ledger.replay("default", ["a"], delays_ms=[99])
    drain()
    data = published(broker)[0]["data"]
    assert (data["state"], data["error"], data["payload"]) == ("dead", "no use", {})


def test_what_is_too_long_is_left_out_and_named(ledger: EmbeddedLedger, invoker: Lambda) -> None:
    payload = json.dumps({"text": "x" * (MAX_PAYLOAD_BYTES - 100)})
    task = claim_one(ledger, notify="audit payload result", payload=payload)
    settle(ledger, task, Ending.DONE, result=json.dumps("y" * (MAX_RESULT_BYTES - 2)))
    drain()
    ((_, event),) = invoker.sent
    assert len(json.dumps(event).encode()) < 256 * 1024
    data = event["tasks"][0]["payload"]["data"]
    assert (data["left_out"], len(data["result"]), "payload" in data) == (["payload"], MAX_RESULT_BYTES - 2, False)


def test_where_what_is_told_cannot_be_read_it_waits_and_no_attempt_is_spent(
    ledger: EmbeddedLedger, table: Table, invoker: Lambda, clock: HandClock
) -> None:
    task = claim_one(ledger, notify="audit")
    settle(ledger, task, Ending.DONE)
    table.get = lambda *_: _raise(ResultsUnavailable())  # type: ignore[method-assign]
    assert drain().released == 1
    notification = ledger.get("default", f"a~{task.generation}.1~n")
    assert notification
    assert (notification.attempt, invoker.sent) == (1, [])
    del table.get
    clock.advance(60_000)
    drain()
    assert len(invoker.sent) == 1


def _raise(error: Exception) -> Any:
    raise error


def test_a_dead_target_that_is_unset_leaves_what_waits_for_it_among_the_dead(
    ledger: EmbeddedLedger, wire: Wire
) -> None:
    settle(ledger, claim_one(ledger), Ending.DROP, detail="x")
    wire(ledger=ledger)
    assert drain().dead == 1
    page = Client.from_env().list(state="dead", kind=DEAD)
    assert "nothing here runs the kind" in page.tasks[0].error


def test_a_target_that_is_not_known_is_refused_naming_those_that_are(ledger: EmbeddedLedger) -> None:
    client = Client.from_env()
    with pytest.raises(InvalidInput, match=r"notify_done\.target: must be a kind .* known: audit, report"):
        client.add(kind="report", payload={}, notify_done={"target": "nobody"})
    for wrong in ({}, {"url": "https://a.example/", "target": "audit"}, {"colour": "red"}):
        with pytest.raises(InvalidInput, match="notify_done"):
            client.add(kind="report", payload={}, notify_done=wrong)
    assert ledger.shards() == []
    assert client.add(kind="report", payload={}, notify_done={"target": "audit"}).task.notify == "audit"


def test_an_inline_task_that_drops_is_told_of_in_the_same_drain(ledger: EmbeddedLedger, broker: Broker) -> None:
    ledger.add([new("a", kind="webhook", payload='{"url":1}')])
    drained = drain()
    assert (drained.dead, drained.done) == (1, 1)
    assert published(broker)[0]["data"]["error"].startswith("payload.url")


def test_what_a_worker_gets_is_told_once_and_for_all(ledger: EmbeddedLedger, app: App) -> None:
    settle(ledger, claim_one(ledger), Ending.DROP, detail="x")
    (notification,) = claim(ledger)
    told = app.with_content(notification)
    assert app.with_content(told) == told
    plain = stored_task(ledger)
    assert app.with_content(plain) is plain
