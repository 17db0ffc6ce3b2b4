"""What a stack of threads takes of its process, gives back, and refuses."""

import base64
import os
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from botocore.exceptions import ClientError

from duecourse import open_ledger
from duecourse.app import PROCESS
from duecourse.errors import StoreInUse
from duecourse_local.errors import HarnessError
from duecourse_local.harness.function_threads import GRACE_S
from tests.support.harness import probes
from tests.support.matrix import MATRIX
from tests.support.threads import function, threads, variables

pytestmark = pytest.mark.slow


def test_what_a_function_prints_is_in_its_log_between_start_and_report(tmp_path: Path) -> None:
    with threads(tmp_path) as stack:
        answer = stack.invoke("Echo", 7, LogType="Tail").response
    start, echo, end, report, rest = base64.b64decode(answer["LogResult"]).decode().split("\n")
    id = answer["ResponseMetadata"]["RequestId"]
    assert (start, echo) == (f"START RequestId: {id} Version: $LATEST", "echoing 7")
    assert (end, rest) == (f"END RequestId: {id}", "")
    assert report.startswith(f"REPORT RequestId: {id}\tDuration: ")


def test_invocations_of_a_function_run_beside_each_other(tmp_path: Path) -> None:
    meeting = threading.Barrier(4, timeout=30)
    sys.modules["meeting"] = meeting  # type: ignore[assignment]
    with threads(tmp_path, {"Meet": function("meet.handler")}) as stack, ThreadPoolExecutor(4) as crowd:
        (tmp_path / "one" / "meet.py").write_text("import meeting\ndef handler(event, context): meeting.wait()")
        assert [answer.error for answer in crowd.map(stack.invoke, ["Meet"] * 4)] == [None] * 4
    del sys.modules["meeting"]


def test_what_the_stack_changed_in_its_process_is_as_before_afterwards(tmp_path: Path) -> None:
    def around() -> Any:
        return dict(os.environ), list(sys.path), sys.stdout, sys.getswitchinterval()

    before, running = around(), set(threading.enumerate())
    with threads(tmp_path) as stack:
        assert stack.invoke("Echo").error is None
        PROCESS.app().threads.do(lambda: None)
        ledger = PROCESS.app().ledger
        assert ledger is PROCESS.app().ledger
        assert around() != before
    assert around() == before
    assert set(threading.enumerate()) <= running, "no thread of it runs on"
    with threads(tmp_path) as stack:
        assert stack.invoke("Echo").error is None
        assert PROCESS.app().ledger is not ledger


def test_nothing_of_the_hosts_account_is_left_for_functions(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_PROFILE", "production")
    with threads(tmp_path) as stack:
        assert "AWS_PROFILE" not in stack.invoke("Echo").payload["environment"]
    assert os.environ["AWS_PROFILE"] == "production"


def test_a_stack_that_stops_takes_nothing_more(tmp_path: Path) -> None:
    with threads(tmp_path) as stack:
        stack.stack._wait_for(stack.stack._services.functions.close())
        with pytest.raises(ClientError, match="stopping"):
            stack.invoke("Echo")


def test_variables_that_contradict_each_other_are_refused_by_name(tmp_path: Path) -> None:
    torn = {
        "One": function("app.echo", **variables(TABLE="a")),
        "Two": function("app.echo", **variables(TABLE="b")),
        "Three": function("app.echo", **variables(TABLE="b")),
    }
    with (
        pytest.raises(HarnessError, match=r"TABLE is 'a' for One, 'b' for Two and Three, but .* one value"),
        threads(tmp_path, torn),
    ):
        pass


def test_two_such_stacks_do_not_fit_into_one_process(tmp_path: Path) -> None:
    with (
        threads(tmp_path) as stack,
        pytest.raises(HarnessError, match="stop that stack first"),
        probes(store="memory://"),
    ):
        pass
    assert stack.notices


@MATRIX
def test_a_handler_that_never_ends_holds_a_stop_up_for_its_grace_and_no_longer(tmp_path: Path) -> None:
    go_on = threading.Event()
    sys.modules["going"] = go_on  # type: ignore[assignment]
    with threads(tmp_path, {"Stuck": function("stuck.handler", Timeout=1)}) as stack:
        (tmp_path / "one" / "stuck.py").write_text("import going\ndef handler(event, context): going.wait()")
        assert stack.invoke("Stuck").payload["errorType"] == "Sandbox.Timedout"
        began = time.monotonic()
    assert time.monotonic() - began < GRACE_S + 3
    go_on.set()
    del sys.modules["going"]


def test_freezing_is_refused_for_there_are_no_processes(tmp_path: Path) -> None:
    with pytest.raises(HarnessError, match="--freeze stops processes"), threads(tmp_path, freeze=True):
        pass


def test_a_folder_in_use_is_named_and_the_first_stack_goes_on(tmp_path: Path) -> None:
    url = f"leveldb://{tmp_path}/ledger"
    with threads(tmp_path, store=url) as stack:
        with pytest.raises(StoreInUse, match=f"{url} is in use by process {os.getpid()}"):
            open_ledger.open_ledger(PROCESS.app().settings)
        assert stack.invoke("Echo").error is None
    with threads(tmp_path, store=url) as stack:
        assert stack.invoke("Echo").error is None
