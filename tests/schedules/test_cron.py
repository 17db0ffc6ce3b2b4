"""Cron expressions: each form that is taken, what is wrong with others, and facts of other libraries' own tests."""

import pytest

from duecourse.base.times import parse_instant
from tests.support.calendars import CALENDAR, days, local_times, problems, rule
from tests.support.call_count import within

FORMS = {
    "0 0 L * *": ["2026-01-31", "2026-02-28", "2026-03-31"],
    "0 0 l * *": ["2026-01-31", "2026-02-28", "2026-03-31"],
    "0 0 L-3 * *": ["2026-01-28", "2026-02-25", "2026-03-28"],
    "0 0 L-30 * *": ["2026-01-01", "2026-03-01", "2026-05-01"],
    "0 0 15W * *": ["2026-01-15", "2026-02-16", "2026-03-16"],
    "0 0 1W * *": ["2026-01-01", "2026-02-02", "2026-03-02"],
    "0 0 31W * *": ["2026-01-30", "2026-03-31", "2026-05-29"],
    "0 0 LW * *": ["2026-01-30", "2026-02-27", "2026-03-31"],
    "0 0 28W FEB *": ["2026-02-27", "2027-02-26", "2028-02-28"],
    "0 0 1,15,L * *": ["2026-01-01", "2026-01-15", "2026-01-31"],
    "0 0 * * 5L": ["2026-01-30", "2026-02-27", "2026-03-27"],
    "0 0 * * FRIL": ["2026-01-30", "2026-02-27", "2026-03-27"],
    "0 0 * * 0L": ["2026-01-25", "2026-02-22", "2026-03-29"],
    "0 0 * * 7L": ["2026-01-25", "2026-02-22", "2026-03-29"],
    "0 0 * * MON#1": ["2026-01-05", "2026-02-02", "2026-03-02"],
    "0 0 * * 1#5": ["2026-03-30", "2026-06-29", "2026-08-31"],
    "0 0 * * mon#1,mon#3": ["2026-01-05", "2026-01-19", "2026-02-02"],
    "0 0 * * 7": ["2026-01-04", "2026-01-11", "2026-01-18"],
    "0 0 * * 0": ["2026-01-04", "2026-01-11", "2026-01-18"],
    "0 0 * * 5-7": ["2026-01-02", "2026-01-03", "2026-01-04"],
    "0 0 * * SAT-SUN": ["2026-01-03", "2026-01-04", "2026-01-10"],
    "0 0 * * SUN-TUE": ["2026-01-04", "2026-01-05", "2026-01-06"],
    "0 0 * * 1/2": ["2026-01-02", "2026-01-05", "2026-01-07"],
    "0 0 ? * MON": ["2026-01-05", "2026-01-12", "2026-01-19"],
    "0 0 1 * ?": ["2026-01-01", "2026-02-01", "2026-03-01"],
    "0 0 */10 * *": ["2026-01-01", "2026-01-11", "2026-01-21"],
    "0 0 1 JAN-MAR,dec *": ["2026-01-01", "2026-02-01", "2026-03-01"],
    "0 0 29 2 *": ["2028-02-29", "2032-02-29", "2036-02-29"],
    "@weekly": ["2026-01-04", "2026-01-11", "2026-01-18"],
    "@Monthly": ["2026-01-01", "2026-02-01", "2026-03-01"],
    "@yearly": ["2026-01-01", "2027-01-01", "2028-01-01"],
    "@annually": ["2026-01-01", "2027-01-01", "2028-01-01"],
    "  @daily ": ["2026-01-01", "2026-01-02", "2026-01-03"],
    "0\t0  *  *\t*": ["2026-01-01", "2026-01-02", "2026-01-03"],
}


@pytest.mark.parametrize("text", FORMS)
def test_an_expression_names_its_days(text: str) -> None:
    assert problems(rule(text)) == {}
    assert days(rule(text)) == FORMS[text]


MINUTES = {
    "5/15 * * * *": [5, 20, 35, 50],
    "10-20/7 * * * *": [10, 17],
    "57,20/20,30/20,32-34/2,58 * * * *": [20, 30, 32, 34, 40, 50, 57, 58],
    "1-1,59/15,55-59/2 * * * *": [1, 55, 57, 59],
    "*/25 * * * *": [0, 25, 50],
    "@hourly": [0],
}


