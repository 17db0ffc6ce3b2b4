"""Recurrence rules: the examples of RFC 5545, dateutil as a second opinion, and rules that are wrong or hostile."""

from collections.abc import Iterable, Iterator
from datetime import datetime, timedelta
from itertools import islice

import pytest
from dateutil.rrule import rrulestr
from hypothesis import Phase, example, given, settings
from hypothesis import strategies as st

from duecourse.base.times import parse_instant
from duecourse.ledger.schedule import RRule
from duecourse.schedules.rrule import rrule_times
from tests.support.calendars import CALENDAR, days, local_times, problems, rule
from tests.support.call_count import within

# Start (09:00 in New York), rule, its first days; facts of RFC 5545, section 3.8.5.3.
EXAMPLES = [
    ("1997-09-02", "FREQ=DAILY;COUNT=10", [f"1997-09-{day:02}" for day in range(2, 12)]),
    ("1997-09-02", "FREQ=DAILY;INTERVAL=2", ["1997-09-02", "1997-09-04", "1997-09-06"]),
    (
        "1997-09-02",
        "FREQ=DAILY;INTERVAL=10;COUNT=5",
        ["1997-09-02", "1997-09-12", "1997-09-22", "1997-10-02", "1997-10-12"],
    ),
    ("1997-09-02", "FREQ=WEEKLY;COUNT=3", ["1997-09-02", "1997-09-09", "1997-09-16"]),
    ("1997-09-02", "FREQ=WEEKLY;INTERVAL=2;WKST=SU", ["1997-09-02", "1997-09-16", "1997-09-30", "1997-10-14"]),
    (
        "1997-09-01",
        "FREQ=WEEKLY;INTERVAL=2;UNTIL=19971224T000000Z;WKST=SU;BYDAY=MO,WE,FR",
        [
            "1997-09-01",
            "1997-09-03",
            "1997-09-05",
            "1997-09-15",
            "1997-09-17",
            "1997-09-19",
            "1997-09-29",
            "1997-10-01",
        ],
    ),
    (
        "1997-09-02",
        "FREQ=WEEKLY;INTERVAL=2;COUNT=8;WKST=SU;BYDAY=TU,TH",
        [
            "1997-09-02",
            "1997-09-04",
            "1997-09-16",
            "1997-09-18",
            "1997-09-30",
            "1997-10-02",
            "1997-10-14",
            "1997-10-16",
        ],
    ),
    (
        "1997-09-05",
        "FREQ=MONTHLY;UNTIL=19971224T000000Z;BYDAY=1FR",
        ["1997-09-05", "1997-10-03", "1997-11-07", "1997-12-05"],
    ),
    (
        "1997-09-07",
        "FREQ=MONTHLY;INTERVAL=2;COUNT=10;BYDAY=1SU,-1SU",
        [
            "1997-09-07",
            "1997-09-28",
            "1997-11-02",
            "1997-11-30",
            "1998-01-04",
            "1998-01-25",
            "1998-03-01",
            "1998-03-29",
            "1998-05-03",
            "1998-05-31",
        ],
    ),
    (
        "1997-09-22",
        "FREQ=MONTHLY;COUNT=6;BYDAY=-2MO",
        ["1997-09-22", "1997-10-20", "1997-11-17", "1997-12-22", "1998-01-19", "1998-02-16"],
    ),
    (
        "1997-09-28",
        "FREQ=MONTHLY;BYMONTHDAY=-3",
        ["1997-09-28", "1997-10-29", "1997-11-28", "1997-12-29", "1998-01-29", "1998-02-26"],
    ),
    (
        "1997-09-30",
        "FREQ=MONTHLY;COUNT=10;BYMONTHDAY=1,-1",
        ["1997-09-30", "1997-10-01", "1997-10-31", "1997-11-01", "1997-11-30"],
    ),
    (
        "1997-09-10",
        "FREQ=MONTHLY;INTERVAL=18;COUNT=10;BYMONTHDAY=10,11,12,13,14,15",
        [*(f"1997-09-{day}" for day in range(10, 16)), *(f"1999-03-{day}" for day in range(10, 14))],
    ),
    (
        "1997-09-02",
        "FREQ=MONTHLY;INTERVAL=2;BYDAY=TU",
        [*(f"1997-09-{day:02}" for day in (2, 9, 16, 23, 30)), "1997-11-04"],
    ),
    ("1997-06-10", "FREQ=YEARLY;COUNT=10;BYMONTH=6,7", ["1997-06-10", "1997-07-10", "1998-06-10", "1998-07-10"]),
    (
        "1997-03-10",
        "FREQ=YEARLY;INTERVAL=2;COUNT=10;BYMONTH=1,2,3",
        ["1997-03-10", "1999-01-10", "1999-02-10", "1999-03-10", "2001-01-10"],
    ),
    (
        "1997-01-01",
        "FREQ=YEARLY;INTERVAL=3;COUNT=10;BYYEARDAY=1,100,200",
        [
            "1997-01-01",
            "1997-04-10",
            "1997-07-19",
            "2000-01-01",
            "2000-04-09",
            "2000-07-18",
            "2003-01-01",
            "2003-04-10",
            "2003-07-19",
            "2006-01-01",
        ],
    ),
    ("1997-05-19", "FREQ=YEARLY;BYDAY=20MO", ["1997-05-19", "1998-05-18", "1999-05-17"]),
    ("1997-05-12", "FREQ=YEARLY;BYWEEKNO=20;BYDAY=MO", ["1997-05-12", "1998-05-11", "1999-05-17"]),
    ("1997-03-13", "FREQ=YEARLY;BYMONTH=3;BYDAY=TH", ["1997-03-13", "1997-03-20", "1997-03-27", "1998-03-05"]),
    (
        "1997-09-02",
        "FREQ=MONTHLY;BYDAY=FR;BYMONTHDAY=13",
        ["1998-02-13", "1998-03-13", "1998-11-13", "1999-08-13", "2000-10-13"],
    ),
    (
        "1997-09-13",
        "FREQ=MONTHLY;BYDAY=SA;BYMONTHDAY=7,8,9,10,11,12,13",
        ["1997-09-13", "1997-10-11", "1997-11-08", "1997-12-13"],
    ),
    (
        "1996-11-05",
        "FREQ=YEARLY;INTERVAL=4;BYMONTH=11;BYDAY=TU;BYMONTHDAY=2,3,4,5,6,7,8",
        ["1996-11-05", "2000-11-07", "2004-11-02"],
    ),
    ("1997-09-04", "FREQ=MONTHLY;COUNT=3;BYDAY=TU,WE,TH;BYSETPOS=3", ["1997-09-04", "1997-10-07", "1997-11-06"]),
    (
        "1997-09-29",
        "FREQ=MONTHLY;BYDAY=MO,TU,WE,TH,FR;BYSETPOS=-2",
        ["1997-09-29", "1997-10-30", "1997-11-27", "1997-12-30"],
    ),
    (
        "1997-08-05",
        "FREQ=WEEKLY;INTERVAL=2;COUNT=4;BYDAY=TU,SU;WKST=MO",
        ["1997-08-05", "1997-08-10", "1997-08-19", "1997-08-24"],
    ),
    (
        "1997-08-05",
        "FREQ=WEEKLY;INTERVAL=2;COUNT=4;BYDAY=TU,SU;WKST=SU",
        ["1997-08-05", "1997-08-17", "1997-08-19", "1997-08-31"],
    ),
    (
        "2007-01-15",
        "FREQ=MONTHLY;BYMONTHDAY=15,30;COUNT=5",
        ["2007-01-15", "2007-01-30", "2007-02-15", "2007-03-15", "2007-03-30"],
    ),
]


