"""One run: what becomes of everything that a handler may return or raise."""

import asyncio
import json
import random
import re
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from awslambdaric.lambda_runtime_log_utils import JsonFormatter

from duecourse.errors import CallFailed, Crowded, DuecourseError, SecretUnavailable, StoreMisused, StoreUnavailable
from duecourse.ledger.operation_types import Results
from duecourse.ledger.task import (
    DETAIL_LENGTH,
    MAX_RESULT_BYTES,
    MAX_STATE_BYTES,
    Again,
    Done,
    Drop,
    Ending,
    Retry,
    RetryPolicy,
    Settlement,
    Task,
)
from duecourse.running.run import Kind, Runner, postpone
from tests.support.clock import START
from tests.support.engine import ResultsInMemory, Table
from tests.support.kinds import leased

STEADY = RetryPolicy(backoff_ms=1_000, factor=3, jitter=False)


def run(kind: Kind, results: Results | None = None, **changes: Any) -> Settlement:
    runner = Runner({"work": kind}.get, results, lambda: START, random.Random(7))
    return runner.run(leased("work", {}, **{"retry": STEADY} | changes))


def returning(outcome: Any) -> Settlement:
    return run(lambda _task: outcome)


def raising(error: BaseException) -> Settlement:
    def kind(_task: Task) -> Done:
        raise error

    return run(kind)


def test_what_a_handler_raises_is_logged_with_its_place_and_traceback(caplog: pytest.LogCaptureFixture) -> None:
    raising(KeyError("month"))
    (record,) = caplog.records
    assert re.fullmatch(
        r"task t-1 raised at test_run\.py, line \d+ \(queue default, kind work, attempt 1\)", record.getMessage()
    )
    assert "raise error" in (record.exc_text or "")
    assert (record.exc_text or "").splitlines()[-1] == "KeyError: 'month'"


def test_what_a_handler_raises_is_logged_so_that_lambda_can_write_it_and_without_credentials(
    caplog: pytest.LogCaptureFixture,
) -> None:
    raising(OSError("\ud800 https://me:pass@example.com"))
    (record,) = caplog.records
    written = json.loads(JsonFormatter().format(record).encode())
    assert (written["errorType"], written["errorMessage"]) == ("OSError", "? https://•••@example.com")


def test_a_task_whose_credential_cannot_be_read_waits_and_spends_no_attempt(caplog: pytest.LogCaptureFixture) -> None:
    ended = raising(SecretUnavailable("the secret a/-/b cannot be read"))
    assert (ended.ending, ended.detail) == (Ending.RELEASE, "the secret a/-/b cannot be read")
    assert ended.delay_ms > 0
    (record,) = caplog.records
    assert record.getMessage() == "task t-1 waits: the secret a/-/b cannot be read"


def test_a_task_whose_payload_another_program_made_no_json_is_dead_with_that_reason() -> None:
    runner = Runner({"work": lambda task: Done(task.payload)}.get, None, lambda: START, random.Random(7))
    ended = runner.run(replace(leased("work", {}), payload_json="{ spoilt"))
    assert (ended.ending, ended.detail) == (
        Ending.DROP,
        "the payload of this task is damaged: it is no JSON that can be kept",
    )


def test_a_call_that_failed_is_no_fault_of_the_code_and_has_no_traceback(caplog: pytest.LogCaptureFixture) -> None:
    assert raising(CallFailed("no answer")).detail.endswith("no answer")
    assert not caplog.records


def test_a_settlement_is_under_the_tasks_own_token() -> None:
    end = returning(Done({"é": 1}))
    assert end[:4] == ("t-1", "-", "0000000000080011223344556677", Ending.DONE)
    assert end.result == '{"é":1}'


def test_nothing_returned_is_done_without_a_result() -> None:
    assert returning(None) == returning(Done())
    assert returning(None).result == ""


@pytest.mark.parametrize("value", [False, 0, "", [], {}])
def test_a_result_that_is_false_is_a_result(value: Any) -> None:
    assert returning(Done(value)).result != ""


