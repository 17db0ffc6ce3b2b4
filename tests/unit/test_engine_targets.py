"""Where a kind's work is done, and how what is handed over is cut into invocations."""

import json

import pytest

from duecourse.domain.outcomes import Ending
from duecourse.domain.task import MAX_PAYLOAD_BYTES, MAX_STATE_BYTES, RetryPolicy, Task
from duecourse.engine.targets import MAX_BYTES, Targets
from duecourse.errors import InvocationRefused
from duecourse.wire.invocation import tasks_event
from tests.support.engine import Lambda
from tests.support.kinds import leased

TARGETS = {"report": "lambda:ReportFunction", "mail": "lambda:MailFunction", "poll": "inline"}


def tasks(count: int, kind: str = "report", payload: object = None) -> list[Task]:
    return [leased(kind, payload or {}, id=f"{kind}-{n}") for n in range(count)]


def batches(given: list[Task]) -> list[tuple[str, list[str]]]:
    return [(name, [task.id for task in batch]) for name, batch in Targets(TARGETS, Lambda()).batches(given)]


@pytest.mark.parametrize(("kind", "function"), [("report", "ReportFunction"), ("poll", ""), ("webhook", "")])
def test_a_kind_is_worked_by_its_function_or_here(kind: str, function: str) -> None:
    assert Targets(TARGETS, Lambda()).function_of(leased(kind, {})) == function


def test_batches_are_of_one_function_and_of_ten_at_most() -> None:
    cut = batches([*tasks(3, "mail"), *tasks(21), *tasks(1, "mail")])
    assert [(name, len(ids)) for name, ids in cut] == [
        ("MailFunction", 4),
        ("ReportFunction", 10),
        ("ReportFunction", 10),
        ("ReportFunction", 1),
    ]


@pytest.mark.parametrize("text", ["x", "é", "\u0001", '"'])
def test_no_batch_is_longer_than_an_invocation_takes(text: str) -> None:
    big = tasks(10, payload={"text": text * 10_000})
    cut = list(Targets(TARGETS, Lambda()).batches(big))
    assert sum(len(batch) for _, batch in cut) == 10
    for _, batch in cut:
        assert len(json.dumps(tasks_event(batch), ensure_ascii=False).encode()) <= 256 * 1024
    assert len(cut) < 10


def test_the_longest_names_still_fit() -> None:
    policy = RetryPolicy(1_000, 3_600_000_000, 99.99, 3_600_000_000, False)
    long = leased("k" * 64, {"text": "x" * 19_800}, "s" * (MAX_STATE_BYTES - 2), queue="q" * 64, group="g" * 128)
    big = [long._replace(id=f"{n:0128}", retry=policy, kind="report", token="9" * 32) for n in range(10)]
    for _, batch in Targets(TARGETS, Lambda()).batches(big):
        assert len(json.dumps(tasks_event(batch), ensure_ascii=False).encode()) <= MAX_BYTES + 1_000


def test_one_that_is_too_long_by_itself_goes_alone() -> None:
    huge = leased("report", {"text": "x" * (MAX_PAYLOAD_BYTES - 20)}, id="huge")
    assert batches([*tasks(1), huge, *tasks(1, "mail")]) == [
        ("MailFunction", ["mail-0"]),
        ("ReportFunction", ["report-0"]),
        ("ReportFunction", ["huge"]),
    ]


def test_what_is_taken_is_the_functions_to_settle() -> None:
    function = Lambda()
    given = tasks(2)
    assert Targets(TARGETS, function).hand_over("ReportFunction", given) == []
    assert function.sent == [("ReportFunction", tasks_event(given))]


def test_what_is_refused_is_given_back_for_a_while(caplog: pytest.LogCaptureFixture) -> None:
    targets = Targets(TARGETS, Lambda(InvocationRefused("no such function")))
    ends = targets.hand_over("ReportFunction", tasks(40))
    assert [(end.id, end.ending) for end in ends] == [(f"report-{n}", Ending.RELEASE) for n in range(40)]
    delays = {end.delay_ms for end in ends}
    assert len(delays) > 10  # what was refused together does not come back together
    assert 0 <= min(delays) < max(delays) <= 1_000
    assert "ReportFunction could not be invoked: no such function" in caplog.text


def test_what_is_refused_again_and_again_is_given_back_for_longer() -> None:
    targets = Targets(TARGETS, Lambda(InvocationRefused("no such function")))
    ends = targets.hand_over("ReportFunction", [task._replace(run=5) for task in tasks(40)])
    assert 1_000 < max(end.delay_ms for end in ends) <= 16_000
