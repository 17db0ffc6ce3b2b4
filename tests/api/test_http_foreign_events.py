"""Events that another sender meant for another function: each function says what it got, and what it expects."""

import json
from typing import Any

import pytest

from duecourse.errors import InvalidInput
from tests.support.functions import cases, invoke, saved
from tests.support.project import ROOT

EXPECTED = {
    "enqueue_http": "must be a request of API Gateway, a function URL or a load balancer; this is ",
    "on_expired": "must be an event of duecourse's bridge: bells that rang, or bells to warm for; this is ",
    "poll_tick": "must be the scheduled event of an EventBridge rule or of EventBridge Scheduler; this is ",
    "send_reminder": "must be an event with tasks of duecourse, or messages of SQS or Amazon MQ for RabbitMQ; this is ",
    "enqueue_message": "must be an event of SQS, or of Amazon MQ for RabbitMQ; this is ",
    "on_undelivered": "must be an event of SQS, or of Amazon MQ for RabbitMQ; this is ",
}
"""What each function says of an event that is not its own."""
S3 = {"Records": [{"eventSource": "aws:s3", "s3": {"bucket": {"name": "b"}}}]}
STRANGE: list[tuple[Any, str]] = [
    (None, "null"),
    (True, "true or false"),
    (7, "a number"),
    ("tasks", "text"),
    ([{"version": "2.0"}], "a list"),
    ({}, "an empty object"),
    ({"a": 1, "b": 2}, "an object with the fields 'a', 'b'"),
    (dict.fromkeys("abcdefg"), "an object with the fields 'a', 'b', 'c', 'd', 'e' and 2 more"),
    ({"x" * 99: 1}, f"an object with the fields '{'x' * 60}'"),
    (S3, "an S3 event"),
    ({"Records": [{"EventSource": "aws:sns", "Sns": {"Message": "{}"}}]}, "an SNS event"),
    ({"Records": [{"eventSource": "aws:dynamodb"}]}, "an event of DynamoDB Streams"),
    ({"Records": [7]}, "an object with the fields 'Records'"),
    ({"Records": {}}, "an object with the fields 'Records'"),
    ({"eventSource": "aws:kafka", "records": {}}, "an event of Amazon MSK"),
    ({"triggerSource": "PreSignUp_SignUp", "request": {}}, "an event of Cognito"),
    ({"awslogs": {"data": "H4sI"}}, "an event of CloudWatch Logs"),
    (
        {"requestContext": {"connectionId": "a=", "eventType": "MESSAGE"}, "body": "{}"},
        "a WebSocket event of API Gateway",
    ),
    (
        {"version": "2.0", "path": "/", "method": "GET", "requestContext": {"serviceNetworkArn": "arn"}},
        "a request of VPC Lattice",
    ),
    ({"requestContext": {"functionArn": "arn", "condition": "RetriesExhausted"}}, "Lambda's record of an invocation"),
]


def problem(function: str, event: Any) -> str:
    """What the function rejects an event for."""
    with pytest.raises(InvalidInput) as caught:
        invoke(function, event)
    [found] = caught.value.problems
    assert found.field == "event"
    return found.problem


@pytest.mark.parametrize("function", EXPECTED)
@pytest.mark.parametrize(("event", "name"), STRANGE)
def test_an_event_of_another_sender_is_rejected_by_its_name(function: str, event: Any, name: str) -> None:
    assert problem(function, event) == EXPECTED[function] + name


def test_every_function_says_what_it_expects() -> None:
    assert {path.parent.name for path in (ROOT / "functions").glob("*/app.py")} >= EXPECTED.keys()


@pytest.mark.parametrize("function", sorted(EXPECTED.keys() - {"enqueue_http"}))
def test_a_request_that_is_sent_to_another_function_is_named(function: str) -> None:
    assert problem(function, saved(f"{function}/bad_request")).endswith("a request of an HTTP API or a function URL")


@pytest.mark.parametrize(
    ("case", "name"),
    [
        ("bad_null", "null"),
        ("bad_sqs", "an SQS event"),
        ("bad_event_bridge", "an EventBridge event of 'aws.s3': 'Object Created'"),
    ],
)
def test_the_http_function_names_an_event_that_is_no_request(case: str, name: str) -> None:
    assert problem("enqueue_http", saved(f"enqueue_http/{case}")).endswith(f"this is {name}")


@pytest.mark.parametrize("case", sorted(cases("on_expired") - {"bad_request"}))
def test_the_http_function_names_an_event_of_the_bridge(case: str) -> None:
    assert problem("enqueue_http", saved(f"on_expired/{case}")).endswith("an event of duecourse's bridge")


def test_a_name_within_an_event_is_cut() -> None:
    event = {"source": "s" * 99, "detail-type": "d" * 99}
    assert problem("enqueue_http", event).endswith(f"EventBridge event of '{'s' * 60}': '{'d' * 60}'")
    assert len(json.dumps(event)) > 200
