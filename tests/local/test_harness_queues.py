"""Queues that the harness feeds to functions: what Lambda's pollers promise, on the emulator and a real RabbitMQ."""

import asyncio
import base64
import json
import signal
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pika
import pytest
from pika.exceptions import UnroutableError

from duecourse_local.errors import HarnessError
from duecourse_local.harness.aws.functions import Functions
from duecourse_local.harness.aws.invocation import Answer
from duecourse_local.harness.aws.queue_events import failed_items
from duecourse_local.harness.aws.sources import LONG_POLL_S, RabbitMqFeed, SqsFeed
from duecourse_local.harness.intrinsics import Addresses
from duecourse_local.harness.options import Precision
from duecourse_local.harness.rabbitmq_server import RabbitMq
from duecourse_local.harness.template import RABBITMQ, Source, Template
from tests.support.emulator import emulator
from tests.support.harness import Probes, probes
from tests.support.http_server import ReceivedRequest, Reply, Server, answering
from tests.support.matrix import MATRIX, in_turn
from tests.support.project import ROOT
from tests.support.rabbitmq import Rabbit, need, rabbit
from tests.support.wait import until

pytestmark = pytest.mark.slow


def noted(notes: Path) -> list[Any]:
    """The events that a function has written down; a large one is there by pieces."""
    lines = notes.read_text().splitlines(keepends=True) if notes.exists() else []
    return [json.loads(line) for line in lines if line.endswith("\n")]


class Fed:
    """A stack whose functions read queues, and what they were sent."""

    def __init__(self, stack: Probes, notes: Path) -> None:
        self.stack = stack
        self._notes = notes
        self.sqs = stack.stack.session().client("sqs")

    def url(self, queue: str) -> str:
        found: str = self.sqs.get_queue_url(QueueName=queue)["QueueUrl"]
        return found

    def put(self, queue: str, *bodies: str) -> None:
        entries = [{"Id": str(n), "MessageBody": body} for n, body in enumerate(bodies)]
        self.sqs.send_message_batch(QueueUrl=self.url(queue), Entries=entries)

    def events(self, queue: str) -> list[list[Any]]:
        """The messages of each event from one SQS queue."""
        batches = [event["Records"] for event in noted(self._notes) if "Records" in event]
        return [batch for batch in batches if batch[0]["eventSourceARN"].endswith(f":{queue}")]

    def bodies(self, queue: str) -> list[list[str]]:
        return [[record["body"] for record in batch] for batch in self.events(queue)]

    def seen(self, queue: str, body: str) -> int:
        """How often a message was delivered."""
        return sum(batch.count(body) for batch in self.bodies(queue))

    def waiting(self, queue: str) -> int:
        """How many messages the queue has, those under way included."""
        names = ["ApproximateNumberOfMessages", "ApproximateNumberOfMessagesNotVisible"]
        counts = self.sqs.get_queue_attributes(QueueUrl=self.url(queue), AttributeNames=names)["Attributes"]
        return sum(map(int, counts.values()))

    def under_way(self, queue: str) -> bool:
        """Whether a message has been received and not yet been worked."""
        names = ["ApproximateNumberOfMessagesNotVisible"]
        counts = self.sqs.get_queue_attributes(QueueUrl=self.url(queue), AttributeNames=names)["Attributes"]
        return counts != {names[0]: "0"}


@pytest.fixture(scope="module")
def fed(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Fed]:
    notes = tmp_path_factory.mktemp("fed") / "notes"
    given = {"precision": Precision.TICK, "environment": {"NOTES": str(notes)}}
    with emulator() as aws, probes("sources.yaml", aws=aws, **given) as stack:
        found = Fed(stack, notes)
        yield found
        found.sqs.close()


