"""Where a kind's work is done, and how what is handed over is cut into invocations."""

import json
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest

from duecourse.errors import DuecourseError, InvocationRejected, PublishRejected, StoreMisused, StoreUnavailable
from duecourse.ledger.embedded.ledger import EmbeddedLedger
from duecourse.ledger.operation_types import Delivery, Settled
from duecourse.ledger.task import MAX_PAYLOAD_BYTES, MAX_STATE_BYTES, Ending, RetryPolicy, Run, Status, Task
from duecourse.running.drain import Drainer, Limits
from duecourse.running.hand_over import MAX_BYTES, Targets
from duecourse.running.task_event import BrokerMessage, message_body, tasks_event
from tests.support.clock import HandClock
from tests.support.engine import MARGIN_MS, Broker, Lambda, ample, engine, fire_nothing, targets_of
from tests.support.kinds import leased
from tests.support.ledger import SHARD, new, stored_task

REPORT = "lambda:ReportFunction"
TARGETS = {"report": REPORT, "mail": "lambda:MailFunction", "poll": "inline", "bill": "sqs:bills"}


def tasks(count: int, kind: str = "report", payload: object = None) -> list[Task]:
    return [leased(kind, payload or {}, id=f"{kind}-{n}") for n in range(count)]


def batches(given: list[Task]) -> list[tuple[str, list[str]]]:
    return [(name, [task.id for task in batch]) for name, batch in targets_of(TARGETS, Lambda()).batches(given, {})]


@pytest.mark.parametrize(("kind", "target"), [("report", REPORT), ("bill", "sqs:bills"), ("poll", ""), ("webhook", "")])
def test_a_kind_is_worked_by_its_target_or_here(kind: str, target: str) -> None:
    assert targets_of(TARGETS, Lambda()).of(leased(kind, {})) == target


def test_batches_are_of_one_function_and_of_ten_at_most() -> None:
    cut = batches([*tasks(3, "mail"), *tasks(21), *tasks(1, "mail")])
    assert [(name, len(ids)) for name, ids in cut] == [
        ("lambda:MailFunction", 4),
        (REPORT, 10),
        (REPORT, 10),
        (REPORT, 1),
    ]


@pytest.mark.parametrize("text", ["x", "é", "\u0001", '"'])
def test_no_batch_is_longer_than_an_invocation_takes(text: str) -> None:
    big = tasks(10, payload={"text": text * 10_000})
    cut = list(targets_of(TARGETS, Lambda()).batches(big, {}))
    assert sum(len(batch) for _, batch in cut) == 10
    for _, batch in cut:
        assert len(json.dumps(tasks_event(batch), ensure_ascii=False).encode()) <= 256 * 1024
    assert len(cut) < 10


def test_the_longest_names_still_fit() -> None:
    policy = RetryPolicy(1_000, 3_600_000_000, 99.99, 3_600_000_000, False)
    long = leased("k" * 64, {"text": "x" * 19_800}, "s" * (MAX_STATE_BYTES - 2), queue="q" * 64, group="g" * 128)
    big = [replace(long, id=f"{n:0128}", retry=policy, kind="report", token="9" * 32) for n in range(10)]
    for _, batch in targets_of(TARGETS, Lambda()).batches(big, {}):
        assert len(json.dumps(tasks_event(batch), ensure_ascii=False).encode()) <= MAX_BYTES + 1_000


def test_one_that_is_too_long_by_itself_goes_alone() -> None:
    huge = leased("report", {"text": "x" * (MAX_PAYLOAD_BYTES - 20)}, id="huge")
    assert batches([*tasks(1), huge, *tasks(1, "mail")]) == [
        ("lambda:MailFunction", ["mail-0"]),
        (REPORT, ["report-0"]),
        (REPORT, ["huge"]),
    ]


def test_what_is_taken_is_the_functions_to_settle() -> None:
    function = Lambda()
    given = tasks(2)
    assert targets_of(TARGETS, function).hand_over(REPORT, given) == []
    assert function.sent == [("ReportFunction", tasks_event(given))]


