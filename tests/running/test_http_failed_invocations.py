"""Lambda's records of failed invocations, replayed: what they say is the error of the attempts that they carried."""

import json
from collections.abc import Sequence
from typing import Any

import pytest

from duecourse import task_handler
from duecourse.errors import InvalidInput, StoreUnavailable
from duecourse.ledger.embedded.ledger import EmbeddedLedger
from duecourse.ledger.operation_types import Delivery, Settled
from duecourse.ledger.task import Ending, Run, Settlement, Shard, Status, Task, begin_nonce
from duecourse.running.task_event import tasks_event
from tests.support.clock import HandClock
from tests.support.functions import Context, cases, invoke, saved
from tests.support.ledger import lease_of, new
from tests.support.requests import ask
from tests.support.wired import Wire

REMINDERS = Shard("reminders")
ID = "standup:300:0"
INVOCATION = "5ac05cfe-c70f-4f6d-8c3b-21d8d2f3a1b4"
"""Lambda's id of the request in the saved event of a timeout, and in the records that are made here."""
ANOTHER = "0b1d7f5a-3a5e-4c58-9d0e-2f6b1c9a7e11"
KILLED = "report: RetriesExhausted: Runtime.ExitError: signal: killed"
HANDED = {"reminder": Delivery("lambda:SendReminderFunction", 100, 120_000)}


def hand_over(ledger: EmbeddedLedger) -> Task:
    """The reminder of the saved events, handed over under the token that they name."""
    ledger.add([new(ID, kind="reminder", queue="reminders", group="standup")])
    [task] = ledger.claim(REMINDERS, 1, lease_ms=60_000, deliveries=HANDED).tasks
    return task


def replay(case: str, token: str) -> list[str]:
    """The messages that are to be delivered again, after a saved event whose tasks have this token."""
    event = saved(f"on_undelivered/{case}")
    for record in event["Records"]:
        record["body"] = record["body"].replace("0000000000080011223344556677", token)
    return [failed["itemIdentifier"] for failed in invoke("on_undelivered", event)["batchItemFailures"]]


def standing(ledger: EmbeddedLedger) -> Task:
    task = ledger.get("reminders", ID)
    assert task is not None
    return task


def runs_of(task: Task) -> list[Run]:
    return [entry for entry in task.log if isinstance(entry, Run)]


def hand_over_ten(ledger: EmbeddedLedger) -> list[Task]:
    """Tasks of one event, as a function gets them."""
    ledger.add([new(f"t{n}", kind="reminder", queue="reminders", group="ten") for n in range(10)])
    return ledger.claim(REMINDERS, 10, lease_ms=60_000, deliveries=HANDED).tasks


def begin(ledger: EmbeddedLedger, task: Task, invocation: str = INVOCATION) -> Task:
    nonce = begin_nonce(task.token, invocation, b"mine")
    [begun] = ledger.begin(REMINDERS, [lease_of(task)], 30_000, [nonce])
    return begun.under(task)


def report(tasks: Sequence[Task], **parts: Any) -> None:
    """A record of the failed invocation that carried these tasks, by default of one whose process ended."""
    record = {
        "requestContext": {"functionArn": "arn:aws:lambda:eu-central-1:1:function:report:$LATEST"}
        | {"requestId": INVOCATION, "condition": "RetriesExhausted", "approximateInvokeCount": 1}
        | parts.pop("context", {}),
        "requestPayload": tasks_event(tasks),
        "responseContext": {"statusCode": 200, "functionError": "Unhandled"},
        "responsePayload": {"errorType": "Runtime.ExitError", "errorMessage": "signal: killed"},
    }
    event = saved("on_undelivered/cannot_start")
    event["Records"][0]["body"] = json.dumps({name: part for name, part in (record | parts).items() if part})
    assert invoke("on_undelivered", event)["batchItemFailures"] == []


def of(ledger: EmbeddedLedger, id: str) -> Task:
    task = ledger.get("reminders", id)
    assert task is not None
    return task


def attempts(ledger: EmbeddedLedger) -> list[tuple[int, int]]:
    """Runs and attempts of the ten."""
    return [(of(ledger, f"t{n}").run, of(ledger, f"t{n}").attempt) for n in range(10)]


