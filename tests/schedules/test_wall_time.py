"""Times where a clock is changed: what is left out, what comes twice, and what a zone is."""

import zoneinfo
from itertools import islice

import pytest

from duecourse.base.times import format_instant, parse_instant
from duecourse.errors import InvalidInput
from duecourse.ledger.schedule import Every, Fold, Gap
from duecourse.schedules import wall_time
from tests.support.calendars import CALENDAR, local_times, problems, rule

# Zone, cron, a time before the change, the times with gap=shift, and with gap=skip.
GAPS = [
    (
        "Europe/Vienna",
        "30 2 * * *",
        "2026-03-28T12:00:00Z",
        ["2026-03-29T03:00:00+02:00", "2026-03-30T02:30:00+02:00"],
        ["2026-03-30T02:30:00+02:00", "2026-03-31T02:30:00+02:00"],
    ),
    (
        "America/New_York",
        "0,30 2 * * *",
        "2026-03-08T05:00:00Z",
        ["2026-03-08T03:00:00-04:00", "2026-03-09T02:00:00-04:00"],
        ["2026-03-09T02:00:00-04:00", "2026-03-09T02:30:00-04:00"],
    ),
    (
        "Australia/Lord_Howe",
        "15 2 * * *",
        "2026-10-03T12:00:00Z",
        ["2026-10-04T02:30:00+11:00", "2026-10-05T02:15:00+11:00"],
        ["2026-10-05T02:15:00+11:00", "2026-10-06T02:15:00+11:00"],
    ),
    (
        "Antarctica/Troll",
        "0 1,2 * * *",
        "2026-03-28T12:00:00Z",
        ["2026-03-29T03:00:00+02:00", "2026-03-30T01:00:00+02:00"],
        ["2026-03-30T01:00:00+02:00", "2026-03-30T02:00:00+02:00"],
    ),
    (
        "Pacific/Chatham",
        "0 3 * * *",
        "2026-09-26T12:00:00Z",
        ["2026-09-27T03:45:00+13:45", "2026-09-28T03:00:00+13:45"],
        ["2026-09-28T03:00:00+13:45", "2026-09-29T03:00:00+13:45"],
    ),
    (
        "America/Santiago",
        "0 0 * * *",
        "2026-09-05T12:00:00Z",
        ["2026-09-06T01:00:00-03:00", "2026-09-07T00:00:00-03:00"],
        ["2026-09-07T00:00:00-03:00", "2026-09-08T00:00:00-03:00"],
    ),
    (
        "America/Havana",
        "@daily",
        "2026-03-07T12:00:00Z",
        ["2026-03-08T01:00:00-04:00", "2026-03-09T00:00:00-04:00"],
        ["2026-03-09T00:00:00-04:00", "2026-03-10T00:00:00-04:00"],
    ),
    (
        "Asia/Beirut",
        "@midnight",
        "2026-03-28T12:00:00Z",
        ["2026-03-29T01:00:00+03:00", "2026-03-30T00:00:00+03:00"],
        ["2026-03-30T00:00:00+03:00", "2026-03-31T00:00:00+03:00"],
    ),
    (
        "Africa/Casablanca",
        "30 2 * * *",
        "2026-03-21T12:00:00Z",
        ["2026-03-22T03:00:00+01:00", "2026-03-23T02:30:00+01:00"],
        ["2026-03-23T02:30:00+01:00", "2026-03-24T02:30:00+01:00"],
    ),
]


@pytest.mark.parametrize(("zone", "cron", "after", "shifted", "skipped"), GAPS, ids=lambda value: str(value)[:30])
def test_peers_9_a_time_that_a_clock_leaves_out_is_moved_behind_the_gap_or_skipped(
    zone: str, cron: str, after: str, shifted: list[str], skipped: list[str]
) -> None:
    assert local_times(rule(cron, zone, gap="shift"), after, 2) == shifted
    assert local_times(rule(cron, zone, gap="skip"), after, 2) == skipped


