"""What `up` prints of the logs."""

import json

import pytest

from duecourse_local.cli.up import LogLine, for_people


def record(**fields: object) -> str:
    return json.dumps(fields)


@pytest.mark.parametrize(
    "line",
    [
        "START RequestId: 8be7e9fc Version: $LATEST",
        "END RequestId: 8be7e9fc",
        "REPORT RequestId: 8be7e9fc\tDuration: 436.69 ms\tBilled Duration: 437 ms\tMemory Size: 512 MB\t",
        "REPORT RequestId: 8b\tDuration: 4.69 ms\tMemory Size: 512 MB\tStatus: error\tError Type: StoreUnavailable\t",
        record(_aws={"Timestamp": 1, "CloudWatchMetrics": []}, service="duecourse", Added=[1.0]),
        record(level="DEBUG", message="a detail", logger="x"),
        "LAMBDA_WARNING: Unhandled exception. The most likely cause is an issue in the function code. However, …",
        "[WARNING]\t2026-11-26T08:00:00.000Z\t\tLAMBDA_WARNING: Unhandled exception. The most likely cause is …",
        record(level="WARNING", message="LAMBDA_WARNING: Unhandled exception. The most likely cause is …"),
        "",
    ],
)
def test_what_only_fills_a_file_is_not_printed(line: str) -> None:
    assert for_people("OnExpiredFunction", line) is None


@pytest.mark.parametrize(
    ("line", "shown"),
    [
        (record(level="INFO", logger="duecourse.tasks", message="r1 done", event="done"), LogLine("r1 done", "done")),
        (record(level="INFO", message="hello", logger="root"), LogLine("F  hello", "INFO")),
        (record(level="ERROR", message="no", exception_name="KeyError"), LogLine("F  no (KeyError)", "ERROR")),
        (record(level="ERROR", errorMessage="no", errorType="KeyError"), LogLine("F  no (KeyError)", "ERROR")),
        (
            record(level="ERROR", message="no", problem="kind: is required"),
            LogLine("F  no: kind: is required", "ERROR"),
        ),
        (record(level="WARNING", message="no", error="G: it timed out"), LogLine("F  no: G: it timed out", "WARNING")),
        (record(level="WARNING", message="no", error={"at": 1}), LogLine("F  no", "WARNING")),
        (record(mine=1), LogLine('F  {"mine": 1}')),
        ("{not json", LogLine("F  {not json")),
        ("[1]", LogLine("F  [1]")),
        ("what a handler prints", LogLine("F  what a handler prints")),
        (
            "REPORT RequestId: 8b\tStatus: error\tError Type: Runtime.ExitError\t",
            LogLine("F failed: Runtime.ExitError", "ERROR"),
        ),
    ],
)
def test_what_says_something_is_printed_in_a_persons_words(line: str, shown: LogLine) -> None:
    assert for_people("F", line) == shown


def test_of_the_bridge_warnings_and_errors_are_printed() -> None:
    lost = "2026-11-22T10:32:57.123Z ERROR LOST the store: it is away"
    assert for_people("bridge", lost) == LogLine("bridge  LOST the store: it is away", "ERROR")
    assert for_people("bridge", lost.replace("ERROR", "INFO")) is None
    assert for_people("bridge", "bridge ready: 0 shards at redis://127.0.0.1:1/0, events on, to F") is None
    assert for_people("bridge", "Traceback (most recent call last):") is not None
