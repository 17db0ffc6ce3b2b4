"""Instants and durations, in and out."""

from datetime import UTC, datetime, timedelta, timezone

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from duecourse.base.times import (
    MAX_DURATION_MS,
    MAX_INSTANT,
    format_duration,
    format_instant,
    parse_duration,
    parse_instant,
    parse_rate,
    to_ms,
)

NO_DURATION = "must be a duration"
DURATIONS = st.integers(0, MAX_DURATION_MS)
INSTANTS = st.integers(0, MAX_INSTANT)


@pytest.mark.parametrize(
    ("value", "ms"),
    [
        (5, 5_000),
        (0.25, 250),
        ("5", 5_000),
        ("1.5", 1_500),
        ("PT5M", 300_000),
        ("PT1H30M", 5_400_000),
        ("P1DT2H", 93_600_000),
        ("P2W", 1_209_600_000),
        ("PT0.001S", 1),
        ("PT0S", 0),
        ("PT1,5S", 1_500),
        ("P0,5D", 43_200_000),
        ("500ms", 500),
        ("90s", 90_000),
        ("5m", 300_000),
        ("24h", 86_400_000),
        ("30d", 2_592_000_000),
        ("2w", 1_209_600_000),
        ("1.5h", 5_400_000),
        ("1h30m", 5_400_000),
        ("1w2d3h4m5s6ms", 788_645_006),
        ("0000000120", 120_000),
        (timedelta(milliseconds=7), 7),
    ],
)
def test_a_duration_is_seconds_or_units_or_iso_8601_or_a_timedelta(value: object, ms: int) -> None:
    assert parse_duration(value) == ms


@pytest.mark.parametrize(
    "value",
    ["", "P", "PT", "PT5", "P1DT", "-PT5M", "PT5M\n", "soon", "1_0", "\u0663", "PT\u0663S", True, None, [], {},
     "1e3", "+5", ".5", "5.", "-0", "-1", "nan", "inf", "1,5", "1,5h", "PT,5S", "PT1.S", "m", "30m1h", "5m5m",
     "1ms2s", "P1H", "PT1D", "P1D2W", "PT1S5", "1h30", "5x", "0x5"],
)  # fmt: skip
def test_anything_else_is_no_duration(value: object) -> None:
    with pytest.raises(ValueError, match=NO_DURATION):
        parse_duration(value)


@pytest.mark.parametrize(
    ("value", "advised"),
    [
        ("P1M", "P30D"),
        ("P2M", "P60D"),
        ("P1Y", "P365D"),
        ("P1Y2M", "P425D"),
        ("P1M1DT2H", "P31DT2H"),
        ("1mo", "30d"),
        ("2 months", "60d"),
        ("1y", "365d"),
    ],
)
def test_a_month_or_a_year_is_rejected_with_its_days(value: str, advised: str) -> None:
    with pytest.raises(ValueError, match=rf"no fixed length: write {advised}$"):
        parse_duration(value)
    assert parse_duration(advised) % (24 * 3_600_000) in {0, 2 * 3_600_000}


@pytest.mark.parametrize(
    ("value", "advised"),
    [
        ("5M", ""),  # in ISO 8601 it may be a month
        ("pt5m", "PT5M"),
        (" PT5M", "PT5M"),
        ("PT5M\n", "PT5M"),
        (" 5 ", "5"),
        ("5 min", "5m"),
        ("1 hour 30 minutes", "1h30m"),
        ("10 Sekunden", ""),
        ("2 weeks", "2w"),
        ("90 secs", "90s"),
        ("500 milliseconds", "500ms"),
        (".5", "0.5"),
        ("5.", "5"),
        ("+5", "5"),
        ("1,5h", "1.5h"),
        ("30m1h", ""),
    ],
)
def test_a_near_duration_is_rejected_with_the_right_form(value: str, advised: str) -> None:
    with pytest.raises(ValueError, match=NO_DURATION) as rejected:
        parse_duration(value)
    assert str(rejected.value).partition(": write ")[2] == advised
    if advised:
        parse_duration(advised)


@pytest.mark.parametrize("value", [-1, 1e300, 10**400, "9" * 400, f"P{'9' * 400}D", "P36601D", "36601d"])
def test_a_duration_beyond_a_century_or_below_nothing_is_rejected(value: object) -> None:
    with pytest.raises(ValueError, match="between 0 and 100 years"):
        parse_duration(value)


@pytest.mark.parametrize(
    ("text", "rate"),
    [
        ("10/s", (10, 1_000)),
        ("600/m", (600, 60_000)),
        ("5/h", (5, 3_600_000)),
        ("5/d", (5, 86_400_000)),
        ("10/PT1S", (10, 1_000)),
        ("10/500ms", (10, 500)),
        ("10/1m30s", (10, 90_000)),
        ("10/5", (10, 5_000)),
    ],
)
def test_a_rate_is_a_count_and_a_duration_or_a_unit(text: str, rate: tuple[int, int]) -> None:
    assert parse_rate(text) == rate


@pytest.mark.parametrize(
    ("text", "advised"),
    [
        ("", ""),
        ("10", ""),
        ("/s", ""),
        ("10/", ""),
        ("-1/s", ""),
        ("1.5/s", ""),
        ("\u0663/s", ""),
        ("10/M", ""),
        ("10/sec", "10/s"),
        ("10/minute", "10/m"),
        ("10 / s", "10/s"),
        ("10 per second", "10/s"),
        ("10/S", "10/s"),
    ],
)
def test_anything_else_is_no_rate_and_a_near_one_is_named(text: str, advised: str) -> None:
    with pytest.raises(ValueError, match="must be a rate") as rejected:
        parse_rate(text)
    assert str(rejected.value).partition(": write ")[2] == advised
    if advised:
        parse_rate(advised)