@pytest.mark.parametrize("text", MINUTES)
def test_an_expression_names_its_minutes(text: str) -> None:
    shown = local_times(rule(text), count=len(MINUTES[text]) + 1)
    assert [int(one[14:16]) for one in shown] == [*MINUTES[text], MINUTES[text][0]]


def test_either_day_field_fits_where_both_name_days() -> None:
    assert days(rule("0 0 13 * FRI"), 5) == ["2026-01-02", "2026-01-09", "2026-01-13", "2026-01-16", "2026-01-23"]


@pytest.mark.parametrize("text", ["0 0 */2 * MON", "0 0 ?/2 * MON"])
def test_both_day_fields_must_fit_where_one_begins_with_a_star(text: str) -> None:
    assert days(rule(text), 4) == ["2026-01-05", "2026-01-19", "2026-02-09", "2026-02-23"]


def test_the_first_monday_of_a_month_can_be_said_by_a_star_and_a_step() -> None:
    assert days(rule("0 0 1-7 * */7", start="2020-01-01T00:00:00Z")) == ["2020-01-05", "2020-02-02", "2020-03-01"]


WRONG = {
    "": "must have five fields such as 0 9 * * MON-FRI, and has 0",
    "* * * *": "must have five fields such as 0 9 * * MON-FRI, and has 4",
    "0 0 9 * * MON": "must have five fields such as 0 9 * * MON-FRI, and has 6; write 0 9 * * MON",
    "@reboot": "'@reboot' must be one of @hourly, @daily, @midnight, @weekly, @monthly, @yearly, @annually, "
    "or five fields such as 0 9 * * MON-FRI",
    "60 * * * *": "field 1 (minute): '60' must be 0 to 59",
    "* 24 * * *": "field 2 (hour): '24' must be 0 to 23",
    "* * 0 * *": "field 3 (day of month): '0' must be 1 to 31",
    "* * * 13 *": "field 4 (month): '13' must be 1 to 12 or JAN to DEC",
    "* * * * 8": "field 5 (day of week): '8' must be 0 to 7 or SUN to SAT",
    "* * * * SUNDAY": "field 5 (day of week): 'SUNDAY' must be 0 to 7 or SUN to SAT: write SUN",
    "* * * SEPT *": "field 4 (month): 'SEPT' must be 1 to 12 or JAN to DEC: write SEP",
    ",1 * * * *": "field 1 (minute): an empty value must be 0 to 59",
    "-1 9 * * *": "field 1 (minute): '-1' must be 0 to 59",
    "0 5-/2 * * *": "field 2 (hour): '5-/2' must be 0 to 23",
    "0 9 /2 * *": "field 3 (day of month): '/2' must be 1 to 31",
    "*/0 * * * *": "field 1 (minute): the step '0' must be 1 to 59, for each hour begins anew",
    "*/90 * * * *": "field 1 (minute): the step '90' must be 1 to 59, for each hour begins anew",
    "0 */24 * * *": "field 2 (hour): the step '24' must be 1 to 23, for each day begins anew",
    "0 22-4 * * *": "field 2 (hour): the range 22-4 must not go down; write 22-23,0-4",
    "0 0 * * FRI-MON": "field 5 (day of week): the range FRI-MON must not go down; write FRI-SAT,SUN-MON",
    "0 0 * NOV-FEB *": "field 4 (month): the range NOV-FEB must not go down; write NOV-DEC,JAN-FEB",
    "0 0 * * L": "field 5 (day of week): 'L' needs a weekday, such as FRIL for a month's last Friday",
    "0 0 * * 1#0": "field 5 (day of week): '#0' must be #1 to #5",
    "0 0 * * 1#6": "field 5 (day of week): '#6' must be #1 to #5",
    "0 0 L-31 * *": "field 3 (day of month): 'L-31' must be L-1 to L-30",
    "0 0 L-3W * *": "field 3 (day of month): 'L-3W' is not known; write L-3 for that day, or LW for the last weekday",
    "0 0 32W * *": "field 3 (day of month): '32' must be 1 to 31",
}


