"""Claiming: order, leases, limits, lapses, deadlines and what is left due."""

from concurrent.futures import ThreadPoolExecutor
from itertools import pairwise

import pytest

from duecourse.ledger.operation_types import MAX_CLAIM, Claim, Settled
from duecourse.ledger.operations.ledger import Ledger
from duecourse.ledger.task import Ending, RetryPolicy, Shard, Status
from tests.support.clock import HandClock
from tests.support.lateness import bucket_of
from tests.support.ledger import LATER_MS, LEASE_MS, SHARD, add, claim, claim_one, ending, new, settle, stored_task


def test_nothing_is_handed_out_before_it_is_due(ledger: Ledger, clock: HandClock) -> None:
    add(ledger, delay_ms=10)
    clock.advance(9)
    assert claim(ledger) == []
    clock.advance(1)
    assert [t.id for t in claim(ledger)] == ["a"]


def test_an_unknown_shard_has_nothing(ledger: Ledger, clock: HandClock) -> None:
    assert ledger.claim(Shard("nowhere"), 5, lease_ms=LEASE_MS) == Claim(now=clock.at)
    assert ledger.get("nowhere", "a") is None
    assert ledger.group("nowhere", "g") == []


def test_what_is_due_first_goes_first_and_by_id_where_it_is_due_at_once(ledger: Ledger, clock: HandClock) -> None:
    ledger.add([new("c", delay_ms=5), new("b", delay_ms=9), new("a", delay_ms=9), new("d", delay_ms=1)])
    clock.advance(10)
    assert [t.id for t in claim(ledger)] == ["d", "c", "a", "b"]


def test_a_claimed_task_has_a_lease_of_its_own(ledger: Ledger, clock: HandClock) -> None:
    ledger.add([new("a"), new("b")])
    clock.advance(3)
    a, b = claim(ledger)
    assert (a.status, a.run, a.attempt, a.claimed_at) == (Status.LEASED, 1, 1, clock.at)
    assert a.lease_expires_at == clock.at + LEASE_MS
    assert a.token != b.token
    assert b.fence > a.fence > 0
    assert stored_task(ledger, "a") == a
    assert claim(ledger) == []


def test_fences_only_grow_and_are_never_drawn_twice(ledger: Ledger, clock: HandClock) -> None:
    fences: list[int] = []
    for n in range(5):
        ledger.add([new("a"), new(f"b{n}")])
        tasks = claim(ledger)
        fences += [t.generation for t in tasks] + [t.fence for t in tasks]
        ledger.cancel("default", [t.id for t in tasks], force=True)
        clock.advance(-1_000)
    assert len(set(fences)) == len(fences) == 20
    assert fences == sorted(fences)


def test_each_task_is_handed_to_one_of_several_threads(ledger: Ledger) -> None:
    ledger.add([new(f"t{n}") for n in range(300)])

    def work(_: int) -> list[str]:
        claims = iter(lambda: claim(ledger, 7), [])
        return [task.id for tasks in claims for task in tasks if settle(ledger, task, Ending.DONE) == Settled.DONE]

    with ThreadPoolExecutor(4) as threads:
        done = [name for names in threads.map(work, range(4)) for name in names]
    assert sorted(done) == sorted(f"t{n}" for n in range(300))
    assert ledger.stats(SHARD).done == 300


def test_a_claim_takes_no_more_than_its_limit_and_tells_what_is_left(ledger: Ledger) -> None:
    ledger.add([new(f"t{n}") for n in range(7)])
    first = ledger.claim(SHARD, 3, lease_ms=LEASE_MS)
    assert ([t.id for t in first.tasks], first.backlog) == (["t0", "t1", "t2"], 4)
    rest = ledger.claim(SHARD, 500, lease_ms=LEASE_MS)
    assert (len(rest.tasks), rest.backlog) == (4, 0)


@pytest.mark.parametrize("limit", [0, -1, MAX_CLAIM + 1])
def test_a_limit_outside_the_ports_bounds_is_refused(ledger: Ledger, limit: int) -> None:
    add(ledger)
    with pytest.raises(ValueError, match=str(limit)):
        ledger.claim(SHARD, limit, lease_ms=LEASE_MS)
    assert stored_task(ledger).status == Status.SCHEDULED


