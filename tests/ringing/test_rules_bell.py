"""The bell hangs at the earliest instant that could change something, after every verb and on every store."""

import pytest

from duecourse.ledger.operations import Move
from duecourse.ledger.store.ledger import Ledger
from duecourse.ledger.task import Ending, OnDuplicate, RetryPolicy
from tests.support.clock import START, HandClock
from tests.support.ledger import (
    LATER_MS,
    LEASE_MS,
    SHARD,
    add,
    bell,
    bring,
    claim,
    claim_one,
    lease_of,
    new,
    settle,
    stored_task,
)

DEADMAN_MS = 1_000


def test_an_empty_shard_has_no_bell(store: Ledger) -> None:
    assert bell(store) == 0
    assert store.claim(SHARD, 5, lease_ms=LEASE_MS).bell_at == 0


def test_it_hangs_at_the_head(store: Ledger, clock: HandClock) -> None:
    add(store, "b", delay_ms=500)
    assert bell(store) == clock.at + 500
    add(store, "c", delay_ms=900)
    assert bell(store) == clock.at + 500
    store.add([new("d", delay_ms=700), new("a", delay_ms=200)])
    assert bell(store) == clock.at + 200


@pytest.mark.parametrize("due_at", [START, START - 1, START - 60_000, 1, 0])
def test_what_is_added_due_rings_a_millisecond_from_now(store: Ledger, clock: HandClock, due_at: int) -> None:
    add(store, "later", delay_ms=500)
    add(store, due_at=due_at)
    assert bell(store) == clock.at + 1


def test_one_of_a_batch_that_is_due_rings_even_where_another_in_it_is_replaced(store: Ledger, clock: HandClock) -> None:
    later = new("b", delay_ms=700)
    store.add([new("a"), later, later._replace(on_duplicate=OnDuplicate.REPLACE)])
    assert bell(store) == clock.at + 1


def test_a_lease_hangs_it_at_its_end(store: Ledger, clock: HandClock) -> None:
    task = claim_one(store)
    assert bell(store) == clock.at + LEASE_MS
    clock.advance(10)
    store.extend(SHARD, [lease_of(task)], 2 * LEASE_MS)
    assert bell(store) == clock.at + 2 * LEASE_MS
    add(store, "b", delay_ms=5)
    assert bell(store) == clock.at + 5


def test_what_is_added_before_the_head_is_rung_for_though_a_lease_ends_sooner(store: Ledger, clock: HandClock) -> None:
    add(store)
    (task,) = claim(store, lease_ms=500)
    add(store, "b", delay_ms=900)
    add(store, "c", delay_ms=700)
    assert bell(store) == clock.at + 500
    settle(store, task, Ending.DONE)
    assert bell(store) == clock.at + 700


def test_a_claim_that_leaves_backlog_hangs_a_deadman(store: Ledger, clock: HandClock) -> None:
    store.add([new(f"t{n}") for n in range(3)])
    clock.advance(2)
    first = store.claim(SHARD, 1, lease_ms=LEASE_MS)
    assert first.bell_at == clock.at + DEADMAN_MS == bell(store)
    clock.advance(400)
    assert store.claim(SHARD, 1, lease_ms=LEASE_MS).bell_at == first.bell_at
    assert store.claim(SHARD, 1, lease_ms=LEASE_MS).bell_at == first.now + LEASE_MS


def test_after_a_step_of_the_clock_backwards_it_hangs_at_the_head_again(store: Ledger, clock: HandClock) -> None:
    store.add([new("a"), new("b")])
    (running,) = claim(store, 1)  # what is left counts as ripe from here on
    clock.advance(-10_000)
    store.save(SHARD, lease_of(running), "1")
    assert bell(store) == clock.at + 10_000


def test_after_a_step_of_the_clock_backwards_a_deadman_is_no_more_than_a_second_off(
    store: Ledger, clock: HandClock
) -> None:
    store.add([new("a"), new("b")])
    clock.advance(8_000)
    (running,) = claim(store, 1)
    clock.advance(-5_000)
    store.save(SHARD, lease_of(running), "1")
    assert bell(store) == clock.at + DEADMAN_MS


