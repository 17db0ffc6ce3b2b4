"""The harness held against SAM: the same event, the same answer, the same error, the same environment.

Without a container engine SAM's answer is that of the parts it ships: its own builder of the environment, and AWS's
Runtime Interface Emulator, which is what runs in sam's containers, over the same runtime client. With an engine it is
that of `sam local invoke` and `sam local start-lambda`. The name of a test tells which it was: [parts] or [engine].
"""

import json
import os
import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from duecourse_local.harness.environment import Environment
from duecourse_local.harness.options import Options, Precision
from duecourse_local.harness.stack import Stack
from duecourse_local.harness.template import Function
from duecourse_local.project import bundle
from tests.support.emulator import local_stack
from tests.support.functions import cases, saved
from tests.support.matrix import LENGTHY
from tests.support.sam import (
    SAM_PYTHON,
    ask,
    emulated,
    env_vars,
    in_container,
    need_engine,
    reachable_redis,
    sam_environment,
    sam_local,
    start_lambda,
)

pytestmark = [
    pytest.mark.skipif(not SAM_PYTHON.exists(), reason="no .venv-sam: make sam sets it up and runs this"),
    LENGTHY,
    pytest.mark.slow,
]

FOLDERS = ("on_expired", "on_undelivered", "poll_tick", "send_reminder", "enqueue_message", "enqueue_http")
"""Those that add tasks come last: when the others find a task due is a matter of time, and so of luck."""
SENT = {"from_sqs", "from_rabbitmq"}
"""Messages that carry no lease are sent: out of a container to AWS itself, as sam hands no other endpoint on."""
DIFFERS = {
    "AWS_SAM_LOCAL": "says that it is sam; the harness is not",
    "AWS_LAMBDA_FUNCTION_TIMEOUT": "sam tells its emulator by it; Lambda sets no such variable",
    "AWS_LAMBDA_FUNCTION_HANDLER": "sam tells its emulator by it; Lambda's is _HANDLER",
    "AWS_LAMBDA_LOG_STREAM_NAME": "on Lambda, and here, one a process; with sam the same for all",
    "AWS_ACCESS_KEY_ID": "both are dummies, each its own",
    "AWS_SECRET_ACCESS_KEY": "both are dummies, each its own",
}
"""What sam sets and the harness does not, or not so, and why."""


class Sides(NamedTuple):
    stack: Stack
    functions: dict[str, Function]
    environment: Environment


@contextmanager
def begun() -> Iterator[Sides]:
    """The harness with the project's own template, and what it knows of its functions by their folders."""
    with local_stack(Options(precision=Precision.TICK, tick=0)) as stack:
        services = stack._services
        yield Sides(stack, {f.code.name: f for f in services.described}, services._environment)


@pytest.fixture(scope="module")
def sides() -> Iterator[Sides]:
    with begun() as found:
        yield found


def logging_of(function: Function) -> dict[str, str]:
    """The function's LoggingConfig, from what the harness made of it."""
    names = {"LogGroup": "AWS_LAMBDA_LOG_GROUP_NAME", "LogFormat": "AWS_LAMBDA_LOG_FORMAT"}
    names["ApplicationLogLevel"] = "AWS_LAMBDA_LOG_LEVEL"
    return {key: function.environment[name] for key, name in names.items()}


def test_every_folder_of_events_is_held_against_sam() -> None:
    assert set(bundle.functions()) == set(FOLDERS)


@pytest.mark.parametrize("folder", FOLDERS)
def test_a_function_finds_the_variables_that_sam_gives_it(sides: Sides, folder: str) -> None:
    function = sides.functions[folder]
    ours, sams = sides.environment.of(function, "127.0.0.1:1"), sam_environment(function, logging_of(function))
    # A secret and a key of KMS on AWS, which sam local does not read: the harness has its own.
    sams |= {name: ours[name] for name in ("DUECOURSE_STORE", "DUECOURSE_SEAL_KEY") if name in sams}
    different = {name for name, value in sams.items() if ours.get(name) != value}
    assert different == set(DIFFERS)


