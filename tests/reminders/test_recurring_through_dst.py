"""A weekly meeting through a change of the clocks, with one occurrence moved and one cancelled."""

from datetime import UTC, datetime

from duecourse.testing import Duecourse

VIENNA = {"time_zone": "Europe/Vienna", "repeat": {"rrule": "FREQ=WEEKLY"}}


def test_a_weekly_meeting_keeps_its_hour_through_a_change_of_the_clocks() -> None:
    with Duecourse(start="2026-10-01T08:00:00Z") as product:
        reminders = product.client.reminders
        made = reminders.add(
            id="jour-fixe",
            subject="Jour fixe at {{ starts_at.time }} {{ starts_at.zone }}",
            starts_at="2026-10-06T09:00:00+02:00",
            remind_before=["PT1H"],
            recipients=[{"name": "Ada", "email": "ada@example.com"}],
            **VIENNA,  # type: ignore[arg-type]
        )
        assert made.created
        reminders.move_occurrence("jour-fixe", "2026-10-13T07:00:00Z", starts_at="2026-10-14T13:00:00Z")
        reminders.cancel_occurrence("jour-fixe", "2026-10-20T07:00:00Z")
        product.advance(datetime(2026, 11, 9, tzinfo=UTC))
        assert [(sent.at, sent.subject) for sent in product.sent.emails] == [
            (datetime(2026, 10, 6, 6, tzinfo=UTC), "Jour fixe at 09:00 CEST"),
            (datetime(2026, 10, 14, 12, tzinfo=UTC), "Jour fixe at 15:00 CEST"),
            (datetime(2026, 10, 27, 7, tzinfo=UTC), "Jour fixe at 09:00 CET"),
            (datetime(2026, 11, 3, 7, tzinfo=UTC), "Jour fixe at 09:00 CET"),
        ]
        status = reminders.get("jour-fixe").series
        assert status
        assert status.upcoming[0].local == "2026-11-10T09:00:00+01:00"
