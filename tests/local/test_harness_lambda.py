"""Lambda as the harness emulates it, called as users call it: through boto3."""

import base64
import os
import signal
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import psutil
import pytest
import urllib3
from botocore.exceptions import ClientError

from tests.support.harness import FOLDER, Probes, probes
from tests.support.wait import until

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def stack() -> Iterator[Probes]:
    with probes() as running:
        yield running


def test_a_function_answers_with_the_templates_environment_and_layer_and_little_of_the_hosts(stack: Probes) -> None:
    answer = stack.invoke("Echo", {"a": [1, "ü"]}).payload
    found = answer["environment"]
    assert answer["event"] == {"a": [1, "ü"]}
    assert answer["library"] == "from the layer"
    assert (found["COLOUR"], found["OWN"]) == ("green", "yes")
    assert found["LAMBDA_TASK_ROOT"] == found["PYTHONPATH"].split(":")[0] == str(FOLDER / "probe")
    assert found["DUECOURSE_STORE"] == stack.stack.store
    assert found["AWS_ENDPOINT_URL_LAMBDA"] == stack.stack.lambda_url
    assert found["AWS_LAMBDA_FUNCTION_MEMORY_SIZE"] == "256"
    assert not {"HOME", "USER", "PYTEST_CURRENT_TEST"} & set(found)
    assert 9_000 < answer["remaining_ms"] <= 10_000


def test_requests_one_after_the_other_are_served_by_one_process(stack: Probes) -> None:
    assert len({stack.invoke("Echo").payload["pid"] for _ in range(20)}) == 1


def test_a_handler_that_raises_gives_the_error_and_where_it_was(stack: Probes) -> None:
    answer = stack.invoke("Raising", {})
    assert answer.error == "Unhandled"
    assert answer.payload["errorType"] == "KeyError"
    assert answer.payload["errorMessage"] == "'no such thing'"
    assert answer.payload["requestId"] == answer.response["ResponseMetadata"]["RequestId"]
    assert "in raising" in answer.payload["stackTrace"][0]


def test_a_handler_that_takes_too_long_is_ended_and_its_process_replaced(stack: Probes) -> None:
    before = stack.stack.pids()["functions"]["Slow"]
    began = time.monotonic()
    answer = stack.invoke("Slow", {}, LogType="Tail")
    assert 1 <= time.monotonic() - began < 4
    assert answer.error == "Unhandled"
    assert answer.payload["errorMessage"].endswith("Task timed out after 1.00 seconds")
    assert b"Task timed out after 1.00 seconds" in base64.b64decode(answer.response["LogResult"])
    assert stack.stack.pids()["functions"]["Slow"] == []
    assert not [pid for pid in before if psutil.pid_exists(pid)]


@pytest.mark.parametrize(("code", "text"), [(3, "Runtime exited with error: exit status 3"), (0, "without providing")])
def test_a_process_that_leaves_is_reported_as_its_exit_and_replaced(stack: Probes, code: int, text: str) -> None:
    answer = stack.invoke("Leaving", {"code": code})
    assert (answer.error, answer.payload["errorType"]) == ("Unhandled", "Runtime.ExitError")
    assert text in answer.payload["errorMessage"]


def test_a_module_that_cannot_be_imported_is_reported_as_that(stack: Probes) -> None:
    answer = stack.invoke("Unimportable", {})
    assert (answer.error, answer.payload["errorType"]) == ("Unhandled", "Runtime.ImportModuleError")
    assert "there_is_no_such_module" in answer.payload["errorMessage"]
    assert any(notice.startswith("Unimportable does not start") for notice in stack.notices)


def test_a_module_that_ends_the_process_is_reported_as_its_exit(stack: Probes) -> None:
    answer = stack.invoke("Quitting", {})
    assert (answer.error, answer.payload["errorType"]) == ("Unhandled", "Runtime.ExitError")


def test_a_start_has_its_own_limit() -> None:
    with probes("endless.yaml", init_limit=0.5) as stack:
        began = time.monotonic()
        answer = stack.invoke("Endless", {})
        assert time.monotonic() - began < 5
    assert answer.error == "Unhandled"
    assert answer.payload["errorMessage"].endswith("Task timed out after 0.50 seconds")


def test_a_function_over_its_memory_size_is_killed(stack: Probes) -> None:
    answer = stack.invoke("Greedy", {"mb": 300, "seconds": 5})
    assert (answer.error, answer.payload["errorType"]) == ("Unhandled", "Runtime.ExitError")
    assert "signal: killed" in answer.payload["errorMessage"]
    assert stack.invoke("Greedy", {"mb": 10}).error is None


