"""Levels and formats of a function's log, as Lambda has them: by the template's LoggingConfig."""

import base64
import json
from collections.abc import Iterator

import pytest

from tests.support.harness import Probes, probes

LEVELS = ["DEBUG", "INFO", "WARNING", "ERROR"]


@pytest.fixture(scope="module", params=[None, "memory://"], ids=["processes", "threads"])
def stack(request: pytest.FixtureRequest) -> Iterator[Probes]:
    with probes("logging.yaml", store=request.param) as running:
        yield running


def logged(stack: Probes, function: str, **event: str) -> tuple[str, list[str]]:
    """The id of a request, and what its function logged."""
    answer = stack.invoke(function, event, LogType="Tail").response
    _, *lines, _, _ = base64.b64decode(answer["LogResult"]).decode().splitlines()
    return answer["ResponseMetadata"]["RequestId"], lines


@pytest.mark.parametrize(("function", "least"), [("Structured", "INFO"), ("Detailed", "DEBUG"), ("Terse", "ERROR")])
def test_a_json_log_has_all_from_its_level_and_info_by_default(stack: Probes, function: str, least: str) -> None:
    id, lines = logged(stack, function)
    records = [json.loads(line) for line in lines]
    assert [record["level"] for record in records] == LEVELS[LEVELS.index(least) :]
    assert {(record["logger"], record["message"], record["requestId"]) for record in records} == {("mine", "hello", id)}


def test_a_text_log_has_warnings_as_pythons_root_logger_says(stack: Probes) -> None:
    id, lines = logged(stack, "Text")
    assert [line.split("\t")[0] for line in lines] == ["[WARNING]", "[ERROR]"]
    assert [line.split("\t")[2:] for line in lines] == [[id, "hello"]] * 2


def test_a_logger_with_a_level_of_its_own_is_heard_in_a_text_log(stack: Probes) -> None:
    _, lines = logged(stack, "Text", logger="own", level="INFO")
    assert [line.split("\t")[0] for line in lines] == ["[INFO]", "[WARNING]", "[ERROR]"]


def test_code_that_sets_the_roots_level_is_heard_in_a_text_log(stack: Probes) -> None:
    try:
        _, lines = logged(stack, "Text", logger="root", level="INFO")
    finally:
        logged(stack, "Text", logger="root", level="WARNING")
    assert [line.split("\t")[0] for line in lines] == ["[INFO]", "[WARNING]", "[ERROR]"]