def test_a_message_reaches_its_function_in_lambdas_shape_and_is_deleted(fed: Fed) -> None:
    attributes = {"idempotency_key": {"DataType": "String", "StringValue": "a:1"}}
    fed.sqs.send_message(QueueUrl=fed.url("work"), MessageBody="shape", MessageAttributes=attributes)
    until(lambda: fed.seen("work", "shape"))
    [record] = next(batch for batch in fed.events("work") if batch[0]["body"] == "shape")
    saved = json.loads((ROOT / "events/send_reminder/from_sqs.json").read_text())["Records"][0]
    assert record.keys() == saved.keys()
    assert record["attributes"].keys() >= saved["attributes"].keys()
    assert record["messageAttributes"]["idempotency_key"] == {
        **saved["messageAttributes"]["idempotency_key"],
        "stringValue": "a:1",
    }
    assert (record["eventSource"], record["awsRegion"]) == ("aws:sqs", "us-east-1")
    assert record["eventSourceARN"].endswith(":123456789012:work")
    until(lambda: fed.waiting("work") == 0)
    assert fed.seen("work", "shape") == 1


def test_of_a_batch_only_what_is_reported_comes_back_and_after_two_deliveries_lies_in_the_dead_letter_queue(
    fed: Fed,
) -> None:
    dead = fed.waiting("dead")
    fed.put("work", "fail", "good one", "good two")
    until(lambda: fed.waiting("dead") == dead + 1, every=0.1)
    assert (fed.seen("work", "fail"), fed.seen("work", "good one"), fed.seen("work", "good two")) == (2, 1, 1)
    counts = [r["attributes"]["ApproximateReceiveCount"] for b in fed.events("work") for r in b if r["body"] == "fail"]
    assert counts == ["1", "2"]
    assert fed.waiting("work") == 0


@pytest.mark.parametrize("how", in_turn("raise", "nonsense"))
def test_a_batch_whose_function_fails_or_answers_nonsense_comes_back_whole(fed: Fed, how: str) -> None:
    dead = fed.waiting("dead")
    fed.put("work", how, f"beside {how}")
    until(lambda: fed.waiting("dead") == dead + 2, every=0.1)
    assert fed.seen("work", f"beside {how}") == 2


def test_a_batch_waits_for_its_window_and_is_no_larger_than_its_size(fed: Fed) -> None:
    fed.put("gathered", "w1")
    until(lambda: fed.under_way("gathered"))
    fed.put("gathered", "w2")
    until(lambda: fed.seen("gathered", "w2"), every=0.05)
    assert ["w1", "w2"] in map(sorted, fed.bodies("gathered"))
    fed.put("gathered", *(f"s{n}" for n in range(7)))
    until(lambda: all(fed.seen("gathered", f"s{n}") for n in range(7)), every=0.05)
    assert max(map(len, fed.bodies("gathered"))) == 3


def test_an_sqs_batch_that_is_more_than_an_invocation_takes_comes_in_several(fed: Fed) -> None:
    large = [letter + "é" * 500_000 for letter in "abc"]  # JSON's escapes make three times as much of it
    for body in large:
        fed.put("gathered", body)
    until(lambda: all(fed.seen("gathered", body) for body in large), every=0.1)
    until(lambda: fed.waiting("gathered") == 0)
    assert [fed.seen("gathered", body) for body in large] == [1, 1, 1]


def test_without_a_partial_answer_asked_for_the_whole_batch_counts_as_worked(fed: Fed) -> None:
    fed.put("gathered", "fail")
    until(lambda: fed.seen("gathered", "fail"), every=0.05)
    until(lambda: fed.waiting("gathered") == 0)


@MATRIX
def test_no_more_is_received_than_the_function_may_run_at_once(fed: Fed) -> None:
    fed.put("narrowed", "slow")
    until(lambda: fed.seen("narrowed", "slow"), every=0.05)
    fed.put("narrowed", "behind it")
    until(lambda: fed.seen("narrowed", "behind it"), every=0.05)
    [[record]] = [batch for batch in fed.events("narrowed") if batch[0]["body"] == "behind it"]
    assert record["attributes"]["ApproximateReceiveCount"] == "1"
    until(lambda: fed.waiting("narrowed") == 0)