@pytest.mark.parametrize("text", WRONG)
def test_a_wrong_expression_is_an_error_that_names_the_field(text: str) -> None:
    assert problems(rule(text)) == {"repeat.cron": WRONG[text]}


# Further ones that other libraries reject in their tests (cronsim 2.8, Cronos 0.13), and hostile ones.
@pytest.mark.parametrize(
    "bad",
    ["-1", "61", "ABC", "2/", "/2", "2#", "#2", "1##1", "1//2", "¹", "1_0", "٣", "+1", "1-2-3", "1.5", "*-5", "*1"],
)
@pytest.mark.parametrize(
    "pattern", ["{} * * * *", "* {} * * *", "* * {} * *", "* * * {} *", "* * * * {}", "1-{} * * * *", "* * * JAN-{} *"]
)
def test_what_is_no_number_is_an_error(pattern: str, bad: str) -> None:
    assert set(problems(rule(pattern.format(bad)))) == {"repeat.cron"}


@pytest.mark.parametrize(
    "text",
    [
        *[
            "* * * * 5L-6",
            "* * * * 5L#1",
            "* * * * 5L/3",
            "* * 1-2W * *",
            "* * 1/2W * *",
            "* * 1LW * *",
            "* * W * *",
            "* * * * LW",
        ],
        *[
            "* * * L *",
            "* * * 1W *",
            "L * * * *",
            "* * * * * * *",
            "@",
            "@@daily",
            "@yearly !",
            "* * 5-1 * *",
            "0 0 H * *",
        ],
    ],
)
def test_a_form_at_a_place_that_it_does_not_belong_to_is_an_error(text: str) -> None:
    assert set(problems(rule(text))) == {"repeat.cron"}


@pytest.mark.parametrize(
    "text", ["0 0 30 2 *", "0 0 31 2,4 *", "0 0 31W FEB *", "0 0 */30 2 MON#2", "0 0 */31 * MON#4"]
)
def test_an_expression_that_never_fires_is_an_error(text: str) -> None:
    assert within(50_000, lambda: problems(rule(text))) == {
        "repeat.cron": "never fires: change it so that a day and a time fit it after starts_at"
    }


def test_an_expression_of_which_a_clock_leaves_out_each_time_is_an_error() -> None:
    asked = rule("30 2 * 3 SUNL", "Europe/Vienna", gap="skip")
    assert within(300_000, lambda: problems(asked)) == {
        "repeat.cron": "never fires: clocks of Europe/Vienna leave out each of its times; use gap shift"
    }
    assert problems(rule("30 2 * 3 SUNL", "Europe/Vienna")) == {}


def test_a_text_of_a_thousand_characters_is_read_and_a_longer_one_is_not() -> None:
    long = ",".join(["1"] * 496) + " * * * *"
    assert len(long) == 999
    assert problems(rule(long)) == {}
    assert problems(rule("1," + long)) == {"repeat.cron": "must have at most 1,000 characters"}


