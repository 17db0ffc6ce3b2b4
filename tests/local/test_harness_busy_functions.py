"""Functions of the local stack that are busy: who waits for a slot, who is throttled, and what the log says of it."""

import json
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import urlencode

import pytest
import urllib3
from botocore.exceptions import ClientError
from urllib3.response import BaseHTTPResponse

from tests.support.emulator import emulator
from tests.support.harness import Probes, probes
from tests.support.wait import until

LIMIT = 10
"""Slots of a function without ReservedConcurrentExecutions."""
MANY = 40


class Busy(NamedTuple):
    """A stack, its log lines, and a folder for gates and notes."""

    stack: Probes
    lines: list[tuple[str, str]]
    folder: Path
    http: urllib3.PoolManager

    def get(self, path: str, **query: Any) -> BaseHTTPResponse:
        """The answer to a request."""
        return self.http.request("GET", f"{self.stack.stack.api}/{path}?{urlencode(query)}", timeout=60)

    def event(self, function: str, **event: Any) -> None:
        """Send an event."""
        self.stack.invoke(function, event, InvocationType="Event")

    @property
    def at_once(self) -> int:
        """Requests at a time: functions with routes take turns where they are threads."""
        return 1 if self.stack.stack.in_threads else LIMIT

    def begun(self, name: str) -> int:
        """Number of invocations of this name that began."""
        return len(list(self.folder.glob(f"{name}-*")))

    def named(self, name: str, number: int) -> str:
        return str(self.folder / f"{name}-{number}")

    def said(self, log: str, *words: str) -> Callable[[], str | None]:
        """The line of a log that has these words, once there is one."""
        return lambda: next((line for name, line in self.lines if name == log and all(w in line for w in words)), None)


@pytest.fixture(scope="module", params=["processes", "threads"])
def stack(request: pytest.FixtureRequest) -> Iterator[tuple[Probes, list[tuple[str, str]]]]:
    lines: list[tuple[str, str]] = []
    store = "memory://" if request.param == "threads" else None
    with (
        emulator() as aws,
        probes("load.yaml", store=store, aws=aws, on_line=lambda *line: lines.append(line)) as running,
    ):
        yield running, lines


@pytest.fixture
def busy(stack: tuple[Probes, list[tuple[str, str]]], tmp_path: Path) -> Iterator[Busy]:
    with urllib3.PoolManager(maxsize=MANY, retries=False) as http:
        yield Busy(*stack, tmp_path, http)


def test_requests_beyond_the_processes_wait_for_a_free_one(busy: Busy) -> None:
    gate = busy.folder / "gate"
    with ThreadPoolExecutor(MANY) as crowd:
        asked = [crowd.submit(busy.get, "open", file=busy.named("open", n), until=gate) for n in range(MANY)]
        try:
            until(lambda: busy.begun("open") == busy.at_once)
        finally:
            gate.touch()
    assert [one.result().status for one in asked] == [200] * MANY
    assert busy.begun("open") == MANY


def test_invocations_beyond_the_processes_wait_for_a_free_one(busy: Busy) -> None:
    gate = busy.folder / "gate"
    with ThreadPoolExecutor(MANY) as crowd:
        events = [{"file": busy.named("invoked", n), "until": str(gate)} for n in range(MANY)]
        asked = [crowd.submit(busy.stack.invoke, "Plain", event) for event in events]
        try:
            until(lambda: busy.begun("invoked") == LIMIT)
        finally:
            gate.touch()
    assert [one.result().error for one in asked] == [None] * MANY


@pytest.mark.parametrize(("function", "slots"), [("Plain", LIMIT), ("Capped", 1)])
def test_events_for_a_busy_function_all_run_and_the_log_counts_them(busy: Busy, function: str, slots: int) -> None:
    gate = busy.folder / "gate"
    try:
        for n in range(MANY):
            busy.event(function, file=busy.named("event", n), until=str(gate))
        until(lambda: busy.begun("event") == slots)
        until(busy.said("lambda", f"{function} runs at most {slots} at a time", "events that wait: "))
        assert busy.begun("event") == slots
    finally:
        gate.touch()
    until(lambda: busy.begun("event") == MANY)


def test_a_request_goes_before_events_that_wait(busy: Busy) -> None:
    gates = [busy.folder / f"gate{n}" for n in range(2)]
    slots = busy.stack.stack._services.functions.find("Plain").slots
    with ThreadPoolExecutor(1) as threads:
        try:
            for n in range(LIMIT):
                busy.event("Plain", file=busy.named("first", n), until=str(gates[0]))
            until(lambda: busy.begun("first") == LIMIT)
            for n in range(LIMIT):
                busy.event("Plain", file=busy.named("second", n), until=str(gates[1]))
            until(lambda: slots.events == LIMIT)
            asked = threads.submit(busy.stack.invoke, "Plain", {})
            until(lambda: slots.callers == 1)
            gates[0].touch()
            assert asked.result().error is None
        finally:
            for gate in gates:
                gate.touch()
    until(lambda: busy.begun("second") == LIMIT)


