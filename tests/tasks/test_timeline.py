"""A task's record, read as a story: the order of things, the words for people, what it waits for."""

from dataclasses import replace
from typing import Any

import pytest

from duecourse.ledger.queue import Throttle, ThrottleReason
from duecourse.ledger.schedule import NEVER
from duecourse.ledger.task import Action, Change, Run, Status, Task, Trigger
from duecourse.ledger.timeline import Waiting, timeline, waiting
from tests.support.clock import START
from tests.support.kinds import leased


def task(**fields: Any) -> Task:
    """A scheduled task, added at START."""
    plain = {"status": Status.SCHEDULED, "created_at": START, "run": 0, "claimed_at": 0, "due_at": START + 500}
    return replace(leased("report", {}), **plain | fields)


def texts(given: Task) -> list[str]:
    return [one.text for one in timeline(given)]


def test_a_task_that_was_only_added_says_so() -> None:
    assert texts(task(by="http")) == ["Added by http, due 2026-09-21T14:13:20.500Z."]
    assert texts(task()) == ["Added, due 2026-09-21T14:13:20.500Z."]


def test_a_run_is_told_when_it_was_claimed_and_when_it_ended() -> None:
    run = Run(1, 8, START + 10, START + 2_510, "retry", "HTTP 500", Trigger.RING, 4)
    assert texts(task(log=(run,), run=1)) == [
        "Added, due 2026-09-21T14:13:20.006Z.",
        "Claimed after its bell rang, and begun 4 milliseconds after it was due: run 1.",
        "Failed after 2.5 seconds, an attempt spent: HTTP 500.",
    ]


def test_what_a_retry_was_due_at_is_not_told_of_the_add() -> None:
    run = Run(1, 8, START + 500, START + 510, "retry", "HTTP 500", Trigger.RING, 0)
    moved = Change(START + 600, Action.MOVED, "http", START + 1_510, START + 9_000)
    assert texts(task(log=(run, moved), run=1))[0] == "Added, due 2026-09-21T14:13:20.500Z."
    assert texts(task(log=(moved,)))[0] == "Added, due 2026-09-21T14:13:21.510Z."


def test_what_was_replaced_stands_before_its_replacement() -> None:
    log = (
        Run(1, 8, START - 90, START - 80, "again", "", Trigger.TICK, 0),
        Change(START - 99, Action.ADDED, "http", 0, START - 95),
        Change(START + 5, Action.MOVED, "client", START + 400, START + 500),
    )
    assert [(one.event, one.at - START) for one in timeline(task(log=log, by="message"))] == [
        ("added", -99),
        ("claimed", -90),
        ("again", -80),
        ("replaced", 0),
        ("moved", 5),
    ]
    assert timeline(task(log=log))[3].due_at == START + 400


def test_each_add_is_told_with_what_it_was_due_at_then_not_with_what_became_of_that() -> None:
    log = (
        Change(START - 90, Action.MOVED, "http", START + 100, START + 900),
        Change(START - 99, Action.ADDED, "http", 0, START + 900),
        Run(1, 8, START + 510, START + 520, "retry", "It said no.", Trigger.TICK, 10),
        Change(START + 530, Action.MOVED, "http", START + 700, START + 800),
    )
    added, moved, replaced, _, failed, _ = timeline(task(log=log, run=1))
    assert (added.event, added.due_at) == ("added", START + 100)
    assert (replaced.event, replaced.due_at) == ("replaced", START + 500)
    assert moved.text.endswith("due 2026-09-21T14:13:20.900Z instead of 2026-09-21T14:13:20.100Z.")
    assert failed.text == "Failed after 10 milliseconds, an attempt spent: It said no."
    assert timeline(task(log=log, run=1, forgotten=1))[0].text == "Added by http.", "its first move may be forgotten"


def test_an_occurrence_that_waits_for_another_has_no_due_time() -> None:
    moved = Change(START + 1, Action.MOVED, "me", NEVER, START + 9)
    assert texts(task(due_at=NEVER)) == ["Added, due after another."]
    [added, then] = timeline(task(due_at=START + 9, log=(moved,)))
    assert (added.text, added.due_at) == ("Added, due after another.", 0)
    assert then.text == "Moved by me, due 2026-09-21T14:13:20.009Z instead of after another."


def test_a_due_time_that_stayed_is_told_once() -> None:
    log = (Change(START + 1, Action.DEBOUNCED, "http", START + 9, START + 9),)
    assert texts(task(log=log))[-1] == "Debounced by http, due 2026-09-21T14:13:20.009Z."


def test_a_claim_that_goes_on_is_told() -> None:
    going = task(status=Status.LEASED, run=2, claimed_at=START + 700, trigger=Trigger.TIMER)
    assert texts(going)[-1] == "Claimed by the bridge's timer, 200 milliseconds after it was due: run 2."


def test_only_a_handler_that_has_begun_is_late() -> None:
    going = {"status": Status.LEASED, "run": 2, "claimed_at": START + 700, "trigger": Trigger.TIMER}
    begun = timeline(task(**going, delivery="0" * 28))[-1]
    assert (begun.late_ms, begun.text) == (
        200,
        "Claimed by the bridge's timer, and begun 200 milliseconds after it was due: run 2.",
    )
    handed = timeline(task(**going, target="lambda:report"))[-1]
    assert (handed.late_ms, handed.text) == (
        None,
        "Handed over by the bridge's timer, 200 milliseconds after it was due: run 2.",
    )
    lapsed = Run(1, 8, START, START + 120_000, "lapsed", "the lease lapsed", Trigger.RING, 3)
    assert [timeline(one)[-2 if one.log else -1].late_ms for one in (task(**going), task(log=(lapsed,)))] == [None] * 2


