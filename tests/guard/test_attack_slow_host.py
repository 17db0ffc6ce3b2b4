"""A host that answers nothing, beside others: a process has so many calls at one place, whatever names lead there."""

import socket
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import Any, NamedTuple
from urllib.parse import urlsplit

import pytest

from duecourse.app import App
from duecourse.errors import CallFailed, DuecourseError
from duecourse.guard.http_client import GuardedHttpClient
from duecourse.guard.http_types import HttpRequest
from duecourse.ledger.embedded.ledger import EmbeddedLedger
from duecourse.ledger.task import Shard, Status, Task
from duecourse.settings import Settings
from tests.support.egress import HERE
from tests.support.engine import ample
from tests.support.http_server import ReceivedRequest, Reply, Server, answering
from tests.support.names import Names
from tests.support.requests import ask
from tests.support.wait import until
from tests.support.wired import wired_with

AT_ONCE = 50
MANY = 80
THREADS = 96
NAMES = ["a.example", "b.example", "c.example"]
"""All lead to the same address."""
SHARD = Shard("default")


class Held:
    """A receiver that answers nobody until it may; it counts the calls that are under way, and keeps the peak."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self.may = threading.Event()
        self.now = self.peak = 0

    def __call__(self, _asked: ReceivedRequest) -> Reply:
        with self._lock:
            self.now += 1
            self.peak = max(self.peak, self.now)
        assert self.may.wait(60)
        with self._lock:
            self.now -= 1
        return Reply()


class Scene(NamedTuple):
    """An App with more threads than calls at one place, and a slow host and a quick one to call."""

    app: App
    ledger: EmbeddedLedger
    held: Held
    slow: Server
    quick: Server

    def add(self, id: str, url: str) -> None:
        payload = {"url": url, "body": {}, "timeout": 20}
        assert ask("POST", "/tasks", {"id": id, "kind": "webhook", "payload": payload}).status == 201

    def add_slow(self, count: int = MANY) -> None:
        """Webhooks to the slow host, by its names in turn."""
        port = urlsplit(self.slow.url).port
        for n in range(count):
            self.add(f"slow-{n}", f"http://{NAMES[n % len(NAMES)]}:{port}/{n}")

    def task(self, id: str) -> Task:
        found = self.ledger.get("default", id)
        assert found is not None
        return found

    def done(self, prefix: str, count: int) -> bool:
        return all(self.task(f"{prefix}-{n}").status is Status.DONE for n in range(count))


@pytest.fixture
def scene() -> Iterator[Scene]:
    held = Held()
    resolver = Names({name: [["127.0.0.1"]] for name in NAMES}).resolver
    given = Settings(parallel=THREADS, egress_allow="127.0.0.1")
    with answering(held) as slow, answering(lambda _: Reply()) as quick:
        http, ledger = GuardedHttpClient(THREADS, HERE, resolver, at_once=given.host_calls), EmbeddedLedger()
        with wired_with(given, ledger=ledger, http=http) as app:
            yield Scene(app, ledger, held, slow, quick)
        http.close()


@contextmanager
def draining(scene: Scene) -> Iterator[None]:
    """Drains one after the other, as rings would bring them about, until the end."""
    over = threading.Event()

    def drain() -> None:
        while not over.is_set():
            scene.app.drainer.drain([SHARD], ample)

    with ThreadPoolExecutor(1) as pool:
        drained = pool.submit(drain)
        try:
            yield
        finally:
            scene.held.may.set()
            over.set()
            drained.result(60)


def test_a_slow_host_has_fifty_calls_at_once_and_another_hosts_go_on(scene: Scene) -> None:
    scene.add_slow()
    with draining(scene):
        until(lambda: scene.held.now == AT_ONCE)
        put_off = until(lambda: put_off_of(scene, MANY - AT_ONCE))
        for n in range(20):
            scene.add(f"quick-{n}", f"{scene.quick.url}/{n}")
        until(lambda: scene.done("quick", 20))
        late_ms = max(scene.task(f"quick-{n}").claimed_at - scene.task(f"quick-{n}").due_at for n in range(20))
        assert late_ms < 1_000
        assert scene.held.peak == AT_ONCE
        assert {(task.attempt, task.error) for task in put_off} == {(1, "")}
        scene.held.may.set()
        until(lambda: scene.done("slow", MANY))
    assert len(scene.slow.asked) == MANY, "each was called once"
    assert scene.held.peak == AT_ONCE
    assert {scene.task(f"slow-{n}").attempt for n in range(MANY)} == {1}


def put_off_of(scene: Scene, count: int) -> list[Task] | None:
    """Tasks that were given back because of the crowd, once there are so many."""
    tasks = [scene.task(f"slow-{n}") for n in range(MANY)]
    found = [task for task in tasks if any("as many calls" in getattr(one, "detail", "") for one in task.log)]
    return found if len(found) >= count else None


@pytest.mark.parametrize("path", ["/whole", "/large", "refused"])
def test_a_call_that_is_over_makes_room_however_it_ended(path: str) -> None:
    bodies = {"/whole": b"x", "/large": b"x" * 100_000}
    with answering(lambda asked: Reply(200, bodies[asked.path])) as server, closed_port() as nobody:
        http = GuardedHttpClient(4, HERE, at_once=1)
        outcomes = {outcome(http, nobody if path == "refused" else server.url + path) for _ in range(5)}
        http.close()
    assert outcomes == {CallFailed if path == "refused" else 200}


@contextmanager
def closed_port() -> Iterator[str]:
    """A URL at which nobody answers."""
    with socket.socket() as held:
        held.bind(("127.0.0.1", 0))
        yield f"http://127.0.0.1:{held.getsockname()[1]}/"


def outcome(http: GuardedHttpClient, url: str) -> Any:
    """Status of one call, or its error's class."""
    try:
        return http.call(HttpRequest("GET", url, {}, None, 5_000, 1_000)).status
    except DuecourseError as error:
        return type(error)
