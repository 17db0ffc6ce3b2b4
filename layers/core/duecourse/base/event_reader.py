"""Events of AWS without pydantic: their sender, their fields, the scheduled event of a tick, batches of messages."""

import base64
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any, Generic, NamedTuple, TypeVar

from duecourse.base.hints import unknown_field
from duecourse.base.json_text import Json
from duecourse.errors import DuecourseError, FieldError, InvalidInput, MessagesFailed, bounded

# Sender of an event, by the event's shape, for the error of a function that got an event for another one.

MAX_NAMED = 5
"""Maximum number of an unknown event's fields in an error."""
MAX_TEXT = 60
TYPES = {"bool": "true or false", "int": "a number", "float": "a number", "str": "text", "list": "a list"}
BY_EVENT_SOURCE = {
    "aws:sqs": "an SQS event",
    "aws:sns": "an SNS event",
    "aws:s3": "an S3 event",
    "aws:ses": "an SES event",
    "aws:dynamodb": "an event of DynamoDB Streams",
    "aws:kinesis": "a Kinesis event",
    "aws:rmq": "an event of Amazon MQ for RabbitMQ",
    "aws:mq": "an event of Amazon MQ for ActiveMQ",
    "aws:kafka": "an event of Amazon MSK",
    "SelfManagedKafka": "a Kafka event",
}
"""Senders by `eventSource`, of an event or of its first record."""
BY_CONTEXT = {
    "connectionId": "a WebSocket event of API Gateway",
    "elb": "a request of a load balancer",
    "http": "a request of an HTTP API or a function URL",
    "functionArn": "Lambda's record of an invocation",
    "serviceNetworkArn": "a request of VPC Lattice",
    "resourcePath": "a request of a REST API",
}
"""Senders by a field of `requestContext`."""
BY_SOURCE = {"duecourse": "an event with tasks of duecourse", "duecourse.bridge": "an event of duecourse's bridge"}
BY_FIELD = {
    "detail-type": "an EventBridge event",
    "awslogs": "an event of CloudWatch Logs",
    "triggerSource": "an event of Cognito",
    "methodArn": "an event for an authorizer of API Gateway",
    "routeArn": "an event for an authorizer of API Gateway",
    "ResponseURL": "a request of CloudFormation",
    "raw_path": "a request of VPC Lattice",
}
"""Senders by a field of the event."""


def check_origin(event: Json, expected: str, fields: Collection[str] = ()) -> Mapping[str, Any]:
    """The event, if it is an object with these fields. Raises InvalidInput that names its sender and what is expected.

    A wrong value of a field is left to the reader of that field.
    """
    if isinstance(event, Mapping) and all(field in event for field in fields):
        return event
    raise wrong_origin(event, expected)


def wrong_origin(event: Json, expected: str) -> InvalidInput:
    """The error for an event of another sender."""
    return InvalidInput([FieldError("event", f"must be {expected}; this is {origin_of(event)}")])


def origin_of(event: Json) -> str:
    """Name of an event's sender; for an event that AWS documents nowhere, its type or its fields."""
    if event is None:
        return "null"
    if not isinstance(event, Mapping):
        return TYPES[type(event).__name__]
    return _sender(event) or _described(event)


def _sender(event: Mapping[str, Any]) -> str:
    context, source = event.get("requestContext"), event.get("source")
    named = next((name for field, name in BY_FIELD.items() if field in event), "")
    if isinstance(context, Mapping):
        named = next((name for field, name in BY_CONTEXT.items() if field in context), named)
    if isinstance(source, str) and named == BY_FIELD["detail-type"]:
        return f"{named} of {_quoted(source)}: {_quoted(event['detail-type'])}"
    known = BY_EVENT_SOURCE.get(str(_event_source(event))) or (
        BY_SOURCE.get(source) if isinstance(source, str) else None
    )
    return known or named


def _event_source(event: Mapping[str, Any]) -> object:
    records = event.get("Records")
    first = records[0] if isinstance(records, list) and records else event
    return first.get("eventSource", first.get("EventSource")) if isinstance(first, Mapping) else None


def _described(event: Mapping[str, Any]) -> str:
    if not event:
        return "an empty object"
    names = ", ".join(_quoted(name) for name in list(event)[:MAX_NAMED])
    more = len(event) - MAX_NAMED
    return f"an object with the fields {names}{f' and {more} more' if more > 0 else ''}"


def _quoted(value: object) -> str:
    return repr(str(value)[:MAX_TEXT])


# Objects of an event, read field by field without pydantic; what is wrong is noted, so that all of it is named.

T = TypeVar("T", str, list[Any])

LAST_AT = 10**13 - 1
"""The last instant (epoch ms) that has thirteen digits, in the year 2286."""