def test_requests_at_once_get_processes_up_to_the_reserved_concurrency_and_then_429(
    stack: Probes, tmp_path: Path
) -> None:
    over = tmp_path / "over"
    with ThreadPoolExecutor(2) as threads:
        events = [{"file": str(tmp_path / name), "until": str(over)} for name in ("one", "two")]
        answers = [threads.submit(stack.invoke, "Busy", event) for event in events]
        try:
            until(lambda: all(Path(event["file"]).exists() for event in events))
            with pytest.raises(ClientError) as refused:
                stack.invoke("Busy", {})
        finally:
            over.touch()
    assert len({int(answer.result().payload) for answer in answers}) == 2
    response: Any = refused.value.response
    assert response["Error"]["Code"] == "TooManyRequestsException"
    assert response["ResponseMetadata"]["HTTPStatusCode"] == 429
    assert response["Reason"] == "ReservedFunctionConcurrentInvocationLimitExceeded"


def test_an_idle_process_that_was_killed_costs_no_request(stack: Probes) -> None:
    first = stack.invoke("Echo").payload["pid"]
    os.kill(first, signal.SIGKILL)
    until(lambda: not psutil.pid_exists(first))
    answer = stack.invoke("Echo")
    assert answer.error is None
    assert answer.payload["pid"] != first


def test_a_process_killed_at_work_is_reported(stack: Probes, tmp_path: Path) -> None:
    with ThreadPoolExecutor(1) as threads:
        answer = threads.submit(stack.invoke, "Busy", {"seconds": 30, "file": str(tmp_path / "begun")})
        until((tmp_path / "begun").exists)
        for pid in stack.stack.pids()["functions"]["Busy"]:
            os.kill(pid, signal.SIGKILL)
        assert "signal: killed" in answer.result().payload["errorMessage"]


def test_an_event_is_accepted_at_once_and_tried_three_times(stack: Probes, tmp_path: Path) -> None:
    notes = tmp_path / "notes"
    accepted = stack.invoke("Flaky", {"file": str(notes), "fails": 2}, InvocationType="Event")
    assert accepted.response["StatusCode"] == 202
    assert accepted.payload is None
    until(lambda: notes.exists() and len(notes.read_text().splitlines()) == 3)


def test_an_event_that_always_fails_is_told(stack: Probes, tmp_path: Path) -> None:
    notes = tmp_path / "notes"
    stack.invoke("Flaky", {"file": str(notes), "fails": 9}, InvocationType="Event")
    until(lambda: any(n.startswith("Flaky failed 3 times") for n in stack.notices))
    assert len(notes.read_text().splitlines()) == 3


@pytest.fixture(scope="module")
def patient() -> Iterator[Probes]:
    """A stack that waits longer for a retry than these functions' events may grow old."""
    with probes("policies.yaml", retry_waits=(100.0, 100.0)) as running:
        yield running


@pytest.mark.parametrize("function", ["Once", "Brief"])
def test_an_event_is_tried_no_more_often_and_no_longer_than_its_function_says(patient: Probes, function: str) -> None:
    patient.invoke(function, {}, InvocationType="Event")
    until(lambda: any(notice.startswith(f"{function} failed 1 times") for notice in patient.notices))


def test_a_throttled_event_waits_its_turn(stack: Probes, tmp_path: Path) -> None:
    def hold(file: Path) -> Any:
        return stack.invoke("Busy", {"seconds": 0.5, "file": str(file)})

    files = [tmp_path / "one", tmp_path / "two"]
    with ThreadPoolExecutor(2) as threads:
        holding = [threads.submit(hold, file) for file in files]
        until(lambda: all(file.exists() for file in files))
        accepted = stack.invoke("Busy", {"seconds": 0, "file": str(tmp_path / "three")}, InvocationType="Event")
        assert not (tmp_path / "three").exists()
        assert [h.result().error for h in holding] == [None, None]
    assert accepted.response["StatusCode"] == 202
    until((tmp_path / "three").exists)
    assert not [n for n in stack.notices if n.startswith("Busy")]


def test_a_dry_run_runs_nothing(stack: Probes, tmp_path: Path) -> None:
    answer = stack.invoke("Ticking", {"file": str(tmp_path / "notes")}, InvocationType="DryRun")
    assert answer.response["StatusCode"] == 204
    assert not (tmp_path / "notes").exists()


def test_the_logs_tail_holds_what_the_function_printed_between_start_and_report(stack: Probes) -> None:
    answer = stack.invoke("Echo", {}, LogType="Tail")
    id = answer.response["ResponseMetadata"]["RequestId"]
    start, printed, end, report = base64.b64decode(answer.response["LogResult"]).decode().splitlines()
    assert start == f"START RequestId: {id} Version: $LATEST"
    assert printed == "echoing"
    assert end == f"END RequestId: {id}"
    assert report.startswith(f"REPORT RequestId: {id}\tDuration: ")
    assert "\tMemory Size: 256 MB\tMax Memory Used: " in report


def test_client_context_and_trace_header_reach_the_function(stack: Probes) -> None:
    context = base64.b64encode(b'{"custom": {"who": "\xc3\xbc"}}').decode()
    assert stack.invoke("Echo", {}, ClientContext=context).payload["custom"] == {"who": "ü"}
    assert stack.invoke("Echo", {}).payload["trace"].startswith("Root=1-")


