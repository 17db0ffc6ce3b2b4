"""Sender of an event, by the event's shape, for the error of a function that got an event for another one."""

from collections.abc import Collection, Mapping
from typing import Any

from duecourse.domain.task import Json
from duecourse.errors import FieldError, InvalidInput

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
