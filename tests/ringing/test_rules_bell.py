"""The bell hangs at the earliest instant that could change something, after every verb and on every store."""

import pytest

from duecourse.ledger.operation_types import Move
from duecourse.ledger.operations.ledger import Ledger
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


def test_an_empty_shard_has_no_bell(ledger: Ledger) -> None:
    assert bell(ledger) == 0
    assert ledger.claim(SHARD, 5, lease_ms=LEASE_MS).bell_at == 0


def test_it_hangs_at_the_head(ledger: Ledger, clock: HandClock) -> None:
    add(ledger, "b", delay_ms=500)
    assert bell(ledger) == clock.at + 500
    add(ledger, "c", delay_ms=900)
    assert bell(ledger) == clock.at + 500
    ledger.add([new("d", delay_ms=700), new("a", delay_ms=200)])
    assert bell(ledger) == clock.at + 200


@pytest.mark.parametrize("due_at", [START, START - 1, START - 60_000, 1, 0])
def test_what_is_added_due_rings_a_millisecond_from_now(ledger: Ledger, clock: HandClock, due_at: int) -> None:
    add(ledger, "later", delay_ms=500)
    add(ledger, due_at=due_at)
    assert bell(ledger) == clock.at + 1


def test_one_of_a_batch_that_is_due_rings_even_where_another_in_it_is_replaced(
    ledger: Ledger, clock: HandClock
) -> None:
    later = new("b", delay_ms=700)
    ledger.add([new("a"), later, later._replace(on_duplicate=OnDuplicate.REPLACE)])
    assert bell(ledger) == clock.at + 1


def test_a_lease_hangs_it_at_its_end(ledger: Ledger, clock: HandClock) -> None:
    task = claim_one(ledger)
    assert bell(ledger) == clock.at + LEASE_MS
    clock.advance(10)
    ledger.extend(SHARD, [lease_of(task)], 2 * LEASE_MS)
    assert bell(ledger) == clock.at + 2 * LEASE_MS
    add(ledger, "b", delay_ms=5)
    assert bell(ledger) == clock.at + 5


def test_what_is_added_before_the_head_is_rung_for_though_a_lease_ends_sooner(ledger: Ledger, clock: HandClock) -> None:
    add(ledger)
    (task,) = claim(ledger, lease_ms=500)
    add(ledger, "b", delay_ms=900)
    add(ledger, "c", delay_ms=700)
    assert bell(ledger) == clock.at + 500
    settle(ledger, task, Ending.DONE)
    assert bell(ledger) == clock.at + 700


def test_a_claim_that_leaves_backlog_hangs_a_deadman(ledger: Ledger, clock: HandClock) -> None:
    ledger.add([new(f"t{n}") for n in range(3)])
    clock.advance(2)
    first = ledger.claim(SHARD, 1, lease_ms=LEASE_MS)
    assert first.bell_at == clock.at + DEADMAN_MS == bell(ledger)
    clock.advance(400)
    assert ledger.claim(SHARD, 1, lease_ms=LEASE_MS).bell_at == first.bell_at
    assert ledger.claim(SHARD, 1, lease_ms=LEASE_MS).bell_at == first.now + LEASE_MS


def test_after_a_step_of_the_clock_backwards_it_hangs_at_the_head_again(ledger: Ledger, clock: HandClock) -> None:
    ledger.add([new("a"), new("b")])
    (running,) = claim(ledger, 1)  # what is left counts as ripe from here on
    clock.advance(-10_000)
    ledger.save(SHARD, lease_of(running), "1")
    assert bell(ledger) == clock.at + 10_000


def test_after_a_step_of_the_clock_backwards_a_deadman_is_no_more_than_a_second_off(
    ledger: Ledger, clock: HandClock
) -> None:
    ledger.add([new("a"), new("b")])
    clock.advance(8_000)
    (running,) = claim(ledger, 1)
    clock.advance(-5_000)
    ledger.save(SHARD, lease_of(running), "1")
    assert bell(ledger) == clock.at + DEADMAN_MS