def test_again_says_when_and_may_carry_state() -> None:
    end = returning(Again(after="PT1.5S", state={"seen": 3}))
    assert (end.ending, end.delay_ms, end.due_at, end.state) == (Ending.AGAIN, 1_500, None, '{"seen":3}')
    assert returning(Again(after=timedelta(minutes=1))).delay_ms == 60_000
    at = datetime(2036, 9, 21, 12, tzinfo=UTC)
    assert returning(Again(at=at)).due_at == round(at.timestamp() * 1000)


@pytest.mark.parametrize("soon", [Again(), Again(after=0), Again(after="PT0.099S")])
def test_a_handler_that_asks_to_come_again_at_once_is_run_a_tenth_of_a_second_later(soon: Again) -> None:
    assert (returning(soon).delay_ms, returning(soon).due_at) == (100, None)


def test_an_instant_that_has_passed_is_no_sooner_either() -> None:
    claimed_at = leased("work", {}).claimed_at
    for at_ms, due_at in ((0, claimed_at + 100), (claimed_at + 99, claimed_at + 100), (claimed_at + 101,) * 2):
        at = datetime.fromtimestamp(at_ms / 1000, UTC)
        assert returning(Again(at=at)).due_at == due_at


def test_a_retry_waits_by_its_tasks_policy_unless_it_says_otherwise() -> None:
    end = run(lambda _task: Retry(error="503"), attempt=3)
    assert (end.ending, end.delay_ms, end.detail, end.state) == (Ending.RETRY, 9_000, "503", None)
    assert returning(Retry(after=0)).delay_ms == 0


def test_jitter_spreads_the_waits_below_the_ceiling() -> None:
    waits = {run(lambda _t: Retry(), retry=RetryPolicy(backoff_ms=1_000), attempt=n).delay_ms for n in range(1, 9)}
    assert len(waits) > 1
    assert all(0 <= wait <= 128_000 for wait in waits)


def test_a_drop_keeps_its_reason() -> None:
    assert returning(Drop("gone")) == Settlement("t-1", "-", "0000000000080011223344556677", Ending.DROP, detail="gone")


def test_a_kind_that_is_not_known_here_is_left_for_whoever_has_it_and_no_attempt_is_spent() -> None:
    runner = Runner({}.get, None, lambda: START, random.Random(7))
    end = runner.run(leased("strange", {}))
    assert (end.ending, end.detail) == (Ending.RELEASE, "nothing here runs the kind 'strange'")
    assert end.delay_ms > 0


def test_an_unexpected_exception_is_a_retry_that_names_it() -> None:
    end = raising(ValueError("no such order"))
    assert (end.ending, end.delay_ms) == (Ending.RETRY, 1_000)
    assert re.fullmatch(r"ValueError: no such order at .*test_run\.py:\d+", end.detail)


@pytest.mark.parametrize("error", [SystemExit(3), KeyboardInterrupt(), asyncio.CancelledError(), GeneratorExit()])
def test_what_would_end_a_thread_is_a_retry_too(error: BaseException) -> None:
    end = raising(error)
    assert (end.ending, type(error).__name__ in end.detail) == (Ending.RETRY, True)


def test_an_exception_that_cannot_be_told_is_a_retry_all_the_same() -> None:
    class Mute(Exception):
        def __str__(self) -> str:
            raise RuntimeError

    end = raising(Mute())
    assert (end.ending, "Mute" in end.detail) == (Ending.RETRY, True)


@pytest.mark.parametrize("nonsense", ["done", 1, {"result": 1}, Done, object()])
def test_a_handler_that_returns_something_else_is_told_so(nonsense: Any) -> None:
    end = returning(nonsense)
    assert end.ending is Ending.RETRY
    assert "a handler returns Done, Again, Retry or Drop" in end.detail


@pytest.mark.parametrize(
    "outcome",
    [
        Again(after=-1),
        Again(after="soon"),
        Again(at="2026-01-01T00:00:00"),
        Retry(after="PT1M1Y"),
        Done({1, 2}),
        Done(float("nan")),
        Done("\ud800"),
        Again(after=1, state=object()),
    ],
)
def test_values_that_mean_nothing_cost_an_attempt_and_keep_the_tasks_backoff(outcome: Any) -> None:
    end = returning(outcome)
    assert (end.ending, end.delay_ms, end.detail != "") == (Ending.RETRY, 1_000, True)