def test_the_answer_carries_its_version_and_the_trace_given(stack: Probes) -> None:
    url = f"{stack.stack.lambda_url}/2015-03-31/functions/Echo/invocations"
    with urllib3.PoolManager() as http:
        answer = http.request("POST", url, body=b"{}", headers={"X-Amzn-Trace-Id": "Root=1-2-3"})
    assert answer.headers["x-amz-executed-version"] == "$LATEST"
    assert answer.json()["trace"] == "Root=1-2-3"


@pytest.mark.parametrize(
    "name",
    [
        "Echo",
        "Echo:$LATEST",
        "function:Echo",
        "123456789012:Echo",
        "arn:aws:lambda:us-east-1:123456789012:function:Echo",
    ],
)
def test_a_function_is_found_by_name_and_by_arn_whole_or_partial(stack: Probes, name: str) -> None:
    assert stack.invoke(name).payload["arn"] == "arn:aws:lambda:us-east-1:123456789012:function:Echo"


@pytest.mark.parametrize("kind", ["RequestResponse", "Event", "DryRun"])
def test_an_unknown_function_is_not_found(stack: Probes, kind: str) -> None:
    with pytest.raises(ClientError) as refused:
        stack.invoke("Nobody", {}, InvocationType=kind)
    assert refused.value.response["Error"]["Code"] == "ResourceNotFoundException"
    assert refused.value.response["ResponseMetadata"]["HTTPStatusCode"] == 404


@pytest.mark.parametrize(("kind", "length"), [("RequestResponse", 6 * 1024 * 1024), ("Event", 1024 * 1024)])
def test_a_payload_over_the_limit_is_refused(stack: Probes, kind: str, length: int) -> None:
    with pytest.raises(ClientError) as refused:
        stack.invoke("Large", "x" * length, InvocationType=kind)
    assert refused.value.response["Error"]["Code"] == "RequestTooLargeException"
    assert refused.value.response["ResponseMetadata"]["HTTPStatusCode"] == 413


def test_a_payload_just_within_the_limit_is_taken(stack: Probes) -> None:
    event = {"bytes": 1, "filling": "x" * (6 * 1024 * 1024 - 50)}
    assert stack.invoke("Large", event).payload == "x"


def test_an_answer_over_the_limit_is_the_functions_error(stack: Probes) -> None:
    assert len(stack.invoke("Large", {"bytes": 6_000_000}).payload) == 6_000_000
    answer = stack.invoke("Large", {"bytes": 7_000_000})
    assert (answer.error, answer.payload["errorType"]) == ("Unhandled", "Function.ResponseSizeTooLarge")


def test_what_is_no_json_is_refused(stack: Probes) -> None:
    with pytest.raises(ClientError) as refused:
        stack.client.invoke(FunctionName="Echo", Payload=b"{")
    assert refused.value.response["Error"]["Code"] == "InvalidRequestContentException"


def test_no_payload_at_all_is_an_empty_event(stack: Probes) -> None:
    answer = stack.client.invoke(FunctionName="Echo")
    with answer["Payload"] as body:
        assert b'"event": {}' in body.read()


def test_the_stand_in_for_the_native_client_does_as_well() -> None:
    with probes(pure_python=True, warm=()) as stack:
        assert stack.invoke("Echo", {"a": "ü"}).payload["event"] == {"a": "ü"}
        assert stack.invoke("Raising", {}).payload["errorType"] == "KeyError"
        assert stack.invoke("Unimportable", {}).payload["errorType"] == "Runtime.ImportModuleError"
        assert len(stack.invoke("Large", {"bytes": 5_000_000}).payload) == 5_000_000
        assert "standin" in stack.invoke("Echo", {}).payload["environment"]["PYTHONPATH"].split(os.pathsep)[0]


def test_frozen_processes_stand_still_between_invokes_and_work_during_them() -> None:
    with probes(freeze=True, warm=["Echo"]) as stack:
        (pid,) = stack.stack.pids()["functions"]["Echo"]
        for _ in range(3):
            until(lambda: psutil.Process(pid).status() == psutil.STATUS_STOPPED)
            assert stack.invoke("Echo").payload["pid"] == pid


def test_everything_ends_with_the_stack() -> None:
    with probes() as stack:
        pids = stack.stack.pids()
    mine = [pids["redis"], *(pid for found in pids["functions"].values() for pid in found)]
    assert len(mine) > 5
    assert not [pid for pid in mine if psutil.pid_exists(pid)]


def test_a_stack_stops_at_once_with_work_under_way(tmp_path: Path) -> None:
    with ThreadPoolExecutor(1) as threads:
        with probes(warm=["Busy"]) as stack:
            event = {"seconds": 60, "file": str(tmp_path / "begun")}
            answer = threads.submit(stack.stack.invoke, "Busy", event)
            until((tmp_path / "begun").exists)
            began = time.monotonic()
        assert time.monotonic() - began < 5
        assert b"Runtime.ExitError" in answer.result().payload
