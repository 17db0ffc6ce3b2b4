"""The wheel, installed where this tree is not: a project is written, run, tested, and built by sam."""

import os
import subprocess
from pathlib import Path

import pytest
import urllib3

from duecourse.ledger import script_calls
from duecourse.ledger.embedded.in_process_redis import LIBRARIES
from duecourse_local.harness.intrinsics import Addresses
from duecourse_local.harness.options import PARAMETERS
from duecourse_local.harness.template import Template
from tests.support.api import Api
from tests.support.commands import BARE, run, up
from tests.support.matrix import LENGTHY, MATRIX
from tests.support.project import ROOT
from tests.support.wheel import build, contents, installed, unpacked

pytestmark = LENGTHY

SAM = ROOT / ".venv-sam/bin"


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build("wheel", tmp_path_factory.mktemp("dist"))


@pytest.fixture(scope="module")
def duecourse(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> tuple[str]:
    """The command, of a Python that has the wheel and not this tree."""
    return (str(installed(wheel, tmp_path_factory.mktemp("venv")) / "duecourse"),)


@pytest.fixture(scope="module")
def project(duecourse: tuple[str], tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder after `duecourse init` and `duecourse new`."""
    folder = tmp_path_factory.mktemp("billing")
    for words in (["init"], ["new", "send_bill", "--kind", "bill"]):
        made = run(*words, project=folder, program=duecourse)
        assert made.returncode == 0, made.stderr
    share(folder)
    return folder


KINDS = """
from duecourse import Kind
from pydantic import BaseModel

class Bill(BaseModel):
    month: str

bill = Kind("bill", payload=Bill, result=str)
"""
BILL = """
from duecourse import Task
from shared.kinds import Bill, bill

@bill.handler
def handler(task: Task[Bill]) -> str:
    return f"bill of {task.payload.month}"
"""
TEST = """
from duecourse.testing import Duecourse
from functions.send_bill.app import handler
from shared.kinds import Bill, bill

def test_one_bill(duecourse: Duecourse) -> None:
    duecourse.handle("bill", handler)
    task = bill.on(duecourse.client).add(Bill(month="2026-10")).task
    duecourse.advance("1s")
    assert duecourse.client.get(task.id).result == "bill of 2026-10"
"""


def share(project: Path) -> None:
    """Write a typed kind that a function, its test and the app import."""
    (project / "layer/python/shared/kinds.py").write_text(KINDS)
    (project / "functions/send_bill/app.py").write_text(BILL)
    (project / "tests/test_send_bill.py").write_text(TEST)


def test_the_sdist_builds_the_same_wheel(wheel: Path, tmp_path: Path) -> None:
    source = unpacked(build("sdist", tmp_path / "sdist"), tmp_path / "source")
    again = contents(build("wheel", tmp_path / "again", source))
    assert {name for name, content in contents(wheel).items() if again.pop(name, None) != content} == set()
    assert again == {}


def test_the_wheel_has_the_bundle_and_the_library_once(wheel: Path) -> None:
    names = contents(wheel).keys()
    assert [name for name in names if name.endswith("duecourse/client/client.py")] == ["duecourse/client/client.py"]
    tracked = subprocess.run(
        ["git", "ls-files", "template.yaml", "functions", "events", "layers"],
        cwd=ROOT, capture_output=True, text=True, check=False,
    )  # fmt: skip
    if tracked.returncode == 0:
        parts = {name for name in tracked.stdout.splitlines() if not name.startswith("layers/core/duecourse/")}
        parts.remove("layers/core/lua_linker.py")
        assert {f"duecourse_local/bundle/{name}" for name in parts} <= names


def test_the_wheel_has_each_script_linked_and_neither_sources_nor_linker(wheel: Path) -> None:
    found = {name: content.decode() for name, content in contents(wheel).items() if name.endswith(".lua")}
    linked = "duecourse/ledger/linked"
    assert found == {
        "duecourse/ledger/embedded/libraries.lua": LIBRARIES.read_text(),
        **{f"{linked}/{verb}.lua": script_calls.script_text(verb) for verb in script_calls.verbs()},
        **{f"{linked}/resident/{verb}.lua": script_calls.cached_script_text(verb) for verb in script_calls.verbs()},
    }


@MATRIX
def test_a_task_of_the_projects_own_function_is_done(
    duecourse: tuple[str], project: Path, http: urllib3.PoolManager, tmp_path: Path
) -> None:
    with up(tmp_path / "state", project=project, program=duecourse) as stack:
        api = Api(http, stack.line["api"])
        api.post("/tasks", {"id": "first", "kind": "report", "payload": {"hello": "world"}})
        assert api.done("first")["result"] == {"seen": {"hello": "world"}}
        api.post("/tasks", {"id": "second", "kind": "bill", "payload": {"month": "2026-10"}})
        assert api.done("second")["result"] == "bill of 2026-10"
        state = ("--state", str(tmp_path / "state"))
        shown = run("show", "second", "--stack", str(tmp_path / "state"), project=project, program=duecourse)
        assert "bill" in shown.stdout
        event = ("-e", "events/report/one_task.json")
        assert '"stale": 1' in run("invoke", "report", *event, *state, project=project, program=duecourse).stdout
        settings = run("run", *state, "env", project=project, program=duecourse).stdout
        assert '"bill": "lambda:duecourse-send_bill"' in settings


def test_the_projects_tests_pass(duecourse: tuple[str], project: Path) -> None:
    tested = run("test", "-p", "no:cacheprovider", project=project, program=duecourse)
    assert tested.returncode == 0, tested.stdout + tested.stderr
    assert "3 passed" in tested.stdout


def test_a_second_init_changes_nothing_and_says_what_is_there(duecourse: tuple[str], project: Path) -> None:
    refused = run("init", project=project, program=duecourse)
    assert (refused.returncode, refused.stdout) == (2, "")
    assert "already has" in refused.stderr
    assert "template.yaml" in refused.stderr


KINDS_OF_A_WORKER = """
from duecourse import Done, Task, task_handler

@task_handler(kind="report")
def report(task: Task) -> Done:
    return Done({"month": task.payload["month"]})
"""


def test_a_folder_with_a_package_is_enough_for_a_stack_with_a_worker(
    duecourse: tuple[str], http: urllib3.PoolManager, tmp_path: Path
) -> None:
    folder, state = tmp_path / "shop", tmp_path / "shop/.duecourse"
    (folder / "myapp").mkdir(parents=True)
    (folder / "myapp/kinds.py").write_text(KINDS_OF_A_WORKER)
    with up(state, project=folder, program=duecourse, DUECOURSE_TARGETS='{"report": "worker"}') as stack:
        api = Api(http, stack.line["api"])
        api.post("/tasks", {"id": "first", "kind": "report", "payload": {"month": "2026-10"}})
        words = (*duecourse, "run", "duecourse", "worker", "--import", "myapp.kinds")
        with subprocess.Popen(words, cwd=folder, env=BARE) as worker:
            try:
                assert api.done("first")["result"] == {"month": "2026-10"}
            finally:
                worker.terminate()
    assert "no project here" in state.with_suffix(".err").read_text()
    assert {path.name for path in folder.iterdir()} == {".duecourse", ".duecourse.err", "myapp"}


def test_a_command_that_needs_a_project_says_how_to_get_one(duecourse: tuple[str], tmp_path: Path) -> None:
    for words in (["test"], ["build"], ["new", "report"]):
        refused = run(*words, project=tmp_path, program=duecourse)
        assert refused.returncode == 2, words
        assert "run duecourse init in an empty folder" in " ".join(refused.stderr.split())
    assert list(tmp_path.iterdir()) == []


def test_a_build_without_sam_says_how_to_install_it(duecourse: tuple[str], project: Path, tmp_path: Path) -> None:
    refused = run("build", project=project, program=duecourse, PATH=str(tmp_path))
    assert (refused.returncode, refused.stderr) == (2, "sam is not on PATH: install it with pipx install aws-sam-cli\n")


@pytest.mark.matrix
def test_the_demo_plays_anywhere(duecourse: tuple[str], tmp_path: Path) -> None:
    played = run("demo", project=tmp_path, program=duecourse)
    assert played.returncode == 0, played.stdout + played.stderr
    assert "All checks passed" in played.stdout


@pytest.mark.matrix
@pytest.mark.skipif(not (SAM / "sam").exists(), reason="make sam has not been run here: no sam to build with")
def test_sam_takes_and_builds_the_project(duecourse: tuple[str], project: Path, wheel: Path) -> None:
    environment = {**os.environ, "PATH": f"{SAM}{os.pathsep}{os.environ['PATH']}", "SAM_CLI_TELEMETRY": "0"}
    environment["PIP_FIND_LINKS"] = f"{environment.get('PIP_FIND_LINKS', '')} {wheel.parent}"
    for words in ([SAM / "sam", "validate", "--lint"], [*duecourse, "build"]):
        done = subprocess.run(words, cwd=project, env=environment, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stdout + done.stderr
    built = project / ".aws-sam/build"
    assert (built / "Duecourse/CoreLayer/python/duecourse/client.py").is_file()
    assert (built / "Duecourse/OnExpiredFunction/app.py").is_file()
    taken = Template(built / "template.yaml", Addresses("", "", ""), PARAMETERS).functions
    [layer] = next(function.layers for function in taken if function.logical_id == "SendBillFunction")
    assert (layer / "shared/kinds.py").is_file()
    for function in ("ReportFunction", "SendBillFunction"):
        assert (built / function / "app.py").is_file()
        assert (built / function / "duecourse/client/client.py").read_bytes() == (
            ROOT / "layers/core/duecourse/client/client.py"
        ).read_bytes()
