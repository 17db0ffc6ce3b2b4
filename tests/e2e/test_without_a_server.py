"""The whole stack with no Redis at all: the demo's stories, HTTP under load, and a kill in the middle."""

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import psutil
import pytest
import urllib3

from local.options import Options
from local.stack import Stack
from tests.support.answering import Reply, answering
from tests.support.project import ROOT
from tests.support.wait import until

# Nothing of a Redis that is set up here, nor a redis-server to be found.
BARE = {k: v for k, v in os.environ.items() if not k.startswith(("DUECOURSE_", "REDIS_", "AWS_"))}
FREE_PORTS = ("--port", "0", "--lambda-port", "0", "--aws-port", "0")
STORES = ["memory://", "leveldb://{folder}/ledger"]


def run(*arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "local", *arguments]
    return subprocess.run(command, cwd=ROOT, env=BARE, capture_output=True, text=True, check=False, timeout=120)


@contextmanager
def up(folder: Path) -> Iterator[tuple[subprocess.Popen[str], dict[str, Any]]]:
    """A running `up` on the ledger in `folder`."""
    options = ["--store", f"leveldb://{folder}/ledger", "--state", str(folder / "state"), *FREE_PORTS, "--json"]
    command = [sys.executable, "-m", "local", "up", *options]
    with (
        (folder / "err").open("ab") as err,
        subprocess.Popen(command, cwd=ROOT, env=BARE, stdout=subprocess.PIPE, stderr=err, text=True) as process,
    ):
        assert process.stdout
        try:
            yield process, json.loads(process.stdout.readline())
        finally:
            process.terminate()


class Api:
    def __init__(self, url: str) -> None:
        self._url = url
        self._http = urllib3.PoolManager(retries=False, timeout=30, maxsize=10)

    def call(self, method: str, path: str, body: Any = None) -> tuple[int, Any]:
        answer = self._http.request(method, self._url + path, json=body)
        return answer.status, answer.json() if answer.data else None

    def add_webhook(self, id: str, url: str, **fields: Any) -> int:
        return self.call("POST", "/tasks", {"id": id, "kind": "webhook", "payload": {"url": url}, **fields})[0]

    def task(self, id: str) -> Any:
        return self.call("GET", f"/tasks/{id}")[1]["task"]


@pytest.mark.slow
@pytest.mark.parametrize("store", STORES)
def test_the_demos_stories_hold_with_no_redis(store: str, tmp_path: Path) -> None:
    told = run("demo", "--store", store.format(folder=tmp_path))
    assert told.returncode == 0, told.stderr + told.stdout
    assert "no server for the ledger; handlers and bridge were threads" in " ".join(told.stdout.split())


@pytest.mark.parametrize("store", STORES)
def test_requests_beside_each_other_are_each_answered_with_their_own(store: str, tmp_path: Path) -> None:
    ids = [f"t-{n}" for n in range(60)]
    with Stack(Options(store=store.format(folder=tmp_path), tick=0)) as stack, ThreadPoolExecutor(8) as crowd:
        api = Api(stack.api)

        def add(id: str) -> bool:
            body = {"id": id, "kind": "webhook", "payload": {"url": f"http://127.0.0.1:9/{id}"}, "delay": 3600}
            status, made = api.call("POST", "/tasks", body)
            return (status, made["task"]["id"], made["task"]["payload"]) == (201, id, body["payload"])

        assert all(crowd.map(add, ids))
        assert [task["id"] for task in crowd.map(api.task, ids)] == ids


def test_the_tick_does_what_the_stopped_bridge_did_not(tmp_path: Path) -> None:
    with Stack(Options(store="memory://", tick=1, state=tmp_path)) as stack:
        api = Api(stack.api)
        assert stack.tick()["PollTickFunction"]["shards"] == 0
        assert api.add_webhook("bad", "http://127.0.0.1:9/", retry={"max_attempts": 1}) == 201
        until(lambda: api.task("bad")["state"] == "dead")
        stack.kill_bridge()
        assert api.add_webhook("later", "http://127.0.0.1:9/", retry={"max_attempts": 1}, delay=0.05) == 201
        until(lambda: api.task("later")["state"] == "dead")
    assert "START RequestId" in (tmp_path / "logs" / "OnExpiredFunction.log").read_text()


def test_up_goes_on_where_it_was_killed(tmp_path: Path) -> None:
    with answering(lambda _: Reply(200, b"{}")) as server:
        with up(tmp_path) as (process, addresses):
            api = Api(addresses["api"])
            assert [api.add_webhook(f"t-{n}", server.url, delay=n * 0.1 + 1) for n in range(20)] == [201] * 20
            assert api.add_webhook("done", server.url) == 201
            until(lambda: api.task("done")["state"] == "done")
            history = api.task("done")["history"]
            process.kill()
        with up(tmp_path) as (_, addresses):
            api = Api(addresses["api"])
            until(lambda: all(api.task(f"t-{n}")["state"] == "done" for n in range(20)), seconds=30, every=0.05)
            assert api.task("done")["history"] == history
            assert {api.task(f"t-{n}")["history"][-1]["outcome"] for n in range(20)} == {"done"}


def test_a_second_up_is_told_who_has_the_folder_and_the_first_goes_on(tmp_path: Path) -> None:
    with up(tmp_path) as (process, addresses):
        url = f"leveldb://{tmp_path}/ledger"
        second = run("up", "--store", url, "--state", str(tmp_path / "other"), *FREE_PORTS)
        assert second.returncode == 2
        assert f"{url} is in use by process {process.pid}" in " ".join(second.stderr.split())
        assert "Traceback" not in second.stderr
        shown = run("show", "a", "--state", str(tmp_path / "state"))
        assert shown.returncode == 2
        assert f"the running stack's alone: ask it, with GET {addresses['api']}/tasks/<id>" in " ".join(
            shown.stderr.split()
        )
        assert Api(addresses["api"]).call("GET", "/health")[0] == 200


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_up_stops_cleanly_when_told_to_and_prints_one_line(tmp_path: Path, number: signal.Signals) -> None:
    with up(tmp_path) as (process, addresses):
        api = Api(addresses["api"])
        assert api.add_webhook("a", "http://127.0.0.1:9/", delay=3600) == 201
        assert api.call("POST", "/tasks", {"kind": "nobody's"})[0] == 422
        children = [child.pid for child in psutil.Process(process.pid).children(recursive=True)]
        process.send_signal(number)
        rest, _ = process.communicate(timeout=30)
        assert (process.returncode, rest) == (0, "")
    assert not any(map(psutil.pid_exists, children))
    assert "Traceback" not in (tmp_path / "err").read_text()
