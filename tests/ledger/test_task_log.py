"""What a ledger says of tasks where DUECOURSE_LOG_TASKS is on."""

import json

import pytest

from duecourse import open_ledger
from duecourse.ledger.embedded.ledger import EmbeddedLedger
from duecourse.ledger.operation_types import Delivery, Move
from duecourse.ledger.operations.ledger import Ledger
from duecourse.ledger.task import Ending, RetryPolicy
from duecourse.ledger.task_log_lines import LOGGER, MOST, TaskLog
from duecourse.settings import parse
from tests.support.clock import HandClock
from tests.support.ledger import SHARD, claim, ending, lease_of, new


@pytest.fixture
def told(ledger: EmbeddedLedger) -> Ledger:
    return ledger.with_log(TaskLog())


def said(capsys: pytest.CaptureFixture[str]) -> list[str]:
    """The messages written since the last look, each a record of its own."""
    records = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert all((one["level"], one["logger"]) == ("INFO", LOGGER) and one["event"] for one in records)
    return [one["message"] for one in records]


def test_each_event_of_a_task_is_a_line(told: Ledger, clock: HandClock, capsys: pytest.CaptureFixture[str]) -> None:
    told.add([new("a", kind="report", delay_ms=2_000, retry=RetryPolicy(max_attempts=2))])
    told.move(SHARD.queue, [Move("a", delay_ms=1_000)])
    clock.advance(1_005)
    [task] = claim(told)
    failed = ending(task, Ending.RETRY)._replace(delay_ms=500, detail="no answer")
    told.settle(SHARD, [failed])
    clock.advance(500)
    [task] = claim(told)
    told.settle(SHARD, [ending(task, Ending.DROP)._replace(detail="never")])
    told.replay(SHARD.queue, ["a"])
    [task] = claim(told)
    told.settle(SHARD, [ending(task, Ending.DONE)])
    assert said(capsys) == [
        "a added: report, in 2 seconds",
        "a moved: in 1 second",
        "a claimed: 5 milliseconds after it was due",
        "a failed: no answer; next attempt in 500 milliseconds",
        "a claimed: on time, attempt 2 of 2",
        "a dead: never",
        "a replayed",
        "a claimed: on time",
        "a done",
    ]


def test_a_task_that_is_handed_over_is_told_again_when_its_worker_starts_it(
    told: Ledger, clock: HandClock, capsys: pytest.CaptureFixture[str]
) -> None:
    told.add([new("a", kind="report")])
    deliveries = {"report": Delivery("lambda:Report", 10, 60_000)}
    clock.advance(6)
    [task] = told.claim(SHARD, 10, lease_ms=30_000, deliveries=deliveries).tasks
    clock.advance(2_242)
    [begun] = told.begin(SHARD, [lease_of(task)], 30_000, [b"12345678"])
    told.begin(SHARD, [lease_of(task)], 30_000, [b"another."])
    told.settle(SHARD, [ending(task, Ending.DONE)._replace(token=begun.token)])
    assert said(capsys) == [
        "a added: report, now",
        "a handed over: 6 milliseconds after it was due",
        "a started: 2.248 seconds late",
        "a done",
    ]


def test_a_task_of_another_queue_or_tenant_is_called_so(told: Ledger, capsys: pytest.CaptureFixture[str]) -> None:
    told.add([new("a", queue="bills"), new("b", tenant="acme")])
    told.cancel("bills", ["a", "none"])
    assert [message.partition(":")[0] for message in said(capsys)] == [
        "bills/a added",
        "b (tenant acme) added",
        "bills/a cancelled",
    ]


def test_what_changed_nothing_is_not_told_as_a_change(told: Ledger, capsys: pytest.CaptureFixture[str]) -> None:
    told.add([new("a")])
    [task] = claim(told)
    said(capsys)
    told.cancel(SHARD.queue, ["a"])
    told.move(SHARD.queue, [Move("a")])
    told.settle(SHARD, [ending(task, Ending.RELEASE)])
    assert said(capsys) == []
    told.settle(SHARD, [ending(task, Ending.DONE)])
    assert said(capsys) == ["a stale: its lease had ended: another worker may have the task"]


def test_many_at_once_are_counted(told: Ledger, capsys: pytest.CaptureFixture[str]) -> None:
    told.add([new(f"t{n}") for n in range(MOST + 1)])
    assert len(claim(told, limit=MOST)) == MOST
    assert said(capsys)[:1] == [f"{MOST + 1} tasks added"]


def test_it_is_written_only_where_the_settings_ask_for_it(ledger: EmbeddedLedger) -> None:
    assert open_ledger.logged(ledger, parse({})) is ledger
    assert open_ledger.logged(ledger, parse({"DUECOURSE_LOG_TASKS": "on"})) is not ledger


def test_the_other_verbs_are_the_stores_own(told: Ledger, ledger: EmbeddedLedger) -> None:
    told.add([new("a")])
    assert told.get(SHARD.queue, "a") == ledger.get(SHARD.queue, "a")
    assert told.shards() == [SHARD]
