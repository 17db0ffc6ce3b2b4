"""Every saved batch of messages, replayed through the function that takes tasks from a queue."""

import copy
import json
from typing import Any

import pytest

from duecourse import errors
from duecourse.errors import StoreUnavailable
from duecourse.ledger.embedded.ledger import EmbeddedLedger
from duecourse.ledger.task import Ending, Status
from tests.support.brokers import rabbitmq_event, sqs_event
from tests.support.clock import START
from tests.support.functions import cases, invoke, saved
from tests.support.ledger import SHARD, claim, settle, stored_task
from tests.support.wired import Wire

FIRST = "19dd0b57-b21e-4ac1-bd88-01bbb068cb78"
HOOK = json.dumps({"kind": "webhook", "payload": {"url": "https://example.com/hook"}})


def test_every_saved_event_is_listed_here() -> None:
    assert cases("enqueue_message") == {
        "sqs_two",
        "sqs_some_bad",
        "rabbitmq",
        "bad_rabbitmq",
        "bad_shape",
        "bad_request",
    }


def failed(answer: Any) -> list[str]:
    return [each["itemIdentifier"] for each in answer["batchItemFailures"]]


def refusals(caplog: pytest.LogCaptureFixture) -> dict[str, str]:
    """What the log tells of messages that were refused: their problems by their names."""
    told = [record.__dict__ for record in caplog.records if record.levelname == "ERROR"]
    return {record["message_id"]: record["problem"] for record in told}


def test_each_message_becomes_a_task_by_its_own_id_or_the_messages(ledger: EmbeddedLedger) -> None:
    assert failed(invoke("enqueue_message", saved("enqueue_message/sqs_two"))) == []
    task = stored_task(ledger, FIRST)
    assert (task.kind, task.due_at, task.payload["body"]) == ("webhook", START + 600_000, {"order": 42})
    assert stored_task(ledger, "report-42").kind == "poll"


def test_what_is_no_task_is_reported_with_its_problem_and_the_rest_is_added(
    ledger: EmbeddedLedger, caplog: pytest.LogCaptureFixture
) -> None:
    answer = invoke("enqueue_message", saved("enqueue_message/sqs_some_bad"))
    assert failed(answer) == [
        "3a1424d4-f796-459a-8184-9c92662be6db",
        "4b1424d4-f796-459a-8184-9c92662be6dc",
    ]
    assert stored_task(ledger, FIRST).kind == "webhook"
    told = refusals(caplog)
    assert list(told) == failed(answer)
    first, second = told.values()
    assert "delay: must be a duration" in first
    assert "payload.url: is required" in first
    assert "is not JSON" in second


def test_a_message_with_a_name_twice_is_no_task(ledger: EmbeddedLedger, caplog: pytest.LogCaptureFixture) -> None:
    assert failed(invoke("enqueue_message", sqs_event(HOOK[:-1] + ', "kind": "poll"}', HOOK))) == ["m-0"]
    assert refusals(caplog) == {"m-0": "kind: stands twice in its object"}
    assert stored_task(ledger, "m-1").kind == "webhook"


def test_a_task_that_no_record_holds_is_reported_and_the_rest_is_added(ledger: EmbeddedLedger) -> None:
    endless = json.dumps(json.loads(HOOK) | {"retry": {"backoff": "P60D", "max_backoff": "P60D"}})
    assert failed(invoke("enqueue_message", sqs_event(endless, HOOK))) == ["m-0"]
    assert stored_task(ledger, "m-1").kind == "webhook"


@pytest.mark.parametrize("end", [None, Ending.DONE, Ending.DROP])
def test_a_message_that_comes_twice_adds_nothing_whatever_became_of_its_task(
    ledger: EmbeddedLedger, end: Ending | None
) -> None:
    event = sqs_event(HOOK)
    assert failed(invoke("enqueue_message", event)) == []
    if end:
        [task] = claim(ledger)
        settle(ledger, task, end)
    before = stored_task(ledger, "m-0")
    assert failed(invoke("enqueue_message", sqs_event(HOOK, deliveries=2))) == []
    assert stored_task(ledger, "m-0") == before


