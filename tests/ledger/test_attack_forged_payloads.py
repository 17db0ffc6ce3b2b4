"""Payloads that somebody wrote into Redis by hand: each is shown as it is or ends its task, and stops no other."""

import json
import logging
from collections.abc import Iterator, Mapping
from typing import Any

import pytest

from duecourse.app import App
from duecourse.base.json_text import dump_json
from duecourse.ledger.embedded.ledger import EmbeddedLedger
from duecourse.ledger.keys import keys_of
from duecourse.ledger.task import DEAD, ENDED, Ending, NewTask, OnDuplicate, Shard, Status, Task
from duecourse.running.drain import Drained
from duecourse.settings import Settings
from duecourse_local.harness.options import LOOPBACK
from tests.support.engine import Broker, Lambda, ample
from tests.support.functions import Context
from tests.support.http_server import Reply, Server, answering
from tests.support.ledger import claim, settle
from tests.support.requests import MEETING, ask
from tests.support.wired import wired_with

TARGETS = {"report": "lambda:Report", "bill": "sqs:bills", "audit": "sqs:audits"}
BRIEF_MS = 5_000
"""Time of a request that is too short for a query's own call."""
NO_JSON = [
    "", "junk", "{", '{"url": "https://u:HIDDEN@a.example"', " {", " 5", " null", ' {"seal": 1}', ' {"shown": {}}',
    ' ["seal"]', '{"a": NaN}', '{"a": -Infinity}', '{"a": 1e999}', '{"a": "\\ud800"}', '{"a": ' + "9" * 5_000 + "}",
    "[" * 100_000, '{"a": "\x00"}', "\ufeff{}", '{"a": 1}{"b": 2}',
]  # fmt: skip
"""Texts that are no JSON, no JSON of ours, or no seal."""
NO_OBJECT = ['"text"', "5", "null", "true", "[]", '["url"]', '[{"ended": {}}]', "1.5", "[" * 300 + "]" * 300]
STRANGE = [
    '{"ended": 5}', '{"ended": {}}', '{"ended": {"id": 5, "generation": "x", "run": [], "state": {}, "at": "now"}}',
    '{"ended": {"id": "a", "generation": 1, "run": 1, "state": "done", "at": 1e300}}', '{"content": {"a": 1}}',
    '{"url": 5}', '{"url": {"a": 1}, "headers": 7}', '{"recipient": 5}', '{"recipient": {"name": "x"}, "lead_ms": "y"}',
    '{"reminder": 5, "recipient": {}, "content": "x"}', '{"known": 5}', '{"known": {"data": 1}}',
]  # fmt: skip
"""Objects whose fields are not what their kind has."""
EVERY = [*NO_JSON, *NO_OBJECT, *STRANGE]
ODD = {f"odd-{n}": text for n, text in enumerate(EVERY)}


class Scene:
    """An App on a ledger in memory, and what it handed over."""

    def __init__(self, app: App, server: Server, invoker: Lambda, broker: Broker) -> None:
        self.app, self.server, self.invoker, self.broker = app, server, invoker, broker

    def put(self, id: str, kind: str, text: str, **fields: Any) -> None:
        """Past every check and seal, as somebody with Redis's password may."""
        self.app.ledger.add([NewTask(id, kind, text, on_duplicate=OnDuplicate.REPLACE, **fields)])

    def drain(self, queue: str = "default") -> Drained:
        return self.app.drainer.drain([Shard(queue)], ample)

    def get(self, id: str, queue: str = "default") -> Task:
        found = self.app.ledger.get(queue, id)
        assert found
        return found


@pytest.fixture
def ledger() -> EmbeddedLedger:
    return EmbeddedLedger(deaths=True)


@pytest.fixture
def scene(ledger: EmbeddedLedger) -> Iterator[Scene]:
    invoker, broker = Lambda(), Broker()
    settings = Settings(egress_allow=LOOPBACK, targets=TARGETS, dead_target="sqs:dead")
    with (
        answering(lambda _asked: Reply(body=b"[1]")) as server,
        wired_with(settings, ledger=ledger, invoker=invoker, brokers={"sqs": broker}) as app,
    ):
        yield Scene(app, server, invoker, broker)


