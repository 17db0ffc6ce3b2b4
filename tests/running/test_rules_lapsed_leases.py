"""Runs that end without a settle: whoever takes their leases back counts them, and so does the queue."""

from collections.abc import Callable

import pytest

from duecourse.ledger.operations import Claim, Delivery, Lease, Swept
from duecourse.ledger.queue import SLOT_MS, SLOTS
from duecourse.ledger.store.ledger import Ledger
from duecourse.ledger.task import Ending, OnDuplicate, RetryPolicy, Status
from tests.support.clock import HandClock
from tests.support.ledger import LATER_MS, LEASE_MS, SHARD, claim, claim_one, lease_of, new, settle, stored_task

DELIVERIES = {"report": Delivery("lambda:report", 100, LEASE_MS)}
HOUR_MS = SLOT_MS * SLOTS


def swept(store: Ledger) -> Swept:
    return store.sweep(SHARD, retention_ms=LATER_MS)


def claimed(store: Ledger) -> Claim:
    return store.claim(SHARD, 100, lease_ms=LEASE_MS)


def of_queue(store: Ledger) -> tuple[int, int]:
    """Runs of the last hour that ended without a settle, and how many of them a target had begun."""
    stats = store.stats(SHARD)
    return stats.lapsed, stats.lapsed_at_target


def hand_over(store: Ledger, *ids: str) -> list[Lease]:
    """Deliveries of tasks whose kind is handed to a function."""
    store.add([new(id, kind="report") for id in ids])
    tasks = store.claim(SHARD, 100, lease_ms=LEASE_MS, deliveries=DELIVERIES).tasks
    assert [task.id for task in tasks] == list(ids)
    return [lease_of(task) for task in tasks]


def begin(store: Ledger, leases: list[Lease]) -> None:
    nonces = [n.to_bytes(8) for n in range(1, len(leases) + 1)]
    assert all(one.token for one in store.begin(SHARD, leases, LEASE_MS, nonces))


@pytest.mark.parametrize("look", [swept, claimed])
def test_a_run_without_a_settle_is_counted_once(
    store: Ledger, clock: HandClock, look: Callable[[Ledger], Claim | Swept]
) -> None:
    store.add([new(id) for id in "abc"])
    a, *_ = claim(store)
    settle(store, a, Ending.DONE)
    assert of_queue(store) == (0, 0)
    clock.advance(LEASE_MS)
    found = look(store)
    assert (found.reclaimed, found.lapsed, found.lapsed_at_target) == (2, 2, 0)
    assert of_queue(store) == (2, 0)
    found = look(store)
    assert (found.reclaimed, found.lapsed, found.lapsed_at_target) == (0, 0, 0)
    assert of_queue(store) == (2, 0)


def test_a_take_counts_what_it_takes_back(store: Ledger, clock: HandClock) -> None:
    claim_one(store)
    clock.advance(LEASE_MS)
    assert store.take(SHARD.queue, "a", lease_ms=LEASE_MS)
    assert of_queue(store) == (1, 0)


@pytest.mark.parametrize("look", [swept, claimed])
def test_a_run_that_a_target_had_begun_is_told_from_others(
    store: Ledger, clock: HandClock, look: Callable[[Ledger], Claim | Swept]
) -> None:
    begin(store, hand_over(store, "a", "b"))
    store.add([new("here")])
    claim(store)
    clock.advance(LEASE_MS)
    found = look(store)
    assert (found.reclaimed, found.lapsed, found.lapsed_at_target) == (3, 3, 2)
    assert of_queue(store) == (3, 2)


def test_a_run_whose_lease_was_extended_or_saved_a_state_is_its_targets_still(store: Ledger, clock: HandClock) -> None:
    begin(store, hand_over(store, "a"))
    lease = lease_of(stored_task(store))
    clock.advance(10)
    assert store.extend(SHARD, [lease], LEASE_MS) == [clock.at + LEASE_MS]
    assert store.save(SHARD, lease, '{"page":2}')
    clock.advance(LEASE_MS)
    assert swept(store).lapsed_at_target == 1


def test_a_delivery_or_a_lease_that_nobody_began_is_no_run(store: Ledger, clock: HandClock) -> None:
    hand_over(store, "a")
    store.add([new("ahead")])
    store.claim(SHARD, 100, lease_ms=LEASE_MS, at_once=0)
    clock.advance(LEASE_MS)
    found = swept(store)
    assert (found.reclaimed, found.lapsed, found.lapsed_at_target) == (2, 0, 0)
    assert of_queue(store) == (0, 0)


def test_the_last_run_counts_too_and_so_does_one_that_was_replaced(store: Ledger, clock: HandClock) -> None:
    claim_one(store, retry=RetryPolicy(max_attempts=1))
    claim_one(store, "b")
    store.add([new("b", on_duplicate=OnDuplicate.REPLACE, delay_ms=LATER_MS)])
    clock.advance(LEASE_MS)
    found = swept(store)
    assert (found.died, found.lapsed) == (1, 2)
    assert stored_task(store).status is Status.DEAD


def lapse(store: Ledger, clock: HandClock, *ids: str) -> None:
    """One run of each of these tasks ends without a settle; the next one is done."""
    store.add([new(id) for id in ids])
    claim(store)
    clock.advance(LEASE_MS)
    for task in claim(store):
        settle(store, task, Ending.DONE)


def test_the_count_is_of_the_last_hour(store: Ledger, clock: HandClock) -> None:
    clock.advance(-clock.at % SLOT_MS)
    began = clock.at
    lapse(store, clock, "a", "b")
    lapse(store, clock, "c")
    clock.at = began + 3 * SLOT_MS
    lapse(store, clock, "d")
    assert of_queue(store) == (4, 0)
    clock.at = began + HOUR_MS - 1
    assert of_queue(store) == (4, 0)
    clock.at += 1
    assert of_queue(store) == (1, 0)
    clock.at += 3 * SLOT_MS
    assert of_queue(store) == (0, 0)


def test_old_slots_are_forgotten_by_the_next_count(store: Ledger, clock: HandClock) -> None:
    clock.advance(-clock.at % SLOT_MS)
    began = clock.at
    for slot in range(3 * SLOTS):
        clock.at = began + slot * SLOT_MS
        lapse(store, clock, str(slot))
    assert of_queue(store) == (SLOTS, 0)


def test_a_clock_that_is_put_back_leaves_no_count_of_later(store: Ledger, clock: HandClock) -> None:
    lapse(store, clock, "a")
    clock.at -= 2 * HOUR_MS
    assert of_queue(store) == (0, 0)
    lapse(store, clock, "b")
    assert of_queue(store) == (1, 0)
    clock.at += 2 * HOUR_MS
    assert of_queue(store) == (0, 0)