def test_the_largest_limit_is_taken_in_one(ledger: Ledger) -> None:
    ledger.add([new(f"t{n:03}") for n in range(MAX_CLAIM + 20)])
    claimed = ledger.claim(SHARD, MAX_CLAIM, lease_ms=LEASE_MS)
    assert (len(claimed.tasks), claimed.backlog) == (MAX_CLAIM, 20)
    with pytest.raises(ValueError, match="500"):
        ledger.settle(SHARD, [ending(t, Ending.DONE) for t in (*claimed.tasks, claimed.tasks[0])])
    assert set(ledger.settle(SHARD, [ending(t, Ending.DONE) for t in claimed.tasks])) == {Settled.DONE}


def test_a_claim_stops_at_its_bytes_but_takes_one_task_of_any_size(ledger: Ledger) -> None:
    big = '"' + "x" * 1_000 + '"'
    ledger.add([new(f"t{n}", payload=big) for n in range(5)])
    assert len(ledger.claim(SHARD, 5, lease_ms=LEASE_MS, max_bytes=1).tasks) == 1
    two = ledger.claim(SHARD, 5, lease_ms=LEASE_MS, max_bytes=2_500)
    assert (len(two.tasks), two.backlog) == (2, 2)
    assert len(ledger.claim(SHARD, 5, lease_ms=LEASE_MS).tasks) == 2


def test_a_claims_bytes_are_those_of_all_tenants(ledger: Ledger) -> None:
    big = '"' + "x" * 1_000 + '"'
    ledger.add([new(f"t{n}", tenant=tenant, payload=big) for tenant in ("-", "other") for n in range(3)])
    assert len(ledger.claim(SHARD, 6, lease_ms=LEASE_MS, max_bytes=1_500).tasks) == 1
    assert len(ledger.claim(SHARD, 6, lease_ms=LEASE_MS, max_bytes=3_700).tasks) == 3


def test_a_claims_bytes_are_those_of_all_its_rounds(ledger: Ledger) -> None:
    big = '"' + "x" * 1_000 + '"'
    ledger.add([new("only", tenant="small", payload=big), *(new(f"t{n}", payload=big) for n in range(6))])
    assert [task.tenant for task in claim(ledger, 1)] == ["-"]
    claimed = ledger.claim(SHARD, 6, lease_ms=LEASE_MS, max_bytes=5_000)
    assert (len(claimed.tasks), claimed.backlog) == (4, 2)
    assert len({task.token for task in claimed.tasks}) == 4


def test_a_lapsed_lease_is_taken_back_at_the_cost_of_an_attempt(ledger: Ledger, clock: HandClock) -> None:
    first = claim_one(ledger)
    clock.advance(LEASE_MS - 1)
    assert claim(ledger) == []
    clock.advance(1)
    (second,) = claim(ledger)
    assert (second.run, second.attempt, second.due_at) == (2, 2, clock.at)
    assert second.fence > first.fence
    (lapse,) = second.history
    assert (lapse.outcome, lapse.run, lapse.fence) == ("lapsed", 1, first.fence)
    assert (lapse.claimed_at, lapse.ended_at, lapse.detail) == (first.claimed_at, clock.at, "the lease lapsed")
    assert settle(ledger, first, Ending.DONE) == Settled.STALE
    assert settle(ledger, second, Ending.DONE) == Settled.DONE


def test_a_late_settle_counts_while_nobody_has_taken_the_lease_back(ledger: Ledger, clock: HandClock) -> None:
    task = claim_one(ledger)
    clock.advance(LEASE_MS * 2)
    assert settle(ledger, task, Ending.DONE) == Settled.DONE


def test_a_settle_after_the_lease_was_taken_back_is_stale_before_the_next_claim_too(
    ledger: Ledger, clock: HandClock
) -> None:
    task = claim_one(ledger)
    clock.advance(LEASE_MS)
    ledger.sweep(SHARD, retention_ms=1_000)
    assert stored_task(ledger).status == Status.SCHEDULED
    for how in Ending:
        assert settle(ledger, task, how) == Settled.STALE


