"""The calendar as a whole: what is checked of a rule, what holds of all times, and what it costs to import."""

from itertools import islice, pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from duecourse.base.times import parse_instant
from duecourse.ledger.schedule import Cron, Every, Fold, Gap, Repeat, RRule, Rule
from tests.repository.test_architecture import imported
from tests.support.calendars import CALENDAR, local_times, problems, rule


def test_every_wrong_field_is_named_at_once() -> None:
    asked = rule("61 * * * *", "Europe/Wien", start="2026-01-02T00:00:00Z", until="2026-01-01T00:00:00Z")
    assert set(problems(asked)) == {"repeat.cron", "time_zone", "until"}


@pytest.mark.parametrize("every_ms", [0, -5, 999])
def test_less_than_a_second_between_two_times_is_an_error(every_ms: int) -> None:
    assert problems(rule(Every(every_ms))) == {"repeat.every": "must be PT1S or longer"}


def test_a_second_between_two_times_is_enough() -> None:
    assert problems(rule(Every(1_000))) == {}
    assert local_times(rule(Every(1_000)), count=2) == ["2026-01-01T00:00:00+00:00", "2026-01-01T00:00:01+00:00"]


def test_an_end_before_the_start_or_the_first_time_is_an_error() -> None:
    assert problems(rule("@yearly", until="2025-12-31T00:00:00Z")) == {"until": "must not be before starts_at"}
    late = rule("0 9 1 6 *", "Europe/Vienna", until="2026-05-01T00:00:00Z")
    assert problems(late) == {"until": "must not be before the first time, 2026-06-01T09:00:00+02:00"}
    assert problems(rule("0 9 1 6 *", "Europe/Vienna", until="2026-06-01T07:00:00Z")) == {}


def test_exdates_that_leave_nothing_are_an_error() -> None:
    only = (parse_instant("2026-01-01T00:00:00Z"),)
    assert problems(rule(RRule("FREQ=DAILY;COUNT=1", only))) == {
        "repeat.exdates": "leaves out every time of the rule: leave out fewer"
    }
    assert problems(rule(RRule("FREQ=DAILY", tuple(range(201))))) == {
        "repeat.exdates": "must have at most 200 instants"
    }


def test_a_start_in_the_last_days_of_time_has_no_time() -> None:
    asked = rule(Every(1_000), start="9999-12-31T00:00:00Z")
    assert problems(asked) == {"starts_at": "never fires: change it so that a day and a time fit it after starts_at"}


ZONES = st.sampled_from(
    [
        "UTC",
        "Europe/Vienna",
        "America/New_York",
        "Australia/Lord_Howe",
        "Antarctica/Troll",
        "Pacific/Apia",
        "Africa/Casablanca",
    ]
)
REPEATS: st.SearchStrategy[Repeat] = st.one_of(
    st.integers(1_000, 10**9).map(Every),
    st.sampled_from(
        [
            "*/7 * * * *",
            "30 2 * * *",
            "0 0 L * *",
            "*/20 1-3 * 3,4,10,11 *",
            "0 0 29 2 *",
            "15,45 */2 15W * FRI#2",
            "@hourly",
        ]
    ).map(Cron),
    st.sampled_from(
        [
            *["FREQ=DAILY;BYHOUR=2;BYMINUTE=0,30,45", "FREQ=MINUTELY;INTERVAL=7", "FREQ=HOURLY;COUNT=5000"],
            *["FREQ=MONTHLY;BYDAY=-1SU", "FREQ=WEEKLY;INTERVAL=2;BYDAY=SU;BYHOUR=0,1,2,3;BYSETPOS=-1,1", "FREQ=YEARLY"],
        ]
    ).map(RRule),
)
INSTANTS = st.integers(parse_instant("2010-01-01T00:00:00Z"), parse_instant("2045-01-01T00:00:00Z"))


@pytest.mark.slow
@settings(max_examples=150, deadline=None)
@given(REPEATS, ZONES, INSTANTS, INSTANTS, st.sampled_from(Gap), st.sampled_from(Fold))
def test_times_are_later_than_asked_ascending_each_once_and_the_same_from_anywhere(
    repeat: Repeat, zone: str, start: int, after: int, gap: Gap, fold: Fold
) -> None:
    asked = Rule(repeat, start, zone, gap=gap, fold=fold)
    found = list(islice(CALENDAR.times(asked, after), 40))
    assert all(at > after and at >= start for at in found)
    assert all(earlier < later for earlier, later in pairwise(found))
    for place, at in enumerate(found[:-1]):
        assert next(CALENDAR.times(asked, at)) == found[place + 1]
        assert next(CALENDAR.times(asked, found[place + 1] - 1)) == found[place + 1]


def test_what_computes_no_time_imports_no_zones() -> None:
    modules = [
        "duecourse.settings",
        "duecourse.app",
        "duecourse.running.drain",
        "duecourse.schedules.calendar",
    ]
    loaded = set(imported(modules)["loaded"])
    assert loaded.isdisjoint({"tzdata", "dateutil", "zoneinfo", "zoneinfo._zoneinfo", "importlib.resources"})
