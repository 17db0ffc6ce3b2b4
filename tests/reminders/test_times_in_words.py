"""Instants and spans as people say them; the parts of an SMS."""

from datetime import UTC
from zoneinfo import ZoneInfo

import pytest

from duecourse.base.times import moment, span
from duecourse.reminders import send


@pytest.mark.parametrize(
    ("ms", "said"),
    [
        (1_000, "1 second"), (1_500, "1.5 seconds"), (60_000, "1 minute"), (300_000, "5 minutes"),
        (5_400_000, "1 hour 30 minutes"), (86_400_000, "1 day"), (93_784_000, "1 day 2 hours 3 minutes 4 seconds"),
        (14 * 86_400_000, "14 days"), (0, "0 seconds"), (1, "1 millisecond"),
        (999, "999 milliseconds"), (1_001, "1.001 seconds"), (2_912_120 * 86_400_000, "2912120 days"),
    ],
)  # fmt: skip
def test_a_span_is_said_in_its_largest_units(ms: int, said: str) -> None:
    assert span(ms) == said


@pytest.mark.parametrize(
    ("at", "zone", "said"),
    [
        (1_774_747_800_000, "Europe/Vienna", "Sunday, 29 March 2026 at 03:30 CEST"),
        (1_774_744_200_000, "Europe/Vienna", "Sunday, 29 March 2026 at 01:30 CET"),
        (1_774_747_801_999, "Asia/Kolkata", "Sunday, 29 March 2026 at 07:00:01 IST"),
        (4_102_444_800_000, "Pacific/Kiritimati", "Friday, 1 January 2100 at 14:00 +14"),
    ],
)
def test_an_instant_is_said_in_its_zone(at: int, zone: str, said: str) -> None:
    assert str(moment(at, ZoneInfo(zone))) == said


def test_an_instant_has_its_parts() -> None:
    parts = moment(1_774_747_800_000, UTC)
    assert (parts["weekday"], parts["day"], parts["month"], parts["year"]) == ("Sunday", 29, "March", 2026)
    assert (parts["time"], parts["zone"], parts["iso"]) == ("01:30", "UTC", "2026-03-29T01:30:00+00:00")


@pytest.mark.parametrize(
    ("text", "parts"),
    [
        ("x" * 160, 1), ("x" * 161, 2), ("ä" * 160, 1), ("€" * 80, 1), ("€" * 81, 2), ("x" * 306, 2), ("x" * 307, 3),
        ("č" * 70, 1), ("č" * 71, 2), ("😀" * 35, 1), ("😀" * 36, 2), ("", 1),
        ("€" * 152, 2), ("€" * 153, 3), ("😀" * 66, 2), ("😀" * 67, 3), ("x" + "€" * 152 + "x", 2),
    ],
)  # fmt: skip
def test_an_sms_is_sent_in_parts(text: str, parts: int) -> None:
    assert send.sms_parts(text) == parts