@pytest.mark.parametrize("end", [None, Ending.DONE, Ending.AGAIN, Ending.RETRY, Ending.DROP])
def test_tasks_that_a_crashed_invocation_had_not_begun_spend_no_attempt(
    ledger: EmbeddedLedger, end: Ending | None
) -> None:
    tasks = hand_over_ten(ledger)
    mine = begin(ledger, tasks[0])
    if end:
        ledger.settle(REMINDERS, [Settlement.of(mine, end, delay_ms=60_000)])
    first = of(ledger, "t0")
    report(tasks)
    assert attempts(ledger)[1:] == [(0, 1)] * 9
    if end:
        assert of(ledger, "t0") == first
    else:
        assert (of(ledger, "t0").attempt, of(ledger, "t0").error) == (2, KILLED)
    [run] = runs_of(of(ledger, "t9"))
    assert (run.outcome, run.detail) == ("release", f"{KILLED}; the function had not begun this task")


def test_tasks_that_a_function_settled_without_a_begin_count_as_begun(ledger: EmbeddedLedger) -> None:
    tasks = hand_over_ten(ledger)
    ledger.settle(REMINDERS, [Settlement.of(tasks[0], Ending.DONE)])
    report(tasks)
    assert attempts(ledger) == [(1, 1)] + [(0, 1)] * 9


def test_an_invocation_that_began_nothing_spends_an_attempt_of_each(ledger: EmbeddedLedger) -> None:
    report(hand_over_ten(ledger))
    assert attempts(ledger) == [(1, 2)] * 10


def test_a_task_that_another_invocation_began_makes_no_neighbour_begun(
    ledger: EmbeddedLedger, clock: HandClock
) -> None:
    tasks = hand_over_ten(ledger)
    clock.advance(120_000)
    ledger.sweep(REMINDERS, retention_ms=3_600_000)
    clock.advance(1_000)
    again = ledger.claim(REMINDERS, 10, lease_ms=60_000, deliveries=HANDED).tasks
    begin(ledger, again[0])
    report(tasks)
    assert attempts(ledger) == [(1, 1)] * 10


@pytest.mark.parametrize("condition", ["RetriesExhausted", "EventAgeExceeded"])
@pytest.mark.parametrize("runs_on", [True, False])
def test_the_record_of_a_second_delivery_changes_nothing_of_the_first(
    ledger: EmbeddedLedger, runs_on: bool, condition: str
) -> None:
    tasks = hand_over_ten(ledger)
    mine = begin(ledger, tasks[0])
    if not runs_on:
        ledger.settle(REMINDERS, [Settlement.of(mine, Ending.RETRY, delay_ms=60_000)])
    before = [of(ledger, task.id) for task in tasks]
    answered = {} if condition == "RetriesExhausted" else {"responseContext": None, "responsePayload": None}
    report(tasks, context={"requestId": ANOTHER, "condition": condition}, **answered)
    assert [of(ledger, task.id) for task in tasks] == before
    if runs_on:
        assert ledger.settle(REMINDERS, [Settlement.of(mine, Ending.DONE)]) == [Settled.DONE]


def test_each_of_two_deliveries_that_fail_ends_its_own_runs_alone(ledger: EmbeddedLedger) -> None:
    tasks = hand_over_ten(ledger)
    begin(ledger, tasks[0])
    begin(ledger, tasks[1], ANOTHER)
    report(tasks, context={"requestId": ANOTHER})
    assert (of(ledger, "t0").status, of(ledger, "t1").attempt) == (Status.LEASED, 2)
    assert attempts(ledger)[2:] == [(0, 1)] * 8
    report(tasks)
    assert attempts(ledger)[:2] == [(1, 2), (1, 2)]