@given(DURATIONS)
@example(1_234_567)
@example(1_000_000_001)
@example(86_400_000)
@example(3_599_999)
def test_a_duration_comes_back_as_it_was(ms: int) -> None:
    assert parse_duration(format_duration(ms)) == ms
    assert parse_duration(timedelta(milliseconds=ms)) == ms


@given(st.text(max_size=20) | st.floats() | st.integers() | st.booleans() | st.none())
def test_whatever_is_asked_a_duration_is_milliseconds_or_a_value_error(value: object) -> None:
    try:
        ms = parse_duration(value)
    except ValueError:
        return
    assert isinstance(ms, int)
    assert 0 <= ms <= MAX_DURATION_MS


@pytest.mark.parametrize(
    ("text", "at"),
    [
        ("1970-01-01T00:00:00Z", 0),
        ("2026-03-29T01:30:00Z", 1_774_747_800_000),
        ("2026-03-29T03:30:00+02:00", 1_774_747_800_000),
        ("2026-03-29T01:30:00.123456Z", 1_774_747_800_123),
        ("2026-03-29t01:30:00z", 1_774_747_800_000),
        ("9999-12-31T23:59:59.999Z", MAX_INSTANT),
        ("2026-03-29T01:30:00+23:59", 1_774_747_800_000 - 86_340_000),
        ("2026-03-29T01:30:00-00:00", 1_774_747_800_000),
        ("2016-12-31T23:59:60Z", 1_483_228_800_000),
        ("2016-12-31T23:59:60.25z", 1_483_228_800_250),
        ("2016-12-31T15:59:60-08:00", 1_483_228_800_000),
        ("2017-01-01T05:29:60+05:30", 1_483_228_800_000),
    ],
)
def test_an_instant_is_rfc_3339_with_an_offset(text: str, at: int) -> None:
    assert parse_instant(text) == at


@pytest.mark.parametrize(
    ("value", "problem"),
    [
        ("2026-03-29T01:30:00", "offset"),
        ("2026-03-29", "offset"),
        ("tomorrow", "RFC 3339"),
        ("", "RFC 3339"),
        ("2026-02-30T00:00:00Z", "RFC 3339"),
        ("2026-W13-7T01:30:00Z", "RFC 3339"),
        ("20260329T013000Z", "RFC 3339"),
        ("2026-03-29T01:30Z", "RFC 3339"),
        ("2026-03-29T01:30:00+01:00:30", "RFC 3339"),
        ("2026-03-29T01:30:00+01:60", "offset of 00:00 to 23:59"),
        ("2026-03-29T01:30:00+01:99", "minutes from 00 to 59"),
        ("2026-03-29T01:30:00-00:60", "offset"),
        ("2026-03-29T01:30:00+24:00", "offset"),
        ("2026-03-29T24:00:00Z", "RFC 3339"),
        ("2026-03-29T01:60:00Z", "RFC 3339"),
        ("2026-03-29T23:59:61Z", "RFC 3339"),
        ("2026-03-29T22:59:60Z", "a leap second is at 23:59:60 UTC"),
        ("2026-03-29T23:59:60+01:00", "a leap second is at 23:59:60 UTC"),
        ("2026-03-29T23:59:60", "offset"),
        ("9999-12-31T23:59:60Z", "9999"),
        (1_790_000_000, "RFC 3339"),
        (None, "RFC 3339"),
        ("1969-12-31T23:59:59Z", "1970"),
        ("9999-12-31T23:59:59-01:00", "9999"),
        ("0001-01-01T00:00:00+23:00", "1970"),
    ],
)
def test_anything_else_is_no_instant(value: object, problem: str) -> None:
    with pytest.raises(ValueError, match=problem):
        parse_instant(value)


@given(INSTANTS)
@example(0)
@example(MAX_INSTANT)
def test_an_instant_comes_back_as_it_was(at: int) -> None:
    assert parse_instant(format_instant(at)) == at


@given(INSTANTS, st.integers(-23 * 60, 23 * 60))
def test_the_offset_changes_how_an_instant_looks_and_not_when_it_is(at: int, minutes: int) -> None:
    there = datetime(1970, 1, 1, tzinfo=UTC) + timedelta(milliseconds=at)
    try:
        moment = there.astimezone(timezone(timedelta(minutes=minutes)))
    except OverflowError:
        return
    assert parse_instant(moment.isoformat()) == parse_instant(moment) == at


def test_an_instant_is_written_in_utc_with_milliseconds() -> None:
    assert format_instant(1_774_747_800_000) == "2026-03-29T01:30:00.000Z"


@pytest.mark.parametrize(
    "text",
    ["PT0S", "PT0.002S", "PT1.5S", "PT90S", "PT1M", "PT5M", "PT90M", "PT1H", "PT36H", "P1D", "P7D", "P30D", "P366D",
     "PT1H1M1S", "P1DT1M7.123S", "PT17M", "PT59M59S"],
)  # fmt: skip
def test_a_duration_is_written_in_its_shortest_usual_form(text: str) -> None:
    assert format_duration(parse_duration(text)) == text


def test_microseconds_are_rounded_down() -> None:
    assert to_ms(datetime(1970, 1, 1, 0, 0, 0, 1_999, tzinfo=UTC)) == 1
