"""The whole stack with queues before and behind it: reminders by SQS, tasks from a queue, tasks for RabbitMQ."""

import json
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pika
import pytest
import urllib3

from duecourse.wire.invocation import decode_message
from local.aws_emulator import SENT
from local.options import PARAMETERS, Options
from local.rabbitmq import RabbitMq
from local.stack import Stack
from tests.support.answering import Reply, answering
from tests.support.api import Api
from tests.support.rabbitmq import Rabbit, need, need_server, rabbit
from tests.support.wait import until


@contextmanager
def running(**options: Any) -> Iterator[tuple[Stack, Api, list[str]]]:
    notices: list[str] = []
    with urllib3.PoolManager(retries=False, timeout=30) as http, Stack(Options(**options), notice=notices.append) as s:
        yield s, Api(http, s.api), notices


@pytest.fixture
def broker() -> Iterator[Rabbit]:
    with rabbit(need()) as client:
        yield client


def targets(**kinds: str) -> str:
    return ", ".join(f'"{kind}": "{target}"' for kind, target in kinds.items())


def test_a_reminder_goes_by_a_queue_to_its_sender() -> None:
    with running(parameters={**PARAMETERS, "ReminderQueue": "sqs"}) as (stack, api, notices):
        starts = datetime.now(UTC) + timedelta(seconds=5)
        people = [{"name": "Ada", "email": "ada@example.com"}, {"name": "Max", "email": "max@example.com"}]
        wanted = {"id": "standup", "subject": "Stand-up", "starts_at": starts.isoformat(), "remind_before": ["PT4S"]}
        api.post("/reminders", {**wanted, "recipients": people})
        mails = until(lambda: found if len(found := mails_of(stack)) == 2 else None, seconds=20, every=0.1)
        assert {mail["to"] for mail in mails} == {"ada@example.com", "max@example.com"}
        tasks = until(lambda: done_of(api, "standup:4:0", "standup:4:1"), seconds=10, every=0.1)
        assert [run["outcome"] for task in tasks for run in task["history"]] == ["done", "done"]
        assert notices == []


def mails_of(stack: Stack) -> list[Any]:
    found: list[Any] = urllib3.request("GET", stack.aws + SENT).json()["mails"]
    return found


def done_of(api: Api, *ids: str) -> list[Any] | None:
    tasks = [api.task(id, "reminders") for id in ids]
    return tasks if all(task["state"] == "done" for task in tasks) else None


def test_a_message_in_the_intake_queue_becomes_a_task_and_what_is_none_a_dead_letter() -> None:
    with answering(lambda _: Reply(200, b"{}")) as server, running() as (stack, api, _):
        sqs = stack.session().client("sqs")
        queue = sqs.get_queue_url(QueueName="IntakeMessages")["QueueUrl"]
        sqs.set_queue_attributes(QueueUrl=queue, Attributes={"VisibilityTimeout": "0"})
        body = {"kind": "webhook", "delay": 1, "payload": {"url": server.url, "body": {"order": 42}}}
        id = sqs.send_message(QueueUrl=queue, MessageBody=json.dumps(body))["MessageId"]
        bad = sqs.send_message(QueueUrl=queue, MessageBody='{"kind": "webhook"}')["MessageId"]
        task = until(lambda: found if (found := api.task(id)) and found["state"] == "done" else None, every=0.1)
        assert task["payload"]["body"] == {"order": 42}
        dead = sqs.get_queue_url(QueueName="IntakeDeadLetters")["QueueUrl"]
        [letter] = until(lambda: sqs.receive_message(QueueUrl=dead).get("Messages"), seconds=20, every=0.1)
        assert letter["MessageId"] == bad
        sqs.close()


def test_a_task_for_rabbitmq_is_there_when_it_is_due_and_done(broker: Rabbit) -> None:
    parameters = {**PARAMETERS, "Targets": targets(bill=f"amqp:{broker.queue}")}
    with running(parameters=parameters, amqp=broker.url) as (_, api, _):
        api.post("/tasks", {"id": "b-1", "kind": "bill", "delay": 1, "payload": {"sum": "1 €"}})
        until(lambda: api.task("b-1")["state"] == "done", every=0.05)
        message = broker.got()
    assert message is not None
    task = decode_message(message.body.encode())
    assert (task.id, task.payload, message.id, message.persistent) == (
        "b-1",
        {"sum": "1 €"},
        task.idempotency_key,
        True,
    )


def test_a_task_waits_while_the_broker_is_down_though_its_function_was_frozen_meanwhile(tmp_path: Path) -> None:
    need_server()
    with RabbitMq(tmp_path) as server:
        parameters = {**PARAMETERS, "Targets": targets(bill="amqp:bills")}
        with running(parameters=parameters, amqp=server.url, freeze=True) as (_, api, _):
            api.post("/tasks", {"id": "before", "kind": "bill", "payload": {}})
            until(lambda: api.task("before")["state"] == "done", every=0.05)
            server.stop()
            api.post("/tasks", {"id": "meanwhile", "kind": "bill", "payload": {}})
            task = until(lambda: found if (found := api.task("meanwhile"))["run"] else None, every=0.05)
            server.start()
            until(lambda: api.task("meanwhile")["state"] == "done", seconds=30, every=0.1)
        assert (task["state"], task["attempt"]) in {("scheduled", 1), ("leased", 1)}
        with pika.BlockingConnection(pika.URLParameters(server.url)) as connection:
            assert connection.channel().queue_declare("bills", passive=True).method.message_count == 2