def test_a_task_that_another_invocation_begins_while_the_record_is_read_is_not_ended(
    clock: HandClock, wire: Wire
) -> None:
    class Beginning(EmbeddedLedger):
        def settle(self, shard: Shard, settlements: Sequence[Settlement]) -> list[Settled]:
            mine.extend(begin(self, task, ANOTHER) for task in tasks)
            return super().settle(shard, settlements)

    mine: list[Task] = []
    ledger = Beginning(clock)
    wire(ledger=ledger)
    tasks = hand_over_ten(ledger)
    report(tasks)
    assert {of(ledger, task.id).token for task in tasks} == {task.token for task in mine}


def test_what_a_handler_runs_is_ended_by_the_record_of_its_own_invocation_alone(ledger: EmbeddedLedger) -> None:
    seen: list[int] = []

    @task_handler(parallel=1)
    def handler(task: Task) -> None:
        for id in (ANOTHER, Context.aws_request_id):
            report(tasks, context={"requestId": id})
            seen.append(of(ledger, task.id).attempt)

    tasks = hand_over_ten(ledger)[:1]
    assert handler(tasks_event(tasks), Context())["stale"] == 1
    assert seen == [1, 2]


@pytest.mark.parametrize(("invocation", "ends"), [("", True), (INVOCATION, True), (ANOTHER, False)])
def test_a_run_that_was_begun_over_http_is_ended_by_the_record_of_its_invocation(
    ledger: EmbeddedLedger, wire: Wire, invocation: str, ends: bool
) -> None:
    wire(ledger=ledger)
    tasks = hand_over_ten(ledger)
    named = {"invocation": invocation} if invocation else {}
    begun = ask("POST", "/tasks/t0/begin", {"token": tasks[0].token, "worker": "me", **named}, query="queue=reminders")
    assert begun.status == 200
    report(tasks)
    assert (of(ledger, "t0").error == KILLED) is ends


THROTTLED: dict[str, dict[str, Any]] = {
    "too old": {"context": {"condition": "EventAgeExceeded"}, "responseContext": None, "responsePayload": None},
    "never tried": {"context": {"approximateInvokeCount": 0}, "responseContext": None, "responsePayload": None},
    "by its answer": {
        "responseContext": {"statusCode": 429},
        "responsePayload": {"errorType": "TooManyRequestsException", "errorMessage": "Rate Exceeded."},
    },
    "by its error": {
        "responseContext": {"statusCode": 200, "functionError": "ReservedFunctionConcurrentInvocationLimitExceeded"},
    },
}


@pytest.mark.parametrize("sign", THROTTLED)
def test_any_sign_that_a_function_was_not_invoked_spends_no_attempt(ledger: EmbeddedLedger, sign: str) -> None:
    report(hand_over_ten(ledger), **THROTTLED[sign])
    assert attempts(ledger) == [(0, 1)] * 10
    [run] = runs_of(of(ledger, "t3"))
    assert run.outcome == "release"
    assert run.detail.startswith("waited for report, which was busy: ")


ARRIVED: dict[str, dict[str, Any]] = {
    "its code raised an error of that name": {"responsePayload": {"errorType": "TooManyRequestsException"}},
    "a failed try has become too old since": {"context": {"condition": "EventAgeExceeded"}},
}


@pytest.mark.parametrize("why", ARRIVED)
def test_a_function_that_was_invoked_spends_an_attempt(ledger: EmbeddedLedger, why: str) -> None:
    report(hand_over_ten(ledger), **ARRIVED[why])
    assert attempts(ledger) == [(1, 2)] * 10


def test_every_saved_event_is_replayed_here() -> None:
    assert cases("on_undelivered") == {"timed_out", "cannot_start", "too_old", "some_bad", "bad_shape", "bad_request"}


@pytest.mark.parametrize("begun", [True, False])
def test_a_function_that_timed_out_is_the_error_of_the_attempt(ledger: EmbeddedLedger, begun: bool) -> None:
    task = hand_over(ledger)
    if begun:
        begin(ledger, task)
    assert replay("timed_out", task.token) == []
    after = standing(ledger)
    assert (after.status, after.run, after.attempt) == (Status.SCHEDULED, 1, 2)
    assert after.error.startswith("duecourse-SendReminderFunction-1A2B3C4D5E6F: RetriesExhausted: ")
    assert after.error.endswith("Task timed out after 30.00 seconds")
    assert 0 <= after.due_at - ledger.now() <= 1_000