# Zone, cron, a time before the change, both passes of the repeated time, and the day after.
FOLDS = [
    ("Europe/Vienna", "30 2 * * *", "2026-10-24T12:00:00Z", "2026-10-25T02:30:00", "+02:00", "+01:00"),
    ("America/New_York", "30 1 * * *", "2026-10-31T12:00:00Z", "2026-11-01T01:30:00", "-04:00", "-05:00"),
    ("Australia/Lord_Howe", "45 1 * * *", "2026-04-04T00:00:00Z", "2026-04-05T01:45:00", "+11:00", "+10:30"),
    ("Antarctica/Troll", "30 1 * * *", "2026-10-24T12:00:00Z", "2026-10-25T01:30:00", "+02:00", "+00:00"),
    ("Pacific/Chatham", "0 3 * * *", "2026-04-03T18:00:00Z", "2026-04-05T03:00:00", "+13:45", "+12:45"),
    ("America/Santiago", "30 23 * * *", "2026-04-04T12:00:00Z", "2026-04-04T23:30:00", "-03:00", "-04:00"),
    ("America/Havana", "15 0 * * *", "2028-11-04T12:00:00Z", "2028-11-05T00:15:00", "-04:00", "-05:00"),
    ("Asia/Beirut", "30 23 * * *", "2026-10-24T12:00:00Z", "2026-10-24T23:30:00", "+03:00", "+02:00"),
    ("Africa/Casablanca", "15 2 * * *", "2026-02-14T12:00:00Z", "2026-02-15T02:15:00", "+01:00", "+00:00"),
]


@pytest.mark.parametrize(
    ("zone", "cron", "after", "shown", "earlier", "later"), FOLDS, ids=lambda value: str(value)[:20]
)
def test_peers_9_a_time_that_comes_twice_fires_in_the_first_pass_the_second_or_both(
    zone: str, cron: str, after: str, shown: str, earlier: str, later: str
) -> None:
    first = local_times(rule(cron, zone, fold="first"), after, 2)
    second = local_times(rule(cron, zone, fold="second"), after, 2)
    assert (first[0], second[0]) == (f"{shown}{earlier}", f"{shown}{later}")
    assert first[1] == second[1] > shown
    assert local_times(rule(cron, zone, fold="both"), after, 3) == [first[0], second[0], first[1]]


# Zone, cron or recurrence rule, the beginning of a span, its length in hours, and the interval in minutes.
INTERVALS = [
    ("America/Los_Angeles", "0 * * * *", "2026-11-01T06:00:00Z", 8, 60),
    ("America/Los_Angeles", "@hourly", "2026-03-08T06:00:00Z", 8, 60),
    ("Europe/Vienna", "*/15 * * * *", "2026-10-24T22:00:00Z", 8, 15),
    ("Europe/Vienna", "*/15 * * * *", "2026-03-28T22:00:00Z", 8, 15),
    ("Europe/Vienna", "30 * * * *", "2026-03-28T22:30:00Z", 8, 60),
    ("Europe/Vienna", "0,30 ? * * *", "2026-10-24T22:00:00Z", 8, 30),
    ("Europe/Vienna", "0-59/20 0-23 * * *", "2026-10-24T22:00:00Z", 8, 20),
    ("Europe/Vienna", "0 0-23/1 * * *", "2026-10-24T22:00:00Z", 8, 60),
    ("Australia/Lord_Howe", "*/30 * * * *", "2026-04-04T12:00:00Z", 8, 30),
    ("Pacific/Apia", "0 */6 * * *", "2011-12-30T04:00:00Z", 24, 360),
    ("Europe/Vienna", "FREQ=HOURLY", "2026-10-24T22:00:00Z", 8, 60),
    ("Europe/Vienna", "FREQ=HOURLY", "2026-03-28T22:00:00Z", 8, 60),
    ("Europe/Vienna", "rrule:freq=minutely;interval=20", "2026-10-24T22:00:00Z", 8, 20),
]


@pytest.mark.parametrize(("zone", "text", "since", "hours", "minutes"), INTERVALS, ids=lambda value: str(value)[:30])
def test_an_interval_goes_on_through_a_change_of_the_clocks(
    zone: str, text: str, since: str, hours: int, minutes: int
) -> None:
    asked = rule(text, zone, start=since, gap="auto", fold="auto")
    count = hours * 60 // minutes
    times = islice(CALENDAR.times(asked, asked.starts_at - 1), count)
    assert list(times) == [asked.starts_at + n * minutes * 60_000 for n in range(count)]


