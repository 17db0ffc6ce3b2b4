"""Tasks that are claimed ahead, and leases that lapse unattended: an attempt is a run that began."""

import pytest

from duecourse.ledger.operations import Settled
from duecourse.ledger.store.ledger import Ledger
from duecourse.ledger.task import Ending, RetryPolicy, Status
from tests.support.clock import HandClock
from tests.support.ledger import LEASE_MS, SHARD, add, bell, claim, claim_one, lease_of, new, settle, stored_task

ONCE = {"retry": RetryPolicy(max_attempts=1)}
MOST = 20
SOME_SECONDS_MS = 5_000


def claim_ahead(store: Ledger, at_once: int = 0) -> list[str]:
    """Ids of what one claim leases, whose caller begins so many at once."""
    return [task.id for task in store.claim(SHARD, 100, lease_ms=LEASE_MS, at_once=at_once).tasks]


@pytest.mark.parametrize("how", ["claim", "sweep", "take"])
def test_what_was_claimed_ahead_spends_no_attempt_if_it_lapses_and_is_due_at_once(
    store: Ledger, clock: HandClock, how: str
) -> None:
    store.add([new(id, **ONCE) for id in "abc"])
    due_at = stored_task(store).due_at
    assert claim_ahead(store, 1) == ["a", "b", "c"]
    clock.advance(LEASE_MS)
    if how == "sweep":
        store.sweep(SHARD, retention_ms=LEASE_MS)
    if how == "take":
        store.take("default", "nothing", lease_ms=LEASE_MS)
    assert [(task.id, task.run, task.attempt, task.due_at) for task in claim(store)] == [
        ("b", 2, 1, due_at),
        ("c", 2, 1, due_at),
    ]
    assert (stored_task(store, "a").status, stored_task(store, "a").error) == (Status.DEAD, "the lease lapsed")
    [entry] = stored_task(store, "b").log
    assert (entry.outcome, entry.run) == ("undelivered", 1)


def test_of_a_claim_in_several_scripts_no_more_begin_than_its_caller_said(store: Ledger, clock: HandClock) -> None:
    store.add([new("a", **ONCE), new("b", **ONCE), new("x", tenant="t2", **ONCE)])
    assert claim_ahead(store, 2) == ["a", "b", "x"]
    clock.advance(LEASE_MS)
    assert [(task.id, task.attempt) for task in claim(store)] == [("x", 1)]


def test_an_extension_says_that_a_task_has_begun(store: Ledger, clock: HandClock) -> None:
    store.add([new(id, **ONCE) for id in "ab"])
    a, _ = store.claim(SHARD, 100, lease_ms=LEASE_MS, at_once=0).tasks
    clock.advance(1_000)
    assert store.extend(SHARD, [lease_of(a)], 0, at_least=True) == [a.lease_expires_at]
    assert (stored_task(store, "a").token, stored_task(store, "a").run) == (a.token, 1)
    clock.advance(LEASE_MS - 1_000)
    assert [task.id for task in claim(store)] == ["b"]
    assert stored_task(store, "a").status == Status.DEAD


def test_a_checkpoint_says_that_a_task_has_begun(store: Ledger, clock: HandClock) -> None:
    store.add([new("a", **ONCE)])
    [task] = store.claim(SHARD, 100, lease_ms=LEASE_MS, at_once=0).tasks
    assert store.save(SHARD, lease_of(task), "1")
    clock.advance(LEASE_MS)
    assert claim(store) == []
    assert stored_task(store).status == Status.DEAD


def test_what_was_claimed_ahead_settles_as_any_other(store: Ledger) -> None:
    store.add([new(id) for id in "abcd"])
    tasks = store.claim(SHARD, 100, lease_ms=LEASE_MS, at_once=0).tasks
    plain = claim_one(store, "plain")
    assert tasks[0].trigger == plain.trigger
    endings = [Ending.DONE, Ending.RETRY, Ending.RELEASE, Ending.DROP]
    replies = [settle(store, task, how, late_ms=3) for task, how in zip(tasks, endings, strict=True)]
    assert replies == [Settled.DONE, Settled.RETRIED, Settled.RELEASED, Settled.DEAD]
    assert [settle(store, tasks[0], Ending.DONE)] == [Settled.DONE]
    assert {stored_task(store, task.id).log[-1].trigger for task in tasks} == {plain.trigger}


