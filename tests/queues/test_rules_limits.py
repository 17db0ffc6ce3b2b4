"""What a queue's limits hold back, what frees a place again, and when the bell hangs meanwhile."""

from collections.abc import Callable

import pytest

from duecourse.ledger.operations import Move
from duecourse.ledger.queue import Rate
from duecourse.ledger.store.ledger import Ledger
from duecourse.ledger.task import Ending, Task
from tests.support.clock import HandClock
from tests.support.ledger import LATER_MS, LEASE_MS, SHARD, add, bell, claim, claim_one, ending, lease_of, new, settle

DEADMAN_MS = 1_000
MANY = 1_001
"""More claims than are taken out of the rate's log in one go."""


def configure(store: Ledger, **changes: bool | int | Rate | None) -> None:
    store.configure("default", changes)


def fill(store: Ledger, count: int, tenant: str = "-") -> None:
    store.add([new(f"t{n:02}", tenant=tenant) for n in range(count)])


ENDINGS = [how for how in Ending if how is not Ending.UNDELIVERED]
"""What ends the lease of a run."""
FREES: dict[str, Callable[[Ledger, HandClock, Task], object]] = {
    **{str(how): lambda store, _, task, how=how: settle(store, task, how, delay_ms=LATER_MS) for how in ENDINGS},
    "cancel by force": lambda store, _, task: store.cancel("default", [task.id], force=True, tenant=task.tenant),
    "move by force": lambda store, _, task: store.move(
        "default", [Move(task.id, delay_ms=LATER_MS, force=True)], task.tenant
    ),
}
"""What ends a lease; each frees its place."""


def test_no_more_run_than_may(store: Ledger) -> None:
    configure(store, max_running=3)
    fill(store, 5)
    first = store.claim(SHARD, 2, lease_ms=LEASE_MS)
    assert (len(first.tasks), first.backlog, first.throttled) == (2, 3, False)
    second = store.claim(SHARD, 5, lease_ms=LEASE_MS)
    assert (len(second.tasks), second.backlog, second.throttled) == (1, 0, True)
    third = store.claim(SHARD, 5, lease_ms=LEASE_MS)
    assert (third.tasks, third.backlog, third.throttled) == ([], 0, True)


def test_a_tenant_that_runs_all_it_may_and_has_nothing_due_holds_nothing_back(store: Ledger) -> None:
    store.configure("default", {"tenant_max_running": 1})
    store.add([new("a"), new("b", delay_ms=LATER_MS)])
    claimed = store.claim(SHARD, 5, lease_ms=LEASE_MS)
    assert ([task.id for task in claimed.tasks], claimed.backlog, claimed.throttled) == (["a"], 0, False)


@pytest.mark.parametrize("how", FREES)
@pytest.mark.parametrize("limit", ["max_running", "tenant_max_running"])
def test_what_ends_a_lease_frees_its_place_and_rings_at_once(
    store: Ledger, clock: HandClock, limit: str, how: str
) -> None:
    configure(store, **{limit: 2})
    fill(store, 4, tenant="t")
    running = claim(store)
    assert len(running) == 2
    assert claim(store) == []
    clock.advance(5)
    FREES[how](store, clock, running[0])
    assert bell(store) == clock.at + 1
    assert [task.id for task in claim(store)] == ["t02"]
    assert claim(store) == []


@pytest.mark.parametrize("limit", ["max_running", "tenant_max_running"])
def test_a_lapsed_lease_frees_its_place(store: Ledger, clock: HandClock, limit: str) -> None:
    configure(store, **{limit: 1})
    fill(store, 2)
    assert len(claim(store)) == 1
    assert bell(store) == clock.at + LEASE_MS
    clock.advance(LEASE_MS)
    (second,) = claim(store)
    assert (second.id, second.run) == ("t01", 1), "the other has been due since before the lease ended"
    assert claim(store) == []
    clock.advance(LEASE_MS)
    assert store.sweep(SHARD, retention_ms=LATER_MS).bell_at == clock.at + 1
    assert len(claim(store)) == 1


def test_who_takes_back_and_leaves_something_due_is_trusted_to_come_again(store: Ledger, clock: HandClock) -> None:
    configure(store, max_running=2, tenant_max_running=2)
    fill(store, 4)
    assert len(claim(store)) == 2
    clock.advance(LEASE_MS + 5)
    assert store.claim(SHARD, 1, lease_ms=LEASE_MS).bell_at == clock.at + DEADMAN_MS