def test_a_message_for_a_busy_function_waits_and_is_received_once(busy: Busy) -> None:
    gate, sqs = busy.folder / "gate", busy.stack.stack.session().client("sqs")
    url = sqs.get_queue_url(QueueName="messages")["QueueUrl"]
    hidden = {"QueueUrl": url, "AttributeNames": ["ApproximateNumberOfMessagesNotVisible"]}
    try:
        for n in range(LIMIT):
            busy.event("Plain", file=busy.named("holding", n), until=str(gate))
        until(lambda: busy.begun("holding") == LIMIT)
        sqs.send_message(QueueUrl=url, MessageBody=json.dumps({"file": busy.named("message", 0)}))
        until(lambda: sqs.get_queue_attributes(**hidden)["Attributes"][hidden["AttributeNames"][0]] == "1")
    finally:
        gate.touch()
    until(lambda: busy.begun("message") == 1)
    until(lambda: sqs.get_queue_attributes(**hidden)["Attributes"][hidden["AttributeNames"][0]] == "0")
    sqs.close()


def test_a_function_with_reserved_concurrency_is_throttled_and_says_so(busy: Busy) -> None:
    gate = busy.folder / "gate"
    try:
        busy.event("Capped", file=busy.named("capped", 0), until=str(gate))
        until(lambda: busy.begun("capped") == 1)
        answer = busy.get("capped")
        assert (answer.status, answer.json()) == (500, {"message": "Internal Server Error"})
        with pytest.raises(ClientError) as refused:
            busy.stack.invoke("Capped", {})
    finally:
        gate.touch()
    response: Any = refused.value.response
    assert response["Reason"] == "ReservedFunctionConcurrentInvocationLimitExceeded"
    limit = "Capped runs at most 1 at a time, its ReservedConcurrentExecutions in the template"
    assert busy.said("lambda", limit, "throttled")()
    assert busy.said("api", "GET /capped was answered 500 for Capped", limit)()


def test_an_event_that_is_too_old_is_given_up_as_that(busy: Busy) -> None:
    gate = busy.folder / "gate"
    try:
        busy.event("Aging", file=busy.named("aging", 0), until=str(gate))
        until(lambda: busy.begun("aging") == 1)
        busy.event("Aging", file=busy.named("aging", 1))
        until(lambda: [one for one in busy.stack.notices if one.startswith("Aging did not begin an event")])
    finally:
        gate.touch()
    [notice] = [one for one in busy.stack.notices if one.startswith("Aging")]
    assert notice.endswith("EventAgeExceeded")
    assert busy.said("lambda", "Aging", "never begun: EventAgeExceeded")()
    assert busy.begun("aging") == 1


def test_an_event_for_a_function_with_no_concurrency_is_given_up_at_once(busy: Busy) -> None:
    busy.event("Closed")
    until(lambda: [n for n in busy.stack.notices if n.startswith("Closed") and n.endswith("ZeroReservedConcurrency")])


@pytest.mark.parametrize(
    ("path", "function", "reason"),
    [
        ("raising", "Raising", "KeyError: 'no such thing'"),
        ("shapeless", "Shapeless", "its answer is no response"),
        ("unimportable", "Unimportable", "Runtime.ImportModuleError: "),
    ],
)
def test_every_500_of_the_gateway_is_logged(busy: Busy, path: str, function: str, reason: str) -> None:
    assert busy.get(path).status == 500
    line = busy.said("api", f"GET /{path} was answered 500 for {function}: ", reason)()
    assert line
    assert json.loads(line)["level"] == "ERROR"


@pytest.mark.parametrize("stack", ["processes"], indirect=True)
def test_a_request_that_finds_no_slot_in_the_functions_timeout_is_a_503(busy: Busy) -> None:
    with ThreadPoolExecutor(3 * LIMIT) as crowd:
        # The last ten would have to wait for two others, each 0.9 s and more, and have 1 s.
        asked = [crowd.submit(busy.get, "brief", seconds=0.9) for _ in range(3 * LIMIT)]
    rejected = [one.result() for one in asked if one.result().status == 503]
    assert len(rejected) >= LIMIT
    answer = rejected[0]
    assert (answer.headers["Retry-After"], answer.headers["Content-Type"]) == ("1", "application/problem+json")
    problem = answer.json()
    limit = "Brief runs at most 10 at a time, this stack's limit for a function without ReservedConcurrentExecutions"
    assert (problem["status"], problem["title"]) == (503, "Service Unavailable")
    assert problem["detail"].startswith(limit)
    assert busy.said("api", "GET /brief was answered 503 for Brief", limit)()
    assert busy.said("lambda", limit, "gave up after its Timeout, 1 s")()


@pytest.mark.parametrize("stack", ["threads"], indirect=True)
def test_a_request_whose_turn_does_not_come_in_time_is_a_503(busy: Busy) -> None:
    gate = busy.folder / "gate"
    try:
        # A thread whose invocation took too long goes on, and keeps the turn of all functions with routes.
        busy.event("Brief", file=busy.named("brief", 0), until=str(gate))
        until(lambda: busy.begun("brief") == 1)
        answer = busy.get("brief")
        with pytest.raises(ClientError) as refused:
            busy.stack.invoke("Brief", {})
    finally:
        gate.touch()
    assert (answer.status, answer.headers["Retry-After"]) == (503, "1")
    assert busy.said("api", "GET /brief was answered 503 for Brief", "threads of one process")()
    response: Any = refused.value.response
    assert response["Reason"] == "ConcurrentInvocationLimitExceeded"
    until(lambda: busy.get("brief").status == 200)
