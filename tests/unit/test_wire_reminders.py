"""POST and PATCH /reminders: what is taken, and which field of what is refused."""

import pytest
from pydantic import ValidationError

from duecourse.domain.reminder import Recipient
from duecourse.wire.fields import field_errors
from duecourse.wire.reminders import AddReminder

STANDUP = {
    "id": "standup",
    "subject": "Stand-up",
    "starts_at": "2026-03-29T01:30:00Z",
    "remind_before": ["PT5M"],
    "recipients": [{"name": "Ada", "email": "ada@example.com"}],
}


def fields(**changes: object) -> set[str]:
    """The fields refused, none where the body is taken."""
    try:
        AddReminder.model_validate(STANDUP | changes)
    except ValidationError as error:
        return {problem.field for problem in field_errors(error.errors())}
    return set()


def test_a_reminder_arrives_in_the_ledgers_units() -> None:
    reminder = AddReminder.model_validate(STANDUP).reminder()
    assert (reminder.starts_at, reminder.leads_ms) == (1_774_747_800_000, (300_000,))
    assert reminder.recipients == (Recipient("Ada", "ada@example.com"),)


def test_repeated_times_and_people_are_folded_and_keep_their_order() -> None:
    people = [("B", "b@x.org"), ("A", "a@x.org"), ("B2", "B@x.org")]
    body = {"remind_before": ["PT1H", 300, "PT5M"], "recipients": [{"name": n, "email": e} for n, e in people]}
    reminder = AddReminder.model_validate(STANDUP | body).reminder()
    assert reminder.leads_ms == (3_600_000, 300_000)
    assert reminder.recipients == (Recipient("B", "b@x.org"), Recipient("A", "a@x.org"))


def test_a_line_break_never_reaches_a_header() -> None:
    assert fields(subject="a\r\nBcc: all@example.com") == {"subject"}
    assert fields(recipients=[{"name": "a\nb", "email": "ada@example.com"}]) == {"recipients.0.name"}


@pytest.mark.parametrize("email", ["", "ada", "ada@", "@x.org", "a b@x.org", "a@x.org,b@x.org", "<a@x.org>", "a@x\n"])
def test_what_is_no_address_is_refused(email: str) -> None:
    assert fields(recipients=[{"name": "Ada", "email": email}]) == {"recipients.0.email"}


def test_a_reminder_needs_a_time_and_a_person_and_not_too_many() -> None:
    assert fields(remind_before=[], recipients=[]) == {"remind_before", "recipients"}
    people = [{"name": "A", "email": f"a{n}@x.org"} for n in range(501)]
    assert fields(remind_before=[60, 120], recipients=people) == {"remind_before", "recipients"}
    assert fields(remind_before=[60], recipients=people) == set()


def test_an_id_leaves_room_for_its_tasks() -> None:
    assert fields(id="x" * 65) == {"id"}
    longest = AddReminder.model_validate(
        STANDUP | {"id": "x" * 64, "remind_before": ["P36600D", "PT1.001S"]}
    ).reminder()
    assert all(len(task.id) <= 128 for task in longest.tasks(0))


def test_unknown_fields_are_named() -> None:
    assert fields(colour="red", recipients=[{"name": "A", "email": "a@x.org", "age": 7}]) == {
        "colour",
        "recipients.0.age",
    }


def test_a_message_cannot_be_due_as_the_meeting_begins() -> None:
    assert fields(remind_before=["PT0S", 60, 0.5]) == {"remind_before.0", "remind_before.2"}