# Expression, a time, the next one: facts of the tests of croniter 7.0 and cronsim 2.8 (all in UTC).
FACTS = [
    ("*/1 * * * *", "2010-01-23T12:18:00Z", "2010-01-23T12:19"),
    ("*/5 * * * *", "2010-01-23T12:18:00Z", "2010-01-23T12:20"),
    ("0 */3 * * *", "2010-01-24T12:02:00Z", "2010-01-24T15:00"),
    ("0 0 */3 * *", "2010-02-24T12:02:00Z", "2010-02-25T00:00"),
    ("0 0 * * *", "2010-02-28T23:59:00Z", "2010-03-01T00:00"),
    ("* * 29 2 *", "2010-02-28T16:02:00Z", "2012-02-29T00:00"),
    ("0 0 * * sat", "2010-01-25T00:00:00Z", "2010-01-30T00:00"),
    ("0 0 1 * wed", "2010-01-25T00:00:00Z", "2010-01-27T00:00"),
    ("0 0 1 * wed", "2010-01-27T00:00:00Z", "2010-02-01T00:00"),
    ("0 0 * * sat#1", "2010-01-25T00:00:00Z", "2010-02-06T00:00"),
    ("0 0 * * wed#5", "2010-01-25T00:00:00Z", "2010-03-31T00:00"),
    ("1 1 L * *", "2020-01-01T00:00:00Z", "2020-01-31T01:01"),
    ("1 1 * * 5L", "2020-01-31T01:01:00Z", "2020-02-28T01:01"),
    ("1 1 * * 5L", "2020-11-27T01:01:00Z", "2020-12-25T01:01"),
    ("1 1 * * 0L", "2020-01-01T00:00:00Z", "2020-01-26T01:01"),
    ("1 1 * * 1#2", "2020-01-01T00:00:00Z", "2020-01-13T01:01"),
]
# The same by the tests of Cronos 0.13 and cronsim, in zones: what both policies' defaults agree on with us.
ZONE_FACTS = [
    ("America/New_York", "*/30 */2 * * *", "2016-03-13T06:59:00Z", "2016-03-13T03:00:00-04:00"),
    ("America/New_York", "1-58 */2 * * *", "2016-03-13T06:59:00Z", "2016-03-13T03:00:00-04:00"),
    ("America/New_York", "30 * * 3 SUN#2", "2016-03-13T06:59:00Z", "2016-03-13T03:00:00-04:00"),
    ("America/New_York", "0,59 * * * *", "2016-03-13T06:59:00Z", "2016-03-13T03:00:00-04:00"),
    ("Asia/Amman", "30 0 L * *", "2017-03-30T21:59:59.999Z", "2017-03-31T01:00:00+03:00"),
    ("America/Santiago", "30 23 * * *", "2017-05-14T02:59:59.999Z", "2017-05-14T23:30:00-04:00"),
    ("Australia/Lord_Howe", "30 0-23/2 * * *", "2017-09-30T15:29:00Z", "2017-10-01T02:30:00+11:00"),
    ("America/New_York", "0 2-3 * * *", "2016-11-06T04:30:00Z", "2016-11-06T02:00:00-05:00"),
    ("Europe/Riga", "*/30 * * * *", "2021-03-28T00:30:00Z", "2021-03-28T04:00:00+03:00"),
    ("Europe/Riga", "0 */2 * * *", "2021-10-30T23:00:00Z", "2021-10-31T04:00:00+02:00"),
]


@pytest.mark.parametrize(("text", "after", "expected"), FACTS)
def test_the_next_time_is_the_one_that_other_libraries_expect(text: str, after: str, expected: str) -> None:
    assert local_times(rule(text, start="2000-01-01T00:00:00Z"), after, 1) == [f"{expected}:00+00:00"]


@pytest.mark.parametrize(("zone", "text", "after", "expected"), ZONE_FACTS)
def test_peers_9_the_next_time_in_a_zone_is_the_one_that_other_libraries_expect(
    zone: str, text: str, after: str, expected: str
) -> None:
    assert local_times(rule(text, zone, start="2000-01-01T00:00:00Z"), after, 1) == [expected]


def test_no_time_comes_before_the_start_or_after_the_end() -> None:
    asked = rule("0 * * * *", start="2026-01-01T00:30:00Z", until="2026-01-01T03:00:00Z")
    assert [one[11:16] for one in local_times(asked, "2020-01-01T00:00:00Z", 9)] == ["01:00", "02:00", "03:00"]


@pytest.mark.parametrize("text", ["0 0 29 2 */7", "0 0 29W 2 *", "59 23 * * SUN#5"])
def test_times_of_a_rare_day_to_the_last_year_take_few_steps(text: str) -> None:
    within(300_000, lambda: local_times(rule(text), count=1_000))


def test_the_next_time_of_a_known_expression_takes_few_steps() -> None:
    """9 µs were measured."""
    after = parse_instant("2026-11-26T12:34:56Z")
    for zone in ("Europe/Vienna", "America/New_York"):
        asked = rule("42 9 * * MON-FRI", zone)
        expected = next(CALENDAR.times(asked, after))
        assert within(80, lambda asked=asked: next(CALENDAR.times(asked, after))) == expected
