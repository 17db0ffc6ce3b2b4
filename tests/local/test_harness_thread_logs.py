"""Logs of functions that are threads."""

import json
import logging
import threading
from pathlib import Path

import pytest

from duecourse_local.harness.intrinsics import Addresses
from duecourse_local.harness.template import Function, Template
from duecourse_local.harness.thread_logs import OUTPUT, FunctionLogs

NOWHERE = "http://127.0.0.1:9"
TEMPLATE = """
Resources:
  It:
    Type: AWS::Serverless::Function
    Properties: {Handler: a.b, CodeUri: ., LoggingConfig: {LogFormat: JSON}}
"""


@pytest.fixture
def function(tmp_path: Path) -> Function:
    (tmp_path / "template.yaml").write_text(TEMPLATE)
    (found,) = Template(tmp_path / "template.yaml", Addresses(NOWHERE, NOWHERE, "memory://")).functions
    return found


def test_a_log_on_a_functions_thread_is_in_that_functions_log_as_on_lambda(function: Function) -> None:
    heard, rest = list[bytes](), list[bytes]()
    with OUTPUT.redirect(rest.append), FunctionLogs([function]) as logs, OUTPUT.of(heard.append, "It", "id-1"):
        logs.add(function, rest.append)
        logging.getLogger("duecourse.on_expired").info("left out", extra={"keys": ["k"]})
    record = json.loads(b"".join(heard))
    assert (record["level"], record["message"], record["keys"], rest) == ("INFO", "left out", ["k"], [])
    assert record["requestId"] == "id-1"


def test_a_log_on_an_engines_thread_is_in_the_log_of_the_function_whose_code_it_is(function: Function) -> None:
    log, rest, own = logging.getLogger("mine"), list[bytes](), list[bytes]()

    def work() -> None:
        for place in (str(function.code / "a.py"), "/somewhere/library.py"):
            for level in (logging.INFO, logging.WARNING):
                log.handle(log.makeRecord("mine", level, place, 1, Path(place).name, (), None))

    with OUTPUT.redirect(rest.append), FunctionLogs([function]) as logs:
        logs.add(function, own.append)
        thread = threading.Thread(target=work)
        thread.start()
        thread.join()
    assert [(json.loads(line)["message"], json.loads(line)["level"]) for line in own] == [
        ("a.py", "INFO"),
        ("a.py", "WARNING"),
    ]
    assert [json.loads(line)["message"] for line in rest] == ["library.py"], "warnings of others, and no more"


def test_the_root_logger_is_as_before_afterwards(function: Function) -> None:
    root = logging.getLogger()
    before = root.level, list(root.handlers)
    with FunctionLogs([function]):
        assert logging.DEBUG < root.level <= logging.INFO
    assert (root.level, list(root.handlers)) == before
