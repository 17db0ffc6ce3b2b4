"""Advices of rejections: each one, followed to the letter, is taken and means what was meant."""

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from duecourse.api.fields import field_errors
from duecourse.api.kind_payloads import check_payload
from duecourse.base.times import parse_duration, parse_rate
from duecourse.ledger.schedule import Cron, Every
from duecourse.schedules.cron import DAY, HOUR, MINUTE, MONTH, WEEKDAY, Field, numbers
from tests.support.calendars import days, local_times, problems, rule

FIELDS = st.sampled_from([MINUTE, HOUR, DAY, MONTH, WEEKDAY])


def advice(problem: str) -> str:
    """The form that an error says to write."""
    return re.split(r": write |; write ", problem)[1]


def followed(text: str) -> str:
    """The advice on a rule, which a calendar must take."""
    [problem] = problems(rule(text)).values()
    return advice(problem)


@st.composite
def falling(draw: st.DrawFn) -> tuple[Field, int, int, int | None]:
    field = draw(FIELDS)
    high = 6 if field is WEEKDAY else field.high
    first, last = draw(st.integers(field.low, high)), draw(st.integers(field.low, high))
    step = draw(st.none() | st.integers(1, field.high))
    return field, max(first, last), min(first, last), step


@given(falling(), st.booleans())
def test_a_range_that_goes_down_is_advised_as_the_numbers_that_it_means(
    asked: tuple[Field, int, int, int | None], is_named: bool
) -> None:
    field, first, last, step = asked
    size = 7 if field is WEEKDAY else field.high - field.low + 1
    meant = {(first - field.low + more) % size + field.low for more in range(0, (last - first) % size + 1, step or 1)}

    def shown(number: int) -> str:
        return field.names[number - field.low] if is_named and field.names else str(number)

    text = f"{shown(first)}-{shown(last)}" + (f"/{step}" if step else "")
    try:
        found = numbers(field, text)
    except ValueError as error:
        found = numbers(field, advice(str(error)))
    assert {number % 7 if field is WEEKDAY else number for number in found} == meant


@pytest.mark.parametrize(
    ("written", "advised", "times"),
    [
        ("0 0 1 Apr-Mar/3 *", "JAN,APR,JUL,OCT", ["2026-01-01", "2026-04-01", "2026-07-01"]),
        ("0 0 1 11-2/2 *", "1,11", ["2026-01-01", "2026-11-01", "2027-01-01"]),
        ("0 0 25-5/10 * *", "4,25", ["2026-01-04", "2026-01-25", "2026-02-04"]),
        ("0 0 * * FRI-MON/2", "SUN,FRI", ["2026-01-02", "2026-01-04", "2026-01-09"]),
        ("0 0 1 NOV-FEB *", "NOV-DEC,JAN-FEB", ["2026-01-01", "2026-02-01", "2026-11-01"]),
        ("0 0 1 SEPTEMBER *", "SEP", ["2026-09-01", "2027-09-01", "2028-09-01"]),
    ],
)
def test_the_advice_on_a_field_stands_for_its_item(written: str, advised: str, times: list[str]) -> None:
    assert followed(written) == advised
    [item] = [word for word in written.split() if re.search(r"[A-Za-z]|-", word)]
    assert days(rule(written.replace(item, advised))) == times


@pytest.mark.parametrize(
    ("written", "advised", "first"),
    [
        ("0 0 9 * * MON-FRI", "0 9 * * MON-FRI", "2026-01-01T09:00"),  # Spring
        ("0 30 8 ? * SAT", "30 8 ? * SAT", "2026-01-03T08:30"),  # Quartz
        ("0 30 8 1 * ? *", "30 8 1 * ?", "2026-01-01T08:30"),
        ("30 8 ? * SAT *", "30 8 ? * SAT", "2026-01-03T08:30"),  # AWS
        ("15 10 L * ? *", "15 10 L * ?", "2026-01-31T10:15"),
    ],
)
def test_the_advice_on_six_fields_is_the_same_time(written: str, advised: str, first: str) -> None:
    assert followed(written) == advised
    assert local_times(rule(advised), count=1)[0].startswith(first)


