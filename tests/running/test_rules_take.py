"""Taking one task: under a lease like a claimed one, due or not, as the limits allow."""

from concurrent.futures import ThreadPoolExecutor

import pytest

from duecourse.ledger.operation_types import Settled
from duecourse.ledger.operations.ledger import Ledger
from duecourse.ledger.queue import QueueChanges, Rate
from duecourse.ledger.task import Ending, RetryPolicy, Status, Trigger
from tests.support.clock import HandClock
from tests.support.lateness import bucket_of
from tests.support.ledger import LATER_MS, LEASE_MS, SHARD, STATES, add, bring, claim, new, settle, stored_task


def test_a_task_that_is_not_due_is_leased_as_by_a_claim(ledger: Ledger, clock: HandClock) -> None:
    ledger.add([new("a", delay_ms=LATER_MS), new("b")])
    task = ledger.take("default", "a", lease_ms=LEASE_MS)
    assert task == stored_task(ledger)
    assert task is not None
    assert (task.status, task.run, task.attempt, task.claimed_at) == (Status.LEASED, 1, 1, clock.at)
    assert task.lease_expires_at == clock.at + LEASE_MS
    assert task.trigger is Trigger.TAKE
    (b,) = claim(ledger)
    assert b.fence > task.fence > 0
    assert settle(ledger, task, Ending.DONE) == Settled.DONE
    assert [(run.trigger, run.fence) for run in stored_task(ledger).history] == [(Trigger.TAKE, task.fence)]


@pytest.mark.parametrize("state", [state for state in STATES if state != "scheduled"])
def test_what_is_not_scheduled_is_not_taken(ledger: Ledger, state: str) -> None:
    before = bring(ledger, state)
    assert ledger.take("default", "a", lease_ms=LEASE_MS) is None
    assert ledger.get("default", "a") == before


def test_of_several_takers_one_has_it(ledger: Ledger) -> None:
    for n in range(20):
        add(ledger, f"t{n}", delay_ms=LATER_MS)

        def take(_: int, id: str = f"t{n}") -> bool:
            return ledger.take("default", id, lease_ms=LEASE_MS) is not None

        with ThreadPoolExecutor(4) as threads:
            assert sum(threads.map(take, range(4))) == 1


def test_its_lease_lapses_like_any(ledger: Ledger, clock: HandClock) -> None:
    add(ledger, delay_ms=LATER_MS)
    ledger.take("default", "a", lease_ms=50)
    assert ledger.stats(SHARD).bell_at == clock.at + 50
    clock.advance(50)
    ledger.sweep(SHARD, retention_ms=LATER_MS)
    assert (stored_task(ledger).status, stored_task(ledger).attempt) == (Status.SCHEDULED, 2)
    assert ledger.stats(SHARD).bell_at == stored_task(ledger).due_at


@pytest.mark.parametrize("verb", ["take", "claim"])
def test_all_that_has_lapsed_is_taken_back_first_of_tenants_never_met_too(
    ledger: Ledger, clock: HandClock, verb: str
) -> None:
    tenants = [f"tenant-{n}" for n in range(200)]
    ledger.add([new("a", tenant=tenant) for tenant in tenants])
    ledger.add([new("b"), new("c")])
    for tenant in tenants:
        assert ledger.take("default", "a", tenant, lease_ms=50)
    clock.advance(50)
    if verb == "take":
        assert ledger.take("default", "b", lease_ms=LEASE_MS)
    else:
        assert ledger.claim(SHARD, 1, lease_ms=LEASE_MS).tasks
    assert ledger.stats(SHARD)[:2] == (201, 1)


@pytest.mark.parametrize(
    "limit", [{"max_running": 1}, {"tenant_max_running": 1}, {"rate": Rate(1, 1_000)}, {"paused": True}]
)
def test_a_limit_that_is_reached_allows_no_take(ledger: Ledger, limit: QueueChanges) -> None:
    ledger.configure("default", limit)
    ledger.add([new(f"t{n}", tenant="t", delay_ms=LATER_MS) for n in range(2)])
    first = ledger.take("default", "t0", "t", lease_ms=LEASE_MS)
    assert (first is None) == limit.get("paused", False)
    assert ledger.take("default", "t1", "t", lease_ms=LEASE_MS) is None
    assert standing_of(ledger, "t1") == Status.SCHEDULED
    ledger.configure("default", {"paused": False, "max_running": None, "tenant_max_running": None, "rate": None})
    assert ledger.take("default", "t1", "t", lease_ms=LEASE_MS) is not None


def standing_of(ledger: Ledger, id: str) -> Status:
    task = ledger.get("default", id, "t")
    assert task is not None
    return task.status


def test_a_taken_task_counts_for_the_claims_after_it(ledger: Ledger) -> None:
    ledger.configure("default", {"rate": Rate(2, 100), "max_running": 2})
    ledger.add([new("later", delay_ms=LATER_MS), *(new(f"t{n}") for n in range(3))])
    assert ledger.take("default", "later", lease_ms=LEASE_MS)
    assert len(claim(ledger)) == 1
    assert ledger.lateness_of([SHARD])[0] == {}, "what is not due yet is not late, and what is claimed has not begun"


def test_what_is_taken_at_its_due_time_or_after_is_counted_by_how_late_it_was(ledger: Ledger, clock: HandClock) -> None:
    ledger.add([new("a"), new("b")])
    assert ledger.take("default", "a", lease_ms=LEASE_MS)
    assert ledger.lateness_of([SHARD])[0] == {0: 1}
    clock.advance(1_000)
    assert ledger.take("default", "b", lease_ms=LEASE_MS)
    assert ledger.lateness_of([SHARD])[0] == {0: 1, bucket_of(1_000): 1}


def test_lapsed_leases_free_their_places_first(ledger: Ledger, clock: HandClock) -> None:
    ledger.configure("default", {"max_running": 1})
    ledger.add([new("running", tenant="other"), new("a", delay_ms=LATER_MS)])
    claim(ledger)
    assert ledger.take("default", "a", lease_ms=LEASE_MS) is None
    clock.advance(LEASE_MS)
    assert ledger.take("default", "a", lease_ms=LEASE_MS) is not None


def test_what_is_past_its_deadline_is_left_to_die(ledger: Ledger, clock: HandClock) -> None:
    add(ledger, deadline_ms=10, retry=RetryPolicy())
    clock.advance(10)
    assert ledger.take("default", "a", lease_ms=LEASE_MS) is None
    assert ledger.claim(SHARD, 1, lease_ms=LEASE_MS).died == 1


def test_the_queues_own_lease_goes_before(ledger: Ledger, clock: HandClock) -> None:
    ledger.configure("default", {"lease_ms": 70})
    add(ledger, delay_ms=LATER_MS)
    task = ledger.take("default", "a", lease_ms=LEASE_MS)
    assert task is not None
    assert task.lease_expires_at == clock.at + 70


def test_a_task_of_a_group_is_found_in_its_shard(sharded: Ledger) -> None:
    sharded.add([new(f"t{n}", group="g", delay_ms=LATER_MS) for n in range(5)])
    assert all(sharded.take("default", f"t{n}", lease_ms=LEASE_MS, group="g") for n in range(5))


@pytest.mark.parametrize("how", [Ending.DONE, Ending.RETRY])
def test_what_is_taken_before_it_is_due_is_not_late(ledger: Ledger, how: Ending) -> None:
    ledger.add([new(delay_ms=LATER_MS)])
    task = ledger.take("default", "a", lease_ms=LEASE_MS)
    assert task
    settle(ledger, task, how)
    assert [run.late_ms for run in stored_task(ledger).history] == [0]
