"""A hostile tenant beside a victim: expensive work of one holds up no other, on a real ledger, bridge and function."""

import json
import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from typing import Any, NamedTuple

import pytest
import urllib3

from duecourse_local.harness.options import Options
from duecourse_local.harness.stack import Stack
from tests.support.emulator import local_stack
from tests.support.hostile import ANSWERS
from tests.support.http_server import ReceivedRequest, Reply, Server, answering, misbehaving
from tests.support.matrix import MATRIX, in_turn
from tests.support.stalls import slowdown
from tests.support.wait import until

BATCH = 16
"""Tasks that a drain runs at the same time."""
LATE_S, MOST_S = 1.0, 8.0
"""How late the victim's may be where nothing else runs, and where the machine is as busy as can be."""
SETTING_S = 4.0
"""Time in which all tasks are added, before the first is due."""
ONE_AT_A_TIME = {"DUECOURSE_BRIDGE_IN_FLIGHT": "1", "DUECOURSE_POLL_INTERVAL": "PT0.1S"}
"""One function's process for all, and polls as often as an operator can allow: the least room for the victim."""


LARGE = json.dumps({"status": "done", "items": [{"id": n, "text": "x" * 20} for n in range(4_000)]}).encode()
"""An answer of the victim's API, which takes a while to judge."""


class Scene(NamedTuple):
    """A stack, the hostile tenant's API and the victim's receiver, which notes when it was called."""

    stack: Stack
    http: urllib3.PoolManager
    hostile: Server
    victim: Server
    called_at: dict[str, float]
    slowdown: Callable[[], float]

    @property
    def late_s(self) -> float:
        """How late (s) the victim's may be at most: later where the machine is busy with other things too."""
        return min(LATE_S * self.slowdown(), MOST_S)

    def add(self, tenant: str, task: dict[str, Any]) -> str:
        answer = self.http.request("POST", f"{self.stack.api}/tasks", json=task, headers={"X-Tenant": tenant})
        assert answer.status == 201, answer.data
        return str(answer.json()["task"]["id"])

    def poll(self, path: str, due_at: datetime, until: str, interval: str = "PT1H") -> str:
        payload = {"url": self.hostile.url + path, "interval": interval, "until": until}
        return self.add("hostile", {"kind": "poll", "due_at": due_at.isoformat(), "payload": payload})

    def webhook(self, name: str, due_at: datetime) -> None:
        payload = {"url": f"{self.victim.url}/{name}", "body": {}}
        self.add("victim", {"kind": "webhook", "due_at": due_at.isoformat(), "payload": payload})

    def large_poll(self, due_at: datetime) -> str:
        payload = {"url": self.victim.url, "interval": "PT1H", "until": "status=='done'", "result": "length(items)"}
        return self.add("victim", {"kind": "poll", "due_at": due_at.isoformat(), "payload": payload})

    def ended_late_s(self, id: str, due_at: datetime) -> float:
        """Seconds between a poll's due time and its end."""
        ended_at = show(self, "victim", id, "done")["history"][-1]["ended_at"]
        return (datetime.fromisoformat(ended_at) - due_at).total_seconds()

    def lateness_s(self, due: dict[str, datetime]) -> list[float]:
        """Seconds by which each of the victim's webhooks arrived late, the latest last."""
        until(lambda: due.keys() <= {path[1:] for path in list(self.called_at)})
        return sorted(self.called_at[f"/{name}"] - at.timestamp() for name, at in due.items())


@pytest.fixture
def scene() -> Iterator[Scene]:
    bodies = {path: make() for path, make in ANSWERS.items()}
    called_at: dict[str, float] = {}

    def note(asked: ReceivedRequest) -> Reply:
        called_at.setdefault(asked.path, time.time())
        return Reply(200, LARGE)

    with (
        local_stack(Options(tick=0, environment=ONE_AT_A_TIME)) as stack,
        answering(lambda asked: Reply(200, bodies[asked.path])) as hostile,
        answering(note) as victim,
        urllib3.PoolManager(retries=False, timeout=30, maxsize=8) as http,
        slowdown() as times,
    ):
        scene = Scene(stack, http, hostile, victim, called_at, times)
        warm = {"warm": datetime.now(UTC)}
        scene.webhook("warm", warm["warm"])
        scene.lateness_s(warm)
        yield scene


def spread(scene: Scene, start: datetime, count: int, every_s: float) -> dict[str, datetime]:
    """Webhooks of the victim, one each so many seconds."""
    due = {f"v{n}": start + timedelta(seconds=n * every_s) for n in range(count)}
    for name, at in due.items():
        scene.webhook(name, at)
    return due


