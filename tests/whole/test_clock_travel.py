"""A stack whose clock is moved: months of tasks, functions and schedules in seconds, in order."""

import json
import re
import signal
import subprocess
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from itertools import takewhile
from pathlib import Path

import pytest
import urllib3

from duecourse_local.errors import HarnessError
from duecourse_local.harness.options import Clock, Options
from duecourse_local.harness.stack import Stack
from tests.support.api import Api
from tests.support.commands import BARE, FREE_PORTS, IN_A_CLONE, in_this_process, run
from tests.support.emulator import local_stack
from tests.support.http_server import Reply, answering
from tests.support.project import ROOT


@pytest.fixture(scope="module")
def stack(request: pytest.FixtureRequest) -> Iterator[Stack]:
    with local_stack(Options(clock=Clock.TRAVEL, tick=getattr(request, "param", 60))) as stack:
        yield stack


def moved(http: urllib3.PoolManager, stack: Stack, to: str | None = None) -> dict[str, object]:
    """What the clock says, or what it answers to a move."""
    if to is None:
        return dict(http.request("GET", f"{stack.lambda_url}/clock").json())
    answer = http.request("POST", f"{stack.lambda_url}/clock", json={"to": to}, timeout=120)
    return {**answer.json(), "status": answer.status}


def now_of(answer: dict[str, object]) -> datetime:
    return datetime.fromisoformat(str(answer["now"]))


def test_what_falls_due_runs_in_order_and_at_its_time(http: urllib3.PoolManager, stack: Stack) -> None:
    start, heard = now_of(moved(http, stack)), list[str]()

    def answer(request: object) -> Reply:
        heard.append(json.loads(request.body)["n"])  # type: ignore[attr-defined]
        return Reply(503 if heard.count(heard[-1]) == 1 else 200, b"{}")

    with answering(answer) as server:
        api = Api(http, stack.api)
        for n, delay in (("c", "P20D"), ("a", "PT1H"), ("b", "P3D")):
            retry = {"backoff": "PT10M", "jitter": False}
            body = {"kind": "webhook", "id": n, "delay": delay, "retry": retry}
            payload = {"url": server.url, "body": {"n": n}}
            assert api.call("POST", "/tasks", {**body, "payload": payload})[0] == 201
        assert heard == []
        assert moved(http, stack, "2d")["claimed"] == 2
        assert heard == ["a", "a"]
        assert moved(http, stack, "18d")["claimed"] == 3
        told = moved(http, stack, "PT1H")
    assert (told["status"], told["claimed"]) == (200, 1)
    assert heard == ["a", "a", "b", "b", "c", "c"]
    assert now_of(told) == start + timedelta(days=20, hours=1)
    ended = [datetime.fromisoformat(run["ended_at"]) - start for run in api.task("c")["history"]]
    assert ended == [timedelta(days=20), timedelta(days=20, minutes=10)]


def test_the_ledger_is_kept_up_on_the_way(http: urllib3.PoolManager, stack: Stack) -> None:
    api = Api(http, stack.api)
    assert api.add_webhook("gone", "http://127.0.0.1:9/", retry={"max_attempts": 1}) == 201
    moved(http, stack, "1s")
    assert api.task("gone")["state"] == "dead"
    assert moved(http, stack, "29d")["status"] == 200
    assert api.call("GET", "/tasks/gone")[0] == 200
    moved(http, stack, "2d")
    assert api.call("GET", "/tasks/gone")[0] == 404  # DUECOURSE_DEAD_RETENTION: 30 days


def test_the_clock_stands_still_between_moves_and_never_goes_back(http: urllib3.PoolManager, stack: Stack) -> None:
    before = moved(http, stack)
    assert moved(http, stack) == before
    told = moved(http, stack, "2020-01-01T00:00:00Z")
    assert told["status"] == 422
    assert "is past" in str(told["detail"])
    assert moved(http, stack, "soon")["status"] == 422
    assert moved(http, stack) == before
    instant = now_of(before).replace(microsecond=0) + timedelta(days=1)
    assert now_of(moved(http, stack, instant.isoformat())) == instant
    assert instant.tzinfo == UTC


