"""What tells of an end is a task like any: limits hold it back, and it is rung for where they do not."""

import pytest

from duecourse.ledger.operations.ledger import Ledger
from duecourse.ledger.queue import QueueChanges
from duecourse.ledger.task import Ending, RetryPolicy, Status
from tests.support.clock import HandClock
from tests.support.ledger import LATER_MS, LEASE_MS, add, bell, claim, new, settle, stored_task

URL = "https://a.example/hook"
ONCE = RetryPolicy(max_attempts=1)
LIMITS: list[QueueChanges] = [{"max_running": 1}, {"tenant_max_running": 1}]


def meet_another_tenant(ledger: Ledger) -> None:
    """A claim asks only for tenants that were met."""
    ledger.add([new("met", tenant="other")])
    settle(ledger, claim(ledger)[0], Ending.DONE)


@pytest.mark.parametrize("limit", LIMITS, ids=str)
def test_it_takes_a_place_like_any_task(ledger: Ledger, clock: HandClock, limit: QueueChanges) -> None:
    ledger.configure("default", limit)
    ledger.add([new("a", notify=URL), new("b")])
    (a,) = claim(ledger)
    clock.advance(5)
    settle(ledger, a, Ending.DONE)
    assert bell(ledger) == clock.at + 1
    (told,) = claim(ledger)
    assert (told.id[:2], claim(ledger), bell(ledger)) == ("a~", [], clock.at + LEASE_MS)
    clock.advance(5)
    settle(ledger, told, Ending.DONE)
    assert bell(ledger) == clock.at + 1
    assert [task.id for task in claim(ledger)] == ["b"]


def test_one_of_a_task_that_died_in_a_claim_with_no_place_for_it_is_not_rung_for(
    ledger: Ledger, clock: HandClock
) -> None:
    meet_another_tenant(ledger)
    ledger.configure("default", {"max_running": 1})
    add(ledger, "a", notify=URL, retry=ONCE)
    assert len(claim(ledger, lease_ms=50)) == 1
    ledger.add([new("b", tenant="other")])
    clock.advance(50)
    (b,) = claim(ledger)
    assert (b.id, stored_task(ledger).status, bell(ledger)) == ("b", Status.DEAD, clock.at + LEASE_MS)
    settle(ledger, b, Ending.DONE)
    assert [task.id[:2] for task in claim(ledger)] == ["a~"]


def test_one_of_a_task_that_died_in_a_claim_that_leaves_it_is_rung_for(ledger: Ledger, clock: HandClock) -> None:
    meet_another_tenant(ledger)
    ledger.configure("default", {"tenant_max_running": 2})
    add(ledger, "a", notify=URL, retry=ONCE)
    assert len(claim(ledger, lease_ms=50)) == 1
    ledger.add([new("b", tenant="other")])
    clock.advance(50)
    assert [task.id for task in claim(ledger, 1)] == ["b"]
    assert bell(ledger) == clock.at + 1


def test_one_of_a_task_that_died_in_a_claim_has_its_tenants_next_turn(ledger: Ledger, clock: HandClock) -> None:
    ledger.add([new("a", tenant="1", notify=URL, deadline_ms=1)])
    ledger.add([new(f"b{n}", tenant="2") for n in range(3)])
    clock.advance(1)
    assert [task.id[:2] for task in claim(ledger, 2)] == ["b0", "a~"]


def test_taking_a_task_tells_of_what_lapsed_before_it(ledger_that_reports_deaths: Ledger, clock: HandClock) -> None:
    add(ledger_that_reports_deaths, "a", notify=URL, retry=ONCE)
    claim(ledger_that_reports_deaths, lease_ms=50)
    add(ledger_that_reports_deaths, "b", delay_ms=LATER_MS)
    clock.advance(50)
    assert ledger_that_reports_deaths.take("default", "b", lease_ms=LEASE_MS)
    assert bell(ledger_that_reports_deaths) == clock.at + 1
    assert sorted(task.kind for task in claim(ledger_that_reports_deaths)) == ["task.dead", "task.ended"]