# Cron or recurrence rule, True if it is an interval.
KINDS = [
    ("0 * * * *", True),
    ("0-59 * * * *", True),
    ("0-59/15 2 * * *", True),
    ("*/15 2 * * *", True),
    ("* 2 * * *", True),
    ("30,* 2 * * *", True),
    ("? 2 * * *", True),
    ("0 */6 * * *", True),
    ("5/20 9-17 * * *", True),
    ("@HOURLY", True),
    ("0 9-17 * * *", False),
    ("0,15,30,45 9-17 * * *", False),
    ("30 2 * * *", False),
    ("30 2 */2 * *", False),
    ("0 0 1 */3 MON", False),
    ("@daily", False),
    ("@weekly", False),
    ("FREQ=HOURLY", True),
    ("INTERVAL=5;FREQ=MINUTELY", True),
    ("FREQ=DAILY;BYHOUR=0,1,2,3;BYMINUTE=0", False),
    ("FREQ=WEEKLY", False),
]


@pytest.mark.parametrize(("text", "is_interval"), KINDS)
def test_auto_means_elapsed_time_for_an_interval_and_no_other_rule(text: str, *, is_interval: bool) -> None:
    asked = rule(text, gap="auto", fold="auto")
    assert (asked.gap_used, asked.fold_used) == ((Gap.SKIP, Fold.BOTH) if is_interval else (Gap.SHIFT, Fold.FIRST))


def test_elapsed_time_is_an_interval_whatever_the_clocks_do() -> None:
    asked = rule(Every(60_000), gap="auto", fold="auto")
    assert (asked.gap_used, asked.fold_used) == (Gap.SKIP, Fold.BOTH)


@pytest.mark.parametrize(("gap", "fold"), [("shift", "auto"), ("auto", "first"), ("auto", "second"), ("skip", "first")])
def test_a_named_gap_or_fold_wins_over_auto_each_by_itself(gap: str, fold: str) -> None:
    asked = rule("*/15 * * * *", gap=gap, fold=fold)
    assert asked.gap_used == ("skip" if gap == "auto" else gap)
    assert asked.fold_used == ("both" if fold == "auto" else fold)


def test_a_time_of_day_keeps_its_defaults_by_auto() -> None:
    asked = rule("30 2 * * *", "Europe/Vienna", gap="auto", fold="auto")
    assert local_times(asked, "2027-03-27T12:00:00Z", 1) == ["2027-03-28T03:00:00+02:00"]
    assert local_times(asked, "2027-10-30T12:00:00Z", 2) == ["2027-10-31T02:30:00+02:00", "2027-11-01T02:30:00+01:00"]


def test_both_passes_of_many_times_come_in_the_order_of_time() -> None:
    asked = rule("*/30 * * * *", "Europe/Vienna", fold="both")
    assert local_times(asked, "2026-10-24T23:30:00Z", 6) == [
        "2026-10-25T02:00:00+02:00",
        "2026-10-25T02:30:00+02:00",
        "2026-10-25T02:00:00+01:00",
        "2026-10-25T02:30:00+01:00",
        "2026-10-25T03:00:00+01:00",
        "2026-10-25T03:30:00+01:00",
    ]


@pytest.mark.parametrize("after", ["2026-10-25T00:00:00Z", "2026-10-25T00:30:00Z", "2026-10-25T00:59:59.999Z"])
def test_a_second_pass_is_found_from_within_the_first(after: str) -> None:
    asked = rule("0 2 * * *", "Europe/Vienna", fold="both")
    assert local_times(asked, after, 1) == ["2026-10-25T02:00:00+01:00"]


def test_several_times_that_are_moved_behind_one_gap_are_one() -> None:
    asked = rule("*/10 2,3 * * *", "Europe/Vienna")
    assert local_times(asked, "2026-03-28T12:00:00Z", 3) == [
        "2026-03-29T03:00:00+02:00",
        "2026-03-29T03:10:00+02:00",
        "2026-03-29T03:20:00+02:00",
    ]


def test_a_moved_time_is_found_from_the_last_moment_before_the_gap_and_not_from_its_own() -> None:
    asked = rule("30 2 * * *", "Europe/Vienna")
    assert local_times(asked, "2026-03-29T00:59:59.999Z", 1) == ["2026-03-29T03:00:00+02:00"]
    assert local_times(asked, "2026-03-29T01:00:00Z", 1) == ["2026-03-30T02:30:00+02:00"]


def test_a_schedule_that_starts_at_the_end_of_a_gap_has_the_moved_time() -> None:
    asked = rule("30 2 * * *", "Europe/Vienna", start="2026-03-29T01:00:00Z")
    assert local_times(asked, count=1) == ["2026-03-29T03:00:00+02:00"]


