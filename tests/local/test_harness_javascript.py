"""Functions written in JavaScript, as the harness runs them, called through boto3."""

import shutil
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from tests.support.harness import Probes, probes
from tests.support.needs import need_node
from tests.support.wait import until

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def stack() -> Iterator[Probes]:
    need_node()
    with probes("node.yaml") as running:
        yield running


def test_a_node_function_answers_with_its_environment_and_context(stack: Probes) -> None:
    answer = stack.invoke("Echo", {"a": [1, "ü"]}).payload
    found = answer["environment"]
    assert answer["event"] == {"a": [1, "ü"]}
    assert (found["COLOUR"], found["AWS_EXECUTION_ENV"]) == ("green", "AWS_Lambda_nodejs20.x")
    assert 9_000 < answer["remaining"] <= 10_000
    assert answer["context"]["functionName"] == "Echo"
    assert not {"HOME", "PYTHONPATH", "PYTEST_CURRENT_TEST"} & set(found)


def test_one_process_serves_one_request_after_the_other(stack: Probes) -> None:
    assert len({stack.invoke("Echo").payload["pid"] for _ in range(20)}) == 1


@pytest.mark.parametrize(
    ("function", "answer"),
    [
        ("CalledBack", {"back": {"a": 1}}),
        ("Silent", None),
        ("Uncalled", None),
        ("Late", "late"),
        ("Old", "from CommonJS"),
    ],
)
def test_a_handler_may_call_back_say_nothing_or_be_of_the_older_kind(
    stack: Probes, function: str, answer: object
) -> None:
    assert stack.invoke(function, {"a": 1}).payload == answer


@pytest.mark.parametrize(
    ("function", "kind", "message"),
    [
        ("Raising", "RangeError", "too far"),
        ("Unawaited", "TypeError", "nobody awaits"),
        ("Absent", "Runtime.ImportModuleError", "Cannot find module"),
        ("Nameless", "Runtime.HandlerNotFound", "index.nobody is undefined or not exported"),
        ("Unsettled", "Runtime.NodeJsExit", "promise was never settled"),
        ("Stray", "Runtime.UnhandledPromiseRejection", "RangeError: strayed"),
        ("Unheard", "TypeError", "BigInt"),
        ("Unfinished", "Runtime.UserCodeSyntaxError", "SyntaxError: Unexpected token"),
        ("Lacking", "Runtime.ImportModuleError", "Cannot find module 'nothing-of-this-name'"),
        ("Hasty", "Runtime.UnhandledPromiseRejection", "RangeError: at the start"),
        ("Dotless", "Runtime.MalformedHandlerName", "must be <file>.<export>"),
        ("Slow", "Sandbox.Timedout", "Task timed out after 1.00 seconds"),
        ("Foreign", "Runtime.InvalidRuntime", "java21 cannot be run here"),
    ],
)
def test_what_goes_wrong_is_told_as_lambda_tells_it(stack: Probes, function: str, kind: str, message: str) -> None:
    answer = stack.invoke(function, {})
    assert (answer.error, answer.payload["errorType"]) == ("Unhandled", kind)
    assert message in answer.payload["errorMessage"]


def test_a_process_that_leaves_is_reported_and_replaced(stack: Probes) -> None:
    for _ in range(2):
        assert "exit status 3" in stack.invoke("Leaving", {"code": 3}).payload["errorMessage"]


def test_an_error_between_two_invocations_ends_the_process_and_spoils_neither(stack: Probes) -> None:
    assert stack.invoke("After").error is None
    [first] = stack.stack.pids()["functions"]["After"]
    until(lambda: not psutil.pid_exists(first))
    assert stack.invoke("After").error is None
    assert stack.stack.pids()["functions"]["After"] != [first]


def test_without_a_node_on_path_the_function_alone_does_not_start_and_says_why(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    if redis := shutil.which("redis-server"):
        (tmp_path / "redis-server").symlink_to(redis)
    monkeypatch.setenv("PATH", str(tmp_path))
    with probes("node.yaml") as stack:
        answer = stack.invoke("Echo", {})
        assert answer.error == "Unhandled"
        assert "nodejs20.x needs a node on PATH: install Node.js" in answer.payload["errorMessage"]
        assert any(notice.startswith("Echo does not start") for notice in stack.notices)
