"""Every saved task, replayed through the function that sends reminders."""

import json
from typing import Any

import pytest

from duecourse import errors
from duecourse.app import PROCESS
from duecourse.ledger.embedded.ledger import EmbeddedLedger
from duecourse.ledger.reminder import QUEUE, Channel, Recipient, Reminder
from duecourse.ledger.task import Ending, Settlement, Shard, Status, Task
from tests.support.clock import START, HandClock
from tests.support.functions import cases, invoke, saved
from tests.support.kinds import Outbox, Web

SHARD = Shard(QUEUE)
ADDRESSES = {
    Channel.EMAIL: "ada@example.com",
    Channel.PHONE: "+436641234567",
    Channel.WEBHOOK: "https://example.com/hooks/meetings",
}


def test_every_saved_event_is_listed_here() -> None:
    assert cases("send_reminder") == {
        "one_task", "to_a_phone", "to_a_webhook", "stale_lease",
        "from_sqs", "from_rabbitmq", "bad_shape", "bad_source", "bad_message", "bad_request",
    }  # fmt: skip


@pytest.mark.parametrize(("case", "field"), [("bad_shape", "tasks.0.lease.token"), ("bad_source", "source")])
def test_a_wrong_event_is_refused_by_field(case: str, field: str, outbox: Outbox) -> None:
    with pytest.raises(errors.InvalidInput, match=field):
        invoke("send_reminder", saved(f"send_reminder/{case}"))
    assert outbox.sent == []


@pytest.mark.parametrize("case", ["one_task", "stale_lease"])
def test_a_lease_that_is_lost_sends_nothing(case: str, outbox: Outbox) -> None:
    answer = invoke("send_reminder", saved(f"send_reminder/{case}"))
    assert (answer["stale"], answer["done"], outbox.sent) == (1, 0, [])


def leased(ledger: EmbeddedLedger, channel: Channel = Channel.EMAIL) -> Task:
    """The saved event's task, as the ledger leases it."""
    to = Recipient("Ada", channel, ADDRESSES[channel])
    PROCESS.app().reminders.add(Reminder("standup", "Stand-up", (300_000,), (to,), "Room 4", starts_at=START + 300_000))
    [task] = ledger.claim(SHARD, 10, lease_ms=60_000).tasks
    return task


def event_for(task: Task, case: str = "one_task") -> Any:
    """The saved event, under the lease of the ledger at hand."""
    event = saved(f"send_reminder/{case}")
    [entry] = event["tasks"]
    assert (entry["id"], entry["payload"]) == (task.id, task.payload)
    entry["state"] = task.state
    entry["lease"] = {"token": task.token, "expires_at": task.lease_expires_at}
    entry["idempotency_key"] = task.idempotency_key
    return event


def test_a_reminder_is_sent_and_settled(ledger: EmbeddedLedger, outbox: Outbox) -> None:
    task = leased(ledger)
    answer = invoke("send_reminder", event_for(task))
    assert (answer["done"], answer["stale"]) == (1, 0)
    [message] = outbox.sent
    assert (message.to, message.subject, message.text) == ("ada@example.com", "Stand-up", "Room 4\n")
    standing = ledger.get(QUEUE, task.id)
    assert standing is not None
    assert (standing.status, standing.result) == (Status.DONE, {"message_id": "m-1"})


def test_an_sms_is_its_text(ledger: EmbeddedLedger, outbox: Outbox) -> None:
    task = leased(ledger, Channel.PHONE)
    assert invoke("send_reminder", event_for(task, "to_a_phone"))["done"] == 1
    [message] = outbox.sent
    assert (message.to, message.text) == ("+436641234567", "Room 4")


def test_a_webhook_is_sent_as_the_kind_webhook_sends_it(ledger: EmbeddedLedger, web: Web) -> None:
    task = leased(ledger, Channel.WEBHOOK)
    assert invoke("send_reminder", event_for(task, "to_a_webhook"))["done"] == 1
    [request] = web.asked
    assert (request.method, request.url) == ("POST", "https://example.com/hooks/meetings")
    assert request.headers["webhook-id"] == f"{QUEUE}/-/{task.idempotency_key}"
    assert json.loads(request.body or b"")["subject"] == "Stand-up"
    standing = ledger.get(QUEUE, task.id)
    assert standing is not None
    assert standing.result == {"status": 204}


def test_the_same_event_again_sends_nothing(ledger: EmbeddedLedger, outbox: Outbox) -> None:
    event = event_for(leased(ledger))
    invoke("send_reminder", event)
    assert invoke("send_reminder", event)["stale"] == 1
    assert len(outbox.sent) == 1


def test_a_reminder_for_what_has_begun_is_dropped(ledger: EmbeddedLedger, outbox: Outbox, clock: HandClock) -> None:
    task = leased(ledger)
    ledger.settle(SHARD, [Settlement(task.id, task.tenant, task.token, Ending.RELEASE, delay_ms=300_000)])
    clock.advance(300_000)
    [late] = ledger.claim(SHARD, 10, lease_ms=60_000).tasks
    assert invoke("send_reminder", event_for(late))["dead"] == 1
    assert outbox.sent == []


@pytest.mark.parametrize(("case", "answer"), [("from_sqs", {"batchItemFailures": []}), ("from_rabbitmq", {})])
def test_a_reminder_that_came_by_a_queue_is_sent_without_a_lease(case: str, answer: Any, outbox: Outbox) -> None:
    assert invoke("send_reminder", saved(f"send_reminder/{case}")) == answer
    [message] = outbox.sent
    assert (message.to, message.subject, message.text) == ("ada@example.com", "Stand-up", "Room 4\n")


def test_a_message_that_is_no_task_is_refused_by_field(outbox: Outbox, caplog: pytest.LogCaptureFixture) -> None:
    with pytest.raises(errors.MessagesFailed, match="1 of 1"):
        invoke("send_reminder", saved("send_reminder/bad_message"))
    assert "source: must be duecourse" in caplog.text
    assert outbox.sent == []
