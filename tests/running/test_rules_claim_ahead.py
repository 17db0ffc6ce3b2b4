"""Tasks that are claimed ahead, and leases that lapse unattended: an attempt is a run that began."""

import pytest

from duecourse.ledger.operation_types import Settled
from duecourse.ledger.operations.ledger import Ledger
from duecourse.ledger.task import Ending, RetryPolicy, Status
from tests.support.clock import HandClock
from tests.support.ledger import LEASE_MS, SHARD, add, bell, claim, claim_one, lease_of, new, settle, stored_task

ONCE = {"retry": RetryPolicy(max_attempts=1)}
MOST = 20
SOME_SECONDS_MS = 5_000


def claim_ahead(ledger: Ledger, at_once: int = 0) -> list[str]:
    """Ids of what one claim leases, whose caller begins so many at once."""
    return [task.id for task in ledger.claim(SHARD, 100, lease_ms=LEASE_MS, at_once=at_once).tasks]


@pytest.mark.parametrize("how", ["claim", "sweep", "take"])
def test_what_was_claimed_ahead_spends_no_attempt_if_it_lapses_and_is_due_at_once(
    ledger: Ledger, clock: HandClock, how: str
) -> None:
    ledger.add([new(id, **ONCE) for id in "abc"])
    due_at = stored_task(ledger).due_at
    assert claim_ahead(ledger, 1) == ["a", "b", "c"]
    clock.advance(LEASE_MS)
    if how == "sweep":
        ledger.sweep(SHARD, retention_ms=LEASE_MS)
    if how == "take":
        ledger.take("default", "nothing", lease_ms=LEASE_MS)
    assert [(task.id, task.run, task.attempt, task.due_at) for task in claim(ledger)] == [
        ("b", 2, 1, due_at),
        ("c", 2, 1, due_at),
    ]
    assert (stored_task(ledger, "a").status, stored_task(ledger, "a").error) == (Status.DEAD, "the lease lapsed")
    [entry] = stored_task(ledger, "b").log
    assert (entry.outcome, entry.run) == ("undelivered", 1)


def test_of_a_claim_in_several_scripts_no_more_begin_than_its_caller_said(ledger: Ledger, clock: HandClock) -> None:
    ledger.add([new("a", **ONCE), new("b", **ONCE), new("x", tenant="t2", **ONCE)])
    assert claim_ahead(ledger, 2) == ["a", "b", "x"]
    clock.advance(LEASE_MS)
    assert [(task.id, task.attempt) for task in claim(ledger)] == [("x", 1)]


def test_an_extension_says_that_a_task_has_begun(ledger: Ledger, clock: HandClock) -> None:
    ledger.add([new(id, **ONCE) for id in "ab"])
    a, _ = ledger.claim(SHARD, 100, lease_ms=LEASE_MS, at_once=0).tasks
    clock.advance(1_000)
    assert ledger.extend(SHARD, [lease_of(a)], 0, at_least=True) == [a.lease_expires_at]
    assert (stored_task(ledger, "a").token, stored_task(ledger, "a").run) == (a.token, 1)
    clock.advance(LEASE_MS - 1_000)
    assert [task.id for task in claim(ledger)] == ["b"]
    assert stored_task(ledger, "a").status == Status.DEAD


def test_a_checkpoint_says_that_a_task_has_begun(ledger: Ledger, clock: HandClock) -> None:
    ledger.add([new("a", **ONCE)])
    [task] = ledger.claim(SHARD, 100, lease_ms=LEASE_MS, at_once=0).tasks
    assert ledger.save(SHARD, lease_of(task), "1")
    clock.advance(LEASE_MS)
    assert claim(ledger) == []
    assert stored_task(ledger).status == Status.DEAD


def test_what_was_claimed_ahead_settles_as_any_other(ledger: Ledger) -> None:
    ledger.add([new(id) for id in "abcd"])
    tasks = ledger.claim(SHARD, 100, lease_ms=LEASE_MS, at_once=0).tasks
    plain = claim_one(ledger, "plain")
    assert tasks[0].trigger == plain.trigger
    endings = [Ending.DONE, Ending.RETRY, Ending.RELEASE, Ending.DROP]
    replies = [settle(ledger, task, how, late_ms=3) for task, how in zip(tasks, endings, strict=True)]
    assert replies == [Settled.DONE, Settled.RETRIED, Settled.RELEASED, Settled.DEAD]
    assert [settle(ledger, tasks[0], Ending.DONE)] == [Settled.DONE]
    assert {stored_task(ledger, task.id).log[-1].trigger for task in tasks} == {plain.trigger}


