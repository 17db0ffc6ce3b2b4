"""What a reminder says, to whom, and when it is too late."""

import pytest

from duecourse.domain.outcomes import Done, Drop, Outcome, Retry
from duecourse.domain.task import Json
from duecourse.errors import SendFailed
from duecourse.kinds.reminder import ReminderKind
from duecourse.ports.sender import Message
from tests.support.clock import HandClock
from tests.support.kinds import Outbox, leased

STARTS_AT = HandClock().at + 300_000
PAYLOAD = {
    "reminder": "standup",
    "subject": "Stand-up",
    "message": "Room 5.\nBring coffee.",
    "recipient": {"name": "Ada", "email": "ada@example.com"},
    "lead_ms": 300_000,
}


def remind(outbox: Outbox, clock: HandClock | None = None, **changes: Json) -> Outcome:
    task = leased("reminder", {**PAYLOAD, **changes}, state={"starts_at": STARTS_AT})
    return ReminderKind(outbox, (clock or HandClock()).now)(task)


def test_it_tells_one_recipient_what_begins_when() -> None:
    outbox = Outbox()
    assert remind(outbox) == Done({"message_id": "m-1"})
    text = "Hello Ada,\n\nStand-up begins at 2026-09-21 14:18:20 UTC.\n\nRoom 5.\nBring coffee.\n"
    assert outbox.sent == [Message("ada@example.com", "Reminder: Stand-up", text)]


@pytest.mark.parametrize("late_ms", [0, 1])
def test_once_the_meeting_began_nothing_is_sent(late_ms: int) -> None:
    outbox = Outbox()
    outcome = remind(outbox, HandClock(STARTS_AT + late_ms))
    assert outcome == Drop("the meeting began at 2026-09-21 14:18:20 UTC")
    assert outbox.sent == []


def test_a_millisecond_before_it_is_still_sent() -> None:
    assert remind(Outbox(), HandClock(STARTS_AT - 1)) == Done({"message_id": "m-1"})


def test_a_message_that_was_not_taken_is_retried() -> None:
    assert remind(Outbox(SendFailed("throttled"))) == Retry(error="throttled")


def test_no_field_can_add_a_header() -> None:
    outbox = Outbox()
    recipient = {"name": "A\r\nb", "email": "ada@example.com\nBcc: eve@example.com"}
    remind(outbox, subject="Hi\r\nBcc: eve@example.com\u2028x", recipient=recipient)
    message = outbox.sent[0]
    assert message.subject == "Reminder: Hi Bcc: eve@example.com x"
    assert message.to == "ada@example.com Bcc: eve@example.com"
    assert message.text.startswith("Hello A b,\n")


def test_a_recipient_without_a_name_and_a_meeting_without_a_message_are_fine() -> None:
    outbox = Outbox()
    remind(outbox, message=None, recipient={"name": "", "email": "ada@example.com"})
    assert outbox.sent[0].text == "Hello,\n\nStand-up begins at 2026-09-21 14:18:20 UTC.\n"