def test_a_message_with_an_id_of_its_own_is_kept_while_its_task_is_live(ledger: EmbeddedLedger) -> None:
    body = json.dumps(json.loads(HOOK) | {"id": "order-1"})
    assert failed(invoke("enqueue_message", sqs_event(body, body))) == []
    before = stored_task(ledger, "order-1")
    assert failed(invoke("enqueue_message", sqs_event(body, deliveries=2))) == []
    assert stored_task(ledger, "order-1") == before


@pytest.mark.parametrize(
    ("fields", "problem"),
    [
        ({"kind": "unheard-of", "payload": {}}, "kind: nothing runs unheard-of"),
        ({"id": "dead", "kind": "webhook", "payload": {"url": "https://h/"}}, "The task is dead"),
        ({"id": "a b", "kind": "webhook", "payload": {"url": "https://h/"}}, "id: must be 1 to 128"),
    ],
)
def test_what_the_ledger_does_not_take_is_reported(
    ledger: EmbeddedLedger, fields: Any, problem: str, caplog: pytest.LogCaptureFixture
) -> None:
    invoke("enqueue_message", sqs_event(json.dumps(json.loads(HOOK) | {"id": "dead"})))
    settle(ledger, claim(ledger)[0], Ending.DROP)
    assert failed(invoke("enqueue_message", sqs_event(json.dumps(fields), HOOK))) == ["m-0"]
    assert problem in refusals(caplog)["m-0"]
    assert stored_task(ledger, "m-1").status is Status.SCHEDULED


def test_rabbitmqs_messages_become_tasks_too(ledger: EmbeddedLedger) -> None:
    assert invoke("enqueue_message", saved("enqueue_message/rabbitmq")) == {}
    assert (stored_task(ledger, "order-42").kind, stored_task(ledger, "report-42").kind) == ("webhook", "poll")


def test_a_rabbitmq_message_without_any_id_is_refused_and_the_others_are_added_once(
    ledger: EmbeddedLedger, caplog: pytest.LogCaptureFixture
) -> None:
    for _ in range(2):
        with pytest.raises(errors.MessagesFailed, match=r"1 of 2 messages failed: tasks::/\[1\]"):
            invoke("enqueue_message", saved("enqueue_message/bad_rabbitmq"))
    assert "id: is required in a message that has no message id" in refusals(caplog)["tasks::/[1]"]
    assert stored_task(ledger, "report-42").kind == "poll"
    assert ledger.stats(SHARD).scheduled == 1


def test_a_body_that_is_not_text_is_refused_alone(ledger: EmbeddedLedger) -> None:
    event = rabbitmq_event(HOOK, HOOK, ids=("a", "b"))
    strange = copy.deepcopy(event)
    strange["rmqMessagesByQueue"]["bills::/"][0]["data"] = "//4="
    with pytest.raises(errors.MessagesFailed, match="1 of 2"):
        invoke("enqueue_message", strange)
    assert stored_task(ledger, "b").kind == "webhook"


def test_another_services_event_is_refused() -> None:
    with pytest.raises(errors.InvalidInput):
        invoke("enqueue_message", saved("enqueue_message/bad_shape"))
    with pytest.raises(errors.InvalidInput, match="must be an event of SQS"):
        invoke("enqueue_message", {"source": "duecourse"})


def test_while_the_ledger_is_away_the_whole_batch_comes_again(wire: Wire) -> None:
    class Away(EmbeddedLedger):
        def get(self, *_: object, **__: object) -> None:
            raise StoreUnavailable

    wire(ledger=Away())
    with pytest.raises(StoreUnavailable):
        invoke("enqueue_message", sqs_event(HOOK))
