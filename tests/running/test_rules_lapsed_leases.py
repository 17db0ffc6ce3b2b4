"""Runs that end without a settle: whoever takes their leases back counts them, and so does the queue."""

from collections.abc import Callable

import pytest

from duecourse.ledger.operation_types import Claim, Delivery, Lease, Swept
from duecourse.ledger.operations.ledger import Ledger
from duecourse.ledger.queue import SLOT_MS, SLOTS
from duecourse.ledger.task import Ending, OnDuplicate, RetryPolicy, Status
from tests.support.clock import HandClock
from tests.support.ledger import LATER_MS, LEASE_MS, SHARD, claim, claim_one, lease_of, new, settle, stored_task

DELIVERIES = {"report": Delivery("lambda:report", 100, LEASE_MS)}
HOUR_MS = SLOT_MS * SLOTS


def swept(ledger: Ledger) -> Swept:
    return ledger.sweep(SHARD, retention_ms=LATER_MS)


def claimed(ledger: Ledger) -> Claim:
    return ledger.claim(SHARD, 100, lease_ms=LEASE_MS)


def of_queue(ledger: Ledger) -> tuple[int, int]:
    """Runs of the last hour that ended without a settle, and how many of them a target had begun."""
    stats = ledger.stats(SHARD)
    return stats.lapsed, stats.lapsed_at_target


def hand_over(ledger: Ledger, *ids: str) -> list[Lease]:
    """Deliveries of tasks whose kind is handed to a function."""
    ledger.add([new(id, kind="report") for id in ids])
    tasks = ledger.claim(SHARD, 100, lease_ms=LEASE_MS, deliveries=DELIVERIES).tasks
    assert [task.id for task in tasks] == list(ids)
    return [lease_of(task) for task in tasks]


def begin(ledger: Ledger, leases: list[Lease]) -> None:
    nonces = [n.to_bytes(8) for n in range(1, len(leases) + 1)]
    assert all(one.token for one in ledger.begin(SHARD, leases, LEASE_MS, nonces))


@pytest.mark.parametrize("look", [swept, claimed])
def test_a_run_without_a_settle_is_counted_once(
    ledger: Ledger, clock: HandClock, look: Callable[[Ledger], Claim | Swept]
) -> None:
    ledger.add([new(id) for id in "abc"])
    a, *_ = claim(ledger)
    settle(ledger, a, Ending.DONE)
    assert of_queue(ledger) == (0, 0)
    clock.advance(LEASE_MS)
    found = look(ledger)
    assert (found.reclaimed, found.lapsed, found.lapsed_at_target) == (2, 2, 0)
    assert of_queue(ledger) == (2, 0)
    found = look(ledger)
    assert (found.reclaimed, found.lapsed, found.lapsed_at_target) == (0, 0, 0)
    assert of_queue(ledger) == (2, 0)


def test_a_take_counts_what_it_takes_back(ledger: Ledger, clock: HandClock) -> None:
    claim_one(ledger)
    clock.advance(LEASE_MS)
    assert ledger.take(SHARD.queue, "a", lease_ms=LEASE_MS)
    assert of_queue(ledger) == (1, 0)


@pytest.mark.parametrize("look", [swept, claimed])
def test_a_run_that_a_target_had_begun_is_told_from_others(
    ledger: Ledger, clock: HandClock, look: Callable[[Ledger], Claim | Swept]
) -> None:
    begin(ledger, hand_over(ledger, "a", "b"))
    ledger.add([new("here")])
    claim(ledger)
    clock.advance(LEASE_MS)
    found = look(ledger)
    assert (found.reclaimed, found.lapsed, found.lapsed_at_target) == (3, 3, 2)
    assert of_queue(ledger) == (3, 2)


def test_a_run_whose_lease_was_extended_or_saved_a_state_is_its_targets_still(ledger: Ledger, clock: HandClock) -> None:
    begin(ledger, hand_over(ledger, "a"))
    lease = lease_of(stored_task(ledger))
    clock.advance(10)
    assert ledger.extend(SHARD, [lease], LEASE_MS) == [clock.at + LEASE_MS]
    assert ledger.save(SHARD, lease, '{"page":2}')
    clock.advance(LEASE_MS)
    assert swept(ledger).lapsed_at_target == 1


def test_a_delivery_or_a_lease_that_nobody_began_is_no_run(ledger: Ledger, clock: HandClock) -> None:
    hand_over(ledger, "a")
    ledger.add([new("ahead")])
    ledger.claim(SHARD, 100, lease_ms=LEASE_MS, at_once=0)
    clock.advance(LEASE_MS)
    found = swept(ledger)
    assert (found.reclaimed, found.lapsed, found.lapsed_at_target) == (2, 0, 0)
    assert of_queue(ledger) == (0, 0)


def test_the_last_run_counts_too_and_so_does_one_that_was_replaced(ledger: Ledger, clock: HandClock) -> None:
    claim_one(ledger, retry=RetryPolicy(max_attempts=1))
    claim_one(ledger, "b")
    ledger.add([new("b", on_duplicate=OnDuplicate.REPLACE, delay_ms=LATER_MS)])
    clock.advance(LEASE_MS)
    found = swept(ledger)
    assert (found.died, found.lapsed) == (1, 2)
    assert stored_task(ledger).status is Status.DEAD


def lapse(ledger: Ledger, clock: HandClock, *ids: str) -> None:
    """One run of each of these tasks ends without a settle; the next one is done."""
    ledger.add([new(id) for id in ids])
    claim(ledger)
    clock.advance(LEASE_MS)
    for task in claim(ledger):
        settle(ledger, task, Ending.DONE)


def test_the_count_is_of_the_last_hour(ledger: Ledger, clock: HandClock) -> None:
    clock.advance(-clock.at % SLOT_MS)
    began = clock.at
    lapse(ledger, clock, "a", "b")
    lapse(ledger, clock, "c")
    clock.at = began + 3 * SLOT_MS
    lapse(ledger, clock, "d")
    assert of_queue(ledger) == (4, 0)
    clock.at = began + HOUR_MS - 1
    assert of_queue(ledger) == (4, 0)
    clock.at += 1
    assert of_queue(ledger) == (1, 0)
    clock.at += 3 * SLOT_MS
    assert of_queue(ledger) == (0, 0)


def test_old_slots_are_forgotten_by_the_next_count(ledger: Ledger, clock: HandClock) -> None:
    clock.advance(-clock.at % SLOT_MS)
    began = clock.at
    for slot in range(3 * SLOTS):
        clock.at = began + slot * SLOT_MS
        lapse(ledger, clock, str(slot))
    assert of_queue(ledger) == (SLOTS, 0)


def test_a_clock_that_is_put_back_leaves_no_count_of_later(ledger: Ledger, clock: HandClock) -> None:
    lapse(ledger, clock, "a")
    clock.at -= 2 * HOUR_MS
    assert of_queue(ledger) == (0, 0)
    lapse(ledger, clock, "b")
    assert of_queue(ledger) == (1, 0)
    clock.at += 2 * HOUR_MS
    assert of_queue(ledger) == (0, 0)
