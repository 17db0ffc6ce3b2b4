"""Instants and durations, in and out."""

from datetime import UTC, datetime, timedelta, timezone

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from duecourse.domain.times import (
    MAX_DURATION_MS,
    MAX_INSTANT,
    format_duration,
    format_instant,
    parse_duration,
    parse_instant,
    to_ms,
)

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
        (timedelta(milliseconds=7), 7),
    ],
)
def test_a_duration_is_seconds_or_iso_8601_or_a_timedelta(value: object, ms: int) -> None:
    assert parse_duration(value) == ms


@pytest.mark.parametrize(
    "value",
    ["", "P", "PT", "P1Y", "P1M", "PT5", "5M", "pt5m", "P1DT", "-PT5M", " PT5M", "PT5M\n", "soon",
     "1_0", " 5 ", "\u0663", "PT\u0663S", True, None, [], {}],
)  # fmt: skip
def test_anything_else_is_no_duration(value: object) -> None:
    with pytest.raises(ValueError, match="must be seconds or an ISO 8601 duration"):
        parse_duration(value)


@pytest.mark.parametrize("value", [-1, "-1", "nan", "inf", 1e300, 10**400, "9" * 400, f"P{'9' * 400}D", "P36601D"])
def test_a_duration_beyond_a_century_or_below_nothing_is_refused(value: object) -> None:
    with pytest.raises(ValueError, match="between 0 and 100 years"):
        parse_duration(value)


@given(DURATIONS)
@example(1_234_567)
@example(1_000_000_001)
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
    assert (format_duration(1_500), format_duration(60_000)) == ("PT1.5S", "PT60S")


def test_microseconds_are_rounded_down() -> None:
    assert to_ms(datetime(1970, 1, 1, 0, 0, 0, 1_999, tzinfo=UTC)) == 1
