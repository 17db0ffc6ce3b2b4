"""A function of a user's own that reads a broker's queue: the same decorator, and no lease."""

import json
import logging
import time
from collections.abc import Iterator

import pytest

from duecourse import Again, Done, Drop, Retry, Task, save, task_handler
from duecourse.app import PROCESS
from duecourse.errors import InvalidInput, MessagesFailed, StoreUnavailable
from duecourse.ledger.embedded.ledger import EmbeddedLedger
from duecourse.ledger.task import Ending, Outcome, RetryPolicy, Status
from duecourse.running.task_event import decode_message, message_body
from tests.support.brokers import rabbitmq_event, sqs_event
from tests.support.clock import START
from tests.support.engine import Table
from tests.support.functions import Context
from tests.support.kinds import leased
from tests.support.ledger import claim_one, new, settle, stored_task
from tests.support.wired import Wire, wired_with

SEEN: list[Task] = []


@pytest.fixture
def table() -> Table:
    return Table()


@pytest.fixture(autouse=True)
def wired(ledger: EmbeddedLedger, table: Table) -> Iterator[None]:
    SEEN.clear()
    with wired_with(ledger=ledger, results=table):
        yield


@task_handler
def handler(task: Task) -> Outcome | None:
    """Do as the payload says."""
    SEEN.append(task)
    match task.payload["do"]:
        case "done":
            return Done({"by": task.id})
        case "drop":
            return Drop("no use")
        case "raise":
            raise LookupError("no such customer")
        case "retry":
            return Retry(error="not yet")
        case "again":
            return Again(after="PT1M", state={"step": 2})
        case "later":
            return Again(at="2100-01-01T00:00:00Z")
        case "save":
            save(task, {"step": 1})
    return None


def body(do: str, id: str = "t-1", **changes: object) -> str:
    return message_body(leased("bill", {"do": do}, {"step": 1}, id=id, **changes))


def failures(answer: dict[str, object]) -> list[object]:
    found = answer["batchItemFailures"]
    assert isinstance(found, list)
    return [each["itemIdentifier"] for each in found]


def test_of_an_sqs_batch_exactly_what_failed_is_delivered_again(caplog: pytest.LogCaptureFixture) -> None:
    given = [body(do, id=do) for do in ("done", "raise", "nothing", "retry", "drop")]
    answer = handler(sqs_event(*given), Context())
    assert sorted(map(str, failures(answer))) == ["m-1", "m-3"]
    assert "message m-1 will be delivered again: LookupError: no such customer" in caplog.text
    assert "task drop, delivered by a broker, is dropped: no use" in caplog.text


def test_a_batch_that_worked_names_no_failure() -> None:
    assert handler(sqs_event(body("done")), Context()) == {"batchItemFailures": []}
    assert handler(rabbitmq_event(body("done"), body("drop")), Context()) == {}


def test_of_a_rabbitmq_batch_one_failure_has_all_of_it_delivered_again() -> None:
    with pytest.raises(MessagesFailed, match=r"1 of 2 messages failed: bills::/\[1\]"):
        handler(rabbitmq_event(body("done"), body("raise")), Context())
    assert len(SEEN) == 2


def test_the_task_is_as_it_was_handed_over_and_counts_its_deliveries() -> None:
    task = leased("bill", {"do": "done", "odd": "é\uffff"}, {"step": 1}, deadline_at=START + 9, group="g")
    handler(sqs_event(message_body(task), deliveries=3), Context())
    [seen] = SEEN
    assert seen.idempotency_key == task.idempotency_key
    assert (seen.payload, seen.state, seen.fence, seen.deadline_at) == (task.payload, task.state, 8, START + 9)
    assert (seen.run, seen.attempt, seen.group, seen.retry) == (3, 3, "g", task.retry)
    handler(rabbitmq_event(message_body(task), redelivered=True), Context())
    assert SEEN[1].attempt == 2


def test_a_result_is_kept_under_the_fence_of_the_handing_over(table: Table) -> None:
    handler(sqs_event(body("done")), Context())
    assert (table.results["t-1"].value, table.results["t-1"].fence) == ('{"by":"t-1"}', 8)