def test_a_page_cannot_move_it(http: urllib3.PoolManager, stack: Stack) -> None:
    before = moved(http, stack)
    url = f"{stack.lambda_url}/clock"
    assert http.request("POST", url, body=b'{"to": "1d"}', headers={"content-type": "text/plain"}).status == 415
    assert moved(http, stack) == before


def test_a_redis_has_its_own_time(tmp_path: Path) -> None:
    options = Options(clock=Clock.TRAVEL, store="redis://127.0.0.1:9/0", state=tmp_path)
    with pytest.raises(HarnessError, match="--clock travel needs the ledger at memory://"), Stack(options):
        pass


def test_the_command_moves_it_and_lines_of_up_carry_its_time(http: urllib3.PoolManager, tmp_path: Path) -> None:
    state = ("--state", str(tmp_path / "state"))
    assert "no stack is running" in in_this_process("advance", "24h", *state).stderr
    command = (*IN_A_CLONE, "up", "--clock", "travel", *state, *FREE_PORTS)
    with (
        (tmp_path / "err").open("w") as err,
        subprocess.Popen(command, cwd=ROOT, env=BARE, stdout=subprocess.PIPE, stderr=err, text=True) as process,
    ):
        assert process.stdout is not None
        ready = takewhile(lambda line: not line.startswith("ready:"), process.stdout)
        at = {words[0]: words[2] for line in ready if len(words := line.split()) > 2}
        api = Api(http, at["api"])
        assert api.add_webhook("a", "http://127.0.0.1:9/", retry={"max_attempts": 1}, delay="P2D") == 201
        told = run("advance", "3d", *state)
        assert (told.returncode, "1 runs on the way" in told.stdout) == (0, True)
        assert api.task("a")["state"] == "dead"
        wrong = in_this_process("advance", "backwards", *state)
        assert (wrong.exit_code, "must be a duration" in wrong.stderr) == (2, True)
        process.send_signal(signal.SIGINT)
        assert process.wait(60) == 0
    [added, claimed] = re.findall(r"^(\S+)  a (?:added|claimed)", (tmp_path / "err").read_text(), re.MULTILINE)[:2]
    assert timedelta(days=1) < datetime.fromisoformat(claimed) - datetime.fromisoformat(added) < timedelta(days=4)


def spring(now: datetime) -> datetime:
    """A day of next year on which Vienna's clocks go forward: a last Sunday of March."""
    last = datetime(now.year + 1, 3, 31, tzinfo=UTC)
    return last - timedelta(days=last.isoweekday() % 7)


NO_TICK = pytest.mark.parametrize("stack", [0], indirect=True, ids=["no tick"])
"""For months: there would be a tick in each hour of them."""


@NO_TICK
def test_a_schedule_fires_through_a_change_of_the_clocks(http: urllib3.PoolManager, stack: Stack) -> None:
    heard = list[str]()

    def answer(request: object) -> Reply:
        heard.append(request.headers["webhook-id"].rpartition(":")[0])  # type: ignore[attr-defined]
        return Reply(200, b"{}")

    with answering(answer) as server:
        api = Api(http, stack.api)
        change = spring(now_of(moved(http, stack)))
        moved(http, stack, (change - timedelta(days=1)).isoformat())
        repeat = {"repeat": {"cron": "30 2 * * *"}, "time_zone": "Europe/Vienna"}
        night = {"id": "night", "kind": "webhook", "payload": {"url": server.url, "body": {}}, **repeat}
        assert api.call("POST", "/schedules", night)[0] == 201
        assert moved(http, stack, "3d")["claimed"] == 3
    days = [change + timedelta(days=n) for n in (-1, 0, 1)]
    times = [f"{day:%Y-%m-%d}T{at}:00Z" for day, at in zip(days, ("01:30", "01:00", "00:30"), strict=True)]
    assert heard == [f"night@{one}" for one in times]