@pytest.mark.parametrize(("start", "text", "expected"), EXAMPLES)
def test_a_rule_of_the_standard_has_the_days_of_the_standard(start: str, text: str, expected: list[str]) -> None:
    hour = 14 if start[5:7] < "04" or start[5:7] > "10" else 13
    asked = rule(text, "America/New_York", start=f"{start}T{hour}:00:00Z")
    assert problems(asked) == {}
    found = local_times(asked, count=len(expected))
    assert [one[:10] for one in found] == expected
    assert {one[11:19] for one in found} == {"09:00:00"}


# Rule, number of times in all, the last one.
ENDS = [
    ("1997-09-02T13:00:00Z", "FREQ=DAILY;UNTIL=19971224T000000Z", 113, "1997-12-23T09:00:00-05:00"),
    (
        "1998-01-01T14:00:00Z",
        "FREQ=YEARLY;UNTIL=20000131T140000Z;BYMONTH=1;BYDAY=SU,MO,TU,WE,TH,FR,SA",
        93,
        "2000-01-31T09:00:00-05:00",
    ),
    ("1998-01-01T14:00:00Z", "FREQ=DAILY;UNTIL=20000131T140000Z;BYMONTH=1", 93, "2000-01-31T09:00:00-05:00"),
    ("1997-09-02T13:00:00Z", "FREQ=WEEKLY;UNTIL=19971007T000000Z;WKST=SU;BYDAY=TU,TH", 10, "1997-10-02T09:00:00-04:00"),
    ("1997-09-02T13:00:00Z", "FREQ=WEEKLY;COUNT=10", 10, "1997-11-04T09:00:00-05:00"),
    ("1997-09-02T13:00:00Z", "FREQ=HOURLY;INTERVAL=3;UNTIL=19970902T210000Z", 3, "1997-09-02T15:00:00-04:00"),
    ("1997-09-02T13:00:00Z", "FREQ=MINUTELY;INTERVAL=15;COUNT=6", 6, "1997-09-02T10:15:00-04:00"),
    ("1997-09-02T13:00:00Z", "FREQ=MINUTELY;INTERVAL=90;COUNT=4", 4, "1997-09-02T13:30:00-04:00"),
    ("1997-09-02T13:00:00Z", "FREQ=DAILY;UNTIL=19970904T090000", 3, "1997-09-04T09:00:00-04:00"),
    ("1997-09-02T13:00:00Z", "FREQ=DAILY;UNTIL=19970904T085959", 2, "1997-09-03T09:00:00-04:00"),
    ("1997-09-02T13:00:00Z", "FREQ=DAILY;UNTIL=19970904T085960", 2, "1997-09-03T09:00:00-04:00"),
    ("1997-09-02T13:00:00Z", "FREQ=DAILY;UNTIL=19970904T125960Z", 2, "1997-09-03T09:00:00-04:00"),
    ("1997-09-02T13:00:00Z", "FREQ=DAILY;UNTIL=19970904", 3, "1997-09-04T09:00:00-04:00"),
    ("1997-09-02T13:00:00Z", "FREQ=DAILY;UNTIL=19970904T130000Z", 3, "1997-09-04T09:00:00-04:00"),
    ("1997-09-02T13:00:00Z", "FREQ=DAILY;UNTIL=19970904T125959Z", 2, "1997-09-03T09:00:00-04:00"),
]


