"""Hostile expressions at every door: the HTTP API's tasks and queries, and the poll that applies them to an answer."""

from collections.abc import Iterator
from functools import cache
from itertools import cycle
from operator import itemgetter
from typing import Any

import pytest

from duecourse.calls.jmespath_eval import MAX_CPU_S
from duecourse_local.harness.stack import Stack
from tests.support.api import Api
from tests.support.cpu import used_s
from tests.support.hostile import ANSWERS, BOUNDED, HEAVY, UNREADABLE
from tests.support.http_server import ReceivedRequest, Reply, Server, answering
from tests.support.matrix import some
from tests.support.wait import until

ENVIRONMENT = {"DUECOURSE_BRIDGE_IN_FLIGHT": "1"}
CPU_S = 2 * MAX_CPU_S + 0.25
"""Processor time of one poll, that of the function around the expression with it."""


@pytest.fixture(scope="module")
def hostile() -> Iterator[Server]:
    made = cache(lambda path: ANSWERS[path]())

    def answer(asked: ReceivedRequest) -> Reply:
        return Reply(200, made(asked.path), {"content-type": "application/json"})

    with answering(answer) as server:
        yield server


def poll(url: str, **expressions: str) -> dict[str, Any]:
    return {"kind": "poll", "payload": {"url": url, "interval": "PT1H", "until": "`false`", **expressions}}


def ended(api: Api, id: str) -> Any:
    """The task, once it has run."""
    return until(lambda: task if (task := api.task(id))["history"] else None, every=0.02)


def test_there_are_as_many_as_promised() -> None:
    assert len({*UNREADABLE, *HEAVY, *BOUNDED}) >= 100


def polled(stack: Stack, api: Api, url: str, until: str) -> tuple[Any, float]:
    """The task of a poll after its first run, and the processor time of that in seconds."""
    before = used_s(stack, "OnExpiredFunction")
    id = api.post("/tasks", poll(url, until=until))["task"]["id"]
    task = ended(api, id)
    return task, used_s(stack, "OnExpiredFunction") - before


FIELDS = list(zip(cycle(["until", "failed_when", "result"]), UNREADABLE, strict=False))


@pytest.mark.parametrize(("field", "expression"), FIELDS, ids=range(len(FIELDS)))
def test_an_expression_that_no_answer_fits_is_rejected_with_its_field(api: Api, field: str, expression: str) -> None:
    status, answer = api.call("POST", "/tasks", poll("https://example.com", **{field: expression}))
    assert (status, [error["field"] for error in answer["errors"]]) == (422, [f"payload.{field}"]), answer
    query = {"url": "https://example.com", "until": "`true`", field: expression}
    assert api.call("POST", "/queries", query)[0] == 422


@pytest.mark.parametrize(("path", "expression"), some(HEAVY, kind=itemgetter(0)))
def test_an_expression_that_is_too_much_for_its_answer_ends_its_task_with_that_reason_and_soon(
    stack: Stack, api: Api, hostile: Server, path: str, expression: str
) -> None:
    task, used = polled(stack, api, hostile.url + path, expression)
    assert task["state"] == "dead", task
    assert "narrow it" in task["error"] or "8 MiB" in task["error"]
    assert used < CPU_S


def test_a_result_of_many_long_numbers_is_not_written_out(stack: Stack, api: Api, hostile: Server) -> None:
    """16,384 places with a number of 4,300 digits each: 4 s of the processor, which no other thread had meanwhile."""
    before = used_s(stack, "OnExpiredFunction")
    expressions = {"until": "@", "result": "a|" + "|".join(["[@,@,@,@]"] * 7)}
    task = ended(api, api.post("/tasks", poll(f"{hostile.url}/whole", **expressions))["task"]["id"])
    assert (task["state"], "the result is over 64 KiB" in task["error"]) == ("dead", True)
    assert used_s(stack, "OnExpiredFunction") - before < CPU_S


@pytest.mark.parametrize(("path", "expression"), some(BOUNDED, kind=itemgetter(0)))
def test_an_expression_within_its_bounds_ends_waits_or_is_retried_and_shows_nothing_of_python(
    stack: Stack, api: Api, hostile: Server, path: str, expression: str
) -> None:
    task, used = polled(stack, api, hostile.url + path, expression)
    assert task["history"][0]["outcome"] in {"done", "again", "retry", "drop"}
    assert not any(sign in str(task) for sign in ("Traceback", "<class", "object at 0x", "builtin_function"))
    assert used < CPU_S
    api.call("DELETE", f"/tasks/{task['id']}")