@MATRIX
def test_a_message_whose_function_is_busy_elsewhere_comes_back(fed: Fed) -> None:
    event = {"Records": [{"messageId": "m", "body": "slow", "eventSourceARN": "arn:aws:sqs:us-east-1:1:elsewhere"}]}
    fed.stack.client.invoke(FunctionName="Narrow", InvocationType="Event", Payload=json.dumps(event))
    until(lambda: fed.seen("elsewhere", "slow"), every=0.05)
    fed.put("narrowed", "throttled")
    until(lambda: fed.seen("narrowed", "throttled"), every=0.05)
    until(lambda: fed.waiting("narrowed") == 0)
    counts = [
        b[0]["attributes"]["ApproximateReceiveCount"] for b in fed.events("narrowed") if b[0]["body"] == "throttled"
    ]
    assert counts == ["2"]
    assert not any("not deleted" in notice for notice in fed.stack.notices)


@pytest.mark.parametrize(
    ("answer", "failed"),
    [
        ("null", ""),
        ("{}", ""),
        ('{"batchItemFailures": []}', ""),
        ('{"batchItemFailures": null}', ""),
        ('{"batchItemFailures": [{"itemIdentifier": "b"}]}', "b"),
        ('{"batchItemFailures": [{"itemIdentifier": "b"}, {"itemIdentifier": "b"}]}', "b"),
        ('{"batchItemFailures": [{"itemIdentifier": ""}]}', "abc"),
        ('{"batchItemFailures": [{"itemIdentifier": null}]}', "abc"),
        ('{"batchItemFailures": [{"itemId": "b"}]}', "abc"),
        ('{"batchItemFailures": [{"itemIdentifier": ["b"]}]}', "abc"),
        ('{"batchItemFailures": ["b"]}', "abc"),
        ('{"batchItemFailures": 1}', "abc"),
        ('["b"]', "abc"),
        ('"b"', "abc"),
        ("not json", "abc"),
    ],
)
def test_what_an_answer_means_is_as_lambda_documents_it(answer: str, failed: str) -> None:
    """Source: AWS, "Handling errors for an SQS event source in Lambda", success and failure conditions."""
    assert failed_items(answer.encode(), "abc") == set(failed)


def test_a_source_that_is_switched_off_is_not_fed(fed: Fed) -> None:
    fed.put("dead", "left alone")
    for n in range(3):  # looks at the queues that are fed
        fed.put("work", f"meanwhile {n}")
        until(lambda n=n: fed.seen("work", f"meanwhile {n}"))
    assert fed.events("dead") == []


def test_a_rabbitmq_source_without_a_broker_is_told_in_one_line(fed: Fed) -> None:
    told = [notice for notice in fed.stack.notices if "RabbitMQ" in notice]
    assert told == ["Rabbit is not fed from RabbitMQ's queue duecourse-test-none: give --amqp, or set DUECOURSE_AMQP"]


async def nobody(_event: Any) -> Answer:
    raise AssertionError


def test_a_brokers_url_that_cannot_be_read_is_refused_by_its_option() -> None:
    url = "amqps://user:s3cret@127.0.0.1/?ssl_options={'cafile': '/no/such/file'}"
    with pytest.raises(HarnessError, match="--amqp or DUECOURSE_AMQP is not an AMQP URL") as caught:
        RabbitMqFeed(Source(RABBITMQ, "arn", "q", 1, 0, False, 1), url, nobody, print)
    assert "s3cret" not in str(caught.value)


def test_looks_at_many_queues_leave_threads_for_other_calls(fed: Fed) -> None:
    ends = threading.Event()

    async def scene() -> str:
        looks = [asyncio.ensure_future(asyncio.to_thread(ends.wait)) for _ in range(50)]
        try:
            return await asyncio.wait_for(asyncio.to_thread(str, "other"), 30)
        finally:
            ends.set()
            await asyncio.gather(*looks)

    assert fed.stack.stack._wait_for(scene()) == "other"