def test_a_result_that_cannot_be_kept_has_the_message_delivered_again(table: Table) -> None:
    table.away = True
    assert failures(handler(sqs_event(body("done")), Context())) == ["m-0"]


def test_again_gives_the_task_back_to_the_ledger_with_its_state(ledger: EmbeddedLedger) -> None:
    given = body("again", deadline_at=START + 3_600_000, group="g")
    assert failures(handler(sqs_event(given), Context())) == []
    task = stored_task(ledger, "t-1")
    assert (task.status, task.due_at, task.state) == (Status.SCHEDULED, START + 60_000, {"step": 2})
    assert (task.kind, task.payload, task.group) == ("bill", {"do": "again"}, "g")
    assert (task.deadline_at, task.retry) == (START + 3_600_000, leased("bill", {}).retry)
    assert failures(handler(sqs_event(given, deliveries=2), Context())) == []
    assert stored_task(ledger, "t-1") == task


def test_again_takes_along_all_that_the_task_is_and_leaves_its_state_as_it_was(ledger: EmbeddedLedger) -> None:
    policy = RetryPolicy(3, 5_000, 1.5, 60_000, False)
    given = body("later", queue="mails", tenant="acme", retry=policy)
    assert failures(handler(sqs_event(given), Context())) == []
    task = ledger.get("mails", "t-1", "acme")
    assert task is not None
    assert (task.retry, task.state, task.due_at) == (policy, {"step": 1}, 4_102_444_800_000)


def test_again_of_a_task_whose_id_is_dead_has_the_message_delivered_again(
    ledger: EmbeddedLedger, caplog: pytest.LogCaptureFixture
) -> None:
    settle(ledger, claim_one(ledger, "t-1"), Ending.DROP)
    assert failures(handler(sqs_event(body("again")), Context())) == ["m-0"]
    assert "the ledger did not accept it back: The task is dead" in caplog.text


def test_again_while_the_ledger_is_away_has_the_message_delivered_again(
    caplog: pytest.LogCaptureFixture, wire: Wire
) -> None:
    class Away(EmbeddedLedger):
        def add(self, *_: object, **__: object) -> list[object]:  # type: ignore[override]
            raise StoreUnavailable

    PROCESS.app().threads.close()
    wire(ledger=Away())
    assert failures(handler(sqs_event(body("again")), Context())) == ["m-0"]
    assert "the ledger did not accept it back: The store does not answer." in caplog.text


def test_again_leaves_a_new_task_of_the_same_id_as_it_stands(ledger: EmbeddedLedger) -> None:
    ledger.add([new("t-1", kind="bill", payload='{"newer":true}', delay_ms=5_000)])
    assert failures(handler(sqs_event(body("again")), Context())) == []
    assert stored_task(ledger, "t-1").payload == {"newer": True}


def test_a_checkpoint_needs_a_lease(ledger: EmbeddedLedger, caplog: pytest.LogCaptureFixture) -> None:
    claim_one(ledger, "t-1", kind="bill")
    assert failures(handler(sqs_event(body("save")), Context())) == ["m-0"]
    assert "LeaseLost" in caplog.text


@pytest.mark.parametrize(
    ("strange", "field"),
    [
        ("{", "body: must be JSON"),
        ("[]", "event: must be an object"),
        ('{"source":"elsewhere"}', "source: must be duecourse"),
        ('{"source":"duecourse","version":"1","tasks":[]}', "tasks: must hold one task"),
        (body("done").replace('"fence":8', '"fence":"8"'), "tasks.0.fence: must be a whole number"),
        (body("done").replace('"fence":8', f'"fence":{2**48}'), "tasks.0.fence: must be below 281474976710656"),
        (body("done").replace('"fence":8', '"fence":7,"fence":8'), "tasks.0.fence: stands twice in its object"),
        (body("done").replace('"do":', '"do":"drop","do":'), "tasks.0.payload.do: stands twice in its object"),
    ],
)
def test_a_message_that_is_not_ours_fails_alone(strange: str, field: str, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.ERROR):
        assert failures(handler(sqs_event(body("done"), strange), Context())) == ["m-1"]
    assert field in caplog.text
    assert len(SEEN) == 1
    with pytest.raises(InvalidInput):
        decode_message(strange.encode())