@pytest.mark.parametrize("limit", ["max_running", "tenant_max_running"])
def test_a_limit_that_is_reached_is_not_rung_for(store: Ledger, clock: HandClock, limit: str) -> None:
    configure(store, **{limit: 1})
    fill(store, 3)
    (running,) = claim(store)
    assert bell(store) == clock.at + LEASE_MS
    for verb in (
        lambda: store.claim(SHARD, 5, lease_ms=LEASE_MS),
        lambda: add(store, "more"),
        lambda: store.sweep(SHARD, retention_ms=LATER_MS),
        lambda: store.save(SHARD, lease_of(running), "1"),
        lambda: store.cancel("default", ["t02"]),
    ):
        verb()
        assert bell(store) == clock.at + LEASE_MS


@pytest.mark.parametrize(("low", "high"), [(1, 2), (1, None)])
@pytest.mark.parametrize("limit", ["max_running", "tenant_max_running"])
def test_a_raised_limit_rings_at_once(store: Ledger, clock: HandClock, limit: str, low: int, high: int | None) -> None:
    configure(store, **{limit: low})
    fill(store, 5)
    claim(store)
    configure(store, priority=3)
    assert bell(store) == clock.at + LEASE_MS
    clock.advance(5)
    configure(store, **{limit: high})
    assert bell(store) == clock.at + 1
    assert len(claim(store)) == (4 if high is None else high - low)


@pytest.mark.parametrize("limit", ["max_running", "tenant_max_running"])
def test_a_lowered_limit_waits_for_what_runs(store: Ledger, limit: str) -> None:
    configure(store, **{limit: 4})
    fill(store, 8)
    running = claim(store)
    configure(store, **{limit: 2})
    for task in running[:2]:
        settle(store, task, Ending.DONE)
        assert claim(store) == []
    settle(store, running[2], Ending.DONE)
    assert len(claim(store)) == 1


def test_a_tenant_at_its_own_limit_leaves_the_others_their_turns(store: Ledger, clock: HandClock) -> None:
    configure(store, tenant_max_running=2)
    fill(store, 20, tenant="big")
    fill(store, 3, tenant="small")
    tasks = claim(store)
    assert sorted(task.tenant for task in tasks) == ["big"] * 2 + ["small"] * 2
    assert bell(store) == clock.at + LEASE_MS
    settle(store, next(task for task in tasks if task.tenant == "small"), Ending.DONE)
    assert [task.tenant for task in claim(store)] == ["small"]


def test_a_parked_tenant_whose_work_goes_elsewhere_is_forgotten(store: Ledger, clock: HandClock) -> None:
    configure(store, tenant_max_running=1)
    store.add([new("a", tenant="t"), new("b", tenant="t")])
    (a,) = claim(store)
    assert claim(store) == []
    store.move("default", [Move("b", delay_ms=50)], "t")
    settle(store, a, Ending.DONE)
    assert bell(store) == clock.at + 50
    clock.advance(50)
    (b,) = claim(store)
    store.add([new("c", tenant="t")])
    assert claim(store) == []
    store.cancel("default", ["c"], tenant="t")
    settle(store, b, Ending.DONE)
    assert bell(store) == 0


def test_a_rate_holds_in_every_window(store: Ledger, clock: HandClock) -> None:
    configure(store, rate=Rate(3, 100))
    fill(store, 10)
    at = clock.at
    assert len(claim(store, 2)) == 2
    clock.advance(60)
    assert len(claim(store)) == 1
    full = store.claim(SHARD, 5, lease_ms=LEASE_MS)
    assert (full.tasks, full.backlog, full.bell_at) == ([], 0, at + 100)
    clock.advance(39)
    assert claim(store) == []
    clock.advance(1)
    assert len(claim(store)) == 2, "a fixed window would have let three more begin at its edge"
    assert bell(store) == at + 160
    clock.advance(60)
    assert len(claim(store)) == 1


def test_a_rate_counts_claims_and_not_what_runs(store: Ledger, clock: HandClock) -> None:
    configure(store, rate=Rate(2, 100))
    fill(store, 3)
    for task in claim(store):
        settle(store, task, Ending.RELEASE)
    assert claim(store) == []
    assert bell(store) == clock.at + 100


