"""When the schedules of a template are due, and what they send."""

import asyncio
import json
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from duecourse_local.errors import TemplateError
from duecourse_local.harness.aws.schedule_expressions import parse_cadence
from duecourse_local.harness.aws.schedules import Schedules, event_of
from duecourse_local.harness.template import Schedule, schedule_of
from tests.support.project import ROOT

AT = datetime(2026, 3, 28, 22, 15, 30, tzinfo=UTC)
"""A Saturday."""


@pytest.mark.parametrize(
    ("expression", "zone", "expected"),
    [
        ("rate(1 minute)", "UTC", "2026-03-28T22:16"),
        ("rate(5 minutes)", "UTC", "2026-03-28T22:20"),
        ("rate(1 hour)", "UTC", "2026-03-28T23:00"),
        ("rate(1 day)", "UTC", "2026-03-29T00:00"),
        ("cron(* * * * ? *)", "UTC", "2026-03-28T22:16"),
        ("cron(0/10 * * * ? *)", "UTC", "2026-03-28T22:20"),
        ("cron(15 * * * ? *)", "UTC", "2026-03-28T23:15"),
        ("cron(0 8 ? * MON-FRI *)", "UTC", "2026-03-30T08:00"),
        ("cron(0 8 ? * SUN *)", "UTC", "2026-03-29T08:00"),
        ("cron(0 8 ? * SUN *)", "Europe/Berlin", "2026-03-29T06:00"),
        ("cron(30 1,3 1 JAN,JUN ? *)", "UTC", "2026-06-01T01:30"),
        ("cron(0 0 29 2 ? *)", "UTC", "2028-02-29T00:00"),
        ("cron(0 9 ? * MON#1 *)", "UTC", "2026-04-06T09:00"),
        ("cron(0 9 ? * 2#1 *)", "UTC", "2026-04-06T09:00"),
        ("cron(0 9 ? * 6#2,3#3 *)", "UTC", "2026-04-10T09:00"),
        ("cron(0 10 L * ? *)", "UTC", "2026-03-31T10:00"),
        ("cron(0 10 ? * 6L *)", "UTC", "2026-04-24T10:00"),
        ("cron(0 10 ? * FRIL *)", "UTC", "2026-04-24T10:00"),
        ("cron(0 10 ? * L *)", "UTC", "2026-04-04T10:00"),
        ("cron(0 8 1W * ? *)", "UTC", "2026-04-01T08:00"),
        ("cron(0 8 LW * ? *)", "UTC", "2026-03-31T08:00"),
        ("cron(0 8 ? * 2/2 *)", "UTC", "2026-03-30T08:00"),
        ("cron(0 8 ? * 2-6 *)", "UTC", "2026-03-30T08:00"),
        ("cron(0 0 1 1 ? 2028-2029)", "UTC", "2028-01-01T00:00"),
        ("cron(0 0 1 1 ? 2025/4)", "Asia/Tokyo", "2028-12-31T15:00"),
        ("at(2027-01-01T00:00:00)", "UTC", "2027-01-01T00:00"),
        ("at(2027-01-01T00:00:00)", "Europe/Vienna", "2026-12-31T23:00"),
    ],
)
def test_the_next_time_is_found(expression: str, zone: str, expected: str) -> None:
    found = parse_cadence(expression, zone).next_after(AT.timestamp())
    assert datetime.fromtimestamp(found, UTC).isoformat(timespec="minutes") == expected + "+00:00"


@pytest.mark.parametrize("expression", ["cron(0 0 30 2 ? *)", "cron(0 0 1 1 ? 2020)", "at(2026-03-28T22:15:30)"])
def test_a_time_that_never_comes_is_never(expression: str) -> None:
    assert parse_cadence(expression).next_after(AT.timestamp()) == float("inf")