def test_a_function_that_cannot_start_is_the_error_of_the_attempt(ledger: EmbeddedLedger) -> None:
    assert replay("cannot_start", hand_over(ledger).token) == []
    assert "Runtime.ImportModuleError: Unable to import module 'app'" in standing(ledger).error
    assert standing(ledger).attempt == 2


def test_what_is_retried_waits_by_its_own_backoff(ledger: EmbeddedLedger) -> None:
    event = saved("on_undelivered/cannot_start")
    [record] = event["Records"]
    body = record["body"].replace("0000000000080011223344556677", hand_over(ledger).token)
    assert '"jitter": true' in body
    record["body"] = body.replace('"jitter": true', '"jitter": false')
    invoke("on_undelivered", event)
    assert standing(ledger).due_at == ledger.now() + 1_000


def test_the_last_attempt_dies_of_it(ledger: EmbeddedLedger, clock: HandClock) -> None:
    for _ in range(3):
        assert replay("cannot_start", hand_over(ledger).token) == []
        clock.advance(10_000)
    assert (standing(ledger).status, standing(ledger).attempt) == (Status.DEAD, 3)


def test_an_event_that_waited_too_long_spends_no_attempt(ledger: EmbeddedLedger) -> None:
    assert replay("too_old", hand_over(ledger).token) == []
    after = standing(ledger)
    assert (after.status, after.run, after.attempt, after.due_at) == (Status.SCHEDULED, 0, 1, ledger.now() + 1_000)
    waited = "waited for duecourse-SendReminderFunction-1A2B3C4D5E6F, which was busy: EventAgeExceeded"
    assert [(run.outcome, run.detail) for run in runs_of(after)] == [("release", waited)]


def test_an_event_that_waited_too_long_and_was_begun_all_the_same_is_let_run(ledger: EmbeddedLedger) -> None:
    task = hand_over(ledger)
    begin(ledger, task)
    assert replay("too_old", task.token) == []
    assert standing(ledger).status is Status.LEASED


def test_a_record_that_is_delivered_again_changes_nothing(ledger: EmbeddedLedger) -> None:
    task = hand_over(ledger)
    replay("cannot_start", task.token)
    before = standing(ledger)
    assert replay("cannot_start", task.token) == []
    assert standing(ledger) == before


def test_what_is_no_record_of_ours_is_left_for_the_dead_letters_and_the_rest_is_read(ledger: EmbeddedLedger) -> None:
    task = hand_over(ledger)
    messages = [record["messageId"] for record in saved("on_undelivered/some_bad")["Records"]]
    assert replay("some_bad", task.token) == messages[:2]
    assert "Runtime.ExitError" in standing(ledger).error


def test_an_event_of_another_shape_is_refused(ledger: EmbeddedLedger, wire: Wire) -> None:
    wire(ledger=ledger)
    with pytest.raises(InvalidInput):
        invoke("on_undelivered", saved("on_undelivered/bad_shape"))


def test_while_the_store_is_away_all_are_delivered_again(clock: HandClock, wire: Wire) -> None:
    class Away(EmbeddedLedger):
        def settle(self, *_given: object) -> list[object]:  # type: ignore[override]
            raise StoreUnavailable

    wire(ledger=Away(clock))
    with pytest.raises(StoreUnavailable):
        invoke("on_undelivered", saved("on_undelivered/timed_out"), Context(remaining_ms=500))


def test_a_store_that_is_away_for_a_moment_is_asked_again_within_the_invocation(clock: HandClock, wire: Wire) -> None:
    class Returning(EmbeddedLedger):
        away = 2

        def settle(self, shard: Shard, settlements: Sequence[Settlement]) -> list[Settled]:
            self.away -= 1
            if self.away >= 0:
                raise StoreUnavailable
            return super().settle(shard, settlements)

    ledger = Returning(clock)
    wire(ledger=ledger)
    task = hand_over(ledger)
    assert replay("timed_out", task.token) == []
    assert (standing(ledger).status, ledger.away) == (Status.SCHEDULED, -1)