def test_a_look_at_a_queue_waits_for_a_message(tmp_path: Path) -> None:
    (tmp_path / "template.yaml").write_text(
        "Resources: {It: {Type: AWS::Serverless::Function, Properties: {Handler: a.b, CodeUri: .}}}"
    )
    (function,) = Template(tmp_path / "template.yaml", Addresses("", "", "memory://")).functions
    host: Any = SimpleNamespace(function=function)
    log: Any = None
    functions = Functions([host], destine=print, notice=print, log=log, retry_waits=())
    message = {"Messages": [{"MessageId": "m", "Body": ""}]}
    answers = iter([{"QueueUrl": "http://127.0.0.1/q"}, {}, message])

    def answer(_asked: ReceivedRequest) -> Reply:
        body = json.dumps(next(answers, {})).encode()
        return Reply(200, body, {"Content-Type": "application/x-amz-json-1.0"})

    async def feed(server: Server) -> None:
        feed = SqsFeed(Source("SQS", "arn", "q", 2, 30.0, False, 1), function.name, functions, server.url, print)
        feeding = asyncio.create_task(feed.keep())
        while len(server.asked) < 6:
            await asyncio.sleep(0)
        feeding.cancel()
        await asyncio.wait((feeding,))

    with answering(answer) as server:
        asyncio.run(asyncio.wait_for(feed(server), 30))
    receives = [asked for asked in server.asked if asked.headers["x-amz-target"].endswith(".ReceiveMessage")]
    assert {json.loads(asked.body)["WaitTimeSeconds"] for asked in receives} == {LONG_POLL_S}


@pytest.fixture
def broker() -> Iterator[Rabbit]:
    with rabbit(need()) as client:
        client.channel.queue_declare(client.queue, durable=True)
        yield client


Read = Callable[[], list[Any]]


@pytest.fixture
def read(broker: Rabbit, tmp_path: Path) -> Iterator[Read]:
    """The events that a function was sent from the broker's queue, while a stack feeds it."""
    notes = tmp_path / "notes"
    options = {"parameters": {"Queue": broker.queue}, "amqp": broker.url, "environment": {"NOTES": str(notes)}}
    with emulator() as aws, probes("sources.yaml", aws=aws, precision=Precision.TICK, **options):
        yield lambda: noted(notes)


def rabbit_bodies(event: Any) -> list[str]:
    [messages] = event["rmqMessagesByQueue"].values()
    return [base64.b64decode(message["data"]).decode() for message in messages]


def test_rabbitmqs_messages_come_in_amazon_mqs_shape_and_are_acknowledged(broker: Rabbit, read: Read) -> None:
    broker.put(
        "one",
        content_type="text/plain",
        headers={"h": "v", "n": 10},
        delivery_mode=2,
        message_id="m-1",
        timestamp=45_241,
    )
    broker.put("two")
    [event] = until(read)
    saved = json.loads((ROOT / "events/send_reminder/from_rabbitmq.json").read_text())
    assert event.keys() == saved.keys()
    [(queue, [first, second])] = event["rmqMessagesByQueue"].items()
    [[shape]] = saved["rmqMessagesByQueue"].values()
    assert (first.keys(), first["basicProperties"].keys()) == (shape.keys(), shape["basicProperties"].keys())
    assert queue == f"{broker.queue}::/"
    properties = first["basicProperties"]
    assert (properties["messageId"], properties["bodySize"], properties["deliveryMode"]) == ("m-1", 3, 2)
    assert properties["headers"] == {"h": {"bytes": [118]}, "n": 10}
    assert properties["timestamp"] == "Jan 1, 1970, 12:34:01 PM"
    assert (first["redelivered"], base64.b64decode(second["data"])) == (False, b"two")
    until(lambda: broker.count() == 0)


@MATRIX
def test_a_rabbitmq_message_may_hold_anything_and_the_next_one_still_comes(broker: Rabbit, read: Read) -> None:
    deaths = [{"count": 1, "reason": "expired", "exchange": ""}]
    broker.put("", headers={"x-death": deaths, "none": None, "raw": b"\xff"}, timestamp=1_790_000_000_000)
    until(lambda: broker.count() == 0 and read())
    broker.put("next")
    first, second = [message for event in until(lambda: all_of(read(), 2)) for message in rabbit_messages(event)]
    properties = first["basicProperties"]
    assert (first["data"], properties["bodySize"], properties["timestamp"]) == ("", 0, "1790000000000")
    reason = {"bytes": list(b"expired")}
    assert properties["headers"] == {
        "x-death": [{"count": 1, "reason": reason, "exchange": {"bytes": []}}],
        "none": None,
        "raw": {"bytes": [255]},
    }
    assert base64.b64decode(second["data"]) == b"next"