@pytest.mark.parametrize("text", ["x" * 5_000, "é" * 5_000, "x" + "é" * 5_000, "\ud800" * 5_000])
def test_a_long_error_is_cut_between_characters(text: str) -> None:
    for end in (raising(OSError(text)), returning(Drop(text)), returning(Retry(error=text))):
        assert DETAIL_LENGTH - 2 <= len(end.detail.encode()) <= DETAIL_LENGTH


def test_an_exception_given_as_the_error_is_taken_for_its_text() -> None:
    outcome: Any = Retry(error=ValueError("odd"))  # type: ignore[arg-type]
    assert returning(outcome).detail == "odd"


def test_a_result_over_its_limit_is_dropped_and_one_at_it_is_kept() -> None:
    fits, over = "x" * (MAX_RESULT_BYTES - 2), "x" * (MAX_RESULT_BYTES - 1)
    assert returning(Done(fits)).ending is Ending.DONE
    assert returning(Done(over))[3:] == returning(Drop("the result is over 64 KiB"))[3:]
    assert returning(Done("é" * (MAX_RESULT_BYTES // 2))).ending is Ending.DROP, "bytes count, not characters"


def test_a_state_over_its_limit_is_a_retry_that_says_so() -> None:
    assert returning(Again(after=1, state="x" * (MAX_STATE_BYTES - 2))).ending is Ending.AGAIN
    end = returning(Retry(state="é" * (MAX_STATE_BYTES // 2)))
    assert (end.ending, end.state) == (Ending.RETRY, None)
    assert "the state is over 4 KiB" in end.detail


def test_a_result_goes_to_its_database_before_the_lease_ends_and_the_ledger_gets_its_place() -> None:
    table = Table()
    end = run(lambda _task: Done([1]), table)
    assert (end.ending, end.result) == (Ending.DONE, f' "{table.place}"')
    assert table.results["t-1"] == ("[1]", 8, START)


def test_the_answer_of_a_query_is_without_its_place_which_the_first_release_would_show() -> None:
    assert run(lambda _task: Done([1]), ResultsInMemory(), queue="query:api.example.com").result == ""


def test_without_a_result_the_database_is_not_asked() -> None:
    table = Table()
    table.away = True
    assert run(lambda _task: None, table).ending is Ending.DONE


def test_with_the_database_away_the_task_is_given_back_and_waits_longer_each_run() -> None:
    table = Table()
    table.away = True
    waits = [[run(lambda _task: Done(1), table, run=n).delay_ms for _ in range(3)] for n in (1, 12)]
    ends = run(lambda _task: Done(1), table)
    assert (ends.ending, ends.result) == (Ending.RELEASE, "")
    assert all(wait <= 1_000 for wait in waits[0])
    assert all(wait <= 30_000 for wait in waits[1])
    rng = random.Random(7)
    assert max(postpone(leased("work", {}, run=12), rng, "away").delay_ms for _ in range(50)) > 15_000


def test_a_task_whose_tenant_keeps_the_processor_busy_is_given_back_for_a_moment_and_no_attempt_is_spent() -> None:
    ends = raising(Crowded())
    assert ends.ending is Ending.RELEASE
    assert 200 <= ends.delay_ms <= 1_000
    assert ends.detail == "Long computations of this tenant wait for the processor, so this task runs a little later."


def test_a_result_under_a_lost_lease_changes_nothing_and_its_settle_is_left_to_be_refused() -> None:
    table = Table()
    run(lambda _task: Done("newer"), table, token="0000000000090011223344556677")
    assert run(lambda _task: Done("older"), table).ending is Ending.DONE
    assert table.results["t-1"].value == '"newer"'


@pytest.mark.parametrize("why", [StoreUnavailable, StoreMisused])
def test_a_task_whose_seal_cannot_be_looked_up_waits_and_its_thread_goes_on(why: type[DuecourseError]) -> None:
    def opened(_task: Task) -> Task:
        raise why("no permission")

    runner = Runner({}.get, None, lambda: START, random.Random(7), opened)
    end = runner.run(leased("work", {}))
    assert (end.ending, end.detail) == (Ending.RELEASE, "no permission")
    assert end.delay_ms > 0
