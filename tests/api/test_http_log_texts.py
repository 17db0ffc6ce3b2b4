"""Texts of others in log lines: Lambda writes a line as UTF-8, and a function must not fail of it."""

import json
import logging
from typing import Any

import pytest
from awslambdaric.lambda_runtime_log_utils import JsonFormatter

from tests.support.functions import invoke, saved

HALF = "\ud800"
"""Half a character, as JSON may hold and UTF-8 may not."""


def record(event: dict[str, Any], body: str) -> dict[str, Any]:
    event["Records"] = [event["Records"][0] | {"body": body}]
    return event


@pytest.mark.parametrize(
    ("function", "event"),
    [
        ("enqueue_message", record(saved("enqueue_message/sqs_two"), json.dumps({HALF: 1}))),
        ("on_expired", saved("on_expired/one_bell") | {"rings": [{"key": HALF, "channel": "c", "heard_at": 1}]}),
    ],
)
def test_a_line_of_log_about_what_others_sent_can_be_written(
    function: str, event: dict[str, Any], caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.WARNING):
        invoke(function, event)
    assert caplog.records
    for one in caplog.records:
        JsonFormatter().format(one).encode()
