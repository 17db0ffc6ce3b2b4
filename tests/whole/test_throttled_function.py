"""A backlog for a function that runs one invocation at a time: every task runs once, and none dies of the wait."""

import shutil
from collections import Counter
from pathlib import Path

import pytest
import urllib3

from duecourse_local.cli.scaffold import NewFunction, with_function
from duecourse_local.harness.options import PARAMETERS, Options
from tests.support.api import Api
from tests.support.emulator import local_stack
from tests.support.matrix import in_turn
from tests.support.project import copy_project
from tests.support.wait import until

FIXTURE = Path(__file__).parent / "fixtures/throttled"
TASKS, BATCH = 150, 50


def project(folder: Path) -> Path:
    """The template of a project with the function, which runs once at a time."""
    template = copy_project(folder)
    text = with_function(template.read_text(), NewFunction("throttled", "throttled"))
    at = "CodeUri: functions/throttled\n"
    assert at in text
    template.write_text(text.replace(at, f"{at}      ReservedConcurrentExecutions: 1\n"))
    shutil.copytree(FIXTURE, template.parent / "functions/throttled")
    return template


@pytest.mark.parametrize("store", in_turn(None, "memory://"))
def test_a_backlog_of_a_throttled_function_runs_once_each(tmp_path: Path, store: str | None) -> None:
    lines: list[tuple[str, str]] = []
    notes = tmp_path / "notes"
    options = Options(
        template=project(tmp_path), parameters=PARAMETERS, store=store, on_line=lambda *line: lines.append(line)
    )
    with urllib3.PoolManager(retries=False, timeout=30) as http, local_stack(options) as stack:
        api = Api(http, stack.api)
        payload = {"notes": str(notes), "seconds": 0.05}
        tasks = [
            {"id": f"t{n}", "kind": "throttled", "payload": payload, "retry": {"max_attempts": 1}} for n in range(TASKS)
        ]
        for first in range(0, TASKS, BATCH):
            assert api.call("POST", "/tasks/batch", {"tasks": tasks[first : first + BATCH]})[0] == 200
        until(lambda: notes.exists() and len(set(notes.read_text().split())) == TASKS, seconds=90)
        until(lambda: not api.call("GET", "/tasks?state=leased")[1]["tasks"])
        assert api.call("GET", "/tasks?state=dead")[1]["tasks"] == []
    assert set(Counter(notes.read_text().split()).values()) == {1}
    assert [line for name, line in lines if name == "lambda" and "events that wait" in line]
