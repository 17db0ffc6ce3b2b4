"""What a queue's limits hold back, what frees a place again, and when the bell hangs meanwhile."""

from collections.abc import Callable

import pytest

from duecourse.ledger.operation_types import Move
from duecourse.ledger.operations.ledger import Ledger
from duecourse.ledger.queue import Rate
from duecourse.ledger.task import Ending, Task
from tests.support.clock import HandClock
from tests.support.ledger import LATER_MS, LEASE_MS, SHARD, add, bell, claim, claim_one, ending, lease_of, new, settle

DEADMAN_MS = 1_000
MANY = 1_001
"""More claims than are taken out of the rate's log in one go."""


def configure(ledger: Ledger, **changes: bool | int | Rate | None) -> None:
    ledger.configure("default", changes)


def fill(ledger: Ledger, count: int, tenant: str = "-") -> None:
    ledger.add([new(f"t{n:02}", tenant=tenant) for n in range(count)])


ENDINGS = [how for how in Ending if how is not Ending.UNDELIVERED]
"""What ends the lease of a run."""
FREES: dict[str, Callable[[Ledger, HandClock, Task], object]] = {
    **{str(how): lambda ledger, _, task, how=how: settle(ledger, task, how, delay_ms=LATER_MS) for how in ENDINGS},
    "cancel by force": lambda ledger, _, task: ledger.cancel("default", [task.id], force=True, tenant=task.tenant),
    "move by force": lambda ledger, _, task: ledger.move(
        "default", [Move(task.id, delay_ms=LATER_MS, force=True)], task.tenant
    ),
}
"""What ends a lease; each frees its place."""


def test_no_more_run_than_may(ledger: Ledger) -> None:
    configure(ledger, max_running=3)
    fill(ledger, 5)
    first = ledger.claim(SHARD, 2, lease_ms=LEASE_MS)
    assert (len(first.tasks), first.backlog, first.throttled) == (2, 3, False)
    second = ledger.claim(SHARD, 5, lease_ms=LEASE_MS)
    assert (len(second.tasks), second.backlog, second.throttled) == (1, 0, True)
    third = ledger.claim(SHARD, 5, lease_ms=LEASE_MS)
    assert (third.tasks, third.backlog, third.throttled) == ([], 0, True)


def test_a_tenant_that_runs_all_it_may_and_has_nothing_due_holds_nothing_back(ledger: Ledger) -> None:
    ledger.configure("default", {"tenant_max_running": 1})
    ledger.add([new("a"), new("b", delay_ms=LATER_MS)])
    claimed = ledger.claim(SHARD, 5, lease_ms=LEASE_MS)
    assert ([task.id for task in claimed.tasks], claimed.backlog, claimed.throttled) == (["a"], 0, False)


@pytest.mark.parametrize("how", FREES)
@pytest.mark.parametrize("limit", ["max_running", "tenant_max_running"])
def test_what_ends_a_lease_frees_its_place_and_rings_at_once(
    ledger: Ledger, clock: HandClock, limit: str, how: str
) -> None:
    configure(ledger, **{limit: 2})
    fill(ledger, 4, tenant="t")
    running = claim(ledger)
    assert len(running) == 2
    assert claim(ledger) == []
    clock.advance(5)
    FREES[how](ledger, clock, running[0])
    assert bell(ledger) == clock.at + 1
    assert [task.id for task in claim(ledger)] == ["t02"]
    assert claim(ledger) == []


@pytest.mark.parametrize("limit", ["max_running", "tenant_max_running"])
def test_a_lapsed_lease_frees_its_place(ledger: Ledger, clock: HandClock, limit: str) -> None:
    configure(ledger, **{limit: 1})
    fill(ledger, 2)
    assert len(claim(ledger)) == 1
    assert bell(ledger) == clock.at + LEASE_MS
    clock.advance(LEASE_MS)
    (second,) = claim(ledger)
    assert (second.id, second.run) == ("t01", 1), "the other has been due since before the lease ended"
    assert claim(ledger) == []
    clock.advance(LEASE_MS)
    assert ledger.sweep(SHARD, retention_ms=LATER_MS).bell_at == clock.at + 1
    assert len(claim(ledger)) == 1


def test_who_takes_back_and_leaves_something_due_is_trusted_to_come_again(ledger: Ledger, clock: HandClock) -> None:
    configure(ledger, max_running=2, tenant_max_running=2)
    fill(ledger, 4)
    assert len(claim(ledger)) == 2
    clock.advance(LEASE_MS + 5)
    assert ledger.claim(SHARD, 1, lease_ms=LEASE_MS).bell_at == clock.at + DEADMAN_MS


