"""Handing tasks to SQS, as moto has it, and what becomes of a batch that SQS takes in part."""

import json
from collections.abc import Iterator
from typing import Any

import boto3
import pytest
from botocore.exceptions import EndpointConnectionError
from moto import mock_aws

from duecourse.errors import PublishRejected
from duecourse.ledger.task import Ending
from duecourse.running.task_event import BrokerMessage, decode_message
from duecourse.services import aws
from duecourse.services.aws import MAX_BATCH_BYTES, SqsPublisher
from tests.support.engine import Lambda, targets_of
from tests.support.kinds import leased

pytestmark = pytest.mark.slow


@pytest.fixture
def sqs(monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    for name in ("AWS_PROFILE", "AWS_ENDPOINT_URL", "AWS_ENDPOINT_URL_SQS"):
        monkeypatch.delenv(name, raising=False)
    with mock_aws():
        client = boto3.client("sqs", region_name="eu-central-1", aws_access_key_id="x", aws_secret_access_key="x")
        client.create_queue(QueueName="bills")
        yield client
        client.close()


class Grudging:
    """A client that passes on what it is asked, but fails the entries it was told to, so many times."""

    def __init__(self, client: Any, times: dict[str, int], *, at_fault: bool = False) -> None:
        self._client = client
        self._times = times
        self._at_fault = at_fault
        self.requests: list[list[str]] = []

    def __getattr__(self, name: str) -> Any:
        return getattr(self._client, name)

    def send_message_batch(self, QueueUrl: str, Entries: list[Any]) -> Any:  # noqa: N803
        refused = [entry for entry in Entries if self._refuses(entry)]
        self.requests.append([entry["MessageAttributes"]["idempotency_key"]["StringValue"] for entry in Entries])
        rest = [entry for entry in Entries if entry not in refused]
        answer = self._client.send_message_batch(QueueUrl=QueueUrl, Entries=rest) if rest else {}
        failed = [
            {"Id": e["Id"], "Code": "InternalError", "Message": "try again", "SenderFault": self._at_fault}
            for e in refused
        ]
        return {"Successful": answer.get("Successful", []), "Failed": failed}

    def _refuses(self, entry: Any) -> bool:
        id = entry["MessageAttributes"]["idempotency_key"]["StringValue"]
        self._times[id] = self._times.get(id, 0) - 1
        return self._times[id] >= 0


def messages(count: int, size: int = 2) -> list[BrokerMessage]:
    return [BrokerMessage(f"m-{n}:1", json.dumps("x" * (size - 2))) for n in range(count)]


def received(sqs: Any, queue: str = "bills") -> dict[str, str]:
    """Everything in the queue: bodies by idempotency key."""
    found: dict[str, str] = {}
    url = sqs.get_queue_url(QueueName=queue)["QueueUrl"]
    while True:
        answer = sqs.receive_message(QueueUrl=url, MaxNumberOfMessages=10, MessageAttributeNames=["All"])
        if not answer.get("Messages"):
            return found
        found |= {m["MessageAttributes"]["idempotency_key"]["StringValue"]: m["Body"] for m in answer["Messages"]}


def test_what_sqs_takes_carries_its_idempotency_key(sqs: Any) -> None:
    assert SqsPublisher(sqs).publish("bills", messages(23)) == [""] * 23
    assert received(sqs) == {m.id: m.body for m in messages(23)}


def test_a_queue_can_be_named_by_its_url_which_is_not_asked_for(sqs: Any) -> None:
    url = sqs.get_queue_url(QueueName="bills")["QueueUrl"]
    assert SqsPublisher(sqs).publish(url, messages(1)) == [""]
    assert list(received(sqs)) == ["m-0:1"]


def test_batches_are_of_ten_at_most_and_of_the_bytes_that_sqs_takes(sqs: Any) -> None:
    client = Grudging(sqs, {})
    SqsPublisher(client).publish("bills", messages(21))  # type: ignore[arg-type]
    assert [len(request) for request in client.requests] == [10, 10, 1]
    client.requests.clear()
    SqsPublisher(client).publish("bills", messages(5, 100_000))  # type: ignore[arg-type]
    assert [len(request) for request in client.requests] == [2, 2, 1]
    assert MAX_BATCH_BYTES == 262_144


def test_the_largest_task_fits_though_every_character_is_escaped(sqs: Any) -> None:
    assert SqsPublisher(sqs).publish("bills", messages(1, 3 * 262_144)) == [""]


def test_what_sqs_fails_at_in_a_batch_is_sent_again_alone(sqs: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(aws, "WAITS_S", (0.0, 0.0))
    client = Grudging(sqs, {"m-1:1": 1, "m-3:1": 2})
    assert SqsPublisher(client).publish("bills", messages(5)) == [""] * 5  # type: ignore[arg-type]
    assert [len(request) for request in client.requests] == [5, 2, 1]
    assert len(received(sqs)) == 5


def test_what_sqs_goes_on_failing_at_is_not_confirmed(sqs: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(aws, "WAITS_S", (0.0, 0.0))
    client = Grudging(sqs, {"m-1:1": 99})
    answers = SqsPublisher(client).publish("bills", messages(3))  # type: ignore[arg-type]
    assert answers == ["", "InternalError: try again", ""]
    assert client.requests == [["m-0:1", "m-1:1", "m-2:1"], ["m-1:1"], ["m-1:1"]], "three times, and no more"
    assert list(received(sqs)) == ["m-0:1", "m-2:1"]


def test_what_was_confirmed_stays_so_where_the_rest_meets_an_sqs_that_is_away(
    sqs: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(aws, "WAITS_S", (0.0, 0.0))

    class Leaving(Grudging):
        def send_message_batch(self, QueueUrl: str, Entries: list[Any]) -> Any:  # noqa: N803
            if self.requests:
                raise EndpointConnectionError(endpoint_url="https://sqs")
            return super().send_message_batch(QueueUrl, Entries)

    answers = SqsPublisher(Leaving(sqs, {"m-1:1": 1})).publish("bills", messages(3))  # type: ignore[arg-type]
    assert answers == ["", "InternalError: try again", ""]
    assert list(received(sqs)) == ["m-0:1", "m-2:1"]


def test_what_sqs_will_never_take_is_not_sent_again(sqs: Any) -> None:
    client = Grudging(sqs, {"m-1:1": 99}, at_fault=True)
    assert SqsPublisher(client).publish("bills", messages(2))[1] != ""  # type: ignore[arg-type]
    assert len(client.requests) == 1


def test_a_fifo_queue_takes_a_task_once_within_five_minutes(sqs: Any) -> None:
    sqs.create_queue(QueueName="bills.fifo", Attributes={"FifoQueue": "true"})
    publisher = SqsPublisher(sqs)
    long = [BrokerMessage(f"{'n' * 128}:1", "{}")]
    assert publisher.publish("bills.fifo", messages(2)) == ["", ""]
    assert publisher.publish("bills.fifo", [*messages(3), *long]) == [""] * 4
    url = sqs.get_queue_url(QueueName="bills.fifo")["QueueUrl"]
    waiting = sqs.get_queue_attributes(QueueUrl=url, AttributeNames=["ApproximateNumberOfMessages"])["Attributes"]
    assert waiting == {"ApproximateNumberOfMessages": "4"}
    assert sorted(received(sqs, "bills.fifo")) == ["m-0:1", "m-1:1", "m-2:1", f"{'n' * 128}:1"]


def test_tasks_of_two_queues_or_tenants_with_one_id_are_two_in_a_fifo_queue(sqs: Any) -> None:
    sqs.create_queue(QueueName="bills.fifo", Attributes={"FifoQueue": "true"})
    targets = targets_of({"bill": "sqs:bills.fifo"}, Lambda(), {"sqs": SqsPublisher(sqs)})
    names = [("mails", "-"), ("letters", "-"), ("letters", "acme"), ("letters", "acme")]
    tasks = [
        leased("bill", {"of": n}, id="order-1", queue=queue, tenant=tenant) for n, (queue, tenant) in enumerate(names)
    ]
    ends = [targets.hand_over("sqs:bills.fifo", [task])[0].ending for task in tasks]
    assert ends == [Ending.DONE] * 4
    url = sqs.get_queue_url(QueueName="bills.fifo")["QueueUrl"]
    found = sqs.receive_message(QueueUrl=url, MaxNumberOfMessages=10)["Messages"]
    assert {decode_message(message["Body"].encode()).payload["of"] for message in found} == {0, 1, 2}


def test_a_queue_that_is_not_there_is_said_so_and_found_once_it_is(sqs: Any) -> None:
    publisher = SqsPublisher(sqs)
    with pytest.raises(PublishRejected, match=r"NonExistentQueue|does not exist"):
        publisher.publish("none", messages(1))
    sqs.create_queue(QueueName="none")
    assert publisher.publish("none", messages(1)) == [""]


def test_without_aws_nothing_is_taken(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in {"ACCESS_KEY_ID": "x", "SECRET_ACCESS_KEY": "x", "DEFAULT_REGION": "eu-central-1"}.items():
        monkeypatch.setenv(f"AWS_{name}", value)
    monkeypatch.setenv("AWS_ENDPOINT_URL", "http://127.0.0.1:9")
    monkeypatch.setattr(boto3, "DEFAULT_SESSION", None)
    with pytest.raises(PublishRejected, match="SQS did not take them"):
        SqsPublisher().publish("bills", messages(1))
