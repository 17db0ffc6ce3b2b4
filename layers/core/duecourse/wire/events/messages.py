"""Events of brokers, read without pydantic: SQS's, and Amazon MQ's for RabbitMQ."""

import base64
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any, Generic, NamedTuple, TypeVar

from duecourse.domain.task import Json
from duecourse.errors import DuecourseError, FieldError, InvalidInput, MessagesFailed
from duecourse.wire.events.origin import wrong_origin

T = TypeVar("T")
SQS = "aws:sqs"
RABBITMQ = "aws:rmq"
EXPECTED = "an event of SQS, or of Amazon MQ for RabbitMQ"


class Received(NamedTuple):
    """One message: what it is called in its event, its body, the broker's or the sender's id for it ("" for none).

    `deliveries` counts this one; a broker that does not count says 2 for any that is not the first.
    """

    name: str
    body: bytes
    id: str
    deliveries: int


class Batch(NamedTuple):
    """The messages of one event; `partial` if the broker takes a list of those that failed."""

    messages: Sequence[Received]
    partial: bool


class Read(NamedTuple, Generic[T]):
    """A batch, message by message: the content of each, and the problem of each that cannot be read, by its name."""

    batch: Batch
    content: dict[str, T]
    problems: dict[str, str]


def read_each(event: Json, read: Callable[[Received], T]) -> Read[T]:
    """Read every message of a broker's event. Raises InvalidInput for another event."""
    batch = read_batch(event)
    if batch is None:
        raise wrong_origin(event, EXPECTED)
    return read_all(batch, read)


def read_all(batch: Batch, read: Callable[[Received], T]) -> Read[T]:
    """Read every message of a batch; one that cannot be read does not stop the others."""
    content, problems = {}, {}
    for message in batch.messages:
        try:
            content[message.name] = read(message)
        except DuecourseError as error:
            problems[message.name] = str(error)
    return Read(batch, content, problems)


def read_batch(event: Json) -> Batch | None:
    """The messages of a broker's event, None where it is another event. Raises InvalidInput for one out of shape."""
    if not isinstance(event, Mapping):
        return None
    try:
        if _is_of_sqs(event.get("Records")):
            return Batch([_of_sqs(record) for record in event["Records"]], partial=True)
        if event.get("eventSource") == RABBITMQ:
            queues = event["rmqMessagesByQueue"].items()
            found = [_of_rabbitmq(f"{queue}[{n}]", each) for queue, all in queues for n, each in enumerate(all)]
            return Batch(found, partial=False)
    except (KeyError, TypeError, AttributeError, ValueError) as error:
        raise InvalidInput([FieldError("event", f"is not a valid event of SQS or Amazon MQ: {error!r}")]) from None
    return None


def answer(batch: Batch, failed: Collection[str]) -> dict[str, Json]:
    """Answer after which the messages named in `failed` are delivered again, and the others are not.

    RabbitMQ's event knows no such answer: raises MessagesFailed, after which the whole batch is delivered again.
    """
    if batch.partial:
        return {"batchItemFailures": [{"itemIdentifier": name} for name in failed]}
    if failed:
        raise MessagesFailed(f"{len(failed)} of {len(batch.messages)} messages failed: {', '.join(sorted(failed))}")
    return {}


def _is_of_sqs(records: Json) -> bool:
    """True for records of SQS: other services, such as S3, send theirs in the same form."""
    if not isinstance(records, list):
        return False
    return not records or (isinstance(records[0], Mapping) and records[0].get("eventSource") == SQS)


def _of_sqs(record: Mapping[str, Any]) -> Received:
    if record["eventSource"] != SQS:
        raise ValueError(f"eventSource {record['eventSource']}")
    deliveries = int(record["attributes"]["ApproximateReceiveCount"])
    return Received(record["messageId"], record["body"].encode(), record["messageId"], deliveries)


def _of_rabbitmq(name: str, message: Mapping[str, Any]) -> Received:
    body = base64.b64decode(message["data"], validate=True)
    id = (message.get("basicProperties") or {}).get("messageId") or ""
    return Received(name, body, id, 2 if message["redelivered"] else 1)