@pytest.mark.parametrize("limit", ["max_running", "tenant_max_running"])
def test_a_limit_that_is_reached_is_not_rung_for(ledger: Ledger, clock: HandClock, limit: str) -> None:
    configure(ledger, **{limit: 1})
    fill(ledger, 3)
    (running,) = claim(ledger)
    assert bell(ledger) == clock.at + LEASE_MS
    for verb in (
        lambda: ledger.claim(SHARD, 5, lease_ms=LEASE_MS),
        lambda: add(ledger, "more"),
        lambda: ledger.sweep(SHARD, retention_ms=LATER_MS),
        lambda: ledger.save(SHARD, lease_of(running), "1"),
        lambda: ledger.cancel("default", ["t02"]),
    ):
        verb()
        assert bell(ledger) == clock.at + LEASE_MS


@pytest.mark.parametrize(("low", "high"), [(1, 2), (1, None)])
@pytest.mark.parametrize("limit", ["max_running", "tenant_max_running"])
def test_a_raised_limit_rings_at_once(ledger: Ledger, clock: HandClock, limit: str, low: int, high: int | None) -> None:
    configure(ledger, **{limit: low})
    fill(ledger, 5)
    claim(ledger)
    configure(ledger, priority=3)
    assert bell(ledger) == clock.at + LEASE_MS
    clock.advance(5)
    configure(ledger, **{limit: high})
    assert bell(ledger) == clock.at + 1
    assert len(claim(ledger)) == (4 if high is None else high - low)


@pytest.mark.parametrize("limit", ["max_running", "tenant_max_running"])
def test_a_lowered_limit_waits_for_what_runs(ledger: Ledger, limit: str) -> None:
    configure(ledger, **{limit: 4})
    fill(ledger, 8)
    running = claim(ledger)
    configure(ledger, **{limit: 2})
    for task in running[:2]:
        settle(ledger, task, Ending.DONE)
        assert claim(ledger) == []
    settle(ledger, running[2], Ending.DONE)
    assert len(claim(ledger)) == 1


def test_a_tenant_at_its_own_limit_leaves_the_others_their_turns(ledger: Ledger, clock: HandClock) -> None:
    configure(ledger, tenant_max_running=2)
    fill(ledger, 20, tenant="big")
    fill(ledger, 3, tenant="small")
    tasks = claim(ledger)
    assert sorted(task.tenant for task in tasks) == ["big"] * 2 + ["small"] * 2
    assert bell(ledger) == clock.at + LEASE_MS
    settle(ledger, next(task for task in tasks if task.tenant == "small"), Ending.DONE)
    assert [task.tenant for task in claim(ledger)] == ["small"]


def test_a_parked_tenant_whose_work_goes_elsewhere_is_forgotten(ledger: Ledger, clock: HandClock) -> None:
    configure(ledger, tenant_max_running=1)
    ledger.add([new("a", tenant="t"), new("b", tenant="t")])
    (a,) = claim(ledger)
    assert claim(ledger) == []
    ledger.move("default", [Move("b", delay_ms=50)], "t")
    settle(ledger, a, Ending.DONE)
    assert bell(ledger) == clock.at + 50
    clock.advance(50)
    (b,) = claim(ledger)
    ledger.add([new("c", tenant="t")])
    assert claim(ledger) == []
    ledger.cancel("default", ["c"], tenant="t")
    settle(ledger, b, Ending.DONE)
    assert bell(ledger) == 0


def test_a_rate_holds_in_every_window(ledger: Ledger, clock: HandClock) -> None:
    configure(ledger, rate=Rate(3, 100))
    fill(ledger, 10)
    at = clock.at
    assert len(claim(ledger, 2)) == 2
    clock.advance(60)
    assert len(claim(ledger)) == 1
    full = ledger.claim(SHARD, 5, lease_ms=LEASE_MS)
    assert (full.tasks, full.backlog, full.bell_at) == ([], 0, at + 100)
    clock.advance(39)
    assert claim(ledger) == []
    clock.advance(1)
    assert len(claim(ledger)) == 2, "a fixed window would have let three more begin at its edge"
    assert bell(ledger) == at + 160
    clock.advance(60)
    assert len(claim(ledger)) == 1


def test_a_rate_counts_claims_and_not_what_runs(ledger: Ledger, clock: HandClock) -> None:
    configure(ledger, rate=Rate(2, 100))
    fill(ledger, 3)
    for task in claim(ledger):
        settle(ledger, task, Ending.RELEASE)
    assert claim(ledger) == []
    assert bell(ledger) == clock.at + 100


