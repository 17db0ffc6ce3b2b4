"""The events of queues, in the exact shapes in which Lambda sends them, and what a function answers to them."""

import base64
import json
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any, NamedTuple, TypeVar

from ..template import Source
from .account import REGION
from .invocation import MAX_SYNC_BYTES

Event = dict[str, Any]
T = TypeVar("T")
ENVELOPE_BYTES = 1_000
"""Size of an event besides its messages, in bytes: the longest names."""
PROPERTIES = (
    ("contentType", "content_type"),
    ("contentEncoding", "content_encoding"),
    ("headers", "headers"),
    ("deliveryMode", "delivery_mode"),
    ("priority", "priority"),
    ("correlationId", "correlation_id"),
    ("replyTo", "reply_to"),
    ("expiration", "expiration"),
    ("messageId", "message_id"),
    ("timestamp", "timestamp"),
    ("type", "type"),
    ("userId", "user_id"),
    ("appId", "app_id"),
    ("clusterId", "cluster_id"),
)
"""RabbitMQ's basic properties as events name them, and as pika does."""


class Delivery(NamedTuple):
    """A message of RabbitMQ: pika's basic properties of it, its body, and whether it was delivered before."""

    properties: Any
    body: bytes
    redelivered: bool
    tag: int


def fitting(messages: Sequence[T], entry: Callable[[T], Event]) -> Iterator[list[T]]:
    """The messages in pieces whose events a function can be invoked with; `entry` is what an event has of one."""
    piece: list[T] = []
    size = ENVELOPE_BYTES
    for message in messages:
        length = len(json.dumps(entry(message))) + len(", ")
        if piece and size + length > MAX_SYNC_BYTES:
            yield piece
            piece, size = [], ENVELOPE_BYTES
        piece.append(message)
        size += length
    if piece:
        yield piece


def sqs_event(source: Source, messages: Sequence[Mapping[str, Any]]) -> Event:
    """SQS's event for messages as boto3 receives them."""
    return {"Records": [sqs_record(source, message) for message in messages]}


def sqs_record(source: Source, message: Mapping[str, Any]) -> Event:
    """One message as its event has it."""
    attributes = message.get("MessageAttributes", {})
    return {
        "messageId": message["MessageId"],
        "receiptHandle": message["ReceiptHandle"],
        "body": message["Body"],
        "attributes": dict(message["Attributes"]),
        "messageAttributes": {name: _attribute(value) for name, value in attributes.items()},
        "md5OfBody": message["MD5OfBody"],
        **({"md5OfMessageAttributes": message["MD5OfMessageAttributes"]} if attributes else {}),
        "eventSource": "aws:sqs",
        "eventSourceARN": source.arn,
        "awsRegion": REGION,
    }


def _attribute(value: Mapping[str, Any]) -> Event:
    attribute: Event = {"stringListValues": [], "binaryListValues": [], "dataType": value["DataType"]}
    if "StringValue" in value:
        attribute["stringValue"] = value["StringValue"]
    if "BinaryValue" in value:
        attribute["binaryValue"] = base64.b64encode(value["BinaryValue"]).decode()
    return attribute


def rabbitmq_event(source: Source, virtual_host: str, deliveries: Sequence[Delivery]) -> Event:
    """Amazon MQ's event for messages of one queue of RabbitMQ."""
    return {
        "eventSource": "aws:rmq",
        "eventSourceArn": source.arn,
        "rmqMessagesByQueue": {f"{source.queue}::{virtual_host}": list(map(rabbitmq_message, deliveries))},
    }


def rabbitmq_message(delivery: Delivery) -> Event:
    """One message as its event has it."""
    return {
        "basicProperties": _properties(delivery),
        "redelivered": delivery.redelivered,
        "data": base64.b64encode(delivery.body).decode(),
    }


def _properties(delivery: Delivery) -> Event:
    found = {name: getattr(delivery.properties, ours) for name, ours in PROPERTIES}
    found["headers"] = {name: _header(value) for name, value in (found["headers"] or {}).items()}
    if found["timestamp"] is not None:
        found["timestamp"] = _instant(found["timestamp"])
    return {**found, "bodySize": len(delivery.body)}


def _header(value: Any) -> Any:
    match value:
        case str():
            return {"bytes": list(value.encode())}
        case bytes():
            return {"bytes": list(value)}
        case list():
            return [_header(each) for each in value]
        case dict():
            return {name: _header(each) for name, each in value.items()}
    return value if isinstance(value, int | float | bool) or value is None else str(value)


def _instant(seconds: int) -> str:
    """A time as Java writes it; the plain number beyond Python's years, where milliseconds sent as seconds lie."""
    try:
        at = datetime.fromtimestamp(seconds, UTC)
    except (ValueError, OverflowError, OSError):
        return str(seconds)
    return f"{at:%b} {at.day}, {at.year}, {at.hour % 12 or 12}:{at:%M:%S %p}"


def failed_items(payload: bytes, ids: Collection[str]) -> set[str]:
    """The messages that an answer says failed: all of them where it is out of shape or names one that was not there."""
    try:
        answer = json.loads(payload or b"null")
        failures = (answer or {}).get("batchItemFailures") or []
        named = {failure["itemIdentifier"] for failure in failures}
    except (ValueError, AttributeError, KeyError, TypeError):
        return set(ids)
    return named if named <= set(ids) else set(ids)