def test_what_is_refused_is_given_back_for_a_while(caplog: pytest.LogCaptureFixture) -> None:
    targets = targets_of(TARGETS, Lambda(InvocationRejected("no such function")))
    ends = targets.hand_over(REPORT, tasks(40))
    assert [(end.id, end.ending) for end in ends] == [(f"report-{n}", Ending.RELEASE) for n in range(40)]
    delays = {end.delay_ms for end in ends}
    assert len(delays) > 10  # what was refused together does not come back together
    assert 0 <= min(delays) < max(delays) <= 1_000
    assert "lambda:ReportFunction did not accept them: no such function" in caplog.text


def test_what_is_refused_again_and_again_is_given_back_for_longer() -> None:
    targets = targets_of(TARGETS, Lambda(InvocationRejected("no such function")))
    ends = targets.hand_over(REPORT, [replace(task, run=5) for task in tasks(40)])
    assert 1_000 < max(end.delay_ms for end in ends) <= 16_000


def test_what_a_broker_confirms_is_done_and_the_rest_is_given_back(caplog: pytest.LogCaptureFixture) -> None:
    given = tasks(3, "bill", {"sum": "1 €"})
    broker = Broker({given[1].idempotency_key: "no room"})
    ends = targets_of(TARGETS, Lambda(), {"sqs": broker}).hand_over("sqs:bills", given)
    assert [end.ending for end in ends] == [Ending.DONE, Ending.RELEASE, Ending.DONE]
    assert [end.token for end in ends] == [task.token for task in given]
    assert list(broker.queues["bills"]) == [given[0].idempotency_key, given[2].idempotency_key]
    assert "task bill-1 waits because sqs:bills did not confirm it: no room" in caplog.text


def test_what_no_broker_takes_is_given_back_for_a_while(caplog: pytest.LogCaptureFixture) -> None:
    targets = targets_of(TARGETS, Lambda(), {"sqs": Broker(refusal=PublishRejected("away"))})
    ends = targets.hand_over("sqs:bills", [replace(task, run=5) for task in tasks(40, "bill")])
    assert {end.ending for end in ends} == {Ending.RELEASE}
    assert 1_000 < max(end.delay_ms for end in ends) <= 16_000
    assert "sqs:bills did not accept them: away" in caplog.text


def test_a_message_is_the_event_for_one_task_with_its_fence_in_place_of_a_lease() -> None:
    [task] = tasks(1, "bill", {"sum": "1 €", "odd": "\uffff"})
    body = message_body(task)
    assert body.isascii()
    direct = tasks_event([task])
    lease = direct["tasks"][0].pop("lease")
    [carried] = json.loads(body)["tasks"]
    assert carried.pop("fence") == int(lease["token"][:12], 16) == 8
    assert carried.pop("deadline_at") == task.deadline_at
    assert json.loads(body) | {"tasks": [carried]} == direct


def test_what_was_confirmed_and_could_not_be_settled_is_sent_again_under_the_same_id(clock: HandClock) -> None:
    class Forgetful(EmbeddedLedger):
        """Away whenever something is settled, until told otherwise."""

        away = True

        def settle(self, *given: Any) -> list[Settled]:
            if self.away:
                raise StoreUnavailable
            return super().settle(*given)

    class Counting(Broker):
        def publish(self, queue: str, messages: Sequence[BrokerMessage]) -> list[str]:
            sent.extend(message.id for message in messages)
            return super().publish(queue, messages)

    sent: list[str] = []
    ledger = Forgetful(clock)
    ledger.add([new("t", kind="bill")])
    with engine(ledger, lambda _: None) as made:
        targets = targets_of(TARGETS, Lambda(), {"sqs": Counting()})
        drainer = Drainer(ledger, made.runner, targets, made.threads, Limits(30_000, MARGIN_MS), fire_nothing)
        until_ms = iter([60_000, 60_000])
        with pytest.raises(StoreUnavailable):
            drainer.drain([SHARD], lambda: next(until_ms, 0))
        assert stored_task(ledger, "t").status is Status.LEASED
        ledger.away = False
        clock.advance(60_000)
        drainer.drain([SHARD], ample)
        clock.advance(60_000)
        drainer.drain([SHARD], ample)
    assert stored_task(ledger, "t").status is Status.DONE
    assert sent == [stored_task(ledger, "t").idempotency_key] * 2


