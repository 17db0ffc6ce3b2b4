"""DUECOURSE_WATCH: what may be watched, and that each wrong entry is named by its number and field."""

import json
import re
from dataclasses import replace
from typing import Any

import pytest

from duecourse.app import App, Parts
from duecourse.errors import InvalidSettings
from duecourse.ledger.embedded.ledger import EmbeddedLedger
from duecourse.settings import Settings, parse
from tests.app.test_settings import wrong
from tests.support.source import ROOT

GOOD = {"pattern": "send_message-{user}-{type}", "kind": "report"}


def watch(*entries: dict[str, Any], **variables: str) -> dict[str, str]:
    return wrong(WATCH=json.dumps(entries), **variables)


def test_a_watch_says_little_and_means_the_rest() -> None:
    [one] = parse({"DUECOURSE_WATCH": json.dumps([GOOD])}).watch
    assert (one.pattern.text, *one[1:]) == (*GOOD.values(), {}, 1_000, "default")
    full = GOOD | {"payload": {"n": 1}, "window": "PT30S", "queue": "mails"}
    [one] = parse({"DUECOURSE_WATCH": json.dumps([full])}).watch
    assert one[1:] == ("report", {"n": 1}, 30_000, "mails")


@pytest.mark.parametrize(
    ("changes", "field", "problem"),
    [
        ({"pattern": "{user}-x"}, "0.pattern", "begin with text"),
        ({"pattern": "a{"}, "0.pattern", "brace"),
        ({"pattern": ""}, "0.pattern", ""),
        ({"pattern": "x" * 513}, "0.pattern", ""),
        ({"pattern": 7}, "0.pattern", "text"),
        ({"pattern": "duecourse:{x}"}, "0.pattern", "duecourse's own keys"),
        ({"pattern": "due{x}"}, "0.pattern", "duecourse's own keys"),
        ({"kind": "a b"}, "0.kind", "characters"),
        ({"kind": "reminder"}, "0.kind", "/reminders"),
        ({"queue": "reminders"}, "0.queue", "/reminders"),
        ({"queue": "query:h"}, "0.queue", "/queries"),
        ({"payload": []}, "0.payload", "object"),
        ({"payload": {"key": 1}}, "0.payload.key", "parts of the key's name"),
        ({"kind": "webhook"}, "0.payload.url", "required"),
        ({"kind": "webhook", "payload": {"url": "ftp://h"}}, "0.payload.url", "http"),
        ({"window": "PT0.1S"}, "0.window", "between PT0.5S"),
        ({"window": "P2D"}, "0.window", "between PT0.5S"),
        ({"windows": "PT1S"}, "0.windows", "not a known field"),
    ],
)
def test_a_wrong_entry_is_named_by_its_number_and_field(changes: dict[str, Any], field: str, problem: str) -> None:
    told = watch(GOOD | changes)
    assert list(told) == [f"DUECOURSE_WATCH.{field}"]
    assert problem in told[f"DUECOURSE_WATCH.{field}"]


@pytest.mark.parametrize("missing", ["pattern", "kind"])
def test_what_is_missing_is_named(missing: str) -> None:
    assert watch({k: v for k, v in GOOD.items() if k != missing}) == {f"DUECOURSE_WATCH.0.{missing}": "is required"}


def test_what_is_no_list_is_told_how_it_looks() -> None:
    assert "send_message-{user}" in wrong(WATCH="pattern=x")["DUECOURSE_WATCH"]
    assert list(wrong(WATCH='{"pattern": "a", "kind": "b"}')) == ["DUECOURSE_WATCH"]


def test_the_same_pattern_twice_is_refused_for_the_second_would_never_match() -> None:
    assert list(watch(GOOD, GOOD | {"kind": "poll2"})) == ["DUECOURSE_WATCH.1.pattern"]


def test_a_window_is_no_longer_than_tasks_are_kept() -> None:
    assert list(watch(GOOD | {"window": "PT2H"}, RETENTION="PT1H")) == ["DUECOURSE_WATCH.0.window"]


def test_another_namespace_has_other_keys() -> None:
    assert list(watch(GOOD | {"pattern": "mine:{x}"}, NAMESPACE="mine")) == ["DUECOURSE_WATCH.0.pattern"]
    assert parse({"DUECOURSE_WATCH": json.dumps([GOOD | {"pattern": "mine:{x}"}])}).watch


@pytest.mark.parametrize(
    "variables", [{"STORE": "memory://"}, {"STORE": "leveldb:///tmp/x"}, {"EVENTS": "off"}], ids=str
)
def test_where_no_key_can_be_heard_watching_is_refused(variables: dict[str, str]) -> None:
    told = watch(GOOD, **variables)
    assert list(told) == ["DUECOURSE_WATCH"]
    assert "DUECOURSE_STORE" in told["DUECOURSE_WATCH"] or "DUECOURSE_EVENTS=on" in told["DUECOURSE_WATCH"]


def test_a_kind_that_nothing_runs_is_refused_where_its_tasks_are_made(ledger: EmbeddedLedger) -> None:
    entries = [GOOD, GOOD | {"pattern": "b-{x}", "kind": "poll", "payload": POLL}, GOOD | {"pattern": "c", "kind": "x"}]
    given = parse({"DUECOURSE_WATCH": json.dumps(entries), "DUECOURSE_TARGETS": '{"report": "lambda:R"}'})
    with pytest.raises(InvalidSettings) as caught:
        _ = App(given, Parts(ledger=ledger)).watches
    [problem] = caught.value.problems
    assert problem.field == "DUECOURSE_WATCH.2.kind"
    assert "poll, report, webhook" in problem.problem
    assert App(replace(given, watch=given.watch[:2]), Parts(ledger=ledger)).watches


POLL = {"url": "http://h/job", "interval": "PT1S", "until": "done"}


def test_a_bridge_needs_no_kinds_to_listen() -> None:
    assert parse({"DUECOURSE_WATCH": json.dumps([GOOD])}) != Settings()


def test_the_example_in_the_pages_is_one() -> None:
    [example] = re.findall(r"DUECOURSE_WATCH='(.*?)'", (ROOT / "docs/how-to/watched-keys.md").read_text())
    [one] = parse({"DUECOURSE_WATCH": example}).watch
    assert one.pattern.match(b"send_message-42-sms") == {"user": b"42", "type": b"sms"}
