"""When the schedules of a template are due, and what they send."""

import json
from datetime import UTC, datetime

import pytest

from duecourse_local.aws.cadence import parse_cadence
from duecourse_local.aws.schedules import event_of
from duecourse_local.stack.problems import TemplateError
from duecourse_local.template.model import Schedule, schedule_of
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
    ],
)
def test_the_next_time_is_found(expression: str, zone: str, expected: str) -> None:
    found = parse_cadence(expression, zone).next_after(AT.timestamp())
    assert datetime.fromtimestamp(found, UTC).isoformat(timespec="minutes") == expected + "+00:00"


def test_a_time_that_never_comes_is_never() -> None:
    assert parse_cadence("cron(0 0 30 2 ? *)").next_after(AT.timestamp()) == float("inf")


@pytest.mark.parametrize("expression", ["rate(1 second)", "cron(* * * *)", "cron(0 0 L * ? *)", "daily"])
def test_what_is_not_understood_is_named(expression: str) -> None:
    with pytest.raises(TemplateError, match=r"understood|neither"):
        parse_cadence(expression)


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