@pytest.mark.parametrize(
    ("field", "value", "problem"),
    [
        ("id", "a/b", "id: must match"),
        ("queue", "a}/{b", "queue: must match"),
        ("tenant", "", "tenant: must match"),
        ("kind", 5, "kind: must be text"),
        ("group", 5, "group: must be text"),
        ("due_at", True, "due_at: must be a whole number"),
        ("fence", -1, "fence: must be a whole number"),
        ("deadline_at", "soon", "deadline_at: must be a whole number"),
        ("deadline_at", 10**400, "deadline_at: must be a whole number"),
        ("idempotency_key", f"t-1:{'9' * 5_000}", "idempotency_key: must be <id>:<generation>"),
        ("idempotency_key", "t-1:\u0663", "idempotency_key: must be <id>:<generation>"),
        ("payload", {"x": float("nan")}, "payload: holds what JSON cannot carry"),
        ("payload", {"x": "\ud800"}, "payload: holds what JSON cannot carry"),
        ("payload", {"x": "x" * 262_144}, "payload: must be at most 256 KiB"),
        ("state", "x" * 4_096, "state: must be at most 4 KiB"),
        ("retry", [1], "retry: may hold max_attempts, backoff_ms"),
        ("retry", {"colour": 1}, "retry: may hold max_attempts, backoff_ms"),
        ("retry", {"backoff_ms": "1"}, "retry.backoff_ms: must be from 0"),
        ("retry", {"factor": -2}, "retry.factor: must be from 1 to 100"),
        ("retry", {"max_attempts": 1.5}, "retry.max_attempts: must be from 1 to 1000"),
        ("retry", {"jitter": 1}, "retry.jitter: must be from False to True"),
    ],
)
@pytest.mark.parametrize("do", ["again", "retry"])
def test_a_message_with_a_field_that_nothing_can_work_with_fails_alone_and_holds_up_nothing(
    do: str, field: str, value: object, problem: str, ledger: EmbeddedLedger, caplog: pytest.LogCaptureFixture
) -> None:
    event = json.loads(body(do))
    [task] = event["tasks"]
    strange = json.dumps({**event, "tasks": [{**task, "payload": {"do": do}, field: value}]})
    assert failures(handler(sqs_event(strange, body("done", id="t-2")), Context())) == ["m-0"]
    assert f"tasks.0.{problem}" in caplog.text
    assert ([task.id for task in SEEN], ledger.get("default", "t-1")) == (["t-2"], None)


@pytest.mark.parametrize(
    "strange",
    [
        {"Records": [{"eventSource": "aws:s3", "s3": {}}]},
        {"Records": [{**sqs_event("{}")["Records"][0], "eventSource": "aws:kinesis"}]},
        {"Records": None},
        {"Records": [{}]},
        {"eventSource": "aws:rmq"},
        {"eventSource": "aws:rmq", "rmqMessagesByQueue": {"q::/": [{"data": "?", "redelivered": False}]}},
        {"eventSource": "aws:mq", "messages": []},
    ],
)
def test_another_services_event_is_refused(strange: object) -> None:
    with pytest.raises(InvalidInput):
        handler(json.loads(json.dumps(strange)), Context())


@pytest.mark.parametrize(("field", "value"), [("retry", {"backoff_ms": "soon"}), ("deadline_at", "soon")])
def test_a_message_of_wrong_fields_is_named_and_holds_nobody_up(
    field: str, value: object, caplog: pytest.LogCaptureFixture
) -> None:
    event = json.loads(body("raise"))
    event["tasks"][0][field] = value
    assert failures(handler(sqs_event(json.dumps(event), body("done")), Context())) == ["m-0"]
    assert f"tasks.0.{field}" in caplog.text


def test_messages_run_one_at_a_time_where_the_handler_says_so() -> None:
    counts, running = [0], [0]

    @task_handler(parallel=1)
    def counting(_task: Task) -> None:
        running[0] += 1
        counts.append(running[0])
        time.sleep(0.02)  # time for the others to begin, if they might
        running[0] -= 1

    assert failures(counting(sqs_event(*(body("done", id=f"t-{n}") for n in range(4))), Context())) == []
    assert counts == [0, 1, 1, 1, 1]