@pytest.mark.parametrize(
    ("after", "expected"),
    [
        (datetime(2026, 10, 24, 12, tzinfo=UTC), ["2026-10-25T00:30", "2026-10-26T01:30"]),
        (datetime(2027, 3, 27, 12, tzinfo=UTC), ["2027-03-29T00:30", "2027-03-30T00:30"]),
    ],
)
def test_an_hour_that_comes_twice_fires_once_and_a_missing_one_not(after: datetime, expected: list[str]) -> None:
    cadence, at, found = parse_cadence("cron(30 2 * * ? *)", "Europe/Vienna"), after.timestamp(), list[str]()
    for _ in expected:
        at = cadence.next_after(at)
        found.append(datetime.fromtimestamp(at, UTC).strftime("%Y-%m-%dT%H:%M"))
    assert found == expected


@pytest.mark.parametrize(
    ("expression", "problem"),
    [
        ("rate(1 second)", r"must be rate\(…\), cron\(…\) with six fields, or at\(…\)"),
        ("cron(* * * *)", "must be"),
        ("daily", "must be"),
        (None, "must be"),
        ("rate(0 minutes)", "1 minute or more"),
        ("cron(0 22 ? * FRI-MON *)", "day of week.*must not go down; write FRI-SAT,SUN-MON"),
        ("cron(0 22 ? * 6-2 *)", "day of week.*must not go down; write FRI-SAT,SUN-MON"),
        ("cron(0 22-2 ? * * *)", "hour.*must not go down; write 22-23,0-2"),
        ("cron(0 22 ? * 8 *)", "day of week"),
        ("cron(0 22 ? * 0 *)", "day of week"),
        ("cron(60 22 ? * * *)", "minute"),
        ("cron(0 0 * * * *)", r"field 3 .* must be \?"),
        ("cron(0 0 ? * ? *)", r"field 3 .* must be \?"),
        ("cron(0 0 1 1 ? 1969)", "field 6"),
        ("cron(0 0 1 1 ? 2030-2029)", "field 6"),
        ("cron(0 0 1 1 ? x)", "field 6"),
        ("at(2027-02-30T00:00:00)", "is no time"),
    ],
)
def test_an_expression_that_aws_rejects_is_wrong(expression: object, problem: str) -> None:
    with pytest.raises(TemplateError, match=problem):
        parse_cadence(expression)


def test_an_unknown_zone_is_named() -> None:
    with pytest.raises(TemplateError, match=r"Europe/Vienn .*: Europe/Vienna"):
        parse_cadence("cron(0 8 * * ? *)", "Europe/Vienn")


@pytest.mark.parametrize("expression", ["rate(1 minutes)", "rate(5 minute)", "at(2027-01-01T00:00:00)"])
def test_a_rule_takes_less_than_the_scheduler(expression: str) -> None:
    parse_cadence(expression)
    with pytest.raises(TemplateError):
        parse_cadence(expression, scheduler=False)


@pytest.mark.parametrize(
    ("kind", "properties", "problem"),
    [
        ("ScheduleV2", {"ScheduleExpression": "rate(0 minutes)"}, "ScheduleExpression rate(0 minutes): must be 1"),
        ("ScheduleV2", {}, "ScheduleExpression None: must be"),
        ("Schedule", {"Schedule": "daily"}, "Schedule daily: must be"),
        (
            "ScheduleV2",
            {"ScheduleExpression": "cron(0 8 * * ? *)", "ScheduleExpressionTimezone": "Mars/Base"},
            "ScheduleExpression cron(0 8 * * ? *): time zone Mars/Base must be",
        ),
    ],
)
def test_a_schedule_that_is_wrong_never_fires_and_says_why(
    kind: str, properties: dict[str, object], problem: str
) -> None:
    found = schedule(kind, **properties)
    assert found
    assert found.cadence.next_after(0) == float("inf")
    assert found.problem.startswith(f"FunctionTick: {problem}")


def schedule(kind: str, **properties: object) -> Schedule | None:
    return schedule_of("FunctionTick", {"Type": kind, "Properties": properties})


