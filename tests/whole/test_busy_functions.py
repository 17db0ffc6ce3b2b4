"""A function that has less room than there are tasks, or dies among them: none ends that was never begun."""

import shutil
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from math import ceil
from pathlib import Path
from typing import Any

import urllib3

from duecourse.base.times import parse_duration
from duecourse_local.cli.scaffold import NewFunction, with_function
from duecourse_local.harness.options import PARAMETERS, Options
from tests.support.api import Api
from tests.support.emulator import local_stack
from tests.support.matrix import LENGTHY, MATRIX
from tests.support.project import copy_project
from tests.support.wait import until

BUSY = Path(__file__).parent / "fixtures/busy"
ONCE = {"max_attempts": 1}
"""A policy by which a task that spends an attempt is dead."""
MANY = 100
"""The most tasks of one batch."""


@contextmanager
def stack(folder: Path, name: str, age_s: int, lease: str, timeout_s: int = 30) -> Iterator[Api]:
    """A stack with one function `name`, of which one invocation runs at a time."""
    template = copy_project(folder)
    limits = f"functions/{name}\n      ReservedConcurrentExecutions: 1\n      Timeout: {timeout_s}"
    text = with_function(template.read_text(), NewFunction(name, name)).replace(f"functions/{name}", limits)
    own = text.rindex("MaximumEventAgeInSeconds: 60", 0, text.index("DestinationConfig", text.index(limits)))
    template.write_text(text[:own] + text[own:].replace("60", str(age_s), 1))
    shutil.copytree(BUSY, template.parent / "functions" / name)
    options = Options(template=template, parameters=PARAMETERS, tick=1, environment={"DUECOURSE_DELIVERY_LEASE": lease})
    with urllib3.PoolManager(retries=False, timeout=30) as http, local_stack(options) as made:
        yield Api(http, made.api)


def add(api: Api, kind: str, payloads: list[dict[str, Any]]) -> None:
    tasks = [{"id": f"t{n}", "kind": kind, "payload": payload, "retry": ONCE} for n, payload in enumerate(payloads)]
    for first in range(0, len(tasks), MANY):
        assert api.call("POST", "/tasks/batch", {"tasks": tasks[first : first + MANY]})[0] == 200


def ends(api: Api, count: int, seconds: float) -> list[Any]:
    """The tasks, once all have ended."""

    def ended() -> bool:
        numbers = api.call("GET", "/queues/default")[1]["queue"]["tasks"]
        return bool(numbers["done"] + numbers["dead"] == count)

    until(ended, seconds=seconds, every=0.2)
    return [api.task(f"t{n}") for n in range(count)]


def all_ran_once(tasks: list[Any]) -> None:
    assert Counter((task["state"], task["run"], task["attempt"]) for task in tasks) == {("done", 1, 1): len(tasks)}


def assert_late_alike(api: Api, count: int) -> None:
    """The queue's lateness is that of its tasks' handlers, as each task tells it."""
    late = sorted(began["late_ms"] for n in range(count) for began in begun_of(api, f"t{n}"))
    shown = api.call("GET", "/queues/default")[1]["queue"]["lateness"]
    for share, name in ((0.5, "p50"), (0.99, "p99")):
        exact = late[ceil(share * count) - 1]
        assert exact <= parse_duration(shown[name]) <= exact * 1.13 + 1


def begun_of(api: Api, id: str) -> list[Any]:
    timeline = api.call("GET", f"/tasks/{id}/why")[1]["timeline"]
    return [one for one in timeline if "late_ms" in one]


def test_tasks_of_a_throttled_function_all_run_and_none_is_struck(tmp_path: Path) -> None:
    with stack(tmp_path, "busy", age_s=1, lease="PT3S") as api:
        add(api, "busy", [{"takes": 0.3}] * 80)
        all_ran_once(ends(api, 80, seconds=90))
        assert_late_alike(api, 80)


@MATRIX
@LENGTHY
def test_six_hundred_tasks_of_a_throttled_function_all_run(tmp_path: Path) -> None:
    with stack(tmp_path, "busy", age_s=60, lease="PT6S") as api:
        add(api, "busy", [{"takes": 1}] * 600)
        all_ran_once(ends(api, 600, seconds=500))


def test_a_task_that_ends_its_process_spends_no_attempt_of_its_neighbours(tmp_path: Path) -> None:
    with stack(tmp_path, "serial", age_s=60, lease="PT30S") as api:
        add(api, "serial", [{"exit": True}, *[{}] * 9])
        first, *others = ends(api, 10, seconds=60)
        assert (first["state"], first["run"]) == ("dead", 1)
        assert "Runtime.ExitError" in first["error"]
        all_ran_once(others)


@MATRIX
@LENGTHY
def test_tasks_that_one_invocation_has_no_time_for_all_run_in_others(tmp_path: Path) -> None:
    with stack(tmp_path, "serial", age_s=60, lease="PT60S", timeout_s=10) as api:
        add(api, "serial", [{"takes": 4}] * 10)
        all_ran_once(ends(api, 10, seconds=110))