def test_what_was_folded_is_told_with_its_number() -> None:
    log = (
        Change(START + 1, Action.DEBOUNCED, "http", START + 5, START + 9, times=4),
        Run(3, 8, START + 10, START + 11, "release", "sqs:bills did not confirm it", Trigger.TICK, 2, times=3),
    )
    debounced, _, given_back = texts(task(log=log, run=3))[1:]
    assert ", 4 times in a row, due" in debounced
    assert (
        given_back
        == "Given back after 1 millisecond, no attempt spent, 3 times in a row: sqs:bills did not confirm it."
    )


@pytest.mark.parametrize(
    ("fields", "held", "what"),
    [
        ({}, None, ("due", "It is due in 500 milliseconds, at 2026-09-21T14:13:20.500Z.", START + 500)),
        (
            {"due_at": START - 1_500},
            ThrottleReason.PAUSE,
            ("pause", "It has been due for 1.5 seconds; its queue is paused.", 0),
        ),
        (
            {"due_at": START},
            ThrottleReason.MAX_RUNNING,
            ("max_running", "It has been due for 0 seconds; its queue runs as many tasks as max_running allows.", 0),
        ),
        (
            {"due_at": START},
            ThrottleReason.TENANT_MAX_RUNNING,
            (
                "tenant_max_running",
                "It has been due for 0 seconds; its tenant runs as many tasks as tenant_max_running allows.",
                0,
            ),
        ),
        (
            {"due_at": START},
            ThrottleReason.RATE,
            (
                "rate",
                "It has been due for 0 seconds; its queue has claimed as many tasks as its rate allows, "
                "until 2026-09-21T14:13:21.000Z.",
                START + 1_000,
            ),
        ),
        (
            {"due_at": START},
            None,
            ("claim", "It has been due for 0 seconds, and waits for a claim, by a ring or by the next tick.", 0),
        ),
        (
            {"status": Status.LEASED, "lease_expires_at": START},
            None,
            ("lease", "Its lease has lapsed: the next claim or tick takes the task back.", START),
        ),
        (
            {"due_at": NEVER, "id": "daily@2026-09-21T14:13:20Z", "group": "daily"},
            ThrottleReason.PAUSE,
            ("overlap", "It waits for the end of the occurrence before it.", 0),
        ),
        ({"status": Status.DEAD}, None, ("nothing", "It is dead: replay or delete it.", 0)),
    ],
)
def test_a_task_tells_what_it_waits_for_and_until_when(
    fields: dict[str, Any], held: ThrottleReason | None, what: tuple[str, str, int]
) -> None:
    until = START + 1_000 if held is ThrottleReason.RATE else 0
    assert waiting(task(**fields), Throttle(held, until, START)) == Waiting(*what)


def test_a_delivery_that_nobody_began_says_so_with_how_often() -> None:
    detail = "handed over to lambda:report, but the function did not begin it"
    lapsed = Run(1, 8, START, START + 120_000, "undelivered", detail, Trigger.RING, 3, times=3)
    [_, given_back] = timeline(task(log=(lapsed,)))
    assert (given_back.event, given_back.times) == ("undelivered", 3)
    assert given_back.text == f"Given back after 2 minutes, not begun, no attempt spent, 3 times in a row: {detail}."


def test_what_was_handed_over_waits_to_be_begun() -> None:
    given = task(status=Status.LEASED, target="lambda:report", lease_expires_at=START + 60_000, claimed_at=START)
    waits = waiting(given, Throttle(now=START))
    assert (waits.what, waits.until) == ("lease", START + 60_000)
    assert "handed over to lambda:report, which has not begun it yet" in waits.text


def test_a_task_that_waits_for_room_at_its_target_says_so() -> None:
    waits = waiting(task(due_at=START), Throttle(ThrottleReason.TARGET, now=START + 5_000))
    assert waits.what == "target"
    assert "its target has as many tasks to begin as DUECOURSE_OUTSTANDING allows" in waits.text


@pytest.mark.parametrize(
    ("outcome", "detail", "text"),
    [
        ("undelivered", "handed over to lambda:report, but the function did not begin it", "to lambda:report, but the"),
        ("lapsed", "the lease lapsed", "ended without a settle, 3 times in a row: its process died or"),
        ("retry", "KeyError: 'x'", ""),
    ],
)
@pytest.mark.parametrize(
    "now", [{"due_at": START}, {"due_at": START + 60_000}, {"status": Status.LEASED, "lease_expires_at": START + 9}]
)
def test_a_run_that_ended_without_a_settle_is_named_while_its_task_waits(
    outcome: str, detail: str, text: str, now: dict[str, Any]
) -> None:
    run = Run(1, 8, START - 9, START - 1, outcome, detail, times=3)
    waits = waiting(task(log=(run,), **now), Throttle(now=START))
    assert text in waits.text
    assert ("settle" in waits.text) is bool(text)