@pytest.mark.parametrize(("start", "text", "number", "last"), ENDS)
def test_a_rule_ends_by_its_count_or_its_last_time(start: str, text: str, number: int, last: str) -> None:
    found = local_times(rule(text, "America/New_York", start=start), count=1_000)
    assert (len(found), found[-1]) == (number, last)


@pytest.mark.parametrize("first", ["MO", "TU", "WE", "TH", "FR", "SA", "SU"])
def test_numbered_weeks_end_with_the_last_year_whatever_their_first_day(first: str) -> None:
    asked = rule(f"FREQ=YEARLY;BYWEEKNO=51,52;BYDAY=FR;WKST={first}", start="9990-01-01T00:00:00Z")
    assert days(asked, 100)[-1].startswith("9999-12-")


def test_two_ways_to_say_every_twenty_minutes_of_a_working_day_agree() -> None:
    hours = "BYHOUR=9,10,11,12,13,14,15,16"
    by_day = rule(f"FREQ=DAILY;{hours};BYMINUTE=0,20,40", start="1997-09-02T09:00:00Z")
    by_minute = rule(f"FREQ=MINUTELY;INTERVAL=20;{hours}", start="1997-09-02T09:00:00Z")
    assert local_times(by_day, count=100) == local_times(by_minute, count=100)