@pytest.mark.parametrize(
    ("invoker", "broker", "kind", "why"),
    [
        (Lambda(InvocationRejected("throttled")), Broker(), "report", f"{REPORT} did not accept it: throttled"),
        (Lambda(), Broker({"bill-0:7": "nack"}), "bill", "sqs:bills did not confirm it: nack"),
    ],
)
def test_what_was_not_taken_says_why_in_its_log(invoker: Lambda, broker: Broker, kind: str, why: str) -> None:
    (task,) = tasks(1, kind)
    targets = targets_of(TARGETS, invoker, {"sqs": broker})
    (end,) = targets.hand_over(targets.of(task), [task])
    assert (end.ending, end.detail) == (Ending.RELEASE, why)


def test_a_delivery_that_is_refused_again_and_again_is_given_back_for_longer_though_it_was_no_run() -> None:
    targets = targets_of(TARGETS, Lambda(InvocationRejected("throttled")))
    refused = Run(1, 8, 1, 2, "release", times=4)
    ends = targets.hand_over(REPORT, [replace(task, run=1, log=(refused,)) for task in tasks(40)])
    assert 1_000 < max(end.delay_ms for end in ends) <= 16_000


def test_functions_are_handed_tasks_for_delivery_and_no_broker_is() -> None:
    deliveries = targets_of(
        {**TARGETS, "task.dead": "lambda:Alert"}, Lambda(), outstanding=7, delivery_lease_ms=9_000
    ).deliveries
    assert deliveries == {
        "report": Delivery(REPORT, 7, 9_000),
        "mail": Delivery("lambda:MailFunction", 7, 9_000),
        "task.dead": Delivery("lambda:Alert", 7, 9_000),
    }


def test_a_drain_releases_the_delivery_that_lambda_refused(clock: HandClock) -> None:
    ledger = EmbeddedLedger(clock)
    ledger.add([new("t", kind="report")])
    with engine(ledger, lambda _: None, targets=TARGETS, invoker=Lambda(InvocationRejected("throttled"))) as made:
        assert made.drainer.drain([SHARD], ample).released == 1
    task = stored_task(ledger, "t")
    assert (task.status, task.run, task.attempt) == (Status.SCHEDULED, 0, 1)


def test_a_drain_goes_on_behind_a_backlog_that_a_function_has_no_room_for(clock: HandClock) -> None:
    ledger = EmbeddedLedger(clock)
    for part in range(3):
        ledger.add([new(f"{part}-{n}", kind="report", due_at=1) for n in range(900)])
    ledger.add([new("other", kind="webhook")])
    with engine(ledger, lambda _: None, targets=TARGETS) as made:
        drained = made.drainer.drain([SHARD], ample)
    assert (drained.done, drained.claimed) == (1, 101)
    assert stored_task(ledger, "other").status is Status.DONE


@pytest.mark.parametrize("why", [StoreUnavailable, StoreMisused])
def test_a_task_whose_seal_cannot_be_looked_up_is_handed_over_later(why: type[DuecourseError]) -> None:
    def prepare(_task: Task) -> Task:
        raise why("no permission")

    targets = Targets({"work": "lambda:Work"}, Lambda().send, {}, prepare, outstanding=9, delivery_lease_ms=9_000)
    [end] = targets.hand_over("lambda:Work", [leased("work", {})])
    assert (end.ending, "no permission" in end.detail) == (Ending.RELEASE, True)