def test_a_day_that_a_zone_left_out_is_one_moved_time() -> None:
    asked = rule("0 */6 * * *", "Pacific/Apia", start="2011-12-29T00:00:00Z")
    assert local_times(asked, "2011-12-30T05:00:00Z", 3) == [
        "2011-12-31T00:00:00+14:00",
        "2011-12-31T06:00:00+14:00",
        "2011-12-31T12:00:00+14:00",
    ]
    assert local_times(rule("0 12 30 12 *", "Pacific/Apia", start="2011-12-01T00:00:00Z", gap="skip"), count=1) == [
        "2012-12-30T12:00:00+14:00"
    ]


def test_peers_9_elapsed_time_knows_no_change_of_a_clock() -> None:
    asked = rule(Every(86_400_000), "Europe/Vienna", start="2026-03-28T08:00:00Z")
    assert local_times(asked) == ["2026-03-28T09:00:00+01:00", "2026-03-29T10:00:00+02:00", "2026-03-30T10:00:00+02:00"]


def test_peers_8_elapsed_time_is_counted_from_the_start_and_does_not_drift() -> None:
    asked = rule(Every(90_500), start="2026-01-01T00:00:00.125Z")
    late = parse_instant("2036-01-01T00:00:00Z")
    at = next(CALENDAR.times(asked, late))
    assert (at - asked.starts_at) % 90_500 == 0
    assert late < at <= late + 90_500
    assert next(CALENDAR.times(asked, at - 1)) == at
    assert next(CALENDAR.times(asked, 0)) == asked.starts_at


def test_peers_9_a_clock_long_after_the_last_known_change_goes_by_its_rule() -> None:
    assert local_times(rule("30 2 * * *", "Europe/Vienna"), "2096-03-24T12:00:00Z", 1) == ["2096-03-25T03:00:00+02:00"]


def test_zones_are_those_of_the_package_whatever_the_system_has(tmp_path: object) -> None:
    try:
        zoneinfo.reset_tzpath([str(tmp_path)])
        assert wall_time.zone("Europe/Vienna").key == "Europe/Vienna"
        assert CALENDAR.version == wall_time.version()
        assert CALENDAR.version[:2] == "20"
    finally:
        zoneinfo.reset_tzpath()


@pytest.mark.parametrize(
    "name",
    [
        "",
        "Europe",
        "Europe/Wien",
        "europe/vienna",
        "../zones",
        "/etc/localtime",
        "leapseconds",
        "zone.tab",
        "UTC ",
        "UTC\0",
        "Factory",
        "posixrules",
        "localtime",
        100 * "x",
    ],
)
def test_what_is_no_name_of_a_zone_is_an_error_of_its_field(name: str) -> None:
    [(field, problem)] = problems(rule("@daily", name)).items()
    assert (field, problem.startswith(wall_time.UNKNOWN)) == ("time_zone", True)
    with pytest.raises(InvalidInput):
        CALENDAR.local(0, name)


@pytest.mark.parametrize(
    ("name", "near"),
    [
        ("Europe/Viena", "Europe/Vienna"),
        ("europe/vienna", "Europe/Vienna"),
        ("Berlin", "Europe/Berlin"),
        ("New York", "America/New_York"),
        ("utc", "UTC"),
        ("Mars/Base", ""),
    ],
)
def test_an_unknown_zone_is_an_error_that_suggests_the_nearest_name(name: str, near: str) -> None:
    hint = f": {near}?" if near else ", such as Europe/Vienna or UTC"
    assert problems(rule("@daily", name)) == {"time_zone": wall_time.UNKNOWN + hint}


def test_an_instant_is_shown_as_the_zone_shows_it() -> None:
    at = parse_instant("2026-11-26T08:00:00Z")
    assert CALENDAR.local(at, "Europe/Vienna") == "2026-11-26T09:00:00+01:00"
    assert CALENDAR.local(at + 250, "Asia/Kathmandu") == "2026-11-26T13:45:00.250+05:45"
    assert CALENDAR.local(at, "UTC") == "2026-11-26T08:00:00+00:00"


def test_the_last_years_have_no_time_that_a_clock_could_not_show() -> None:
    asked = rule("@hourly", "Pacific/Kiritimati", start="9999-12-29T00:00:00Z")
    found = list(CALENDAR.times(asked, asked.starts_at))
    assert format_instant(found[-1]) == "9999-12-29T23:00:00.000Z"
    assert list(CALENDAR.times(asked, parse_instant("9999-12-31T00:00:00Z"))) == []
