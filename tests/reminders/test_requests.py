"""POST and PATCH /reminders: what is taken, and which field of what is refused."""

import json

import pytest
from pydantic import TypeAdapter, ValidationError

from duecourse.api.fields import field_errors
from duecourse.ledger.reminder import UTC, Channel, Recipient, Shown
from duecourse.reminders.http import AddReminder, PreviewReminder, ReminderKey, show_preview

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
    assert reminder.recipients == (Recipient("Ada", Channel.EMAIL, "ada@example.com", UTC),)


def test_a_webhook_may_name_a_credential_and_no_other_channel() -> None:
    hook = {"name": "Ada", "webhook": "https://a.example/in", "email": "ada@example.com", "auth": "billing"}
    reminder = AddReminder.model_validate(STANDUP | {"recipients": [hook]}).reminder("x".lower)
    assert {one.channel: one.auth for one in reminder.recipients} == {Channel.WEBHOOK: "billing", Channel.EMAIL: ""}
    assert ["auth" in json.loads(task.payload)["recipient"] for task in reminder.tasks(0)] == [
        one.channel is Channel.WEBHOOK for one in reminder.recipients
    ], "a reminder of before credentials is the same as now"
    assert fields(recipients=[{"email": "ada@example.com", "auth": "billing"}]) == {"recipients.0.auth"}
    assert fields(recipients=[{"webhook": "https://a.example", "auth": "a/b"}]) == {"recipients.0.auth"}


def test_repeated_times_and_people_are_folded_and_keep_their_order() -> None:
    people = [("B", "b@x.org"), ("A", "a@x.org"), ("B2", "B@x.org")]
    body = {"remind_before": ["PT1H", 300, "PT5M"], "recipients": [{"name": n, "email": e} for n, e in people]}
    reminder = AddReminder.model_validate(STANDUP | body).reminder()
    assert reminder.leads_ms == (3_600_000, 300_000)
    assert reminder.recipients == (Recipient("B", Channel.EMAIL, "b@x.org"), Recipient("A", Channel.EMAIL, "a@x.org"))


def test_a_line_break_never_reaches_a_header() -> None:
    assert fields(subject="a\r\nBcc: all@example.com") == {"subject"}
    assert fields(recipients=[{"name": "a\nb", "email": "ada@example.com"}]) == {"recipients.0.name"}


@pytest.mark.parametrize("email", [
    "", "ada", "ada@", "@x.org", "a b@x.org", "a@x.org,b@x.org", "<a@x.org>", "a@x\n",
    "ä@x.org", "a\N{ZERO WIDTH SPACE}@x.org", "a@x..org", "a@x.org.", "a@-x.org", "a@münchen.de", "a" * 65 + "@x.org",
])  # fmt: skip
def test_what_is_no_address_is_refused(email: str) -> None:
    assert fields(recipients=[{"name": "Ada", "email": email}]) == {"recipients.0.email"}


@pytest.mark.parametrize("email", ["o'hara+x@mail-1.example.org", "a@x", "1.2_3@xn--mnchen-3ya.de", "a=b&c@X.ORG"])
def test_what_is_an_address_is_taken(email: str) -> None:
    assert fields(recipients=[{"name": "Ada", "email": email}]) == set()


def test_a_start_has_a_date_in_every_time_zone() -> None:
    assert fields(starts_at="9998-12-31T23:59:59Z", time_zone="Pacific/Kiritimati") == set()
    assert fields(starts_at="9999-12-31T23:59:59Z", time_zone="Pacific/Kiritimati") == {"starts_at"}


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


def people(*given: dict[str, object], **changes: object) -> tuple[Recipient, ...]:
    return AddReminder.model_validate(STANDUP | {"recipients": list(given)} | changes).reminder().recipients