# Rule, start in Vienna, gap, fold, number of times, the last one.
COUNTED = [
    ("FREQ=DAILY;COUNT=3", "2027-03-27T01:30:00Z", "skip", "first", 3, "2027-03-30T02:30:00+02:00"),
    ("FREQ=DAILY;COUNT=3", "2027-03-27T01:30:00Z", "shift", "first", 3, "2027-03-29T02:30:00+02:00"),
    ("FREQ=MINUTELY;COUNT=30", "2027-03-28T00:45:00Z", "auto", "auto", 30, "2027-03-28T03:14:00+02:00"),
    ("FREQ=MINUTELY;COUNT=30", "2027-03-28T00:45:00Z", "skip", "first", 30, "2027-03-28T03:14:00+02:00"),
    ("FREQ=MINUTELY;COUNT=30", "2027-03-28T00:45:00Z", "shift", "first", 30, "2027-03-28T03:14:00+02:00"),
    ("FREQ=HOURLY;COUNT=24", "2027-03-27T11:00:00Z", "auto", "auto", 24, "2027-03-28T12:00:00+02:00"),
    ("FREQ=HOURLY;COUNT=24", "2027-10-30T10:00:00Z", "auto", "auto", 24, "2027-10-31T10:00:00+01:00"),
    ("FREQ=HOURLY;COUNT=24", "2027-10-30T10:00:00Z", "skip", "first", 24, "2027-10-31T11:00:00+01:00"),
    ("FREQ=DAILY;COUNT=3", "2027-10-30T00:30:00Z", "shift", "both", 3, "2027-10-31T02:30:00+01:00"),
    ("FREQ=DAILY;COUNT=2", "2027-10-30T00:30:00Z", "shift", "both", 2, "2027-10-31T02:30:00+02:00"),
    ("FREQ=DAILY;COUNT=2", "2027-10-31T01:30:00Z", "shift", "first", 2, "2027-11-02T02:30:00+01:00"),
    ("FREQ=MINUTELY;COUNT=90", "2027-10-31T00:00:00Z", "auto", "auto", 90, "2027-10-31T02:29:00+01:00"),
    ("FREQ=YEARLY;BYMONTH=3;BYDAY=-1SU;COUNT=2", "2027-03-21T01:30:00Z", "skip", "first", 0, ""),
]


@pytest.mark.parametrize(("text", "start", "gap", "fold", "number", "last"), COUNTED)
def test_count_is_the_number_of_times_that_fire(
    text: str, start: str, gap: str, fold: str, number: int, last: str
) -> None:
    found = local_times(rule(text, "Europe/Vienna", start=start, gap=gap, fold=fold), count=1_000)
    assert (len(found), "".join(found[-1:])) == (number, last)


def test_a_count_is_reached_no_later_where_folds_add_to_it() -> None:
    asked = rule("FREQ=HOURLY;COUNT=10000", "Europe/Vienna", start="2026-01-01T00:00:00Z", gap="auto", fold="auto")
    assert len(list(CALENDAR.times(asked, 0))) == 10_000
    last = asked.starts_at + 9_999 * 3_600_000
    assert list(CALENDAR.times(asked, last - 1)) == [last]


def test_exdates_are_left_out_and_count_for_the_count() -> None:
    left_out = (parse_instant("2026-01-02T00:00:00Z"), parse_instant("2030-01-02T00:00:00Z"))
    asked = rule(RRule("FREQ=DAILY;COUNT=4", left_out))
    assert problems(asked) == {}
    assert days(asked, 9) == ["2026-01-01", "2026-01-03", "2026-01-04"]


def test_a_rule_keeps_the_milliseconds_of_its_start() -> None:
    asked = rule("RRULE:FREQ=DAILY;UNTIL=20260102T000000Z;", start="2026-01-01T00:00:00.250Z")
    assert local_times(asked, "2026-01-01T00:00:00.249Z", 9) == [
        "2026-01-01T00:00:00.250+00:00",
        "2026-01-02T00:00:00.250+00:00",
    ]


def test_peers_9_a_rule_goes_by_the_wall_clock_through_a_change() -> None:
    asked = rule("FREQ=DAILY", "Europe/Vienna", start="2026-03-27T01:30:00Z")
    assert local_times(asked, count=4) == [
        "2026-03-27T02:30:00+01:00",
        "2026-03-28T02:30:00+01:00",
        "2026-03-29T03:00:00+02:00",
        "2026-03-30T02:30:00+02:00",
    ]


def test_peers_8_a_rule_looked_at_late_goes_on_as_from_its_start() -> None:
    asked = rule("FREQ=WEEKLY;INTERVAL=3;BYDAY=TU,SU;WKST=SU", "Europe/Vienna", start="1999-01-05T08:00:00Z")
    late = parse_instant("2026-06-01T00:00:00Z")
    walked = [at for at in islice(CALENDAR.times(asked, 0), 2_000) if at > late]
    assert list(islice(CALENDAR.times(asked, late), 20)) == walked[:20]