@pytest.mark.parametrize("rate", [Rate(3, 100), Rate(2, 50), None])
def test_a_raised_rate_rings_at_once(store: Ledger, clock: HandClock, rate: Rate | None) -> None:
    configure(store, rate=Rate(2, 100))
    fill(store, 5)
    claim(store)
    clock.advance(70)
    assert claim(store) == []
    configure(store, rate=rate)
    assert bell(store) == clock.at + 1
    assert claim(store)


def test_a_lowered_rate_opens_when_enough_has_left_the_window(store: Ledger, clock: HandClock) -> None:
    configure(store, rate=Rate(4, 100))
    fill(store, 9)
    for _ in range(4):
        claim(store, 1)
        clock.advance(10)
    configure(store, rate=Rate(2, 100))
    assert bell(store) == clock.at - 40 + 20 + 100
    clock.at = bell(store)
    assert len(claim(store)) == 1


def test_a_rate_that_was_lifted_begins_anew(store: Ledger) -> None:
    configure(store, rate=Rate(1, 60_000))
    fill(store, 3)
    claim(store)
    configure(store, rate=None)
    configure(store, rate=Rate(1, 60_000))
    assert len(claim(store)) == 1


def test_a_step_of_the_clock_backwards_holds_a_rate_for_one_window_at_most(store: Ledger, clock: HandClock) -> None:
    configure(store, rate=Rate(1, 100))
    fill(store, 3)
    claim(store)
    clock.advance(-1_000_000)
    store.add([new("old", due_at=clock.at)])
    assert claim(store) == []
    assert bell(store) == clock.at + 100
    clock.advance(100)
    assert len(claim(store)) == 1


@pytest.mark.slow
def test_however_many_claims_leave_the_rates_window_together_it_opens(store: Ledger, clock: HandClock) -> None:
    configure(store, rate=Rate(MANY, 10_000))
    store.add([new(f"a{n}") for n in range(700)])
    store.add([new(f"b{n}") for n in range(1_000)])
    for _ in range(MANY):
        claim(store, 1)
        clock.advance(1)
    assert claim(store) == []
    configure(store, rate=Rate(3, 10_000))
    clock.advance(10_000)
    assert len(claim(store)) == 3


def test_all_limits_hold_together(store: Ledger, clock: HandClock) -> None:
    configure(store, max_running=5, tenant_max_running=2, rate=Rate(4, 100))
    for tenant in ("a", "b", "c"):
        fill(store, 3, tenant=tenant)
    tasks = claim(store)
    assert len(tasks) == 4
    assert max(map([task.tenant for task in tasks].count, "abc")) == 2
    clock.advance(100)
    assert len(claim(store)) == 1
    assert claim(store) == []


@pytest.mark.parametrize("limit", ["max_running", "tenant_max_running", "rate", "paused"])
def test_a_held_queue_that_is_watched_for_a_minute_is_claimed_from_without_a_ring(
    store: Ledger, clock: HandClock, limit: str
) -> None:
    """As a bridge does: it claims when the bell goes, until nothing is to be had. It must not be kept busy by that."""
    configure(store, **{limit: Rate(2, 50_000) if limit == "rate" else limit == "paused" or 2})
    fill(store, 50)
    store.claim(SHARD, 10, lease_ms=5 * LATER_MS)
    end, rings = clock.at + 45_000, 0
    for n in range(10):
        store.add([new(f"more{n}", delay_ms=n * 1_000)])
    while 0 < (at := bell(store)) < end:
        clock.at = max(at, clock.at)
        claimed = store.claim(SHARD, 10, lease_ms=5 * LATER_MS)
        assert (claimed.tasks, claimed.backlog) == ([], 0)
        rings += 1
    assert rings <= 1, "a tenant that comes due is looked at once, then parked"


def test_settling_many_at_once_frees_as_many_places(store: Ledger) -> None:
    configure(store, max_running=10, tenant_max_running=6)
    for tenant in "abc":
        fill(store, 20, tenant=tenant)
    tasks = claim(store)
    assert len(tasks) == 10
    store.settle(SHARD, [ending(task, Ending.DONE) for task in tasks[:7]])
    assert len(claim(store)) == 7


def test_a_successor_does_not_take_a_place(store: Ledger) -> None:
    configure(store, max_running=1)
    task = claim_one(store)
    add(store, on_duplicate="replace")
    assert store.stats(SHARD).scheduled == 0
    settle(store, task, Ending.DONE)
    assert len(claim(store)) == 1
