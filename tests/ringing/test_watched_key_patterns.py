"""Watched keys: what a pattern takes and refuses, which keys it matches, and the task that comes of one."""

import json
import re
import time

import pytest

from duecourse.base.ids import ID_PATTERN
from duecourse.ledger.embedded.ledger import EmbeddedLedger
from duecourse.ledger.many_tasks import TaskFilter
from duecourse.ledger.task import OnDuplicate
from duecourse.ledger.timeline import timeline
from duecourse.ledger.watched_keys import ExpiredKey, Pattern, Watch, Watchlist, show
from duecourse.tasks.verbs import Watches

HEARD_AT = 1_790_000_000_000


@pytest.mark.parametrize(
    ("pattern", "key", "parts"),
    [
        ("send_message-{user}-{type}", "send_message-42-sms", {"user": "42", "type": "sms"}),
        ("send_message-{user}-{type}", "send_message-a-b-c", {"user": "a", "type": "b-c"}),
        ("send_message-{user}-{type}", "send_message---x", {"user": "-", "type": "x"}),
        ("timer:{id}", "timer: \n\0é{}", {"id": " \n\0é{}"}),
        ("timer:{id}:end", "timer:a:end:end", {"id": "a:end"}),
        ("a{x}b{y}c", "aabbbcc", {"x": "a", "y": "bbc"}),
        ("a{x}b{y}c", "a1b2b3c", {"x": "1", "y": "2b3"}),
        ("a.c{x}", "a.c1", {"x": "1"}),
        ("nightly", "nightly", {}),
        ("order:{{{id}}}:timeout", "order:{7}:timeout", {"id": "7"}),
    ],
)
def test_a_key_is_taken_apart(pattern: str, key: str, parts: dict[str, str]) -> None:
    assert Pattern(pattern).match(key.encode()) == {name: part.encode() for name, part in parts.items()}


@pytest.mark.parametrize(
    ("pattern", "key"),
    [
        ("send_message-{user}-{type}", "send_message--sms"),
        ("send_message-{user}-{type}", "send_message-42-"),
        ("send_message-{user}-{type}", "send_message-42"),
        ("send_message-{user}-{type}", "xsend_message-42-sms"),
        ("timer:{id}:end", "timer::end"),
        ("timer:{id}:end", "timer:a:endx"),
        ("ab{x}ba", "aba"),
        ("a.c{x}", "abc1"),
        ("nightly", "nightly2"),
        ("nightly", "night"),
    ],
)
def test_a_key_of_another_name_is_no_match(pattern: str, key: str) -> None:
    assert Pattern(pattern).match(key.encode()) is None


def test_a_part_may_be_what_is_no_text() -> None:
    assert Pattern("é:{x}").match("é:".encode() + b"\xff\x00") == {"x": b"\xff\x00"}
    assert show(b"a\xff\xc3\xa9") == "a\\xffé"


@pytest.mark.parametrize(
    ("pattern", "problem"),
    [
        ("{user}-x", "must begin with text"),
        ("a{x}{y}", "text between its parts"),
        ("a{x}-{x}", "twice"),
        ("a{", "brace"),
        ("a{x", "brace"),
        ("a}", "brace"),
        ("a{x}}", "brace"),
        ("a{}", "name its parts"),
        ("a{1}", "name its parts"),
        ("a{x y}", "name its parts"),
        ("a{x.y}", "name its parts"),
        ("a{x[0]}", "name its parts"),
        ("a{x!r}", "name its parts"),
        ("a{x:>9}", "name its parts"),
        ("a{x:{y}}", "name its parts"),
    ],
)
def test_a_pattern_that_cannot_be_is_told_why(pattern: str, problem: str) -> None:
    with pytest.raises(ValueError, match=problem):
        Pattern(pattern)


def test_a_name_made_to_be_slow_is_not() -> None:
    pattern = Pattern("a" + "".join(f"{{p{n}}}-" for n in range(30)) + "!")
    began = time.perf_counter()
    assert pattern.match(b"a" + b"-" * 1_000_000) is None
    assert time.perf_counter() - began < 0.5


def test_keys_that_begin_otherwise_cost_next_to_nothing() -> None:
    watched = Watchlist([Pattern(f"watch{n}-{{user}}-{{type}}") for n in range(20)])
    keys = [f"session:{n}".encode() for n in range(100_000)]
    began = time.perf_counter()
    assert not any(map(watched.has, keys))
    assert time.perf_counter() - began < 0.5, "5 µs a key is ten times what it takes"
    assert watched.has(b"watch19-a-b")
    assert not Watchlist().has(b"watch19-a-b")


def heard(key: bytes = b"send_message-42-sms", at: int = HEARD_AT, since: int | None = None) -> ExpiredKey:
    return ExpiredKey(key, "__keyevent@0__:expired", at if since is None else since, at)


WATCH = Watch(Pattern("send_message-{user}-{type}"), "report", {"n": 1}, 2_000, "mails")


def test_an_expiry_is_a_task_named_by_its_key_and_its_instant() -> None:
    task = WATCH.task("ns", heard(), {"user": b"42", "type": b"sms\xff"})
    again = WATCH.task("ns", heard(at=HEARD_AT + 5), {})
    assert (task.kind, task.queue, task.on_duplicate) == ("report", "mails", OnDuplicate.KEEP)
    assert json.loads(task.payload) == {"n": 1, "key": {"user": "42", "type": "sms\\xff"}}
    assert task.id == f"{task.group}:1790000000000"
    assert (again.group, again.id) == (task.group, f"{task.group}:1790000000005")
    assert re.fullmatch(ID_PATTERN, task.id)


def test_its_timeline_says_that_a_watched_key_made_it() -> None:
    ledger = EmbeddedLedger()
    Watches(ledger, "ns", [WATCH], None).note([heard()])
    [task] = ledger.page("mails", TaskFilter(), None, 1).tasks
    assert timeline(task)[0].by == "watch"


def test_it_is_apart_from_what_was_heard_within_the_window_of_when_it_can_have_been() -> None:
    sure = WATCH.task("ns", heard(), {})
    assert sure.apart == (f"{sure.group}:1789999998000", f"{sure.group}:1790000002000")
    held_up = WATCH.task("ns", heard(since=HEARD_AT - 60_000), {})
    assert held_up.apart == (f"{sure.group}:1789999938000", f"{sure.group}:1790000002000")


def test_other_keys_patterns_and_namespaces_are_other_groups() -> None:
    other = WATCH._replace(pattern=Pattern("send_message-{who}-{type}"))
    made = [WATCH.task("ns", heard(), {}), WATCH.task("ns", heard(b"send_message-42-smt"), {})]
    made += [WATCH.task("ns2", heard(), {}), other.task("ns", heard(), {})]
    assert len({task.group for task in made}) == 4


def test_a_webhooks_body_has_the_parts_for_nothing_else_of_it_is_sent() -> None:
    hook = WATCH._replace(kind="webhook", payload={"url": "http://h", "body": {"a": 1}})
    made = json.loads(hook.task("ns", heard(), {"user": b"42"}).payload)
    assert made == {"url": "http://h", "key": {"user": "42"}, "body": {"a": 1, "key": {"user": "42"}}}
    text = hook._replace(payload={"url": "http://h", "body": "as it is"})
    assert json.loads(text.task("ns", heard(), {}).payload)["body"] == "as it is"