def test_each_channel_of_a_person_is_a_message_of_its_own_and_repeated_ones_are_folded() -> None:
    ada = {"name": "Ada", "email": "a@x.org", "phone": "+436641234567", "webhook": "https://x.org/hook"}
    found = people(ada, {"name": "Other", "phone": "+436641234567"}, {"webhook": "https://x.org/hook?of=other"})
    assert [(each.name, each.channel, each.address) for each in found] == [
        ("Ada", "email", "a@x.org"),
        ("Ada", "phone", "+436641234567"),
        ("Ada", "webhook", "https://x.org/hook"),
        ("", "webhook", "https://x.org/hook?of=other"),
    ]


def test_a_person_has_the_reminders_time_zone_or_one_of_their_own() -> None:
    found = people({"email": "a@x.org"}, {"email": "b@x.org", "time_zone": "Asia/Tokyo"}, time_zone="Europe/Vienna")
    assert [each.time_zone for each in found] == ["Europe/Vienna", "Asia/Tokyo"]
    assert people({"email": "a@x.org"})[0].time_zone == "UTC"


@pytest.mark.parametrize(
    "zone", ["", "Vienna", "Europe", "../../etc/passwd", "/etc/passwd", "Europe/Vienna\0", "x" * 101]
)
def test_what_is_no_time_zone_is_refused(zone: str) -> None:
    assert fields(time_zone=zone) == {"time_zone"}
    assert fields(recipients=[{"email": "a@x.org", "time_zone": zone}]) == {"recipients.0.time_zone"}


@pytest.mark.parametrize(
    "number", ["", "0664123456", "+0664123456", "+43 664 1234567", "+43", "+4366412345678901", "+٤٣٦٦٤١٢٣٤٥٦"]
)
def test_what_is_no_number_in_e164_is_refused(number: str) -> None:
    assert fields(recipients=[{"phone": number}]) == {"recipients.0.phone"}


@pytest.mark.parametrize("url", ["", "x.org", "ftp://x.org", "https://", "https://x.org:0/", "https://x.org/a b"])
def test_a_webhook_is_refused_as_the_kind_webhook_refuses_it(url: str) -> None:
    assert fields(recipients=[{"webhook": url}]) == {"recipients.0.webhook"}


def test_a_person_without_a_channel_is_refused() -> None:
    assert fields(recipients=[{"name": "Ada"}, {"email": "a@x.org"}]) == {"recipients.0"}


def test_channels_count_as_messages() -> None:
    both = [{"email": f"a{n}@x.org", "webhook": f"https://x.org/{n}"} for n in range(501)]
    assert fields(recipients=both) == {"remind_before", "recipients"}
    assert fields(recipients=both[:500]) == set()


def test_what_templates_are_given_is_an_object_of_bounded_size() -> None:
    assert fields(data=[]) == {"data"}
    assert fields(data={"a": "x" * 16_384}) == {"data"}
    assert fields(data={"a": float("nan")}) == {"data"}
    assert fields(message="x" * 10_001, html="x" * 50_001, subject="x" * 1_001) == {"message", "html", "subject"}


def preview(body: object) -> AddReminder | ReminderKey:
    found: AddReminder | ReminderKey = TypeAdapter(PreviewReminder).validate_python(body)
    return found


def test_a_preview_takes_what_an_add_takes_or_an_id_alone() -> None:
    assert preview({"id": "standup"}) == ReminderKey(id="standup")
    assert preview(STANDUP) == AddReminder.model_validate(STANDUP)
    for body, wrong in (({**STANDUP, "starts_at": "soon"}, {"starts_at"}), ({"id": "a/b"}, {"id"}), ([], {"body"})):
        with pytest.raises(ValidationError) as caught:
            preview(body)
        assert {problem.field or "body" for problem in field_errors(caught.value.errors())} == wrong


def test_a_preview_shows_whole_messages_as_far_as_an_answer_has_room_and_counts_the_rest() -> None:
    to = Recipient("Ada", Channel.EMAIL, "a@x.org")
    shown = [Shown(f"r:60:{n}", 0, 60_000, to, "s", "x" * 262_144, "") for n in range(10)]
    answer = show_preview("r", shown)
    assert (len(answer["messages"]), answer["left_out"]) == (7, 3)
    assert {len(message["text"]) for message in answer["messages"]} == {262_144}
    assert show_preview("r", shown[:7])["left_out"] == 0