class Table:
    """One object, at `path` of its event; the tables within it note what is wrong in the same list.

    A wrong field reads as nothing: `end` raises before anybody uses it.
    """

    def __init__(self, value: Json, path: str = "", wrong: list[FieldError] | None = None) -> None:
        self._fields: dict[str, Any] | None = value if isinstance(value, dict) else None
        self._path = path
        self._wrong = [] if wrong is None else wrong
        if self._fields is None:
            self._wrong.append(FieldError(path.removesuffix(".") or "body", "must be a JSON object"))

    def note(self, field: str, problem: str) -> None:
        """Note that a field is wrong."""
        self._wrong.append(FieldError(f"{self._path}{field}", problem))

    def has(self, field: str) -> bool:
        """True if a field is there, and not null."""
        return self._fields is not None and self._fields.get(field) is not None

    def text(self, field: str, most: int | None = None) -> str:
        """A field that is text, of so many characters at most."""
        return self._sized(field, str, "must be text", most, "characters")

    def one_of(self, field: str, words: Collection[str]) -> str:
        """A field that is one of these words."""
        value = self._take(field)
        if value in words and isinstance(value, str):
            return value
        if value is not None:
            self.note(field, f"must be {' or '.join(repr(str(word)) for word in words)}")
        return ""

    def instant(self, field: str) -> int:
        """A field that is an instant (epoch ms)."""
        value = self._take(field)
        if type(value) is int and 0 <= value <= LAST_AT:
            return value
        if value is not None:
            self.note(field, f"must be a whole number, 0 to {LAST_AT}")
        return 0

    def each(self, field: str, most: int | None = None) -> list[Any]:
        """A field that is a list, of so many items at most."""
        return self._sized(field, list, "must be a valid list", most, "items")

    def tables(self, field: str) -> list["Table"]:
        """A field that is a list of objects."""
        return [Table(one, f"{self._path}{field}.{at}.", self._wrong) for at, one in enumerate(self.each(field))]

    def only(self, *fields: str) -> None:
        """Note every field that is not one of these."""
        for field in self._fields or ():
            if field not in fields:
                self.note(field, unknown_field(field, fields))

    def end(self) -> None:
        """Raise InvalidInput, naming every wrong field, where one was noted."""
        if self._wrong:
            raise InvalidInput(bounded(self._wrong))

    def _sized(self, field: str, kind: type[T], problem: str, most: int | None, unit: str) -> T:
        value = self._take(field)
        if value is not None and not isinstance(value, kind):
            self.note(field, problem)
        elif value and most and len(value) > most:
            self.note(field, f"must have at most {most} {unit}")
        else:
            return value or kind()
        return kind()

    def _take(self, field: str) -> Any:
        if self._fields is not None and self._fields.get(field) is None:
            self.note(field, "is required")
        return None if self._fields is None else self._fields.get(field)


# The scheduled event that makes a tick, as EventBridge rules and EventBridge Scheduler send it.

EXPECTED_TICK = "the scheduled event of an EventBridge rule or of EventBridge Scheduler"


def check_tick(event: Json) -> None:
    """Raise InvalidInput, naming every wrong field, where the event is no schedule's.

    Source: AWS, "Tutorial: Create an EventBridge scheduled rule" and "EventBridge Scheduler: templated targets".
    """
    table = Table(check_origin(event, EXPECTED_TICK, ("source", "detail-type")))
    table.text("id")
    table.one_of("source", ("aws.events", "aws.scheduler"))
    table.one_of("detail-type", ("Scheduled Event",))
    table.text("time")
    table.end()


# Batches of messages in events of SQS, and of Amazon MQ for RabbitMQ.

Body = TypeVar("Body")
SQS = "aws:sqs"
RABBITMQ = "aws:rmq"
EXPECTED_MESSAGES = "an event of SQS, or of Amazon MQ for RabbitMQ"


class Received(NamedTuple):
    """One message: its name within the event, its body, and the broker's or the sender's id for it ("" for none).

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


class ParsedBatch(NamedTuple, Generic[Body]):
    """A batch with the content of its messages, and the problems of those that cannot be read, by their names."""

    batch: Batch
    content: dict[str, Body]
    problems: dict[str, str]


def read_each(event: Json, read: Callable[[Received], Body]) -> ParsedBatch[Body]:
    """Read every message of a broker's event. Raises InvalidInput for another event."""
    batch = read_batch(event)
    if batch is None:
        raise wrong_origin(event, EXPECTED_MESSAGES)
    return read_all(batch, read)


def read_all(batch: Batch, read: Callable[[Received], Body]) -> ParsedBatch[Body]:
    """Read every message of a batch; one that cannot be read does not stop the others."""
    content, problems = {}, {}
    for message in batch.messages:
        try:
            content[message.name] = read(message)
        except DuecourseError as error:
            problems[message.name] = str(error)
    return ParsedBatch(batch, content, problems)


def read_batch(event: Json) -> Batch | None:
    """The messages of a broker's event; None for any other event. Raises InvalidInput for a malformed one."""
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


def batch_answer(batch: Batch, failed: Collection[str]) -> dict[str, Json]:
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