WRONG = {
    "FREQ=SECONDLY": 'FREQ=SECONDLY is not known: write {"every": "PT1S"}',
    "FREQ=SECONDLY;INTERVAL=90": 'FREQ=SECONDLY is not known: write {"every": "PT90S"}',
    "FREQ=SECONDLY;BYSECOND=0,30": "FREQ=SECONDLY is not known: use MINUTELY with fewer times",
    "FREQ=DAYLY": "FREQ must be one of MINUTELY, HOURLY, DAILY, WEEKLY, MONTHLY, YEARLY: DAILY?",
    "FREQ=DAILY;INTERVALL=2": "'INTERVALL=2' is no part of a rule, such as FREQ=MONTHLY;BYDAY=1MO: INTERVAL?",
    "BYDAY=MO": "FREQ must be one of MINUTELY, HOURLY, DAILY, WEEKLY, MONTHLY, YEARLY",
    "FREQ=YEARLY;BYEASTER=0": "'BYEASTER=0' is no part of a rule, such as FREQ=MONTHLY;BYDAY=1MO",
    "FREQ=YEARLY;RSCALE=CHINESE": "'RSCALE=CHINESE' is no part of a rule, such as FREQ=MONTHLY;BYDAY=1MO",
    "FREQ=DAILY;FREQ=DAILY": "must have FREQ once",
    "FREQ=DAILY;INTERVAL=0": "INTERVAL must be a number from 1 to 100,000",
    "FREQ=DAILY;COUNT=10001": "COUNT must be a number from 1 to 10,000",
    "FREQ=DAILY;COUNT=3;UNTIL=20270101": "must have COUNT or UNTIL, not both",
    "FREQ=DAILY;UNTIL=tomorrow": "UNTIL must be a date or a time such as 20261224T090000Z",
    "FREQ=DAILY;UNTIL=20270230": "UNTIL: 20270230 must be a day and a time that exist",
    "FREQ=MONTHLY;BYMONTHDAY=0": "BYMONTHDAY must not hold 0",
    "FREQ=MONTHLY;BYMONTHDAY=32": "BYMONTHDAY must be a number from -31 to 31",
    "FREQ=DAILY;BYHOUR=24": "BYHOUR must be a number from 0 to 23",
    "FREQ=DAILY;BYHOUR=": "BYHOUR must be a number from 0 to 23",
    "FREQ=WEEKLY;BYDAY=XX": "BYDAY: 'XX' must be a weekday such as MO, or one of its kind such as 1MO or -1FR",
    "FREQ=MONTHLY;BYDAY=0MO": "BYDAY: '0MO' must be a weekday such as MO, or one of its kind such as 1MO or -1FR",
    "FREQ=WEEKLY;BYDAY=1MO": "BYDAY with a number needs FREQ=MONTHLY or YEARLY, without BYWEEKNO",
    "FREQ=YEARLY;BYWEEKNO=2;BYDAY=1MO": "BYDAY with a number needs FREQ=MONTHLY or YEARLY, without BYWEEKNO",
    "FREQ=WEEKLY;BYMONTHDAY=3": "BYMONTHDAY does not go with FREQ=WEEKLY",
    "FREQ=MONTHLY;BYYEARDAY=3": "BYYEARDAY does not go with FREQ=MONTHLY",
    "FREQ=MONTHLY;BYWEEKNO=3": "BYWEEKNO does not go with FREQ=MONTHLY",
    "FREQ=MONTHLY;BYSETPOS=1": "BYSETPOS needs another list, such as BYDAY",
    "FREQ=DAILY;WKST=1": "WKST must be one of MO, TU, WE, TH, FR, SA, SU",
    "DTSTART:20260101T000000\nRRULE:FREQ=DAILY": "must hold no DTSTART: write the start in starts_at",
    "FREQ=DAILY;EXDATE=20260101": "must hold no EXDATE: write times to leave out in exdates",
}


@pytest.mark.parametrize("text", WRONG)
def test_a_wrong_rule_is_an_error_that_says_what_to_write(text: str) -> None:
    assert problems(rule(RRule(text))) == {"repeat.rrule": WRONG[text]}


