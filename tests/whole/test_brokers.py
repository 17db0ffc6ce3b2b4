"""The whole stack with queues before and behind it: reminders by SQS, tasks from a queue, tasks for RabbitMQ."""

import json
import socket
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from datetime import UTC, datetime, timedelta
from typing import Any, NamedTuple

import pytest
import urllib3

from duecourse.running.task_event import decode_message
from duecourse_local.harness.addresses import LOOPBACK, free_port
from duecourse_local.harness.aws.emulator import SENT
from duecourse_local.harness.options import PARAMETERS, Options
from duecourse_local.harness.stack import Stack
from tests.support.api import Api
from tests.support.emulator import local_stack
from tests.support.http_server import Reply, answering
from tests.support.matrix import MATRIX
from tests.support.proxies import Proxy
from tests.support.rabbitmq import URL, Rabbit, a_queue, need, rabbit
from tests.support.wait import until

QUEUE = a_queue()
BROKER = (LOOPBACK, 5672)


class Handing(NamedTuple):
    """A stack that hands over, its API, and what it complained of."""

    stack: Stack
    api: Api
    notices: list[str]


@contextmanager
def handing(amqp: str, **options: Any) -> Iterator[Handing]:
    """A stack whose reminders go by a queue of SQS's, and whose bills by one of RabbitMQ's."""
    notices: list[str] = []
    parameters = {**PARAMETERS, "ReminderQueue": "sqs", "Targets": f'"bill": "amqp:{QUEUE}"'}
    given = Options(parameters=parameters, amqp=amqp, **options)
    with urllib3.PoolManager(retries=False, timeout=30) as http, local_stack(given, notice=notices.append) as stack:
        yield Handing(stack, Api(http, stack.api), notices)


@pytest.fixture(scope="module")
def shared() -> Iterator[Handing]:
    with handing(URL) as made:
        yield made


@pytest.fixture
def broker() -> Iterator[Rabbit]:
    with rabbit(need(), QUEUE) as client:
        yield client


@MATRIX
def test_a_reminder_goes_by_a_queue_to_its_sender(shared: Handing) -> None:
    stack, api, notices = shared
    starts = datetime.now(UTC) + timedelta(seconds=31)
    people = [{"name": "Ada", "email": "ada@example.com"}, {"name": "Max", "email": "max@example.com"}]
    wanted = {"id": "standup", "subject": "Stand-up", "starts_at": starts.isoformat(), "remind_before": ["PT30S"]}
    api.post("/reminders", {**wanted, "recipients": people})
    mails = until(lambda: found if len(found := mails_of(stack)) == 2 else None, every=0.1)
    assert {mail["to"] for mail in mails} == {"ada@example.com", "max@example.com"}
    tasks = until(lambda: done_of(api, "standup:30:0", "standup:30:1"), every=0.1)
    assert [run["outcome"] for task in tasks for run in task["history"]] == ["done", "done"]
    assert notices == []


def mails_of(stack: Stack) -> list[Any]:
    found: list[Any] = urllib3.request("GET", stack.aws + SENT).json()["mails"]
    return found


def done_of(api: Api, *ids: str) -> list[Any] | None:
    tasks = [api.task(id, "reminders") for id in ids]
    return tasks if all(task["state"] == "done" for task in tasks) else None


def test_a_message_in_the_intake_queue_becomes_a_task_and_what_is_none_a_dead_letter(shared: Handing) -> None:
    stack, api, _ = shared
    with answering(lambda _: Reply(200, b"{}")) as server:
        sqs = stack.session().client("sqs")
        queue = sqs.get_queue_url(QueueName="IntakeMessages")["QueueUrl"]
        sqs.set_queue_attributes(QueueUrl=queue, Attributes={"VisibilityTimeout": "1"})
        body = {"kind": "webhook", "delay": 1, "payload": {"url": server.url, "body": {"order": 42}}}
        id = sqs.send_message(QueueUrl=queue, MessageBody=json.dumps(body))["MessageId"]
        bad = sqs.send_message(QueueUrl=queue, MessageBody='{"kind": "webhook"}')["MessageId"]
        task = until(lambda: found if (found := api.task(id)) and found["state"] == "done" else None, every=0.1)
        assert task["payload"]["body"] == {"order": 42}
        dead = sqs.get_queue_url(QueueName="IntakeDeadLetters")["QueueUrl"]
        [letter] = until(lambda: sqs.receive_message(QueueUrl=dead).get("Messages"), every=0.1)
        assert letter["MessageId"] == bad
        sqs.close()


def test_a_task_for_rabbitmq_is_there_when_it_is_due_and_done(shared: Handing, broker: Rabbit) -> None:
    shared.api.post("/tasks", {"id": "b-1", "kind": "bill", "delay": 1, "payload": {"sum": "1 €"}})
    shared.api.done("b-1")
    message = broker.got()
    assert message is not None
    task = decode_message(message.body.encode())
    assert (task.id, task.payload, message.id, message.persistent) == (
        "b-1",
        {"sum": "1 €"},
        task.idempotency_key,
        True,
    )


def test_a_task_waits_while_the_broker_is_away_though_its_function_was_frozen_meanwhile(broker: Rabbit) -> None:
    port = free_port(0, "")
    with way_to_the_broker(port) as way, handing(f"amqp://guest:guest@{LOOPBACK}:{port}/", freeze=True) as (_, api, _):
        api.post("/tasks", {"id": "before", "kind": "bill", "payload": {}})
        api.done("before")
        way.close()
        api.post("/tasks", {"id": "meanwhile", "kind": "bill", "payload": {}})
        task = until(lambda: found if (found := api.task("meanwhile"))["run"] else None, every=0.05)
        assert (task["state"], task["attempt"]) in {("scheduled", 1), ("leased", 1)}
        with way_to_the_broker(port):
            api.done("meanwhile")
    assert broker.count() == 2


@contextmanager
def way_to_the_broker(port: int) -> Iterator[ExitStack]:
    """A broker at a port of its own, until it is closed: then nobody answers there."""
    with ExitStack() as way:
        way.enter_context(Proxy(socket.create_server((LOOPBACK, port)), lambda: socket.create_connection(BROKER)))
        yield way
