"""Remind two people of a meeting, each in a time zone of their own, and move the meeting.

Nothing is sent, and the clock is moved by hand. Run the program by itself:

    python reminder.py

The program prints:

    2 messages were sent, 4 are moved
    02 Jun 07:00 UTC: ada@example.com, Review at 09:00
    02 Jun 07:00 UTC: grace@example.com, Review at 03:00
    03 Jun 13:00 UTC: ada@example.com, Review at 15:00
    03 Jun 13:00 UTC: grace@example.com, Review at 09:00
    04 Jun 12:50 UTC: ada@example.com, Review at 15:00
    04 Jun 12:50 UTC: grace@example.com, Review at 09:00
"""

from duecourse.testing import Duecourse

with Duecourse(start="2027-06-01T00:00:00Z") as duecourse:
    reminders = duecourse.client.reminders
    reminders.add(
        id="review",
        subject="Review at {{ starts_at.time }}",
        starts_at="2027-06-03T09:00:00+02:00",
        remind_before=["1d", "10m"],
        recipients=[
            {"name": "Ada", "email": "ada@example.com", "time_zone": "Europe/Vienna"},
            {"name": "Grace", "email": "grace@example.com", "time_zone": "America/New_York"},
        ],
    )
    duecourse.advance("2027-06-02T12:00:00Z")
    moved = reminders.move("review", starts_at="2027-06-04T15:00:00+02:00")
    print(f"{len(moved.sent)} messages were sent, {len(moved.tasks)} are moved")
    duecourse.advance("2027-06-04T15:00:00+02:00")
    for mail in duecourse.sent.emails:
        print(f"{mail.at:%d %b %H:%M} UTC: {mail.to}, {mail.subject}")
