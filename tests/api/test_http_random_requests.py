"""Whatever is sent to the HTTP function, it is answered, and never with a 500."""

import json
from typing import Any
from urllib.parse import quote

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.support.functions import invoke, saved

pytestmark = pytest.mark.slow

ODD = ["", "\x00", "\ud800", "😀", "%2F", "a/b", "{x}", "a\r\nb: c", "PT", "PT1e5S", "P9999999999W", "inf", "nan", "-1"]
TIMES = [
    "9999-12-31T23:59:59.999Z",
    "0001-01-01T00:00:00+23:59",
    "2100-02-30T00:00:00Z",
    "2100-01-01T00:00:00Z",
    "PT5M",
]
ODD_TEXT = st.text(max_size=20) | st.sampled_from([*ODD, *TIMES])
LEAF = st.none() | st.booleans() | st.integers() | st.floats() | st.just(10**400) | ODD_TEXT
JSON = st.recursive(LEAF, lambda c: st.lists(c, max_size=3) | st.dictionaries(ODD_TEXT, c, max_size=3), max_leaves=6)
NAME = st.sampled_from(["a", "b", "reminders", "x" * 64, "x" * 129]) | ODD_TEXT
EXPRESSION = st.sampled_from(["a", "`", "a[?", "nope(@)", "[::0]", "(" * 900, "!" * 900 + "a", '"\\ud800"']) | ODD_TEXT
POLL = {"url": "https://api.example.com/", "interval": 5, "until": "a"}
WORDS = ["url", "method", "headers", "body", "interval", "timeout", "failed_when", "result"]
FIELDS = ["notify_done", "id", "queue", "due_at", "delay", "retry", "deadline", "on_duplicate", "max_wait", "colour"]
ADA = {"name": "Ada", "email": "ada@example.com"}
REMINDER = {"subject": "s", "starts_at": "2100-01-01T00:00:00Z", "remind_before": [60], "recipients": [ADA]}


def some(words: list[str]) -> st.SearchStrategy[dict[str, Any]]:
    """A few of the fields, with values that mostly do not fit them."""
    return st.dictionaries(st.sampled_from(words), JSON, max_size=2)


PAYLOAD = st.builds(lambda odd, until: {**POLL, "until": until, **odd}, some(WORDS), EXPRESSION | st.just("a"))
TASK = st.builds(
    lambda odd, name, kind, payload: {"id": name, "kind": kind, "payload": payload, **odd},
    some(FIELDS), NAME, st.sampled_from(["poll", "webhook", "report", "reminder"]), PAYLOAD | JSON,
)  # fmt: skip
PERSON = st.builds(lambda odd: {**ADA, **odd}, some(["name", "email", "colour"])) | JSON
MEETING = st.builds(
    lambda odd, name, people: {**REMINDER, "id": name, "recipients": people, **odd},
    some([*REMINDER, "message", "colour"]), NAME, st.lists(PERSON, max_size=2),
)  # fmt: skip
TOKEN = st.just("0000000000070011223344556677") | JSON
OUTCOME = st.sampled_from(["done", "again", "retry", "drop"]) | JSON
SETTLE = st.builds(
    lambda odd, token, outcome: {"token": token, "outcome": outcome, **odd},
    some(["result", "after", "at", "state", "error", "reason", "for", "colour"]), TOKEN, OUTCOME,
)  # fmt: skip
SETTINGS = ["paused", "max_running", "tenant_max_running", "rate", "priority", "retention", "lease", "colour"]
QUESTION = st.builds(lambda asked, odd: {**asked, **odd}, PAYLOAD, some(["max_age", "colour"]))
MANY = some(["state", "kind", "group", "older_than", "limit", "dry_run", "cursor", "force"])
MOVE = some(["due_at", "delay", "force", "starts_at"])
BODY = (TASK | QUESTION | some(SETTINGS) | MEETING | JSON | SETTLE | MOVE | MANY).map(json.dumps)
RAW = st.sampled_from(["", "null", "{", '{"a": NaN}', "[" * 100_000, "\ufeff{}", '{"a": 1' + "0" * 5_000 + "}"])
PATH = st.sampled_from(["/tasks", "/reminders", "/queues", "/queries", "/health", "/", ""]) | st.builds(
    lambda part, name, verb: f"/{part}/{quote(name, errors='replace')}{verb}",
    st.sampled_from(["tasks", "reminders", "queues", "queries"]),
    NAME,
    st.sampled_from(
        ["", "", "", "/settle", "/extend", "/save", "/why", "/replay", "/dead/replay", "/purge", "/cancel"]
    ),
)  # fmt: skip
QUERY = st.sampled_from(
    [
        {},
        {"force": ""},
        {"force": "maybe"},
        {"colour": "red"},
        {"queue": "b"},
        {"queue": "a,b"},
        {"queue": "\x00"},
        {"cursor": "ZHVlOjE6"},
        {"limit": "0"},
    ]
)


def ask(method: str, path: str, body: str | None, query: dict[str, str]) -> dict[str, Any]:
    """What the function answers to a request."""
    event = saved("enqueue_http/add_poll") | {"body": body, "queryStringParameters": query}
    event |= {"routeKey": "$default", "rawPath": path}
    event["requestContext"]["http"] |= {"method": method, "path": path}
    found: dict[str, Any] = invoke("enqueue_http", event)
    return found


@settings(max_examples=300, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.sampled_from(["POST", "GET", "PATCH", "DELETE", "PUT"]), PATH, st.none() | BODY | RAW, QUERY)
def test_no_request_is_answered_with_a_500(method: str, path: str, body: str | None, query: dict[str, str]) -> None:
    answer = ask(method, path, body, query)
    assert answer["statusCode"] < 500, answer["body"]


@settings(max_examples=300, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.one_of(TASK, MEETING))
def test_what_was_taken_can_be_shown_and_what_was_refused_is_named(body: dict[str, Any]) -> None:
    part = "reminders" if "subject" in body else "tasks"
    answer = ask("POST", f"/{part}", json.dumps(body), {})
    told = json.loads(answer["body"])
    if answer["statusCode"] < 300:
        made = told.get("task", told)
        where = {"queue": made["queue"]} if "queue" in made else {}
        assert ask("GET", f"/{part}/{made['id']}", None, where)["statusCode"] == 200
    else:
        assert answer["statusCode"] in {400, 409, 422}
        assert answer["statusCode"] != 422 or all(error["problem"] for error in told["errors"])