NEVER = [
    "FREQ=YEARLY;BYMONTH=2;BYMONTHDAY=30",
    "FREQ=MONTHLY;BYMONTH=2;BYMONTHDAY=30",
    "FREQ=DAILY;BYMONTH=2;BYMONTHDAY=30",
    "FREQ=HOURLY;BYMONTH=2;BYMONTHDAY=30",
    "FREQ=MINUTELY;BYMONTH=2;BYMONTHDAY=30",
    "FREQ=MINUTELY;BYYEARDAY=366;BYMONTH=1",
    "FREQ=MINUTELY;INTERVAL=2;BYMINUTE=1",
    "FREQ=HOURLY;INTERVAL=24;BYHOUR=5",
    "FREQ=MINUTELY;INTERVAL=10080;BYDAY=MO",
    "FREQ=MINUTELY;INTERVAL=7;BYDAY=MO;BYHOUR=3;BYMINUTE=5,6;BYSETPOS=2",
    "FREQ=MINUTELY;INTERVAL=2880;BYDAY=MO,TU,WE;BYYEARDAY=2;BYMONTHDAY=3",
    "FREQ=DAILY;INTERVAL=7;BYDAY=MO",
    "FREQ=DAILY;INTERVAL=28;BYDAY=SU,MO,TU,WE,FR,SA",
    "FREQ=WEEKLY;BYMONTH=2;BYSETPOS=366",
    "FREQ=WEEKLY;INTERVAL=97;BYMINUTE=55;BYSETPOS=2",
    "FREQ=WEEKLY;BYDAY=MO,TU,WE,TH,FR,SA,SU;BYMONTH=1,2,3,4,5,6,7,8,9,10,11;BYSETPOS=8",
    "FREQ=MONTHLY;BYDAY=MO;BYSETPOS=6,-6",
    "FREQ=YEARLY;BYDAY=MO;BYSETPOS=54,-54",
    "FREQ=YEARLY;BYWEEKNO=10;BYMONTH=12",
    "FREQ=YEARLY;BYWEEKNO=53;BYMONTH=6;BYDAY=MO",
    "FREQ=YEARLY;BYDAY=53MO;BYMONTHDAY=1",
    "FREQ=MONTHLY;BYDAY=6MO",
    "FREQ=DAILY;BYMONTH=2;BYMONTHDAY=30;COUNT=10000",
    "FREQ=DAILY;UNTIL=20251231",
    "FREQ=DAILY;UNTIL=20251231T235959Z",
]


MOST = 600_000
"""Calls within a quarter of a second of a processor of 2026."""


@pytest.mark.parametrize("text", NEVER)
def test_a_rule_that_never_fires_is_an_error_soon(text: str) -> None:
    assert within(MOST, lambda: problems(rule(text, gap="skip"))) == {
        "repeat.rrule": "never fires: change it so that a day and a time fit it after starts_at"
    }


BYHOUR, BYMINUTE, BYSECOND = (
    f"{name}={','.join(map(str, range(size)))}" for name, size in (("BYHOUR", 24), ("BYMINUTE", 60), ("BYSECOND", 60))
)
# Rule, zone, start.
COSTLY = [
    (f"FREQ=YEARLY;{BYHOUR};{BYMINUTE};{BYSECOND};BYSETPOS=-366,366", "UTC", "2026-01-01T00:00:00Z"),
    (f"FREQ=MINUTELY;{BYSECOND}", "Pacific/Apia", "2011-12-30T09:59:30Z"),  # half a minute before a day left out
    (f"FREQ=YEARLY;BYMONTH=3;BYDAY=-1SU;BYHOUR=2;{BYMINUTE};{BYSECOND}", "Europe/Vienna", "2026-01-01T00:00:00Z"),
    (f"FREQ=MINUTELY;{BYSECOND}", "Europe/Vienna", "2026-10-25T00:59:30Z"),
    ("FREQ=YEARLY;BYMONTH=2;BYMONTHDAY=29;BYDAY=SU;COUNT=10000", "UTC", "1970-01-01T00:00:00Z"),
    ("FREQ=MONTHLY;BYMONTH=2;BYMONTHDAY=29;BYDAY=SU", "UTC", "2026-01-01T00:00:00Z"),
    ("FREQ=YEARLY;BYYEARDAY=366;BYDAY=53SU,-53MO", "UTC", "2026-01-01T00:00:00Z"),
    ("FREQ=YEARLY;BYDAY=MO,TU,WE,TH,FR,SA,SU;BYSETPOS=366", "UTC", "2026-01-01T00:00:00Z"),
    ("FREQ=YEARLY;BYWEEKNO=53;BYDAY=SU", "UTC", "2026-01-01T00:00:00Z"),
    ("FREQ=WEEKLY;INTERVAL=52;BYMONTH=2;BYDAY=SU", "UTC", "2026-01-01T00:00:00Z"),
    ("FREQ=WEEKLY;COUNT=10000", "UTC", "1970-01-01T00:00:00Z"),
    ("FREQ=DAILY;INTERVAL=9973", "UTC", "2026-01-01T00:00:00Z"),
    ("FREQ=HOURLY;INTERVAL=9973;BYHOUR=3", "UTC", "2026-01-01T00:00:00Z"),
    ("FREQ=MINUTELY;INTERVAL=1441;BYHOUR=3;BYMINUTE=30", "UTC", "2026-01-01T00:00:00Z"),
    ("FREQ=MINUTELY;INTERVAL=99991;BYYEARDAY=366", "UTC", "2026-01-01T00:00:00Z"),
    ("FREQ=MINUTELY;COUNT=10000", "UTC", "1970-01-01T00:00:00Z"),
    ("FREQ=WEEKLY;COUNT=10000", "Europe/Vienna", "1970-01-04T01:30:00Z"),  # a Sunday, 02:30
]


