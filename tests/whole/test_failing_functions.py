"""A function that cannot start, times out or dies: its attempt's error says so at once, long before a lease lapses."""

import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import urllib3

from duecourse_local.cli.scaffold import NewFunction, with_function
from duecourse_local.harness.options import PARAMETERS, Options
from tests.support.api import Api
from tests.support.emulator import local_stack
from tests.support.matrix import in_turn
from tests.support.project import copy_project
from tests.support.wait import until

FAILING = Path(__file__).parent / "fixtures/failing"
ERRORS = {
    "import": "Runtime.ImportModuleError: Unable to import module 'app'",
    "exit": "Runtime.ExitError",
    "slow": "Task timed out after 2.00 seconds",
}


@pytest.fixture(scope="module")
def api(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Api]:
    template = copy_project(tmp_path_factory.mktemp("project"))
    text = template.read_text()
    for mode in ERRORS:
        text = with_function(text, NewFunction(mode, mode)).replace(
            f"functions/{mode}\n      Timeout: 30", f"functions/{mode}\n      Timeout: 2"
        )
        shutil.copytree(FAILING, template.parent / "functions" / mode)
    template.write_text(text)
    options = Options(template=template, parameters=PARAMETERS)
    with urllib3.PoolManager(retries=False, timeout=30) as http, local_stack(options) as stack:
        yield Api(http, stack.api)


@pytest.mark.parametrize("mode", in_turn(*ERRORS))
def test_how_a_function_failed_is_the_error_of_the_attempt(api: Api, mode: str) -> None:
    retry = {"max_attempts": 2, "backoff": "PT1H"}
    api.post("/tasks", {"id": mode, "kind": mode, "payload": {}, "retry": retry})

    def failed() -> Any:
        task = api.task(mode)
        return task if task.get("error") else None

    task = until(failed, every=0.1)
    assert ERRORS[mode] in task["error"]
    assert (task["state"], task["run"], task["attempt"]) == ("scheduled", 1, 2)
    assert [run["outcome"] for run in task["history"]] == ["retry"]
    told = [one["error"] for one in api.call("GET", f"/tasks/{mode}/why")[1]["timeline"] if one.get("error")]
    assert told == [task["error"]]