def test_what_lapses_again_and_again_before_it_began_waits_longer_each_time_and_is_dead_in_the_end(
    ledger: Ledger, clock: HandClock
) -> None:
    add(ledger, **ONCE)
    waits = []
    for _ in range(MOST - 1):
        assert claim_ahead(ledger) == ["a"]
        clock.advance(LEASE_MS)
        ledger.sweep(SHARD, retention_ms=LEASE_MS)
        waits.append(max(0, stored_task(ledger).due_at - clock.at))
        clock.advance(waits[-1])
    assert waits[:5] == [0, 1_000, 2_000, 4_000, 8_000]
    assert waits[-1] == 300_000
    assert claim_ahead(ledger) == ["a"]
    clock.advance(LEASE_MS)
    ledger.sweep(SHARD, retention_ms=LEASE_MS)
    assert stored_task(ledger).status == Status.DEAD
    assert stored_task(ledger).error.startswith("undelivered: claimed ahead")


def test_what_was_claimed_ahead_dies_at_its_deadline_as_any_other(ledger: Ledger, clock: HandClock) -> None:
    add(ledger, deadline_ms=LEASE_MS)
    assert claim_ahead(ledger) == ["a"]
    clock.advance(LEASE_MS)
    assert claim(ledger) == []
    assert stored_task(ledger).error == "past its deadline"


@pytest.mark.parametrize("how", ["claim", "sweep"])
def test_leases_that_lapsed_unattended_get_some_seconds_more_in_which_their_tasks_settle(
    ledger: Ledger, clock: HandClock, how: str
) -> None:
    ledger.configure("default", {"max_running": 2})
    ledger.add([new(id, **ONCE) for id in "abc"])
    a, b = claim(ledger)
    clock.advance(LEASE_MS + 10_000)  # no script ran meanwhile

    def look() -> list[str]:
        if how == "sweep":
            assert ledger.sweep(SHARD, retention_ms=LEASE_MS).reclaimed == 0
        return [task.id for task in claim(ledger)]

    assert look() == []
    assert bell(ledger) == clock.at + SOME_SECONDS_MS
    clock.advance(1_000)
    assert settle(ledger, a, Ending.DONE) is Settled.DONE
    assert look() == ["c"]
    assert ledger.extend(SHARD, [lease_of(b)], LEASE_MS) == [clock.at + LEASE_MS]
    clock.advance(SOME_SECONDS_MS)
    assert look() == []
    assert stored_task(ledger, "b").token == b.token


def test_a_lease_gets_those_seconds_once(ledger: Ledger, clock: HandClock) -> None:
    ledger.add([new(id) for id in "ab"])
    claim(ledger)
    clock.advance(LEASE_MS + 10_000)
    assert claim(ledger) == []
    clock.advance(60_000)  # nobody looked again
    assert [(task.id, task.attempt) for task in claim(ledger)] == [("a", 2), ("b", 2)]
    clock.advance(LEASE_MS + 10_000)
    assert claim(ledger) == [], "the next lease is another"


def test_a_lease_that_lapses_while_scripts_run_is_taken_back_at_once(ledger: Ledger, clock: HandClock) -> None:
    claim_one(ledger)
    clock.advance(LEASE_MS + 1_000)
    assert [task.attempt for task in claim(ledger)] == [2]


def test_more_leases_than_one_script_takes_back_get_the_same_seconds(ledger: Ledger, clock: HandClock) -> None:
    ledger.add([new(f"t{n:03}") for n in range(1_000)])
    while claim(ledger, 500):
        pass
    clock.advance(LEASE_MS + 10_000)
    swept = []
    for _ in range(3):
        swept.append(ledger.sweep(SHARD, retention_ms=LEASE_MS))
        clock.advance(1_000)
    assert [one.reclaimed for one in swept] == [0, 0, 0]
    assert [one.more for one in swept] == [True, True, False]
    clock.advance(SOME_SECONDS_MS - 3_000)
    assert sum(ledger.sweep(SHARD, retention_ms=LEASE_MS).reclaimed for _ in range(3)) == 1_000