@pytest.mark.parametrize("rate", [Rate(3, 100), Rate(2, 50), None])
def test_a_raised_rate_rings_at_once(ledger: Ledger, clock: HandClock, rate: Rate | None) -> None:
    configure(ledger, rate=Rate(2, 100))
    fill(ledger, 5)
    claim(ledger)
    clock.advance(70)
    assert claim(ledger) == []
    configure(ledger, rate=rate)
    assert bell(ledger) == clock.at + 1
    assert claim(ledger)


def test_a_lowered_rate_opens_when_enough_has_left_the_window(ledger: Ledger, clock: HandClock) -> None:
    configure(ledger, rate=Rate(4, 100))
    fill(ledger, 9)
    for _ in range(4):
        claim(ledger, 1)
        clock.advance(10)
    configure(ledger, rate=Rate(2, 100))
    assert bell(ledger) == clock.at - 40 + 20 + 100
    clock.at = bell(ledger)
    assert len(claim(ledger)) == 1


def test_a_rate_that_was_lifted_begins_anew(ledger: Ledger) -> None:
    configure(ledger, rate=Rate(1, 60_000))
    fill(ledger, 3)
    claim(ledger)
    configure(ledger, rate=None)
    configure(ledger, rate=Rate(1, 60_000))
    assert len(claim(ledger)) == 1


def test_a_step_of_the_clock_backwards_holds_a_rate_for_one_window_at_most(ledger: Ledger, clock: HandClock) -> None:
    configure(ledger, rate=Rate(1, 100))
    fill(ledger, 3)
    claim(ledger)
    clock.advance(-1_000_000)
    ledger.add([new("old", due_at=clock.at)])
    assert claim(ledger) == []
    assert bell(ledger) == clock.at + 100
    clock.advance(100)
    assert len(claim(ledger)) == 1


@pytest.mark.slow
def test_however_many_claims_leave_the_rates_window_together_it_opens(ledger: Ledger, clock: HandClock) -> None:
    configure(ledger, rate=Rate(MANY, 10_000))
    ledger.add([new(f"a{n}") for n in range(700)])
    ledger.add([new(f"b{n}") for n in range(1_000)])
    for _ in range(MANY):
        claim(ledger, 1)
        clock.advance(1)
    assert claim(ledger) == []
    configure(ledger, rate=Rate(3, 10_000))
    clock.advance(10_000)
    assert len(claim(ledger)) == 3


def test_all_limits_hold_together(ledger: Ledger, clock: HandClock) -> None:
    configure(ledger, max_running=5, tenant_max_running=2, rate=Rate(4, 100))
    for tenant in ("a", "b", "c"):
        fill(ledger, 3, tenant=tenant)
    tasks = claim(ledger)
    assert len(tasks) == 4
    assert max(map([task.tenant for task in tasks].count, "abc")) == 2
    clock.advance(100)
    assert len(claim(ledger)) == 1
    assert claim(ledger) == []


@pytest.mark.parametrize("limit", ["max_running", "tenant_max_running", "rate", "paused"])
def test_a_held_queue_that_is_watched_for_a_minute_is_claimed_from_without_a_ring(
    ledger: Ledger, clock: HandClock, limit: str
) -> None:
    """As a bridge does: it claims when the bell goes, until nothing is to be had. It must not be kept busy by that."""
    configure(ledger, **{limit: Rate(2, 50_000) if limit == "rate" else limit == "paused" or 2})
    fill(ledger, 50)
    ledger.claim(SHARD, 10, lease_ms=5 * LATER_MS)
    end, rings = clock.at + 45_000, 0
    for n in range(10):
        ledger.add([new(f"more{n}", delay_ms=n * 1_000)])
    while 0 < (at := bell(ledger)) < end:
        clock.at = max(at, clock.at)
        claimed = ledger.claim(SHARD, 10, lease_ms=5 * LATER_MS)
        assert (claimed.tasks, claimed.backlog) == ([], 0)
        rings += 1
    assert rings <= 1, "a tenant that comes due is looked at once, then parked"


def test_settling_many_at_once_frees_as_many_places(ledger: Ledger) -> None:
    configure(ledger, max_running=10, tenant_max_running=6)
    for tenant in "abc":
        fill(ledger, 20, tenant=tenant)
    tasks = claim(ledger)
    assert len(tasks) == 10
    ledger.settle(SHARD, [ending(task, Ending.DONE) for task in tasks[:7]])
    assert len(claim(ledger)) == 7


def test_a_successor_does_not_take_a_place(ledger: Ledger) -> None:
    configure(ledger, max_running=1)
    task = claim_one(ledger)
    add(ledger, on_duplicate="replace")
    assert ledger.stats(SHARD).scheduled == 0
    settle(ledger, task, Ending.DONE)
    assert len(claim(ledger)) == 1