@pytest.mark.parametrize(("gap", "fold"), [("shift", "first"), ("skip", "both")])
@pytest.mark.parametrize(("text", "zone", "start"), COSTLY)
def test_a_thousand_times_of_a_costly_rule_take_few_steps(
    text: str, zone: str, start: str, gap: str, fold: str
) -> None:
    asked = rule(text, zone, start, gap=gap, fold=fold)
    within(MOST, lambda: (problems(asked), list(islice(CALENDAR.times(asked, asked.starts_at - 1), 1_000))))
    for after in ("2026-11-26T00:00:00Z", "2400-01-01T00:00:00Z", "9990-01-01T00:00:00Z"):
        within(MOST, lambda after=after: next(CALENDAR.times(asked, parse_instant(after)), None))


@pytest.mark.slow
def test_a_count_of_times_in_gaps_alone_is_counted_in_few_steps() -> None:
    text = f"FREQ=YEARLY;BYMONTH=3;BYDAY=-1SU;BYHOUR=2;{BYMINUTE};COUNT=10000"
    asked = rule(text, "Europe/Vienna", start="1970-01-01T00:00:00Z")
    # One time a year is too few for the count: all years are looked at, in 0.14 seconds of a processor of 2026.
    assert within(700_000, lambda: local_times(asked, "9990-01-01T00:00:00Z", 1)) == ["9990-03-25T03:00:00+02:00"]


def test_a_look_long_after_the_start_costs_no_walk_whether_the_rule_has_a_count_or_not() -> None:
    for text in ("FREQ=MINUTELY", "FREQ=DAILY;COUNT=10000"):
        asked = rule(text, "Europe/Vienna", start="2001-01-01T08:01:00Z")
        [found] = within(2_000, lambda asked=asked: local_times(asked, "2026-11-26T08:00:30Z", 1))
        assert found == "2026-11-26T09:01:00+01:00"


@pytest.mark.parametrize(
    ("text", "last"),
    [
        ("FREQ=MINUTELY;COUNT=10000", "2001-01-08T06:39:00+00:00"),
        ("FREQ=DAILY;COUNT=10000", "2028-05-18T08:00:00+00:00"),
        ("FREQ=WEEKLY;BYDAY=MO,TU;BYSETPOS=-1;COUNT=10000", "2192-08-21T08:00:00+00:00"),
        ("FREQ=YEARLY;COUNT=500", "2500-01-01T08:00:00+00:00"),
    ],
)
def test_a_count_is_counted_once_and_ends_the_rule(text: str, last: str) -> None:
    asked = rule(text, start="2001-01-01T08:00:00Z")
    before = parse_instant(last) - 1
    assert [CALENDAR.local(at, "UTC") for at in CALENDAR.times(asked, before)] == [last]
    assert within(300, lambda: next(CALENDAR.times(asked, before))) == before + 1


def numbers(low: int, high: int, *, signed: bool = False) -> st.SearchStrategy[str]:
    some = st.integers(low, high)
    either = st.one_of(some, some.map(lambda number: -number)) if signed else some
    return st.lists(either, min_size=1, max_size=3, unique=True).map(lambda found: ",".join(map(str, found)))