def test_an_overdue_head_that_nobody_claims_gets_one_deadman_a_second(store: Ledger, clock: HandClock) -> None:
    add(store)
    clock.advance(5)
    for _ in range(3):
        assert store.sweep(SHARD, retention_ms=1_000).bell_at == clock.at + DEADMAN_MS
        clock.advance(DEADMAN_MS // 2)
        assert store.sweep(SHARD, retention_ms=1_000).bell_at == clock.at + DEADMAN_MS // 2
        clock.advance(DEADMAN_MS // 2 + 1)


def test_a_lost_bell_is_hung_again_by_the_next_verb_of_any_kind(store: Ledger, clock: HandClock) -> None:
    task = claim_one(store, "running")
    add(store, delay_ms=50)
    clock.advance(1_000)
    store.save(SHARD, lease_of(task), "1")
    assert clock.at <= bell(store) <= clock.at + DEADMAN_MS


@pytest.mark.parametrize(
    ("how", "rings_in"),
    [
        (Ending.DONE, 0),
        (Ending.DROP, 0),
        (Ending.AGAIN, 70),
        (Ending.RETRY, 70),
        (Ending.RELEASE, 70),
    ],
)
def test_a_settle_hangs_it_where_the_task_stands_next(
    store: Ledger, clock: HandClock, how: Ending, rings_in: int
) -> None:
    settle(store, claim_one(store), how, delay_ms=70)
    assert bell(store) == (clock.at + rings_in if rings_in else 0)


@pytest.mark.parametrize("how", [Ending.AGAIN, Ending.RETRY, Ending.RELEASE])
def test_a_settle_that_makes_its_task_due_rings_at_once(store: Ledger, clock: HandClock, how: Ending) -> None:
    settle(store, claim_one(store), how)
    assert bell(store) == clock.at + 1


def test_move_cancel_and_replay_hang_it_anew(store: Ledger, clock: HandClock) -> None:
    add(store, delay_ms=50)
    store.move("default", [Move("a", delay_ms=90)])
    assert bell(store) == clock.at + 90
    store.move("default", [Move("a")])
    assert bell(store) == clock.at + 1
    store.cancel("default", ["a"])
    assert bell(store) == 0
    bring(store, "dead", "b")
    assert bell(store) == 0
    store.replay("default", ["b"])
    assert bell(store) == clock.at + 1


def test_force_hangs_it_anew(store: Ledger, clock: HandClock) -> None:
    claim_one(store)
    store.move("default", [Move("a", delay_ms=LATER_MS, force=True)])
    assert bell(store) == clock.at + LATER_MS
    clock.advance(LATER_MS)
    claim(store)
    store.cancel("default", ["a"], force=True)
    assert bell(store) == 0


def test_after_a_step_of_the_clock_backwards_an_add_sets_a_deadman_right(store: Ledger, clock: HandClock) -> None:
    add(store, "head", due_at=START + 50)
    clock.advance(100)
    add(store, "far", delay_ms=LATER_MS)
    assert bell(store) == clock.at + DEADMAN_MS
    clock.advance(-80)
    add(store, "farther", delay_ms=LATER_MS)
    assert bell(store) == START + 50


def test_after_a_step_of_the_clock_backwards_an_add_hangs_it_at_a_lease_that_had_lapsed(
    store: Ledger, clock: HandClock
) -> None:
    add(store, "far", delay_ms=LATER_MS)
    claim_one(store)
    store.extend(SHARD, [lease_of(stored_task(store))], 50)
    clock.advance(100)
    add(store, "farther", delay_ms=LATER_MS)
    assert bell(store) == clock.at + DEADMAN_MS
    clock.advance(-80)
    add(store, "farthest", delay_ms=2 * LATER_MS)
    assert bell(store) == START + 50


def test_a_paused_queue_contributes_its_leases_alone(store: Ledger, clock: HandClock) -> None:
    claim_one(store, "running")
    add(store, "overdue")
    clock.advance(3)
    store.configure("default", {"paused": True})
    assert bell(store) == clock.at - 3 + LEASE_MS
    add(store, "more")
    assert bell(store) == clock.at - 3 + LEASE_MS
    store.configure("default", {"paused": False})
    assert bell(store) == clock.at + 1


def test_a_paused_queue_without_leases_has_no_bell(store: Ledger, clock: HandClock) -> None:
    add(store)
    store.configure("default", {"paused": True})
    for _ in range(3):
        assert store.claim(SHARD, 5, lease_ms=LEASE_MS).bell_at == 0
        clock.advance(5_000)
    assert store.sweep(SHARD, retention_ms=1_000).bell_at == 0


def test_a_replacement_that_takes_its_place_is_rung_for(store: Ledger, clock: HandClock) -> None:
    running = claim_one(store, retry=RetryPolicy(max_attempts=1))
    store.add([new(on_duplicate=OnDuplicate.REPLACE, delay_ms=10)])
    assert bell(store) == clock.at + LEASE_MS
    clock.advance(20)
    settle(store, running, Ending.DONE)
    assert bell(store) == clock.at + 1