Asking = Callable[[str, list[Any]], list[Any]]


class Beside(NamedTuple):
    """The harness, and what SAM answers to a folder's events."""

    sides: Sides
    sam: Asking


@pytest.fixture(scope="module", params=["parts", "engine"])
def beside(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Beside]:
    """Both begin with an empty ledger."""
    if request.param == "parts":
        with begun() as sides:
            yield Beside(sides, _by_parts(sides, sides.stack.store.removesuffix("/0") + "/1"))
        return
    need_engine("sam local invoke")
    with begun() as sides, reachable_redis() as (_, there):
        variables = env_vars(tmp_path_factory.mktemp("sam"), there)
        with start_lambda(variables) as url:
            yield Beside(sides, _by_engine(sides, variables, url))


def _by_parts(sides: Sides, store: str) -> Asking:
    def answer(folder: str, events: list[Any]) -> list[Any]:
        function = sides.functions[folder]
        environment = {
            **sam_environment(function, logging_of(function)),
            "DUECOURSE_STORE": store,
            "DUECOURSE_SEAL_KEY": sides.environment.settings(function).get("DUECOURSE_SEAL_KEY", ""),
            "AWS_ENDPOINT_URL": sides.stack.aws,
            # What the runtime's image brings along.
            "PATH": os.environ["PATH"],
            "PYTHONPATH": os.pathsep.join(map(str, [function.code, *function.layers])),
        }
        with emulated(function, environment) as url:
            return [ask(url, event) for event in events]

    return answer


def _by_engine(sides: Sides, variables: Path, url: str) -> Asking:
    """The first event as a user sends it; the rest to a container that stays, a fraction of a second each."""

    def answer(folder: str, events: list[Any]) -> list[Any]:
        name = sides.functions[folder].logical_id
        words = ["invoke", name, "--event", "-", *in_container(variables)]
        first = json.loads(sam_local(words, json.dumps(events[0])).strip().splitlines()[-1])
        return [first, *(ask(url, event, name) for event in events[1:])]

    return answer


def alike(answer: Any) -> Any:
    """An answer without what differs from one run to the next: instants (in cursors too), request ids, code's folders.

    And how long something is overdue: a call that failed is tried again after a time that is drawn.
    """
    text = json.dumps(answer, sort_keys=True)
    text = re.sub(r"\d{4}-\d\d-\d\dT[\d:.]+Z", "<instant>", text)
    text = re.sub(r'(next_cursor\\":\s*\\")[^"\\]+', r"\1<cursor>", text)
    text = re.sub(r'(oldest_overdue\\":\s*\\")[^"\\]+', r"\1<duration>", text)
    text = re.sub(r'File \\"[^"]*/', r'File \\"', text)
    text = re.sub(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}", "<request>", text)
    return json.loads(re.sub(r"\b1[789]\d{11}\b", '"<ms>"', text))


@pytest.mark.parametrize("folder", FOLDERS)
def test_the_same_event_gets_the_same_answer_and_the_same_error(
    request: pytest.FixtureRequest, beside: Beside, folder: str
) -> None:
    sides = beside.sides
    left_out = SENT if folder == "send_reminder" and "engine" in request.node.name else set()
    names = sorted(cases(folder) - left_out)
    events = [saved(f"{folder}/{name}") for name in names]
    theirs = dict(zip(names, map(alike, beside.sam(folder, events)), strict=True))
    answers = [sides.stack.invoke(sides.functions[folder].name, event) for event in events]
    ours = {name: alike(json.loads(answer.payload)) for name, answer in zip(names, answers, strict=True)}
    assert ours == theirs
    for name, answer in zip(names, answers, strict=True):
        refused = name.startswith("bad_") and folder != "enqueue_http"
        assert (answer.error == "Unhandled") == refused, name
        if refused:
            assert ours[name].keys() == {"errorType", "errorMessage", "requestId", "stackTrace"}