def test_a_task_that_lapses_again_waits_by_its_own_policy(ledger: Ledger, clock: HandClock) -> None:
    ledger.add([new(retry=RetryPolicy(6, 1_000, 3.0, 7_000, jitter=False))])
    waits = []
    for _ in range(5):
        clock.advance(max(0, stored_task(ledger).due_at - clock.at))
        claim(ledger)
        clock.advance(LEASE_MS + 5)
        assert ledger.sweep(SHARD, retention_ms=LATER_MS).reclaimed == 1
        waits.append(stored_task(ledger).due_at - clock.at)
    assert waits == [-5, 3_000, 7_000, 7_000, 7_000], "the first at once: since its lease ended"
    assert (stored_task(ledger).attempt, ledger.stats(SHARD).bell_at) == (6, clock.at + 7_000)
    clock.advance(6_999)
    assert claim(ledger) == []
    clock.advance(1)
    assert len(claim(ledger)) == 1


def test_what_ran_to_another_end_meanwhile_is_tried_at_once_when_it_lapses(ledger: Ledger, clock: HandClock) -> None:
    task = claim_one(ledger, retry=RetryPolicy(9, 1_000, jitter=False))
    for _ in range(2):
        clock.advance(LEASE_MS)
        (task,) = claim(ledger)
        settle(ledger, task, Ending.RETRY)
        (task,) = claim(ledger)
    clock.advance(LEASE_MS)
    assert len(claim(ledger)) == 1


def test_lapses_of_many_tasks_are_spread_by_their_jitter(ledger: Ledger, clock: HandClock) -> None:
    ledger.add([new(f"t-{n}", retry=RetryPolicy(9, 8_000)) for n in range(64)])
    for _ in range(2):
        assert len(claim(ledger)) == 64
        clock.advance(LEASE_MS)
    ledger.sweep(SHARD, retention_ms=LATER_MS)
    waits = sorted(stored_task(ledger, f"t-{n}").due_at - clock.at for n in range(64))
    assert 0 <= waits[0] < 3_000
    assert 13_000 < waits[-1] <= 16_000
    assert max(after - before for before, after in pairwise(waits)) < 3_000


@pytest.mark.parametrize("seen_ms", [0, 70])
def test_a_run_after_a_lapse_is_late_since_the_lease_ended(ledger: Ledger, clock: HandClock, seen_ms: int) -> None:
    add(ledger, delay_ms=10)
    clock.advance(30)
    claim(ledger)
    clock.advance(LEASE_MS + seen_ms)
    (task,) = claim(ledger)
    assert task.due_at == clock.at - seen_ms
    ledger.settle(SHARD, [ending(task, Ending.DONE).with_lateness(task, 0)])
    assert [run.late_ms for run in stored_task(ledger).history] == [20, seen_ms]
    assert ledger.lateness_of([SHARD])[0] == {bucket_of(seen_ms): 1}


def test_the_last_lapse_kills(ledger: Ledger, clock: HandClock) -> None:
    claim_one(ledger, retry=RetryPolicy(max_attempts=2))
    clock.advance(LEASE_MS)
    assert [t.attempt for t in claim(ledger)] == [2]
    clock.advance(LEASE_MS)
    claimed = ledger.claim(SHARD, 5, lease_ms=LEASE_MS)
    assert (claimed.tasks, claimed.died, claimed.backlog) == ([], 1, 0)
    dead = stored_task(ledger)
    assert (dead.status, dead.attempt, dead.run, dead.error) == (Status.DEAD, 2, 2, "the lease lapsed")


def test_a_lapse_past_the_deadline_kills(ledger: Ledger, clock: HandClock) -> None:
    claim_one(ledger, deadline_ms=LEASE_MS)
    clock.advance(LEASE_MS)
    assert ledger.claim(SHARD, 5, lease_ms=LEASE_MS).died == 1
    assert stored_task(ledger).status == Status.DEAD


def test_a_task_past_its_deadline_dies_unclaimed(ledger: Ledger, clock: HandClock) -> None:
    ledger.add([new("a", deadline_ms=10), new("b", deadline_ms=11)])
    clock.advance(10)
    claimed = ledger.claim(SHARD, 1, lease_ms=LEASE_MS)
    assert ([t.id for t in claimed.tasks], claimed.died) == (["b"], 1)
    dead = stored_task(ledger, "a")
    (entry,) = dead.history
    assert (dead.status, dead.run, dead.error) == (Status.DEAD, 0, "past its deadline")
    assert (entry.outcome, entry.fence, entry.claimed_at, entry.ended_at) == ("expired", 0, 0, clock.at)