def test_an_overdue_head_that_nobody_claims_gets_one_deadman_a_second(ledger: Ledger, clock: HandClock) -> None:
    add(ledger)
    clock.advance(5)
    for _ in range(3):
        assert ledger.sweep(SHARD, retention_ms=1_000).bell_at == clock.at + DEADMAN_MS
        clock.advance(DEADMAN_MS // 2)
        assert ledger.sweep(SHARD, retention_ms=1_000).bell_at == clock.at + DEADMAN_MS // 2
        clock.advance(DEADMAN_MS // 2 + 1)


def test_a_lost_bell_is_hung_again_by_the_next_verb_of_any_kind(ledger: Ledger, clock: HandClock) -> None:
    task = claim_one(ledger, "running")
    add(ledger, delay_ms=50)
    clock.advance(1_000)
    ledger.save(SHARD, lease_of(task), "1")
    assert clock.at <= bell(ledger) <= clock.at + DEADMAN_MS


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
    ledger: Ledger, clock: HandClock, how: Ending, rings_in: int
) -> None:
    settle(ledger, claim_one(ledger), how, delay_ms=70)
    assert bell(ledger) == (clock.at + rings_in if rings_in else 0)


@pytest.mark.parametrize("how", [Ending.AGAIN, Ending.RETRY, Ending.RELEASE])
def test_a_settle_that_makes_its_task_due_rings_at_once(ledger: Ledger, clock: HandClock, how: Ending) -> None:
    settle(ledger, claim_one(ledger), how)
    assert bell(ledger) == clock.at + 1


def test_move_cancel_and_replay_hang_it_anew(ledger: Ledger, clock: HandClock) -> None:
    add(ledger, delay_ms=50)
    ledger.move("default", [Move("a", delay_ms=90)])
    assert bell(ledger) == clock.at + 90
    ledger.move("default", [Move("a")])
    assert bell(ledger) == clock.at + 1
    ledger.cancel("default", ["a"])
    assert bell(ledger) == 0
    bring(ledger, "dead", "b")
    assert bell(ledger) == 0
    ledger.replay("default", ["b"])
    assert bell(ledger) == clock.at + 1


def test_force_hangs_it_anew(ledger: Ledger, clock: HandClock) -> None:
    claim_one(ledger)
    ledger.move("default", [Move("a", delay_ms=LATER_MS, force=True)])
    assert bell(ledger) == clock.at + LATER_MS
    clock.advance(LATER_MS)
    claim(ledger)
    ledger.cancel("default", ["a"], force=True)
    assert bell(ledger) == 0


def test_after_a_step_of_the_clock_backwards_an_add_sets_a_deadman_right(ledger: Ledger, clock: HandClock) -> None:
    add(ledger, "head", due_at=START + 50)
    clock.advance(100)
    add(ledger, "far", delay_ms=LATER_MS)
    assert bell(ledger) == clock.at + DEADMAN_MS
    clock.advance(-80)
    add(ledger, "farther", delay_ms=LATER_MS)
    assert bell(ledger) == START + 50


def test_after_a_step_of_the_clock_backwards_an_add_hangs_it_at_a_lease_that_had_lapsed(
    ledger: Ledger, clock: HandClock
) -> None:
    add(ledger, "far", delay_ms=LATER_MS)
    claim_one(ledger)
    ledger.extend(SHARD, [lease_of(stored_task(ledger))], 50)
    clock.advance(100)
    add(ledger, "farther", delay_ms=LATER_MS)
    assert bell(ledger) == clock.at + DEADMAN_MS
    clock.advance(-80)
    add(ledger, "farthest", delay_ms=2 * LATER_MS)
    assert bell(ledger) == START + 50


def test_a_paused_queue_contributes_its_leases_alone(ledger: Ledger, clock: HandClock) -> None:
    claim_one(ledger, "running")
    add(ledger, "overdue")
    clock.advance(3)
    ledger.configure("default", {"paused": True})
    assert bell(ledger) == clock.at - 3 + LEASE_MS
    add(ledger, "more")
    assert bell(ledger) == clock.at - 3 + LEASE_MS
    ledger.configure("default", {"paused": False})
    assert bell(ledger) == clock.at + 1


def test_a_paused_queue_without_leases_has_no_bell(ledger: Ledger, clock: HandClock) -> None:
    add(ledger)
    ledger.configure("default", {"paused": True})
    for _ in range(3):
        assert ledger.claim(SHARD, 5, lease_ms=LEASE_MS).bell_at == 0
        clock.advance(5_000)
    assert ledger.sweep(SHARD, retention_ms=1_000).bell_at == 0


def test_a_replacement_that_takes_its_place_is_rung_for(ledger: Ledger, clock: HandClock) -> None:
    running = claim_one(ledger, retry=RetryPolicy(max_attempts=1))
    ledger.add([new(on_duplicate=OnDuplicate.REPLACE, delay_ms=10)])
    assert bell(ledger) == clock.at + LEASE_MS
    clock.advance(20)
    settle(ledger, running, Ending.DONE)
    assert bell(ledger) == clock.at + 1
