"""A newcomer's week with the wheel alone: a project, a typed kind, a web app, a dead task, an old ledger."""

import json
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from subprocess import CompletedProcess
from typing import Any

import pytest
import urllib3

from duecourse_local.harness.addresses import free_port
from tests.support.api import Api
from tests.support.commands import BARE, run, up
from tests.support.earlier_ledger import EarlierLedger
from tests.support.matrix import LENGTHY
from tests.support.project import ROOT
from tests.support.redis_server import REDIS, RedisServer, need
from tests.support.releases import EARLIER, layer_of, unpack_release
from tests.support.wait import until
from tests.support.wheel import build, installed

pytestmark = LENGTHY

WRITTEN = ROOT / "tests/whole/project"
OLD = 200
"""Tasks that the earlier release has left behind."""


class Newcomer:
    """A folder, and a Python that has the wheel and not this tree."""

    def __init__(self, home: Path) -> None:
        self.bin = installed(build("wheel", home / "dist"), home / "venv")
        self.folder = home / "reports"
        self.folder.mkdir()
        self.state = home / "state"
        self.program = (str(self.bin / "duecourse"),)

    def types(self, *words: str) -> CompletedProcess[str]:
        """A command that ends by itself."""
        return run(*words, project=self.folder, program=self.program)

    def sees(self, *words: str) -> Any:
        """What a command answers, in JSON."""
        done = self.types(*words, "--stack", str(self.state), "--json")
        assert done.returncode == 0, done.stdout + done.stderr
        return json.loads(done.stdout)

    @contextmanager
    def serves(self, http: urllib3.PoolManager) -> Iterator[str]:
        """The address of the web app, with the settings of the stack that is up."""
        port = free_port(0, "--port")
        words = [
            "run",
            "--state",
            str(self.state),
            str(self.bin / "python"),
            "-m",
            "uvicorn",
            "web:app",
            "--port",
            str(port),
        ]
        with subprocess.Popen([*self.program, *words], cwd=self.folder, env=BARE) as process:
            try:
                url = f"http://127.0.0.1:{port}"
                until(lambda: answers(http, url), seconds=60, every=0.1)
                yield url
            finally:
                process.terminate()


def answers(http: urllib3.PoolManager, url: str) -> bool:
    try:
        return http.request("GET", f"{url}/openapi.json", retries=False).status == 200
    except urllib3.exceptions.HTTPError:
        return False


@pytest.fixture
def newcomer(tmp_path: Path) -> Newcomer:
    return Newcomer(tmp_path)


@pytest.fixture
def old(tmp_path: Path) -> Iterator[RedisServer]:
    """A Redis with a ledger of an earlier release that is full of tasks, one of them leased and gone."""
    release = unpack_release(EARLIER, tmp_path / "release").parent
    with RedisServer(need(REDIS[-1])) as server, EarlierLedger(layer_of(release), server.url) as earlier:
        for n in range(OLD):
            earlier("add", f"old-{n}", json.dumps({"n": n, "text": "x" * (n * 100)}), delay_ms=1_000 if n else 0)
        assert list(earlier("claim", 1)) == ["old-0"]
        yield server


@pytest.mark.matrix
def test_a_week(newcomer: Newcomer, old: RedisServer, http: urllib3.PoolManager) -> None:
    a_project(newcomer)
    with up(newcomer.state, "--store", old.url, project=newcomer.folder, program=newcomer.program) as stack:
        api = Api(http, stack.line["api"])
        with newcomer.serves(http) as web:
            a_delayed_task(http, web)
            a_dead_task(newcomer, api, http, web)
        what_was_there(newcomer, api, old)
        a_schedule(newcomer, api)


def a_project(newcomer: Newcomer) -> None:
    """`init`, a second function, a typed payload, tests on a moved clock."""
    for words in (["init"], ["new", "work"]):
        done = newcomer.types(*words)
        assert done.returncode == 0, done.stderr
    (newcomer.folder / "tests/test_report.py").unlink()
    shutil.copytree(WRITTEN, newcomer.folder, dirs_exist_ok=True)
    tested = newcomer.types("test", "-p", "no:cacheprovider")
    assert tested.returncode == 0, tested.stdout + tested.stderr
    assert "4 passed" in tested.stdout


def a_delayed_task(http: urllib3.PoolManager, web: str) -> None:
    """From a web app, which waits for it; a payload that does not fit is not taken."""
    asked = http.request("POST", f"{web}/reports/june", json={"month": "2026-06-01"})
    assert (asked.status, asked.json()["id"]) == (202, "june")
    read = http.request("GET", f"{web}/reports/june")
    assert (read.status, read.json()) == (200, {"pages": 24})
    assert http.request("POST", f"{web}/reports/never", json={"month": "soon"}).status == 422


def a_dead_task(newcomer: Newcomer, api: Api, http: urllib3.PoolManager, web: str) -> None:
    """Found by the command, its cause by `why`; replayed after the function is mended."""
    http.request("POST", f"{web}/reports/january", json={"month": "2026-01-01"})
    until(lambda: api.task("january")["state"] == "dead", seconds=60, every=0.05)
    assert [task["id"] for task in newcomer.sees("tasks", "--state", "dead")["tasks"]] == ["january"]
    why = newcomer.types("why", "january", "--stack", str(newcomer.state))
    assert "ZeroDivisionError" in why.stdout
    app = newcomer.folder / "functions/report/app.py"
    app.write_text(app.read_text().replace("(task.payload.month.month - 1)", "task.payload.month.month"))
    replayed = newcomer.types("replay", "january", "--stack", str(newcomer.state))
    assert replayed.returncode == 0, replayed.stderr
    assert api.done("january")["result"] == {"pages": 120}


def what_was_there(newcomer: Newcomer, api: Api, old: RedisServer) -> None:
    """Every task of the earlier release has run, the leased one too once its lease has lapsed; the ledger is sound."""
    for n in range(OLD):
        assert api.done(f"old-{n}", seconds=120)["result"]["seen"]["n"] == n
    found = json.loads(newcomer.types("doctor", "--store", old.url, "--no-targets", "--json").stdout)
    assert {one["check"] for one in found if one["level"] in {"warning", "fault"}} <= {"persistence", "foreign keys"}


EVERY_SECOND = (
    *("schedules", "add", "report", "--id", "every-second", "--every", "PT1S"),
    *("--payload", '{"month": "2026-02-01"}', "--more", '{"limit": 3}'),
)


def a_schedule(newcomer: Newcomer, api: Api) -> None:
    """From the command line, through the own function, to the end that its limit sets."""
    added = newcomer.sees(*EVERY_SECOND)
    assert added["created"]
    schedule = until(lambda: ended(newcomer), seconds=60, every=0.2)
    assert [one["state"] for one in schedule["recent"]] == ["done"] * 3
    for one in schedule["recent"]:
        assert api.done(one["id"])["result"] == {"pages": 60}
    assert [one["id"] for one in newcomer.sees("schedules", "list")["schedules"]] == ["every-second"]


def ended(newcomer: Newcomer) -> Any:
    schedule = newcomer.sees("schedules", "show", "every-second")["schedule"]
    over = schedule["fired"] == 3 and all(one["state"] == "done" for one in schedule["recent"])
    return schedule if over else None