def test_what_lapses_again_and_again_before_it_began_waits_longer_each_time_and_is_dead_in_the_end(
    store: Ledger, clock: HandClock
) -> None:
    add(store, **ONCE)
    waits = []
    for _ in range(MOST - 1):
        assert claim_ahead(store) == ["a"]
        clock.advance(LEASE_MS)
        store.sweep(SHARD, retention_ms=LEASE_MS)
        waits.append(max(0, stored_task(store).due_at - clock.at))
        clock.advance(waits[-1])
    assert waits[:5] == [0, 1_000, 2_000, 4_000, 8_000]
    assert waits[-1] == 300_000
    assert claim_ahead(store) == ["a"]
    clock.advance(LEASE_MS)
    store.sweep(SHARD, retention_ms=LEASE_MS)
    assert stored_task(store).status == Status.DEAD
    assert stored_task(store).error.startswith("undelivered: claimed ahead")


def test_what_was_claimed_ahead_dies_at_its_deadline_as_any_other(store: Ledger, clock: HandClock) -> None:
    add(store, deadline_ms=LEASE_MS)
    assert claim_ahead(store) == ["a"]
    clock.advance(LEASE_MS)
    assert claim(store) == []
    assert stored_task(store).error == "past its deadline"


@pytest.mark.parametrize("how", ["claim", "sweep"])
def test_leases_that_lapsed_unattended_get_some_seconds_more_in_which_their_tasks_settle(
    store: Ledger, clock: HandClock, how: str
) -> None:
    store.configure("default", {"max_running": 2})
    store.add([new(id, **ONCE) for id in "abc"])
    a, b = claim(store)
    clock.advance(LEASE_MS + 10_000)  # no script ran meanwhile

    def look() -> list[str]:
        if how == "sweep":
            assert store.sweep(SHARD, retention_ms=LEASE_MS).reclaimed == 0
        return [task.id for task in claim(store)]

    assert look() == []
    assert bell(store) == clock.at + SOME_SECONDS_MS
    clock.advance(1_000)
    assert settle(store, a, Ending.DONE) is Settled.DONE
    assert look() == ["c"]
    assert store.extend(SHARD, [lease_of(b)], LEASE_MS) == [clock.at + LEASE_MS]
    clock.advance(SOME_SECONDS_MS)
    assert look() == []
    assert stored_task(store, "b").token == b.token


def test_a_lease_gets_those_seconds_once(store: Ledger, clock: HandClock) -> None:
    store.add([new(id) for id in "ab"])
    claim(store)
    clock.advance(LEASE_MS + 10_000)
    assert claim(store) == []
    clock.advance(60_000)  # nobody looked again
    assert [(task.id, task.attempt) for task in claim(store)] == [("a", 2), ("b", 2)]
    clock.advance(LEASE_MS + 10_000)
    assert claim(store) == [], "the next lease is another"


def test_a_lease_that_lapses_while_scripts_run_is_taken_back_at_once(store: Ledger, clock: HandClock) -> None:
    claim_one(store)
    clock.advance(LEASE_MS + 1_000)
    assert [task.attempt for task in claim(store)] == [2]


def test_more_leases_than_one_script_takes_back_get_the_same_seconds(store: Ledger, clock: HandClock) -> None:
    store.add([new(f"t{n:03}") for n in range(1_000)])
    while claim(store, 500):
        pass
    clock.advance(LEASE_MS + 10_000)
    swept = []
    for _ in range(3):
        swept.append(store.sweep(SHARD, retention_ms=LEASE_MS))
        clock.advance(1_000)
    assert [one.reclaimed for one in swept] == [0, 0, 0]
    assert [one.more for one in swept] == [True, True, False]
    clock.advance(SOME_SECONDS_MS - 3_000)
    assert sum(store.sweep(SHARD, retention_ms=LEASE_MS).reclaimed for _ in range(3)) == 1_000