@pytest.mark.parametrize("text", ["0 30 8 ? * 2", "30 8 ? * 2 *", "30 0 9 * * *", "0 0 9 1 1 ? 2027"])
def test_no_form_is_advised_where_it_would_mean_another_time(text: str) -> None:
    assert problems(rule(text))["repeat.cron"].endswith("; leave out seconds and years, and write weekdays by name")


@pytest.mark.parametrize("name", ["CRON_TZ", "TZ"])
def test_a_zone_in_an_expression_is_advised_as_a_field(name: str) -> None:
    [problem] = problems(rule(Cron(f"{name}=Europe/Vienna 0 9 * * *"))).values()
    assert advice(problem) == "0 9 * * * and the zone in time_zone"
    assert local_times(rule("0 9 * * *", "Europe/Vienna"), count=1) == ["2026-01-01T09:00:00+01:00"]


def test_a_weekday_before_the_last_is_advised_as_a_day_or_the_last_weekday() -> None:
    assert followed("0 0 L-3W * *") == "L-3 for that day, or LW for the last weekday"
    assert days(rule("0 0 L-3 * *"), 1) == ["2026-01-28"]
    assert days(rule("0 0 LW * *"), 1) == ["2026-01-30"]


@pytest.mark.parametrize(("interval", "second"), [("", "00:00:01"), (";INTERVAL=90", "00:01:30")])
def test_a_rule_of_seconds_is_advised_as_an_interval(interval: str, second: str) -> None:
    found = re.search(r'\{"every": "(.*)"\}', followed(f"FREQ=SECONDLY{interval}"))
    assert found
    assert second in local_times(rule(Every(parse_duration(found[1]))), count=2)[1]


def url_problem(url: str) -> str:
    """The problem of an address in a payload, or ""."""
    try:
        check_payload("webhook", {"url": url})
    except ValidationError as error:
        [found] = field_errors(error.errors())
        return found.problem
    return ""


@pytest.mark.parametrize("host", ["api.example.com/x", "localhost:3000/health", "10.0.0.7", "a.example?token=1"])
def test_an_address_without_its_scheme_is_advised_to_have_one(host: str) -> None:
    assert url_problem(host) == "must be an http or https URL: begin with https://"
    assert url_problem(f"https://{host}") == ""


@pytest.mark.parametrize(("mark", "escape"), [(" ", "%20"), ("\\", "%5C")])
def test_an_address_with_a_blank_or_a_backslash_is_advised_to_escape_it(mark: str, escape: str) -> None:
    assert url_problem(f"https://a.example/b{mark}c").endswith("write blanks and backslashes with escapes, such as %20")
    assert url_problem(f"https://a.example/b{escape}c") == ""


@pytest.mark.parametrize("url", ["ftp://a.example", "hunter2", "", "https://", "//a.example"])
def test_no_form_is_advised_for_an_address_that_may_mean_anything(url: str) -> None:
    assert url_problem(url) == "must be an http or https URL"


@pytest.mark.parametrize("zone", ["Europe/Wien", "europe/vienna", "America/NewYork", "Asia/Calcuta"])
def test_a_near_time_zone_is_advised_by_a_name_that_is_known(zone: str) -> None:
    advised = problems(rule("0 9 * * *", zone))["time_zone"].rpartition(": ")[2].removesuffix("?")
    assert problems(rule("0 9 * * *", advised)) == {}


@pytest.mark.parametrize("written", ["P1M", "P1Y", "P1Y2M", "pt5m", "5 min", "1 hour 30 minutes", ".5", "1,5h", "1mo"])
def test_the_advice_on_a_duration_is_a_duration(written: str) -> None:
    with pytest.raises(ValueError, match=": write ") as rejected:
        parse_duration(written)
    assert parse_duration(advice(str(rejected.value))) > 0


@pytest.mark.parametrize("written", ["10/sec", "10 per minute", "10 / h", "5/Days"])
def test_the_advice_on_a_rate_is_a_rate(written: str) -> None:
    with pytest.raises(ValueError, match=": write ") as rejected:
        parse_rate(written)
    assert parse_rate(advice(str(rejected.value)))[0] == int(written.split(maxsplit=1)[0].partition("/")[0])
