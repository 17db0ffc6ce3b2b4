"""Functions as threads of the harness's process, around a store that nobody else has open."""

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from botocore.exceptions import ClientError

from duecourse.app import PROCESS
from duecourse.errors import InvocationRejected
from duecourse.running.task_event import tasks_event
from duecourse.settings import Settings
from tests.support.harness import Probes
from tests.support.ledger import claim, new, stored_task
from tests.support.threads import FUNCTIONS, threads
from tests.support.wait import until


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("functions")


@pytest.fixture(scope="module")
def stack(folder: Path) -> Iterator[Probes]:
    with threads(folder) as running:
        yield running


def test_a_function_runs_in_the_harness_itself_with_what_lambda_tells_it(stack: Probes) -> None:
    answer = stack.invoke("Echo", {"a": [1, "ü"]})
    seen = answer.payload
    assert (seen["event"], seen["pid"], seen["layer"]) == ({"a": [1, "ü"]}, os.getpid(), "from the layer")
    assert (seen["name"], seen["id"]) == ("Echo", answer.response["ResponseMetadata"]["RequestId"])
    assert seen["arn"].endswith(":function:Echo")
    assert 9_000 < seen["remaining_ms"] <= 10_000
    assert stack.stack.pids() == {"bridge": None, "redis": None, "functions": {name: [] for name in FUNCTIONS}}
    assert stack.stack.in_threads


def test_a_function_is_told_its_log_group_by_its_own_configuration(stack: Probes) -> None:
    assert [stack.invoke(name).payload["log_group"] for name in ("Echo", "Other")] == ["/aws/lambda/Echo", "/its/own"]


def test_functions_share_one_environment_and_nothing_of_the_hosts_account(stack: Probes) -> None:
    seen = stack.invoke("Echo").payload["environment"]
    assert (seen["OWN"], seen["BOTH"], seen["EMPTY"]) == ("yes", "same", "not here")
    assert seen["DUECOURSE_STORE"] == "memory://"
    assert seen["AWS_ENDPOINT_URL_LAMBDA"] == stack.stack.lambda_url
    assert seen["AWS_ACCESS_KEY_ID"] == "local"


def test_each_handler_of_the_products_has_an_app_of_its_functions_own_settings(stack: Probes) -> None:
    first, other = (stack.invoke(name).payload for name in ("OfApp", "OfOther"))
    assert (first["targets"], first["parallel"]) == ({"report": "lambda:Report"}, Settings().parallel)
    assert (other["targets"], other["parallel"]) == ({}, 3)
    assert first["app"] != other["app"]


def test_a_task_saves_and_adds_in_the_one_ledger_from_threads_of_its_own_too(stack: Probes) -> None:
    ledger = PROCESS.app().ledger
    ledger.add([new("a", kind="saving")])
    assert stack.invoke("Saving", tasks_event(claim(ledger))).payload["done"] == 1
    assert stored_task(ledger, "a").state == {"step": 1}
    assert stored_task(ledger, "next").kind == "webhook"


def test_each_function_has_the_modules_of_its_own_folder(stack: Probes) -> None:
    assert stack.invoke("Echo").payload["helper"] == "one"
    assert stack.invoke("Other").payload["helper"] == "two"


def test_a_handler_that_raises_gives_the_error_and_where_it_was(stack: Probes) -> None:
    answer = stack.invoke("Raising", {}, LogType="Tail")
    assert answer.error == "Unhandled"
    assert (answer.payload["errorType"], answer.payload["errorMessage"]) == ("KeyError", "'no such thing'")
    assert "in raising" in answer.payload["stackTrace"][-1]


@pytest.mark.parametrize(("name", "event", "kind"), [
    ("Leaving", {"code": 3}, "Runtime.ExitError"),
    ("Interrupted", {}, "Runtime.ExitError"),
    ("Unspeakable", {}, "TypeError"),
    ("Unimportable", {}, "Runtime.ImportModuleError"),
])  # fmt: skip
def test_what_a_function_does_wrong_is_its_own_and_the_stack_stays(
    stack: Probes, name: str, event: Any, kind: str
) -> None:
    for _ in range(2):
        answer = stack.invoke(name, event)
        assert (answer.error, answer.payload["errorType"]) == ("Unhandled", kind)
    assert stack.invoke("Echo").error is None


def test_a_module_that_cannot_be_imported_is_told_at_the_start(stack: Probes) -> None:
    assert any(notice.startswith("Unimportable does not start") for notice in stack.notices)


def test_a_handler_that_takes_too_long_is_answered_for_and_keeps_its_place_until_it_ends(stack: Probes) -> None:
    answer = stack.invoke("Busy", {"seconds": 1.5})
    assert answer.payload["errorMessage"].endswith("Task timed out after 1.00 seconds")
    with pytest.raises(ClientError, match="TooManyRequests"):
        stack.invoke("Busy", {"seconds": 0})

    def free() -> bool:
        try:
            return stack.invoke("Busy", {"seconds": 0}).error is None
        except ClientError:
            return False

    until(free)


def test_the_engine_and_the_bridge_invoke_without_a_detour(stack: Probes) -> None:
    assert PROCESS.app().invoker.invoke("Echo", {"a": 1})["event"] == {"a": 1}
    for function, problem in (("Raising", "KeyError"), ("Nobody", "Function not found")):
        with pytest.raises(InvocationRejected, match=problem):
            PROCESS.app().invoker.invoke(function, {})
    with pytest.raises(InvocationRejected, match="Function not found"):
        PROCESS.app().invoker.send("Nobody", {})
    assert stack.stack.in_threads


def test_code_that_has_changed_is_loaded_anew(stack: Probes, folder: Path) -> None:
    assert stack.invoke("Other").payload["helper"] == "two"
    app = stack.invoke("OfOther").payload["app"]
    (folder / "two" / "helper.py").write_text("NAME = 'three, and longer'")
    until(lambda: stack.invoke("Other").payload["helper"] == "three, and longer")
    until(lambda: stack.invoke("OfOther").payload["helper"] == "three, and longer")
    assert stack.invoke("OfOther").payload["app"] == app, "kept, for it has threads"
