"""Tenants take turns, however much one of them has due."""

from collections import Counter

import pytest

from duecourse.ledger.operation_types import MAX_ADD
from duecourse.ledger.operations.ledger import Ledger
from duecourse.ledger.task import Ending
from tests.support.clock import HandClock
from tests.support.ledger import LEASE_MS, SHARD, claim, ending, new

MANY = {"memory": 20_000, "redis-6.2": 20_000, "redis-cluster": 20_000, "leveldb": 5_000}
"""How much the greatest tenant has due on all but the newest Redis: less, for the time that adding it takes."""
MOST = 100_000


@pytest.mark.slow
@pytest.mark.parametrize("big", ["-", "big"])
def test_beside_one_that_has_a_mass_due_ten_with_ten_each_are_done_within_two_claims(
    ledger: Ledger, kind_of_store: str, clock: HandClock, big: str
) -> None:
    many = MANY.get(kind_of_store, MOST) if big == "-" else 2_000
    for start in range(0, many, MAX_ADD):
        ledger.add([new(f"m{n}", tenant=big, delay_ms=0) for n in range(start, start + MAX_ADD)])
    clock.advance(1)
    ledger.add([new(f"s{n}", tenant=f"small{tenant}") for tenant in range(10) for n in range(10)])
    done: list[str] = []
    for _ in range(2):
        tasks = ledger.claim(SHARD, 200, lease_ms=LEASE_MS).tasks
        assert len(tasks) == 200
        ledger.settle(SHARD, [ending(task, Ending.DONE) for task in tasks])
        done += [task.tenant for task in tasks if task.tenant != big]
    assert len(done) == 100


def test_a_tenant_with_little_comes_before_the_rest_of_a_great_one(ledger: Ledger, clock: HandClock) -> None:
    ledger.add([new(f"b{n}", tenant="big") for n in range(50)])
    assert {task.tenant for task in claim(ledger, 10)} == {"big"}
    clock.advance(1)
    ledger.add([new("s", tenant="small")])
    assert "small" in {task.tenant for task in claim(ledger, 4)}


def test_turns_go_round(ledger: Ledger) -> None:
    ledger.add([new(f"t{n}", tenant=tenant) for tenant in "abc" for n in range(5)])
    turns = [claim(ledger, 1)[0].tenant for _ in range(9)]
    assert sorted(turns[:3]) == sorted(turns[3:6]) == sorted(turns[6:]) == ["a", "b", "c"]
    assert turns[:3] == turns[3:6] == turns[6:]


def test_one_that_had_its_turn_comes_after_those_that_came_due_meanwhile_and_got_none(ledger: Ledger) -> None:
    ledger.add([new(f"t{n}", tenant="a") for n in range(4)])
    assert [task.tenant for task in claim(ledger, 1)] == ["a"]
    ledger.add([new(f"t{n}", tenant=tenant) for tenant in "bc" for n in range(2)])
    assert [claim(ledger, 1)[0].tenant for _ in range(6)] == ["a", "b", "c", "a", "b", "c"]


def test_behind_many_that_run_all_they_may_one_that_may_run_more_is_claimed_from_at_once(ledger: Ledger) -> None:
    many = [f"t{n}" for n in range(130)]
    ledger.add([new(id, tenant=tenant) for tenant in many for id in "ab"])
    assert {claim(ledger, 1)[0].tenant for _ in many} == set(many)
    ledger.configure("default", {"tenant_max_running": 1})
    ledger.add([new("z", tenant="z")])
    assert [task.tenant for task in claim(ledger, 10)] == ["z"]


@pytest.mark.parametrize("limit", [1, 7, 500])
def test_of_many_tenants_none_is_forgotten(ledger: Ledger, limit: int) -> None:
    ledger.add([new("t", tenant=f"tenant{n}") for n in range(300)])
    seen = [task.tenant for tasks in iter(lambda: claim(ledger, limit), []) for task in tasks]
    assert sorted(seen) == sorted(f"tenant{n}" for n in range(300))
    assert ledger.stats(SHARD).scheduled == 0


def test_one_claim_takes_what_many_tenants_have(ledger: Ledger) -> None:
    ledger.add([new(f"t{n}", tenant=f"tenant{n % 150}") for n in range(450)])
    claimed = ledger.claim(SHARD, 500, lease_ms=LEASE_MS)
    assert (len(claimed.tasks), claimed.backlog) == (450, 0)


def test_where_each_has_enough_a_claim_goes_to_twenty_tenants_and_the_next_to_those_that_follow(ledger: Ledger) -> None:
    ledger.add([new(f"t{n}", tenant=f"tenant{n % 30}") for n in range(600)])
    first, second = (Counter(task.tenant for task in claim(ledger, 100)) for _ in range(2))
    assert set(first.values()) == set(second.values()) == {5}
    assert (len(first), len(second), len(first.keys() | second.keys())) == (20, 20, 30)


def test_those_that_had_their_turns_in_one_claim_come_again_in_the_same_order(ledger: Ledger, clock: HandClock) -> None:
    for tenant in "cab":
        ledger.add([new(f"t{n}", tenant=tenant) for n in range(3)])
        clock.advance(1)
    turns = [[task.tenant for task in claim(ledger, limit)] for limit in (3, 1, 1, 1)]
    assert turns == [["c", "a", "b"], ["c"], ["a"], ["b"]]


def test_whom_the_bytes_of_a_claim_leave_out_keep_their_turns(ledger: Ledger) -> None:
    ledger.add([new(f"t{n}", tenant=tenant) for tenant in "abc" for n in range(2)])
    claims = [ledger.claim(SHARD, 6, lease_ms=LEASE_MS, max_bytes=1).tasks for _ in range(6)]
    assert [[task.tenant for task in tasks] for tasks in claims] == [["a"], ["b"], ["c"]] * 2


def test_what_many_tenants_have_due_is_told_to_the_task(ledger: Ledger) -> None:
    ledger.add([new(f"t{n}", tenant=f"tenant{n % 15}") for n in range(900)])
    assert ledger.claim(SHARD, 1, lease_ms=LEASE_MS).backlog == 899