def p99(latenesses: list[float]) -> float:
    return latenesses[max(0, -(-len(latenesses) * 99 // 100) - 1)]


@MATRIX
def test_a_batch_of_expensive_expressions_holds_up_no_others_webhooks(scene: Scene) -> None:
    """Ten filters over a million ones took 15 s each, sixteen at a time: others' webhooks came 34 s late and more."""
    start = datetime.now(UTC) + timedelta(seconds=SETTING_S)
    polls = [scene.poll("/ones", start, "|".join(["[?@]"] * 10)) for _ in range(2 * BATCH)]
    due = spread(scene, start + timedelta(seconds=0.05), 20, 0.1)
    assert p99(scene.lateness_s(due)) < scene.late_s
    answers = [show(scene, "hostile", id, "dead") for id in polls]
    assert all("500,000 steps" in answer["error"] for answer in answers)


def endless(connection: socket.socket) -> None:
    """An answer that never begins: interim ones go before it."""
    while True:
        connection.sendall(b"HTTP/1.1 100 \r\n\r\n" * 4_000)


def silent(connection: socket.socket) -> None:
    """No answer, until the caller hangs up."""
    while connection.recv(65_536):
        pass


@MATRIX
@pytest.mark.parametrize("behave", in_turn(endless, silent))
def test_answers_that_are_dear_to_read_or_never_come_hold_up_no_others_webhooks(
    scene: Scene, behave: Callable[[socket.socket], None]
) -> None:
    """Each held a thread for the 20 s of its timeout, and an endless one the processor too: until then nobody ran."""
    start = datetime.now(UTC) + timedelta(seconds=SETTING_S)
    with misbehaving(behave) as url:
        payload = {"url": url, "timeout": 20, "interval": "PT0.1S", "until": "@"}
        retry = {"max_attempts": 1_000, "backoff": 0, "max_backoff": 0}
        task = {"kind": "poll", "due_at": start.isoformat(), "payload": payload, "retry": retry}
        ids = [scene.add("hostile", task) for _ in range(2 * BATCH)]
        due = spread(scene, start + timedelta(seconds=0.5), 50, 0.1)
        assert p99(scene.lateness_s(due)) < scene.late_s
        for id in ids:
            path = f"{scene.stack.api}/tasks/{id}?force"
            scene.http.request("DELETE", path, headers={"X-Tenant": "hostile"})


def show(scene: Scene, tenant: str, id: str, state: str) -> Any:
    """One of a tenant's tasks, once it is in that state."""

    def shown() -> Any:
        answer = scene.http.request("GET", f"{scene.stack.api}/tasks/{id}", headers={"X-Tenant": tenant})
        return answer.json()["task"] if answer.json()["task"]["state"] == state else None

    return until(shown, every=0.05)


EXPENSIVE = [
    ("/twice", "a == b"),
    ("/names", "*.[@]|[*].[@]|length(@) == `0`"),
    ("/ones", "sort(@)|[0] == `2`"),
]
"""Polls that cost most of what one may, and are never done: they come again ten times a second."""


@pytest.mark.parametrize(("path", "expression"), in_turn(*EXPENSIVE))
def test_expensive_polls_that_go_on_and_on_hold_up_no_others_webhooks_or_large_polls(
    scene: Scene, path: str, expression: str
) -> None:
    start = datetime.now(UTC) + timedelta(seconds=SETTING_S)
    for _ in range(3 * BATCH):
        scene.poll(path, start, expression, "PT0.1S")
    polls = {scene.large_poll(at): at for n in range(10) if (at := start + timedelta(seconds=0.5 + n / 2))}
    due = spread(scene, start + timedelta(seconds=0.5), 50, 0.1)
    assert p99(scene.lateness_s(due)) < scene.late_s
    *most, _ = sorted(scene.ended_late_s(id, at) for id, at in polls.items())
    assert most[-1] < scene.late_s, "one may wait behind another of its own tenant"
    assert len(scene.hostile.asked) > BATCH, "it was busy meanwhile"


@contextmanager
def requests(scene: Scene, path: str, body: dict[str, Any]) -> Iterator[list[int]]:
    """The hostile tenant's requests, one after the other from a few threads; their statuses."""
    statuses: list[int] = []
    stop = threading.Event()

    def ask() -> None:
        while not stop.is_set():
            answer = scene.http.request("POST", scene.stack.api + path, json=body, headers={"X-Tenant": "hostile"})
            statuses.append(answer.status)

    threads = [threading.Thread(target=ask) for _ in range(4)]
    for thread in threads:
        thread.start()
    try:
        yield statuses
    finally:
        stop.set()
        for thread in threads:
            thread.join()


@MATRIX
def test_previews_of_an_expensive_template_hold_up_no_others_webhooks(scene: Scene) -> None:
    body = {
        "subject": "x", "starts_at": (datetime.now(UTC) + timedelta(hours=1)).isoformat(), "remind_before": ["PT5M"],
        "recipients": [{"email": "ada@example.com"}], "message": "{{ id" + "|e" * 200 + " }}",
        "html": "{% for a in range(1000) %}{{ range(1000)|map('string')|list|length }}{% endfor %}",
    }  # fmt: skip
    start = datetime.now(UTC) + timedelta(seconds=SETTING_S)
    due = spread(scene, start, 30, 0.1)
    with requests(scene, "/reminders/preview", body) as statuses:
        latenesses = scene.lateness_s(due)
    assert p99(latenesses) < scene.late_s
    assert set(statuses) == {422}