def test_one_claim_buries_no_more_than_a_bounded_number(ledger: Ledger, clock: HandClock) -> None:
    for batch in range(3):
        ledger.add([new(f"t{batch}-{n}", deadline_ms=1) for n in range(1_000)])
    clock.advance(1)
    claimed = ledger.claim(SHARD, 500, lease_ms=LEASE_MS)
    assert 0 < claimed.died <= 300, "Redis serves nobody meanwhile"
    assert claimed.backlog == 3_000 - claimed.died
    assert clock.at <= claimed.bell_at <= clock.at + 1_000


def test_what_dies_unclaimed_leaves_a_claim_its_limit(ledger: Ledger, clock: HandClock) -> None:
    ledger.add([new(f"past{n}", deadline_ms=1) for n in range(250)])
    clock.advance(1)
    ledger.add([new(f"t{n}") for n in range(MAX_CLAIM)])
    claimed = ledger.claim(SHARD, MAX_CLAIM, lease_ms=LEASE_MS)
    assert (len(claimed.tasks), claimed.died, claimed.backlog) == (MAX_CLAIM, 250, 0)


def test_one_claim_takes_back_no_more_than_a_bounded_number(ledger: Ledger, clock: HandClock) -> None:
    ledger.add([new(f"t{n}") for n in range(600)])
    claim(ledger, 500)
    claim(ledger, 500)
    clock.advance(LEASE_MS)
    swept = ledger.sweep(SHARD, retention_ms=1_000)
    assert (swept.reclaimed, swept.more) == (500, True)
    swept = ledger.sweep(SHARD, retention_ms=1_000)
    assert (swept.reclaimed, swept.more) == (100, False)
    assert ledger.stats(SHARD).scheduled == 600
    claim(ledger, 500)
    claim(ledger, 500)
    clock.advance(LEASE_MS)
    claim(ledger, 1)
    assert ledger.stats(SHARD).leased == 100, "what lapsed twice is not due at once"


def test_a_paused_queue_hands_nothing_out_and_still_takes_leases_back(ledger: Ledger, clock: HandClock) -> None:
    running = claim_one(ledger, "a", retry=RetryPolicy(max_attempts=1))
    add(ledger, "b")
    ledger.configure("default", {"paused": True})
    ledger.configure("default", {"paused": True})
    paused = ledger.claim(SHARD, 5, lease_ms=LEASE_MS)
    assert (paused.tasks, paused.backlog) == ([], 0)
    assert ledger.stats(SHARD).settings.paused
    clock.advance(LEASE_MS)
    assert ledger.claim(SHARD, 5, lease_ms=LEASE_MS).died == 1
    assert settle(ledger, running, Ending.DONE) == Settled.STALE
    ledger.configure("default", {"paused": False})
    ledger.configure("default", {"paused": False})
    assert [t.id for t in claim(ledger)] == ["b"]
    assert not ledger.stats(SHARD).settings.paused


def test_a_pause_holds_for_its_own_queue_only_and_before_the_first_add(ledger: Ledger) -> None:
    ledger.configure("one", {"paused": True})
    ledger.add([new(queue="one"), new(queue="two")])
    assert [ledger.claim(Shard(q), 5, lease_ms=LEASE_MS).tasks != [] for q in ("one", "two")] == [False, True]


def test_fences_follow_the_clock_but_not_beyond_their_six_bytes(ledger: Ledger, clock: HandClock) -> None:
    fences = []
    for id, at in enumerate((clock.at, clock.at + 1_000, 7_000_000_000_000, 7_000_000_001_000)):
        clock.at = at
        fences.append(claim_one(ledger, str(id)).fence)
        settle(ledger, stored_task(ledger, str(id)), Ending.DONE)
    assert fences[1] - fences[0] > 10_000, "above all that may have been drawn meanwhile, and lost"
    assert fences == sorted(set(fences))
    assert fences[-1] < 2**48