WEEKDAY = st.sampled_from(["MO", "TU", "WE", "TH", "FR", "SA", "SU"])
WEEKDAYS = st.lists(WEEKDAY, min_size=1, max_size=3, unique=True).map(",".join)
PLACED = st.tuples(st.sampled_from(["1", "2", "-1", "-2", "4"]), WEEKDAY).map("".join)
LISTS = {
    "YEARLY": ["BYMONTH", "BYMONTHDAY", "BYYEARDAY", "BYWEEKNO", "BYDAY", "BYHOUR", "BYMINUTE"],
    "MONTHLY": ["BYMONTH", "BYMONTHDAY", "PLACED", "BYHOUR", "BYMINUTE"],
    "WEEKLY": ["BYMONTH", "BYDAY", "BYHOUR", "BYMINUTE", "BYSECOND"],
    "DAILY": ["BYMONTH", "BYMONTHDAY", "BYDAY", "BYHOUR", "BYMINUTE"],
    "HOURLY": ["BYMONTH", "BYDAY", "BYHOUR", "BYMINUTE", "BYSECOND"],
    "MINUTELY": ["BYDAY", "BYHOUR", "BYMINUTE", "BYSECOND"],
}
VALUES = {
    "BYMONTH": numbers(1, 12),
    "BYMONTHDAY": numbers(1, 28, signed=True),
    "BYYEARDAY": numbers(1, 365, signed=True),
    "BYWEEKNO": numbers(2, 51),
    "BYDAY": WEEKDAYS,
    "PLACED": st.lists(PLACED, min_size=1, max_size=2, unique=True).map(",".join),
    "BYHOUR": numbers(0, 23),
    "BYMINUTE": numbers(0, 59),
    "BYSECOND": numbers(0, 59),
}


@st.composite
def rules(draw: st.DrawFn) -> str:
    """Rules that both read alike, but for the first week.

    dateutil takes all seven weekdays of a numbered week, and of `MO,1MO` what is both.
    """
    freq = draw(st.sampled_from(sorted(LISTS)))
    names = draw(st.lists(st.sampled_from(LISTS[freq]), max_size=3, unique=True))
    if "BYWEEKNO" in names:
        names = [*(one for one in names if one not in {"BYMONTH", "BYMONTHDAY", "BYYEARDAY", "BYDAY"}), "BYDAY"]
    parts = [f"FREQ={freq}", f"INTERVAL={draw(st.integers(1, 5))}", f"WKST={draw(WEEKDAY)}"]
    parts += [f"{'BYDAY' if name == 'PLACED' else name}={draw(VALUES[name])}" for name in names]
    if names and draw(st.booleans()):
        parts.append(f"BYSETPOS={draw(numbers(1, 3, signed=True))}")
    return ";".join(parts)


STARTS = st.datetimes(datetime(2020, 1, 1), datetime(2030, 1, 1)).map(lambda one: one.replace(microsecond=0))
EPOCH = datetime(1970, 1, 1)


def wall(shown: datetime) -> int:
    return (shown - EPOCH) // timedelta(seconds=1)


def up_to(last: int, times: Iterable[int]) -> Iterator[int]:
    """Times until `last`; none is looked for behind it."""
    for at in times:
        if at <= last:
            yield at
        if at >= last:
            return


# Not made smaller: dateutil looks for what a smaller rule lacks to the year 9999.
@pytest.mark.slow
@settings(max_examples=60, deadline=None, phases=(Phase.explicit, Phase.reuse, Phase.generate))
@given(rules(), STARTS, st.integers(0, 400))
@example(
    "FREQ=WEEKLY;INTERVAL=1;WKST=SA;BYSECOND=32,14,34;BYDAY=SA,FR;BYMINUTE=45,35;BYSETPOS=-2,3",
    datetime(2023, 1, 2, 18, 22, 22),
    0,
)
def test_a_rule_has_the_times_that_dateutil_gives(text: str, start: datetime, later: int) -> None:
    end = start + timedelta(days=2_000)
    found = []
    for at in rrule_times(text, wall(start)).walls(wall(start)):
        if at > wall(end) or len(found) == 60:
            break
        found.append(at)
    if not found:
        return  # dateutil would look for the first one to the year 9999
    # Not as many as were found: dateutil counts the places of a first week from the start, and may have more of them.
    expected = list(up_to(found[-1], map(wall, rrulestr(text, dtstart=start))))
    begin = wall(start + timedelta(days=7)) if "WEEKLY" in text else wall(start)
    assert [at for at in found if at >= begin] == [at for at in expected if at >= begin]
    since = found[min(later, len(found) - 1)]
    rest = [at for at in found if at >= since]
    assert list(islice(rrule_times(text, wall(start)).walls(since), len(rest))) == rest