def wrong(found: Mapping[str, Any], wanted: Any) -> dict[str, Any]:
    """What is not as wanted, beside the text that it is about."""
    return {f"{id} {ODD[id][:60]!r}": value for id, value in found.items() if value != wanted}


@pytest.mark.parametrize("kind", ["poll", "webhook", "report", "bill"])
def test_it_is_read_without_a_fault_and_shows_no_credential(scene: Scene, kind: str) -> None:
    for id, text in ODD.items():
        scene.put(id, kind, text, delay_ms=60_000)
    every = ask("GET", "/tasks", query="limit=100")
    assert every.status == 200
    assert {task["id"] for task in every.body["tasks"]} == set(ODD)

    def read(id: str) -> list[Any]:
        asked = ask("GET", f"/tasks/{id}"), ask("GET", f"/tasks/{id}/why"), ask("PATCH", f"/tasks/{id}", {"delay": 60})
        strict = [json.loads(answer.text, parse_constant=str.upper) == answer.body for answer in asked]
        shown = any("HIDDEN" in answer.text for answer in (*asked, every))
        return [*(answer.status for answer in asked), *strict, shown, ask("DELETE", f"/tasks/{id}").status]

    assert wrong({id: read(id) for id in ODD}, [200, 200, 200, True, True, True, False, 204]) == {}


@pytest.mark.parametrize("kind", ["poll", "webhook", "report", "bill"])
def test_it_ends_dead_or_is_handed_over_and_stops_no_other_task(scene: Scene, kind: str) -> None:
    for id, text in ODD.items():
        scene.put(id, kind, text)
        scene.put(f"even-{id}", kind, dump_json({"url": scene.server.url, "interval": 1, "until": "@"}))
    while scene.drain().claimed:
        pass
    handed = {id for ids in scene.invoker.ids() for id in ids}
    handed |= {id.partition(":")[0] for id in scene.broker.queues.get("bills", ())}

    def judged(id: str) -> str:
        odd, even = scene.get(id), scene.get(f"even-{id}")
        if even.id not in handed and even.status is not Status.DONE:
            return "stops another"
        if "HIDDEN" in odd.error:
            return "shows a credential"
        dead = kind in ("poll", "webhook") or ODD[id] in NO_JSON
        return "" if (odd.status is Status.DEAD, id in handed) == (dead, not dead) else f"{odd.status} {odd.error}"

    assert wrong({id: judged(id) for id in ODD}, "") == {}
    dead = ask("GET", "/tasks", query="state=dead&limit=100")
    assert dead.status == 200
    replays = {task["id"]: ask("POST", f"/tasks/{task['id']}/replay").status for task in dead.body["tasks"]}
    assert wrong(replays, 200) == {}


@pytest.mark.parametrize("kind", [ENDED, DEAD, "audit"])
def test_a_notification_with_it_ends_or_is_sent_and_stops_no_other(scene: Scene, kind: str) -> None:
    for n, text in enumerate(EVERY):
        scene.put(f"odd-{n}~1.1~n", kind, text)
        scene.put(f"even-{n}", "bill", "{}")
    while scene.drain().claimed:
        pass
    assert wrong({id: scene.get(id.replace("odd", "even")).status for id in ODD}, Status.DONE) == {}
    assert ask("GET", "/tasks", query="limit=100").status == 200
    waiting = {id for id in ODD if scene.get(f"{id}~1.1~n").status is Status.LEASED}
    assert waiting == set()


def test_a_task_with_it_is_notified_of(scene: Scene) -> None:
    for id, text in ODD.items():
        scene.put(id, "report", text, notify=f"{scene.server.url}/told payload result")
    for task in claim(scene.app.ledger):
        settle(scene.app.ledger, task, Ending.DROP, detail="no")
    while scene.drain().claimed:
        pass
    assert {json.loads(asked.body)["data"]["id"] for asked in scene.server.asked} == set(ODD)
    assert b"HIDDEN" not in b"".join(asked.body for asked in scene.server.asked)
    assert "HIDDEN" not in json.dumps(scene.broker.queues)
    assert len(scene.broker.queues["dead"]) == len(ODD)


