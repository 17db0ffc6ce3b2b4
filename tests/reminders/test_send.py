"""What a reminder says, to whom and by which channel, and when it is too late."""

import json
from typing import Any

import pytest

from duecourse.base.json_text import Json
from duecourse.calls.webhook import Webhook
from duecourse.errors import CallFailed, SendFailed, SendRejected
from duecourse.guard.http_types import CredentialName
from duecourse.ledger.task import Done, Drop, Outcome, Retry
from duecourse.reminders.send import FORMER_CONTENT, Message, ReminderKind
from duecourse.reminders.writer import TemplateWriter
from tests.support.clock import HandClock
from tests.support.egress import anyone
from tests.support.kinds import Outbox, Web, answer, leased

STARTS_AT = HandClock().at + 300_000
ADA = {"name": "Ada", "channel": "email", "address": "ada@example.com", "time_zone": "UTC"}
PAYLOAD = {
    "reminder": "standup",
    "subject": "Stand-up",
    "message": "Room 5.\nBring coffee.",
    "html": "",
    "data": {"room": 5},
    "recipient": ADA,
    "lead_ms": 300_000,
}
PHONE = {**ADA, "channel": "phone", "address": "+436641234567"}
HOOK = {**ADA, "channel": "webhook", "address": "https://example.com/hook?key=1"}


def remind(outbox: Outbox, web: Web | None = None, clock: HandClock | None = None, **changes: Json) -> Outcome | None:
    task = leased("reminder", {**PAYLOAD, **changes}, state={"starts_at": STARTS_AT})
    webhook = Webhook(web or Web(), 10_000)
    senders = dict.fromkeys(("email", "phone"), outbox)
    return ReminderKind(senders, webhook, TemplateWriter().write, anyone, (clock or HandClock()).now)(task)


def sent(**changes: Json) -> Message:
    """The one message that goes out."""
    outbox = Outbox()
    assert remind(outbox, **changes) == Done({"message_id": "m-1"})
    [message] = outbox.sent
    return message


def test_a_webhook_carries_the_credential_that_its_recipient_names() -> None:
    for recipient, auth in ((HOOK, None), ({**HOOK, "auth": "billing"}, CredentialName("-", "billing"))):
        web = Web(answer())
        assert remind(Outbox(), web, recipient=recipient) == Done({"status": 200})
        assert web.asked[0].auth == auth


def test_it_tells_one_recipient_what_the_message_says() -> None:
    assert sent() == Message("ada@example.com", "Stand-up", "Room 5.\nBring coffee.\n")


def test_without_a_message_it_says_what_begins_when() -> None:
    begins = "Stand-up begins at Monday, 21 September 2026 at 14:18:20 UTC."
    assert sent(message="") == Message("ada@example.com", "Stand-up", f"Hello Ada,\n\n{begins}\n")
    assert sent(message="", recipient={**ADA, "name": ""}).text == f"Hello,\n\n{begins}\n"
    assert sent(message="", recipient=PHONE) == Message("+436641234567", "Stand-up", begins)


def test_hours_are_told_in_the_recipients_time_zone() -> None:
    there = {**ADA, "time_zone": "Asia/Kolkata"}
    assert sent(message="{{ starts_at.time }} {{ starts_at.zone }}", recipient=there).text == "19:48:20 IST\n"


@pytest.mark.parametrize("late_ms", [0, 1])
def test_once_the_meeting_began_nothing_is_sent(late_ms: int) -> None:
    outbox = Outbox()
    outcome = remind(outbox, clock=HandClock(STARTS_AT + late_ms))
    assert outcome == Drop("the meeting began at 2026-09-21T14:18:20.000Z")
    assert outbox.sent == []


def test_a_millisecond_before_it_is_still_sent() -> None:
    assert remind(Outbox(), clock=HandClock(STARTS_AT - 1)) == Done({"message_id": "m-1"})


@pytest.mark.parametrize("recipient", [ADA, PHONE])
def test_what_was_not_taken_is_retried_and_what_never_will_be_is_dead(recipient: dict[str, str]) -> None:
    assert remind(Outbox(SendFailed("throttled")), recipient=recipient) == Retry(error="throttled")
    assert remind(Outbox(SendRejected("no such number")), recipient=recipient) == Drop("no such number")


def test_a_template_that_cannot_be_written_any_more_is_dead_with_its_line() -> None:
    assert remind(Outbox(), message="{{ data.floor }}") == Drop("message: line 1: floor is not known; known here: room")


def test_a_message_whose_content_an_earlier_version_kept_apart_is_dead_and_says_what_to_do() -> None:
    assert remind(Outbox(), content="5f0c") == Drop(FORMER_CONTENT)


def test_no_field_can_add_a_header() -> None:
    eve = "\r\nBcc: eve@example.com\u2028x\x85y"
    assert sent(subject="Hi {{ data.who }}", data={"who": eve}).subject == "Hi Bcc: eve@example.com x y"


def posted(web: Web) -> Any:
    [request] = web.asked
    return json.loads(request.body or b"")


def test_a_webhook_gets_the_message_and_what_it_is_about_under_the_tasks_key() -> None:
    web = Web(answer(200))
    assert remind(Outbox(), web, recipient=HOOK, html="<p>Room 5") == Done({"status": 200})
    assert posted(web) == {
        "type": "reminder",
        "reminder": "standup",
        "subject": "Stand-up",
        "text": "Room 5.\nBring coffee.",
        "html": "<p>Room 5",
        "starts_at": "2026-09-21T14:18:20.000Z",
        "remind_before": "PT5M",
        "recipient": {"name": "Ada"},
        "data": {"room": 5},
    }
    assert (web.asked[0].url, web.asked[0].headers["webhook-id"]) == (HOOK["address"], "t-1:7")


@pytest.mark.parametrize(
    ("given", "outcome"),
    [
        (answer(410), Drop("POST https://example.com/hook answered 410")),
        (
            answer(503, headers={"retry-after": "7"}),
            Retry(after=7.0, error="POST https://example.com/hook answered 503"),
        ),
        (CallFailed("nobody there"), Retry(error="nobody there")),
    ],
)
def test_a_webhook_ends_as_the_kind_webhook_does(given: Any, outcome: Outcome) -> None:
    assert remind(Outbox(), Web(given), recipient=HOOK) == outcome
