"""The whole stack with no Redis at all: the demo's stories, HTTP under load, and a kill in the middle."""

import re
import signal
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
import urllib3

from duecourse_local.harness.options import Options
from tests.support.api import Api
from tests.support.commands import FREE_PORTS, gone, run, up
from tests.support.emulator import local_stack
from tests.support.http_server import Reply, answering
from tests.support.matrix import LENGTHY, MATRIX, in_turn
from tests.support.slow_receiver import SHORT_LEASE
from tests.support.wait import until

pytestmark = LENGTHY

MEMORY, LEVELDB = "memory://", "leveldb://{folder}/ledger"


def on_disk(folder: Path) -> tuple[str, str]:
    """The options for a ledger in a folder."""
    return "--store", f"leveldb://{folder}/ledger"


@MATRIX
@pytest.mark.parametrize("store", in_turn(MEMORY, LEVELDB))
def test_the_demos_stories_hold_with_no_redis(store: str, tmp_path: Path) -> None:
    told = run("demo", "--store", store.format(folder=tmp_path))
    assert told.returncode == 0, told.stderr + told.stdout
    shown = re.sub(r"[│\s]+", " ", told.stdout)
    assert "no server for the ledger; functions and bridge were threads" in shown
    assert "never more than 2 at a time" in shown
    assert "52 Sundays of 2027 on a clock" in shown


@pytest.mark.parametrize("store", in_turn(LEVELDB, MEMORY))
def test_requests_beside_each_other_are_each_answered_with_their_own(
    http: urllib3.PoolManager, store: str, tmp_path: Path
) -> None:
    ids = [f"t-{n}" for n in range(60)]
    with local_stack(Options(store=store.format(folder=tmp_path), tick=0)) as stack, ThreadPoolExecutor(8) as crowd:
        api = Api(http, stack.api)

        def add(id: str) -> bool:
            body = {"id": id, "kind": "webhook", "payload": {"url": f"http://127.0.0.1:9/{id}"}, "delay": 3600}
            status, made = api.call("POST", "/tasks", body)
            return (status, made["task"]["id"], made["task"]["payload"]) == (201, id, body["payload"])

        assert all(crowd.map(add, ids))
        assert [task["id"] for task in crowd.map(api.task, ids)] == ids


def test_the_tick_does_what_the_stopped_bridge_did_not(http: urllib3.PoolManager, tmp_path: Path) -> None:
    with local_stack(Options(store="memory://", tick=1, state=tmp_path)) as stack:
        api = Api(http, stack.api)
        assert stack.tick()["PollTickFunction"]["shards"] == 0
        assert api.add_webhook("bad", "http://127.0.0.1:9/", retry={"max_attempts": 1}) == 201
        until(lambda: api.task("bad")["state"] == "dead")
        stack.kill_bridge()
        assert api.add_webhook("later", "http://127.0.0.1:9/", retry={"max_attempts": 1}, delay=0.05) == 201
        until(lambda: api.task("later")["state"] == "dead")
    assert "START RequestId" in (tmp_path / "logs" / "OnExpiredFunction.log").read_text()


def test_up_goes_on_where_it_was_killed(http: urllib3.PoolManager, tmp_path: Path) -> None:
    with answering(lambda _: Reply(200, b"{}")) as server:
        with up(tmp_path / "state", *on_disk(tmp_path), **SHORT_LEASE) as (process, addresses):
            api = Api(http, addresses["api"])
            assert [api.add_webhook(f"t-{n}", server.url, delay=n * 0.1 + 1) for n in range(20)] == [201] * 20
            assert api.add_webhook("done", server.url) == 201
            until(lambda: api.task("done")["state"] == "done")
            history = api.task("done")["history"]
            process.kill()
        with up(tmp_path / "state", *on_disk(tmp_path), **SHORT_LEASE) as (_, addresses):
            api = Api(http, addresses["api"])
            until(lambda: all(api.task(f"t-{n}")["state"] == "done" for n in range(20)), every=0.1)
            assert api.task("done")["history"] == history
            assert {api.task(f"t-{n}")["history"][-1]["outcome"] for n in range(20)} == {"done"}


@MATRIX
def test_a_second_up_is_told_who_has_the_folder_and_the_first_goes_on(
    http: urllib3.PoolManager, tmp_path: Path
) -> None:
    with up(tmp_path / "state", *on_disk(tmp_path)) as (process, addresses):
        url = f"leveldb://{tmp_path}/ledger"
        second = run("up", "--store", url, "--state", str(tmp_path / "other"), *FREE_PORTS)
        assert second.returncode == 2
        assert f"{url} is in use by process {process.pid}" in " ".join(second.stderr.split())
        assert "Traceback" not in second.stderr
        shown = run("show", "a", "--stack", str(tmp_path / "state"))
        assert shown.returncode == 1
        assert addresses["api"] in shown.stderr, "asked over HTTP, for the folder is the stack's"
        exported = run("export", "--state", str(tmp_path / "state"))
        assert exported.returncode == 2
        assert "is open in the running stack only" in " ".join(exported.stderr.split())
        assert Api(http, addresses["api"]).call("GET", "/health")[0] == 200


@MATRIX
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_up_stops_cleanly_when_told_to_and_prints_one_line(
    http: urllib3.PoolManager, tmp_path: Path, number: signal.Signals
) -> None:
    with up(tmp_path / "state", *on_disk(tmp_path)) as stack:
        api = Api(http, stack.line["api"])
        assert api.add_webhook("a", "http://127.0.0.1:9/", delay=3600) == 201
        assert api.call("POST", "/tasks", {"kind": "nobody's"})[0] == 422
        children = stack.children
        stack.process.send_signal(number)
        rest, _ = stack.process.communicate(timeout=30)
        assert (stack.process.returncode, rest) == (0, "")
    assert gone(children)
    assert "Traceback" not in (tmp_path / "state.err").read_text()
