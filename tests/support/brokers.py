"""Brokers' events as AWS sends them, made of messages' bodies."""

import base64
from typing import Any


def sqs_event(*bodies: str, deliveries: int = 1, ids: tuple[str, ...] = ()) -> dict[str, Any]:
    """SQS's event; the messages' ids are m-0, m-1 … unless given."""
    names = ids or tuple(f"m-{n}" for n in range(len(bodies)))
    return {"Records": [_record(id, body, deliveries) for id, body in zip(names, bodies, strict=True)]}


def _record(id: str, body: str, deliveries: int) -> dict[str, Any]:
    return {
        "messageId": id,
        "receiptHandle": f"AQEB{id}",
        "body": body,
        "attributes": {
            "ApproximateReceiveCount": str(deliveries),
            "SentTimestamp": "1790000000000",
            "SenderId": "AIDAIENQZJOLO23YVJ4VO",
            "ApproximateFirstReceiveTimestamp": "1790000000002",
        },
        "messageAttributes": {},
        "md5OfBody": "e4e68fb7bd0e697a0ae8f1bb342846b3",
        "eventSource": "aws:sqs",
        "eventSourceARN": "arn:aws:sqs:eu-central-1:123456789012:bills",
        "awsRegion": "eu-central-1",
    }


def rabbitmq_event(*bodies: str, redelivered: bool = False, ids: tuple[str, ...] = ()) -> dict[str, Any]:
    """Amazon MQ's event for RabbitMQ, of one queue; messages have no ids unless given."""
    names = ids or (None,) * len(bodies)
    messages = [
        {
            "basicProperties": {"contentType": "application/json", "messageId": id, "bodySize": len(body)},
            "redelivered": redelivered,
            "data": base64.b64encode(body.encode()).decode(),
        }
        for id, body in zip(names, bodies, strict=True)
    ]
    return {
        "eventSource": "aws:rmq",
        "eventSourceArn": "arn:aws:mq:eu-central-1:123456789012:broker:b:b-9bcfa592-423a-4942-879d-eb284b418fc8",
        "rmqMessagesByQueue": {"bills::/": messages},
    }