def test_a_rules_event_is_eventbridges() -> None:
    found = schedule("Schedule", Schedule="rate(1 minute)")
    assert found
    event = json.loads(event_of(found, AT.timestamp()))
    saved = json.loads((ROOT / "events" / "poll_tick" / "rule.json").read_text())
    assert set(event) == set(saved)
    assert event["time"] == "2026-03-28T22:15:30Z"
    assert event["resources"] == ["arn:aws:events:us-east-1:123456789012:rule/FunctionTick"]
    assert (event["source"], event["detail-type"], event["detail"]) == ("aws.events", "Scheduled Event", {})


def test_schedulers_event_is_its_own() -> None:
    found = schedule("ScheduleV2", ScheduleExpression="rate(1 minute)")
    assert found
    event = json.loads(event_of(found, AT.timestamp()))
    assert (event["source"], event["detail"]) == ("aws.scheduler", "{}")
    assert event["resources"] == ["arn:aws:scheduler:us-east-1:123456789012:schedule/default/FunctionTick"]


def test_a_given_input_is_sent_instead() -> None:
    found = schedule("Schedule", Schedule="rate(1 minute)", Input='{"a": 1}')
    assert found
    assert event_of(found, 0) == b'{"a": 1}'


@pytest.mark.parametrize("off", [{"Enabled": False}, {"State": "DISABLED"}])
def test_a_disabled_schedule_is_none(off: dict[str, object]) -> None:
    assert schedule("Schedule", Schedule="rate(1 minute)", **off) is None


class Sending:
    """Functions that note what they are sent."""

    def __init__(self) -> None:
        self.sent: list[str] = []

    def send(self, function: str, _: object) -> None:
        self.sent.append(function)


def described(name: str, *schedules: Schedule) -> Any:
    return SimpleNamespace(name=f"the-{name}", code=Path(name), schedules=schedules)


def kept(expression: str) -> Schedule:
    found = schedule("ScheduleV2", ScheduleExpression=expression)
    assert found
    return found


async def for_a_moment(schedules: Schedules, *, at_once: bool) -> None:
    with suppress(TimeoutError):
        await asyncio.wait_for(schedules.keep(at_once=at_once), 0.2)


def tick_and(expression: str) -> list[Any]:
    return [described("poll_tick", kept("rate(1 minute)")), described("clean_up", kept(expression))]


def test_only_the_products_tick_runs_at_the_start() -> None:
    functions = Sending()
    # Nothing else is due before 2160: at a pace of an hour, a run through the turn of one has a second tick.
    schedules = Schedules(tick_and("cron(0 0 1 1 ? 2199)"), functions, 6_000_000_000)  # type: ignore[arg-type]
    asyncio.run(for_a_moment(schedules, at_once=True))
    assert functions.sent == ["the-poll_tick"]


def test_the_products_tick_runs_at_the_given_pace() -> None:
    schedules = Schedules(tick_and("cron(0 0 1 1 ? *)"), Sending(), 3_600)  # type: ignore[arg-type]
    assert schedules.described == "the-poll_tick every 3600 s  the-clean_up cron(0 0 1 1 ? *)"
    timetable = schedules.timetable(datetime(2026, 12, 31, 22, 30, tzinfo=UTC).timestamp())
    assert [[name for name, _ in timetable.pop()] for _ in range(2)] == [
        ["the-poll_tick"],
        ["the-poll_tick", "the-clean_up"],
    ]


def test_a_schedule_that_never_fires_is_named_with_its_function() -> None:
    schedules = Schedules([described("clean_up", kept("cron(0 22-2 * * ? *)"))], Sending(), None)  # type: ignore[arg-type]
    [problem] = schedules.problems
    assert problem.startswith("the-clean_up: FunctionTick: ScheduleExpression cron(0 22-2 * * ? *): field 2 (hour)")
    asyncio.run(for_a_moment(schedules, at_once=False))
    assert schedules.described == "the-clean_up never"