def rabbit_messages(event: Any) -> list[Any]:
    [messages] = event["rmqMessagesByQueue"].values()
    return list(messages)


def all_of(events: list[Any], count: int) -> list[Any]:
    """The events, once they hold so many messages."""
    return events if sum(len(rabbit_messages(event)) for event in events) == count else []


@MATRIX
def test_a_rabbitmq_source_goes_on_after_its_broker_was_killed_and_its_queue_deleted(
    rabbitmq: RabbitMq, tmp_path: Path
) -> None:
    notes = tmp_path / "notes"
    options = {"parameters": {"Queue": "q"}, "amqp": rabbitmq.url, "environment": {"NOTES": str(notes)}}
    with emulator() as aws, probes("sources.yaml", aws=aws, precision=Precision.TICK, **options) as stack:

        def delivered(body: str) -> bool:
            return any(body in rabbit_bodies(event) for event in noted(notes))

        deliver(rabbitmq, "before", delivered)
        rabbitmq.stop(signal.SIGKILL)
        until(lambda: stack.notices)
        rabbitmq.start()
        deliver(rabbitmq, "after the kill", delivered)
        with pika.BlockingConnection(pika.URLParameters(rabbitmq.url)) as connection:
            connection.channel().queue_delete("q")
        deliver(rabbitmq, "after the deletion", delivered)
    assert len(stack.notices) == 1
    assert stack.notices[0].startswith("RabbitMQ's queue q is not fed from: ")


def deliver(node: RabbitMq, body: str, delivered: Callable[[str], bool]) -> None:
    """Send one message and see it arrive; it is sent again as long as its queue is not there."""

    def sent() -> bool:
        with pika.BlockingConnection(pika.URLParameters(node.url)) as connection:
            channel = connection.channel()
            channel.confirm_delivery()
            with suppress(UnroutableError):
                channel.basic_publish("", "q", body.encode(), mandatory=True)
                return True
        return False

    until(sent, every=0.1)
    until(lambda: delivered(body), every=0.05)


@MATRIX
def test_a_rabbitmq_batch_that_fails_is_requeued_whole_and_delivered_again(broker: Rabbit, read: Read) -> None:
    broker.put("raise")
    broker.put("beside")
    until(read)
    began = time.monotonic()
    until(lambda: len(read()) >= 2, every=0.05)
    assert time.monotonic() - began > 0.5, "else what always fails would come a thousand times a second"
    first, second = read()[:2]
    assert rabbit_bodies(first) == rabbit_bodies(second) == ["raise", "beside"]
    [messages] = second["rmqMessagesByQueue"].values()
    assert [message["redelivered"] for message in messages] == [True, True]


@MATRIX
def test_a_rabbitmq_batch_is_no_larger_than_its_size(broker: Rabbit, read: Read) -> None:
    for n in range(7):
        broker.put(str(n))
    until(lambda: sum(len(rabbit_bodies(event)) for event in read()) == 7, every=0.05)
    assert max(len(rabbit_bodies(event)) for event in read()) == 3
    until(lambda: broker.count() == 0)


@MATRIX
def test_a_rabbitmq_batch_that_is_more_than_an_invocation_takes_comes_in_several(broker: Rabbit, read: Read) -> None:
    for n in range(3):
        broker.put(f"{n}" * 3_000_000)
    until(lambda: broker.count() == 0 and len(read()) == 3, every=0.1)
    assert [[len(body) for body in rabbit_bodies(event)] for event in read()] == [[3_000_000]] * 3


@MATRIX
def test_what_is_under_way_when_the_stack_stops_goes_back_to_its_queue(broker: Rabbit, tmp_path: Path) -> None:
    notes = tmp_path / "notes"
    options = {"parameters": {"Queue": broker.queue}, "amqp": broker.url, "environment": {"NOTES": str(notes)}}
    with emulator() as aws, probes("sources.yaml", aws=aws, precision=Precision.TICK, **options):
        broker.put("slow")
        until(notes.exists)
    again = until(broker.got)
    assert (again.body, again.redelivered) == ("slow", True)