@pytest.mark.parametrize("kind", ["reminder", "webhook"])
def test_a_reminder_with_one_such_message_is_shown_moved_and_cancelled(scene: Scene, kind: str) -> None:
    people = [{"name": name, "webhook": f"{scene.server.url}/{name}"} for name in ("ada", "bob")]

    def look(id: str) -> list[Any]:
        meeting = MEETING | {"id": id, "recipients": people}
        assert ask("POST", "/reminders", meeting).status == 201
        first = scene.app.ledger.group("reminders", id)[0]
        more = {"queue": "reminders", "group": id, "state": first.state_json, "delay_ms": 60_000}
        scene.put(first.id, kind, ODD[id], **more)
        answers = [
            ask("GET", f"/reminders/{id}"),
            ask("POST", "/reminders/preview", {"id": id}),
            ask("PATCH", f"/reminders/{id}", {"starts_at": "2099-03-03T08:00:00Z"}),
            ask("GET", "/tasks", query="queue=reminders&limit=100"),
            ask("POST", "/reminders", meeting),
            ask("DELETE", f"/reminders/{id}"),
        ]
        assert "HIDDEN" not in "".join(answer.text for answer in answers)
        left = {task.status for task in scene.app.ledger.group("reminders", id)}
        return [answer.status for answer in answers] + sorted(left)

    assert wrong({id: look(id) for id in ODD}, [200, 200, 200, 200, 409, 204, Status.CANCELLED]) == {}


def test_a_query_with_it_is_shown(scene: Scene) -> None:
    def look(id: str) -> list[int]:
        query = {"url": f"{scene.server.url}/{id}", "interval": 60, "until": "nothing"}
        answer = ask("POST", "/queries", query, Context(BRIEF_MS))
        named, queue = answer.body["task"], answer.body["queue"]
        group = scene.get(named, queue).group
        scene.put(named, "poll", ODD[id], queue=queue, group=group, delay_ms=60_000)
        again = ask("GET", f"/queries/{named}"), ask("GET", f"/tasks/{named}", query=f"queue={queue}")
        return [one.status for one in (answer, *again, ask("POST", "/queries", query, Context(BRIEF_MS)))]

    assert wrong({id: look(id) for id in ODD}, [202, 200, 200, 202]) == {}


@pytest.mark.parametrize("field", ["state", "result"])
@pytest.mark.parametrize("text", ["junk", "{", '{"a": NaN}', "[" * 100_000, "\ufeff1", " ", " junk"])
def test_a_damaged_state_or_result_is_read_too(scene: Scene, field: str, text: str) -> None:
    if field == "state":
        scene.put("odd", "report", "{}", state=text[:4_000])
        scene.put("bills", "bill", "{}", state=text[:4_000])
        scene.put("even", "report", "{}")
        scene.drain()
        assert "even" in [id for ids in scene.invoker.ids() for id in ids]
        assert scene.get("odd").status is Status.DEAD
        assert scene.get("bills").status is Status.DEAD
    else:
        scene.put("odd", "report", "{}")
        settle(scene.app.ledger, *claim(scene.app.ledger), Ending.DONE, result=text[:60_000])
    answers = [ask("GET", "/tasks/odd"), ask("GET", "/tasks/odd/why"), ask("GET", "/tasks", query="state=done")]
    assert [answer.status for answer in answers] == [200] * 3


def test_a_record_that_is_no_text_is_named_and_can_be_removed(scene: Scene, caplog: pytest.LogCaptureFixture) -> None:
    scene.put("odd", "webhook", '{"url": "X"}')
    scene.put("even", "webhook", dump_json({"url": scene.server.url}))
    client: Any = scene.app.ledger.client  # type: ignore[attr-defined]
    key = keys_of("duecourse", Shard()).tasks
    client.hset(key, "-/odd", client.hget(key, "-/odd").replace(b'"X"', b'"\xff"'))
    for path in ("/tasks/odd", "/tasks/odd/why"):
        answer = ask("GET", path)
        assert (answer.status, answer.body["type"]) == (409, "urn:duecourse:problem:task-damaged")
    with caplog.at_level(logging.ERROR):
        assert [task["id"] for task in ask("GET", "/tasks").body["tasks"]] == ["even"]
    assert "-/odd" in caplog.text
    scene.drain()
    assert scene.get("even").status is Status.DONE
    assert ask("DELETE", "/tasks/odd", query="force=true").status == 204
    assert scene.app.ledger.stats(Shard()).scheduled == 0
