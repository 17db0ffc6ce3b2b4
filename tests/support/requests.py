"""Requests to the HTTP function: made by hand, or saved ones."""

import json
from typing import Any, NamedTuple

from tests.support.functions import Context, invoke, saved

POLL = {"url": "https://api.example.com/exports/42", "interval": "PT30S", "until": "state == 'done'"}
WEBHOOK = {"kind": "webhook", "delay": 3_600, "payload": {"url": "https://hooks.example.com/orders"}}
MEETING = {
    "id": "standup",
    "subject": "Stand-up",
    "starts_at": "2099-03-02T08:00:00Z",
    "remind_before": ["PT5M"],
    "recipients": [{"name": "Ada", "email": "ada@example.com"}],
}


WEEKLY = MEETING | {"id": "weekly", "repeat": {"rrule": "FREQ=WEEKLY"}}
DAILY = {"id": "daily", "kind": "webhook", "payload": WEBHOOK["payload"], "repeat": {"cron": "0 9 * * *"}}


class Answer(NamedTuple):
    """What a request was answered: the body as JSON where it is."""

    status: int
    body: Any
    headers: dict[str, str]
    text: str


def ask(
    method: str,
    path: str,
    body: Any = None,
    context: Context | None = None,
    query: str = "",
    authorizer: Any = None,
    **headers: str,
) -> Answer:
    """What the function answers; `headers` by their names with underscores, `authorizer` in place of the saved one."""
    event = saved("enqueue_http/add_webhook")
    event["requestContext"]["http"] |= {"method": method, "path": path}
    event["requestContext"] |= {} if authorizer is None else {"authorizer": authorizer}
    event["headers"] |= {name.replace("_", "-"): value for name, value in headers.items()}
    pairs = dict(pair.partition("=")[::2] for pair in query.split("&") if pair)
    event |= {"routeKey": "$default", "rawPath": path, "rawQueryString": query, "queryStringParameters": pairs}
    event["body"] = body if isinstance(body, str) or body is None else json.dumps(body)
    answer = invoke("enqueue_http", event, context)
    text = answer.get("body") or ""
    is_json = "json" in answer["headers"].get("Content-Type", "")
    return Answer(answer["statusCode"], json.loads(text) if text and is_json else None, answer["headers"], text)


def replay(case: str, **changes: Any) -> tuple[int, Any]:
    """The status and the document that a saved request is answered with, each refusal a problem document."""
    answer = invoke("enqueue_http", saved(f"enqueue_http/{case}") | changes)
    headers = {name: one[0] for name, one in answer.get("multiValueHeaders", {}).items()} | answer.get("headers", {})
    is_json = "json" in headers.get("Content-Type", "json")
    body = json.loads(answer["body"]) if answer.get("body") and is_json else {}
    if answer["statusCode"] >= 400 and "store" not in body:
        assert headers["Content-Type"] == "application/problem+json"
        assert body["status"] == answer["statusCode"]
    return answer["statusCode"], body


def wrong(answer: Answer) -> dict[str, str]:
    """The fields that a request was refused for, and why each."""
    assert answer.status == 422, answer
    return {error["field"]: error["problem"] for error in answer.body["errors"]}
