"""The text of a file of schedules: what it makes, and the names of all that is wrong in it."""

import subprocess
import sys

import pytest

from duecourse.base.times import parse_instant
from duecourse.errors import InvalidInput
from duecourse.ledger.schedule import Cron, Every, Overlap
from duecourse.schedules.file_text import parse_file

RIGHT = """
number: 3
schedules:
  - id: daily
    kind: report
    payload: {month: 10, shares: [0, -2, +3, .5, 1.5e+3]}
    repeat: {cron: 0 9 * * MON-FRI}
    time_zone: Europe/Vienna
    overlap: skip
    starts_at: 2026-11-26T09:00:00+01:00
  - {id: daily, queue: imports, tenant: acme, kind: report, payload: {}, repeat: {every: PT1H}, paused: true}
"""


def wrong(text: str) -> dict[str, str]:
    """Wrong fields of a text."""
    try:
        return {one.field: one.problem for one in parse_file(text).problems}
    except InvalidInput as error:
        return {one.field: one.problem for one in error.problems}


def test_a_schedule_has_the_fields_of_a_request_an_id_and_a_tenant() -> None:
    number, [daily, hourly], problems, digest = parse_file(RIGHT)
    assert (number, problems) == (3, ())
    assert daily.rule.repeat == Cron("0 9 * * MON-FRI")
    assert daily.rule.starts_at == parse_instant("2026-11-26T08:00:00Z")
    assert (daily.payload, daily.overlap, daily.tenant, daily.file) == (
        '{"month":10,"shares":[0,-2,3,0.5,1500.0]}',
        Overlap.SKIP,
        "-",
        3,
    )
    assert hourly.rule.repeat == Every(3_600_000)
    assert (hourly.queue, hourly.tenant, hourly.paused) == ("imports", "acme", True)
    assert parse_file(RIGHT + "# the same").digest != digest


@pytest.mark.parametrize(
    ("text", "field", "problem"),
    [
        ("", "file", "must have `number` and `schedules`"),
        ("[a]", "file", "must have `number` and `schedules`"),
        ("number: 1\nschedules: [{id: a}]\nschedules: []", "schedules", "stands twice in its object, again in line 3"),
        ("number: 1\nschedules: [{id: a, id: b}]", "schedules.0.id", "twice"),
        ("number: 1\nschedules: [{id: a, payload: {on: 1}}]", "schedules.0.payload.on", "put the key in quotes"),
        ("number: 1\nschedules: [{id: a, payload: {? [b] : 1}}]", "schedules.0.payload.?", "must be text"),
        ("number: 1\nschedules: [{<<: {id: a}}]", "schedules.0.<<", "must be text"),
        ("number: 1\nschedules: [{id: a, repeat: {cron: */5 * * * *}}]", "file", "; put a value in quotes"),
        ("number: 1\nschedules: [{id: a, repeat: {cron: @daily}}]", "file", "; put a value in quotes"),
        ("number: 1\nschedules: [", "file", "is no YAML: while parsing"),
        ("number: 1\n  a: b", "file", "is no YAML: "),
        ("schedules: []", "number", "is required"),
        ("number: 0\nschedules: []", "number", "greater"),
        ("number: '1'\nschedules: []", "number", "integer"),
        ("number: 010\nschedules: []", "number", "must be a plain decimal number, or text in quotes, in line 1"),
        ("number: 1:30\nschedules: []", "number", "plain decimal"),
        ("number: 0x1f\nschedules: []", "number", "plain decimal"),
        ("number: 1_000\nschedules: []", "number", "plain decimal"),
        ("number: !!int zz\nschedules: []", "number", "plain decimal"),
        ("number: 1\nschedules:\n- repeat: {every: 1:30}", "schedules.0.repeat.every", "plain decimal"),
        (
            "number: 1\nschedules: [{id: a, payload: {n: [.5, -1.5e+3, 190:20:30.15]}}]",
            "schedules.0.payload.n.2",
            "line 2",
        ),
        ("number: 1\nschedules:\n- starts_at: 2026-01-01T00:00:00+01:60", "schedules.0.starts_at", "in line 3"),
        ("number: 1\nschedules:\n- starts_at: 2026-01-01 0:00:00 -1:99", "schedules.0.starts_at", "an offset from"),
        ("number: 1\nschedules:\n- until: 2016-12-31T23:59:60Z", "schedules.0.until", "text in quotes"),
        ("number: 1\nschedules:\n- until: '2016-12-31T23:59:60+01:60'", "schedules.0.until", "offset"),
        ("number: 1\nschedules: [{id: a, payload: {n: .nan}}]", "schedules.0.payload.n", "plain decimal"),
        ("number: 1", "schedules", "is required"),
        ("number: 1\nschedules: []\nmore: 1", "more", "is not a known field"),
        ("number: 1\nschedules: [{id: a}, 7]", "schedules.1.body", "must be a JSON object"),
        ("number: 1\nschedules: [{kind: a, payload: {}, repeat: {every: 60}}]", "schedules.0.id", "is required"),
        ("!!python/object/apply:os.getcwd []", "file", "is no YAML: could not determine a constructor"),
        ("[" * 5_000, "file", "is no YAML"),
    ],
)
def test_what_is_wrong_is_named(text: str, field: str, problem: str) -> None:
    assert problem in wrong(text)[field]


def test_all_that_is_wrong_is_named_by_the_ids_of_schedules() -> None:
    text = """
        number: 1
        schedules:
          - {id: a, kind: report, payload: {}, repeat: {every: 60}, colour: red}
          - {id: b, kind: report, payload: {at: 2026-11-26}, repeat: {every: 60, cron: "* * * * *"}}
          - {id: c, kind: report, payload: {}, repeat: {every: 60}}
          - {id: c, kind: other, payload: {}, repeat: {every: 60}}
    """
    assert [*wrong(text)] == ["a.colour", "b.repeat.every", "b.repeat.cron", "b.repeat.rrule", "b.payload", "c.id"]
    assert [one.kind for one in parse_file(text).schedules] == ["report"]


@pytest.mark.slow
def test_nobody_loads_the_parser_but_who_reads_a_file() -> None:
    code = """
import sys
import duecourse.app, duecourse.schedules.file_text, duecourse.routes
from duecourse import Client
with Client("memory://") as client:
    client.add(kind="webhook", payload={"url": "https://example.com"})
print("yaml" in sys.modules, "tzdata" in sys.modules)
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "False False\n"


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("number: 1\nschedules: [{id: a, starts_at: 2026-02-30}]", "cannot be read"),
        ("number: 1\nschedules: [{id: a, starts_at: 2026-03-30T25:00:00Z}]", "cannot be read"),
        ("number: !!bool zz\nschedules: []", "cannot be read"),
        ("number: !!timestamp zz\nschedules: []", "cannot be read"),
        (f"number: {'9' * 5_000}\nschedules: []", "cannot be read"),
        ("number: 1\nschedules: &a [{id: a}]\nother: *a", "alias"),
        ("#" * 4_000_001, "at most"),
    ],
    ids=lambda one: one[:40],
)
def test_a_file_that_the_parser_cannot_make_a_value_of_is_a_wrong_file(text: str, problem: str) -> None:
    with pytest.raises(InvalidInput, match=problem):
        parse_file(text)
