"""The whole stack by its HTTP API: what a user sees when a part of it is frozen, killed or away."""

import json
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import redis
import urllib3

from local.options import Options
from local.stack import Stack
from tests.support.answering import Asked, Reply, Server, answering
from tests.support.project import ROOT
from tests.support.wait import until

SHORT_LEASE = {"DUECOURSE_LEASE": "PT2S", "DUECOURSE_MARGIN": "PT2S"}
DONE = Reply(200, b"{}")


@pytest.fixture
def http() -> Iterator[urllib3.PoolManager]:
    with urllib3.PoolManager(retries=False, timeout=30) as manager:
        yield manager


class Api:
    def __init__(self, http: urllib3.PoolManager, url: str) -> None:
        self._http = http
        self._url = url

    def call(self, method: str, path: str, body: Any = None) -> tuple[int, Any]:
        answer = self._http.request(method, self._url + path, json=body)
        return answer.status, answer.json() if answer.data else None

    def add_webhook(self, id: str, url: str, **fields: Any) -> int:
        body = {"id": id, "kind": "webhook", "payload": {"url": url, "body": {}}, **fields}
        return self.call("POST", "/tasks", body)[0]

    def task(self, id: str) -> Any:
        return self.call("GET", f"/tasks/{id}")[1]["task"]

    def done(self, id: str, seconds: float = 20) -> Any:
        return until(lambda: task if (task := self.task(id))["state"] == "done" else None, seconds=seconds, every=0.05)


class SlowAtFirst:
    """A receiver that keeps its first caller waiting until told otherwise."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._calls = 0
        self.asked = threading.Event()
        self.go_on = threading.Event()

    def __call__(self, _asked: Asked) -> Reply:
        with self._lock:
            self._calls += 1
            first = self._calls == 1
        if first:
            self.asked.set()
            self.go_on.wait(30)
        return DONE


@contextmanager
def slow_at_first() -> Iterator[tuple[SlowAtFirst, Server]]:
    receiver = SlowAtFirst()
    with answering(receiver) as server:
        try:
            yield receiver, server
        finally:
            receiver.go_on.set()


def outcomes(task: Any) -> list[str]:
    return [run["outcome"] for run in task["history"]]


def test_a_function_stopped_past_its_lease_does_not_keep_its_task(http: urllib3.PoolManager) -> None:
    with slow_at_first() as (receiver, server), Stack(Options(tick=2, environment=SHORT_LEASE)) as stack:
        api = Api(http, stack.api)
        api.add_webhook("frozen", server.url)
        assert receiver.asked.wait(10)
        [first] = stack.pids()["functions"]["OnExpiredFunction"]
        os.kill(first, signal.SIGSTOP)
        try:
            task = api.done("frozen")
        finally:
            os.kill(first, signal.SIGCONT)
        receiver.go_on.set()
        assert outcomes(task) == ["lapsed", "done"]
        until(lambda: api.add_webhook("after", server.url) == 201 and api.done("after"))
        assert api.task("frozen") == task  # the late settle changed nothing


def test_a_function_killed_at_its_work_leaves_it_to_the_next_run(http: urllib3.PoolManager) -> None:
    with slow_at_first() as (receiver, server), Stack(Options(tick=2, environment=SHORT_LEASE)) as stack:
        api = Api(http, stack.api)
        api.add_webhook("killed", server.url)
        assert receiver.asked.wait(10)
        [first] = stack.pids()["functions"]["OnExpiredFunction"]
        os.kill(first, signal.SIGKILL)
        task = api.done("killed")
        assert (task["run"], outcomes(task)) == (2, ["lapsed", "done"])


def test_a_frozen_process_whose_redis_socket_died_serves_the_next_request(http: urllib3.PoolManager) -> None:
    with Stack(Options(tick=0, freeze=True)) as stack, redis.Redis.from_url(stack.store) as client:
        api = Api(http, stack.api)
        assert api.call("GET", "/health")[0] == 200
        for number in range(3):
            client.client_kill_filter(_type="normal", skipme=True)
            assert api.add_webhook(f"after-{number}", "http://127.0.0.1:1/", delay=60) == 201


def test_redis_away_is_503_with_retry_after_and_then_all_goes_on(http: urllib3.PoolManager, tmp_path: Path) -> None:
    with answering(lambda _: DONE) as server, Stack(Options(tick=1, state=tmp_path)) as stack:
        api = Api(http, stack.api)
        assert api.add_webhook("before", server.url, delay=3600) == 201
        os.kill(stack.pids()["redis"], signal.SIGSTOP)
        try:
            answer = http.request("GET", stack.api + "/tasks/before")
        finally:
            os.kill(stack.pids()["redis"], signal.SIGCONT)
        assert (answer.status, answer.headers["retry-after"]) == (503, "1")
        assert answer.headers["content-type"] == "application/problem+json"
        until(lambda: api.call("PATCH", "/tasks/before", {"delay": 0})[0] == 200)
        api.done("before")


def test_up_goes_on_where_it_was_killed(http: urllib3.PoolManager, tmp_path: Path) -> None:
    with answering(lambda _: DONE) as server:
        with up(tmp_path) as (process, addresses):
            api = Api(http, addresses["api"])
            assert api.add_webhook("survivor", server.url, delay=2) == 201
            until(lambda: _persisted(addresses))
            process.kill()
        with up(tmp_path) as (_, addresses):
            task = Api(http, addresses["api"]).done("survivor")
    assert outcomes(task) == ["done"]


def _persisted(addresses: dict[str, Any]) -> bool:
    """Whether what was answered is on disk: the file is synced each second."""
    with redis.Redis.from_url(addresses["store"]) as client:
        persistence = client.info("persistence")
    return persistence["aof_pending_bio_fsync"] == 0 and persistence["aof_buffer_length"] == 0


@contextmanager
def up(state: Path) -> Iterator[tuple[subprocess.Popen[str], dict[str, Any]]]:
    options = ["--port", "0", "--lambda-port", "0", "--aws-port", "0", "--state", str(state), "--json"]
    command = [sys.executable, "-m", "local", "up", *options]
    with subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True) as process:
        assert process.stdout
        try:
            yield process, json.loads(process.stdout.readline())
        finally:
            process.terminate()
