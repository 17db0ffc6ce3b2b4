"""Hostile templates at every door: the HTTP API's preview and add, and the function that sends."""

import json
import time
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from duecourse.calls.webhook import Webhook
from duecourse.ledger.task import Drop
from duecourse.reminders.send import ReminderKind
from duecourse.reminders.writer import MESSAGE_S, TemplateWriter
from duecourse_local.harness.stack import Stack
from tests.support.api import Api
from tests.support.clock import HandClock
from tests.support.cpu import used_s
from tests.support.egress import anyone
from tests.support.hostile import BOMBS, DATA, ELSEWHERE, ESCAPES, HARMLESS
from tests.support.http_server import Reply, Server, answering
from tests.support.kinds import Outbox, Web, leased
from tests.support.matrix import in_turn, some
from tests.support.wait import until

CANARY = "canary-7f3a"
"""Value of a variable in the functions' environment, which no answer may show."""
ENVIRONMENT = {"CANARY": CANARY}
SIGNS = (CANARY, "<class", "<function", "<module", "<bound method", "object at 0x", "uid=", "root:", "Traceback")
"""Signs that a template has seen more than it was given."""
CPU_S = 2 * MESSAGE_S
"""Processor time of one request, that of the function around the template with it."""
REJECTED = [*ESCAPES, *BOMBS]


@pytest.fixture(scope="module")
def receiver() -> Iterator[Server]:
    with answering(lambda _: Reply(204)) as server:
        yield server


def reminder(hook: str = "https://example.com/hook", **templates: str) -> dict[str, Any]:
    starts = datetime.now(UTC) + timedelta(hours=1)
    return {
        "subject": "Stand-up",
        "starts_at": starts.isoformat(),
        "remind_before": ["P1D"],  # which has passed: it is sent at once
        "recipients": [{"name": "Ada", "webhook": hook}],
        "data": DATA,
        **templates,
    }


def test_there_are_as_many_as_promised() -> None:
    assert len(set(REJECTED)) >= 200
    assert len(set(ELSEWHERE + HARMLESS)) >= 30


@pytest.mark.parametrize("template", some(REJECTED))
@pytest.mark.parametrize(("path", "field"), in_turn(("/reminders/preview", "message"), ("/reminders", "html")))
def test_a_hostile_template_is_rejected_with_its_field_and_soon(
    stack: Stack, api: Api, path: str, field: str, template: str
) -> None:
    before = used_s(stack, "EnqueueHttpFunction")
    status, answer = api.call("POST", path, {**reminder(**{field: template}), **named(path)})
    used = used_s(stack, "EnqueueHttpFunction") - before
    assert (status, answer["errors"][0]["field"]) == (422, field), answer
    assert not leaks(answer)
    assert used < CPU_S
    assert path != "/reminders" or api.call("GET", "/reminders/hostile")[0] == 404, "nothing is kept of it"


def named(path: str) -> dict[str, str]:
    return {"id": "hostile"} if path == "/reminders" else {}


def leaks(answer: Any) -> list[str]:
    """Signs in what a caller sees; a message repeats no template."""
    return [sign for sign in SIGNS if sign in str(answer)]


@pytest.mark.parametrize("template", some([*ELSEWHERE, *HARMLESS]))
def test_what_only_looks_hostile_is_a_message_as_previewed(
    stack: Stack, api: Api, receiver: Server, template: str
) -> None:
    id = f"h-{time.monotonic_ns()}"
    body = {"id": id, **reminder(f"{receiver.url}/{id}", message=template)}
    before = used_s(stack, "EnqueueHttpFunction")
    status, preview = api.call("POST", "/reminders/preview", body)
    assert used_s(stack, "EnqueueHttpFunction") - before < CPU_S
    assert status == 200, preview
    text = preview["messages"][0]["text"]
    assert template not in ELSEWHERE or text == template
    assert not leaks(text)
    api.post("/reminders", body)
    [asked] = until(lambda: [asked for asked in list(receiver.asked) if asked.path == f"/{id}"])
    assert json.loads(asked.body)["text"] == text


@pytest.mark.parametrize("template", REJECTED, ids=range(len(REJECTED)))
@pytest.mark.parametrize("field", in_turn("message", "subject", "html"))
def test_a_hostile_template_that_is_in_the_ledger_all_the_same_is_dropped_where_it_is_sent(
    field: str, template: str
) -> None:
    """An earlier version may have let it in."""
    clock, outbox = HandClock(), Outbox()
    payload = {
        "reminder": "standup", "subject": "Stand-up", "message": "", "html": "", "data": DATA, "lead_ms": 300_000,
        "recipient": {"name": "Ada", "channel": "email", "address": "ada@example.com", "time_zone": "UTC"},
        field: template,
    }  # fmt: skip
    kind = ReminderKind({"email": outbox}, Webhook(Web(), 1_000), TemplateWriter().write, anyone, clock.now)
    began = time.thread_time()
    outcome = kind(leased("reminder", payload, state={"starts_at": clock.at + 300_000}))
    assert time.thread_time() - began < CPU_S
    assert isinstance(outcome, Drop)
    assert outcome.reason.startswith(field)
    assert not leaks(outcome.reason)
    assert outbox.sent == []
