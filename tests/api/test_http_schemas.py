"""The document's schemas and the checks behind them: what one takes, the other takes, as far as a schema can tell."""

from typing import Any

import pytest
from jsonschema import Draft202012Validator
from pydantic import BaseModel

from duecourse.api.fields import read
from duecourse.api.kind_payloads import NotifyDone, WebhookPayload
from duecourse.errors import InvalidInput
from duecourse.queries.http import AskQuery
from duecourse.reminders.http import Person
from duecourse.running.http import ExtendLease, SettleTask
from duecourse.tasks.http import AddTask, MoveTask
from tests.support.requests import POLL, WEBHOOK, ask

AT = "2100-01-04T09:30:00Z"
LEASE = {"token": "0000000000070011223344556677"}
HOOK = {"url": "https://example.com/hook"}
TARGET = {"target": "a"}
OUTCOMES = {"result": {"paid": 42}, "after": "PT5M", "at": AT, "state": {"page": 7}, "error": "no", "reason": "no use"}
BODIES: dict[type[BaseModel], list[dict[str, Any]]] = {
    MoveTask: [
        *({}, {"force": True}, {"delay": None}, {"delay": 1}, {"due_at": AT}, {"delay": 1, "due_at": None}),
        *({"delay": 1, "due_at": AT}, {"delay": None, "due_at": None}, {"due_at": AT, "colour": "red"}),
    ],
    SettleTask: [
        *({**LEASE, "outcome": name, field: value} for name in ("done", "again", "retry", "drop", "other")
          for field, given in OUTCOMES.items() for value in (given, None)),
        *({**LEASE, "outcome": name} for name in ("done", "again", "retry", "drop")),
        *({**LEASE, "outcome": "again", "after": 1, "at": at} for at in (AT, None)),
        *({**LEASE, "outcome": "drop", "reason": ""}, {"outcome": "done"}, {"token": "7", "outcome": "done"}),
    ],
    ExtendLease: [{**LEASE, "for": span} for span in (0, 0.9, 1, "PT1S", 86_400, 86_401, "soon", None)],
    AddTask: [
        *(WEBHOOK | {"delay": 1, "due_at": AT}, WEBHOOK | {"delay": None, "due_at": AT}, WEBHOOK),
        *(WEBHOOK | {"queue": queue} for queue in ("reminders", "reminders2", "query:a", "query", "a b")),
        *({"kind": kind, "payload": payload} for kind in ("webhook", "poll", "report", "reminder")
          for payload in (HOOK, POLL, {"rows": 3})),
        *(WEBHOOK | {"notify_done": told} for told in ({}, {"url": None}, TARGET, HOOK, HOOK | TARGET)),
        *(WEBHOOK | {"retry": {"max_backoff": span}} for span in (1, 49 * 86_400, 49 * 86_400 + 1)),
    ],
    Person: [
        *({}, {"name": "Ada"}, {"email": None}, {"email": "ada@example.com"}, {"phone": "+436641234567"}),
        *({"webhook": HOOK["url"]}, {"phone": "0664"}, {"email": "ada"}, {"email": "a@b.c", "name": "Ada\nLovelace"}),
    ],
    WebhookPayload: [
        *({"url": url} for url in ("http://a", "HTTPS://a/b?c#d", "ftp://a", "http:///a", "http://a b", "a", "http://ü/")),
        *({"url": url} for url in ("http://a@b/", "http://@b", "http://a/@b", "http://a?b@c", "http://a#@b", "http://a:1/")),
        *(HOOK | {"headers": {name: text}} for name, text in (("X-A", "b"), ("X A", "b"), ("", "b"), ("X-A", "ü"))),
        *(HOOK | {"headers": {"X-A": text}} for text in ("a\tb", "a\nb", "x" * 4_096, "x" * 4_097, 1)),
    ],
    AskQuery: [
        *(POLL | {"interval": span} for span in (0, 0.1, 30 * 86_400, 30 * 86_400 + 1)),
        *(POLL | {"timeout": span} for span in (0, 0.001, 20, 20.1, None)),
        *(POLL | {"max_age": span} for span in (0, 366 * 86_400, 366 * 86_400 + 1)),
    ],
}  # fmt: skip
BODIES[NotifyDone] = [body["notify_done"] for body in BODIES[AddTask] if "notify_done" in body]


@pytest.fixture(scope="module")
def schemas() -> dict[str, Any]:
    found: dict[str, Any] = ask("GET", "/openapi.json").body["components"]
    return found


@pytest.mark.parametrize("model", BODIES, ids=lambda model: model.__name__)
def test_a_body_fits_the_schema_where_it_passes_the_checks(model: type[BaseModel], schemas: dict[str, Any]) -> None:
    validator = Draft202012Validator({**schemas["schemas"][model.__name__], "components": schemas})
    for body in BODIES[model]:
        assert validator.is_valid(body) == passes(model, body), body


def passes(model: type[BaseModel], body: dict[str, Any]) -> bool:
    try:
        read(model, body)
    except InvalidInput:
        return False
    return True
