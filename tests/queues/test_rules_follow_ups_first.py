"""What tells of an end does not wait behind its tenant's backlog: it is the first of what that tenant has due."""

from collections.abc import Callable

import pytest

from duecourse.ledger.many_tasks import TaskFilter
from duecourse.ledger.operation_types import Delivery, Move
from duecourse.ledger.operations.ledger import Ledger
from duecourse.ledger.task import Ending, RetryPolicy, Status, Task
from tests.support.clock import HandClock
from tests.support.ledger import LEASE_MS, SHARD, claim, ending, new, settle, stored_task

QUEUE = SHARD.queue
BACKLOG = 300
FIRST = {"id": "0", "notify": "audit"}
"""A task that comes before the backlog, and whose follow-up comes after all of it in the order of ids."""


def pile_up(ledger: Ledger, clock: HandClock, tenant: str = "-", notify: str = "") -> None:
    """A backlog, half of it due a second ago, half of it in this very millisecond."""
    for due_at in (clock.at - 1_000, clock.at):
        ids = [f"!{due_at}-{n:03}" for n in range(BACKLOG // 2)]
        ledger.add([new(id, tenant=tenant, due_at=due_at, notify=notify) for id in ids])


def first_of(ledger: Ledger, clock: HandClock, **fields: object) -> Task:
    """A task with a follow-up, claimed before the backlog of its tenant."""
    ledger.add([new(**FIRST, **{"due_at": clock.at - 2_000} | fields)])
    [task] = claim(ledger, 1)
    pile_up(ledger, clock)
    return task


def notification(task: Task) -> str:
    return f"{task.id}~{task.generation}.{task.run}~n"


@pytest.mark.parametrize("later_ms", [0, 1, 5_000])
def test_it_is_claimed_next(ledger: Ledger, clock: HandClock, later_ms: int) -> None:
    task = first_of(ledger, clock)
    clock.advance(later_ms)
    settle(ledger, task, Ending.DONE)
    told, after = claim(ledger, 2)
    assert (told.id, told.due_at) == (notification(task), clock.at)
    assert "~" not in after.id


def test_it_is_claimed_in_its_tenants_next_turn(ledger: Ledger, clock: HandClock) -> None:
    task = first_of(ledger, clock)
    for tenant in ("a", "b", "z"):
        pile_up(ledger, clock, tenant)
    settle(ledger, task, Ending.DONE)
    claimed = claim(ledger, 4)
    assert {one.tenant for one in claimed} == {"-", "a", "b", "z"}
    assert notification(task) in {one.id for one in claimed}


def lapse(ledger: Ledger, clock: HandClock) -> None:
    first_of(ledger, clock, retry=RetryPolicy(max_attempts=1))
    clock.advance(LEASE_MS)
    claim(ledger, 1)


def drop(ledger: Ledger, clock: HandClock) -> None:
    settle(ledger, first_of(ledger, clock), Ending.DROP, detail="no")
    claim(ledger, 1)


def expire(ledger: Ledger, clock: HandClock) -> None:
    ledger.add([new(**FIRST, due_at=clock.at - 2_000, deadline_at=clock.at)])
    pile_up(ledger, clock)
    claim(ledger, 1)


@pytest.mark.parametrize("die", [drop, lapse, expire])
def test_the_notification_of_a_death_is_claimed_before_all_that_waits(
    ledger: Ledger, clock: HandClock, die: Callable[[Ledger, HandClock], None]
) -> None:
    die(ledger, clock)
    dead = stored_task(ledger, "0")
    assert (dead.status, stored_task(ledger, notification(dead)).status) == (Status.DEAD, Status.LEASED)


def test_one_that_was_given_back_or_whose_lease_lapsed_is_first_again(ledger: Ledger, clock: HandClock) -> None:
    task = first_of(ledger, clock)
    settle(ledger, task, Ending.DONE)
    settle(ledger, claim(ledger, 1)[0], Ending.RELEASE)
    [told] = claim(ledger, 1)
    clock.advance(LEASE_MS)
    assert [told.id] == [one.id for one in claim(ledger, 1)] == [notification(task)]


def test_one_that_is_moved_to_now_or_replayed_is_first_again(ledger: Ledger, clock: HandClock) -> None:
    task = first_of(ledger, clock)
    settle(ledger, task, Ending.DONE)
    ledger.move(QUEUE, [Move(notification(task), delay_ms=5_000)])
    assert "~" not in claim(ledger, 1)[0].id
    ledger.move(QUEUE, [Move(notification(task), delay_ms=0)])
    [told] = claim(ledger, 1)
    settle(ledger, told, Ending.DROP, detail="no")
    ledger.replay(QUEUE, [told.id])
    assert [one.id for one in claim(ledger, 1)] == [told.id]


def test_one_that_failed_comes_at_the_end_of_its_wait_like_any_task(ledger: Ledger, clock: HandClock) -> None:
    settle(ledger, first_of(ledger, clock), Ending.DONE)
    [told] = claim(ledger, 1)
    settle(ledger, told, Ending.RETRY, delay_ms=10)
    assert "~" not in claim(ledger, 1)[0].id
    assert stored_task(ledger, told.id).due_at == clock.at + 10


def test_one_that_waited_for_room_at_its_target_is_first_again(ledger: Ledger, clock: HandClock) -> None:
    deliveries = {"audit": Delivery("lambda:audit", 1, LEASE_MS)}
    ledger.add([new("out", kind="audit", due_at=clock.at - 3_000)])
    [out] = ledger.claim(SHARD, 1, lease_ms=LEASE_MS, deliveries=deliveries).tasks
    task = first_of(ledger, clock)
    settle(ledger, task, Ending.DONE)
    [behind] = ledger.claim(SHARD, 1, lease_ms=LEASE_MS, deliveries=deliveries).tasks
    assert "~" not in behind.id
    settle(ledger, out, Ending.DONE)
    [told] = ledger.claim(SHARD, 1, lease_ms=LEASE_MS, deliveries=deliveries).tasks
    assert told.id == notification(task)


def test_the_backlog_is_worked_all_the_same(ledger: Ledger, clock: HandClock) -> None:
    pile_up(ledger, clock, notify="audit")
    turns = []
    for _ in range(20):
        [task] = claim(ledger, 1)
        turns.append("~" in task.id)
        ledger.settle(SHARD, [ending(task, Ending.DONE)])
        clock.advance(1)
    assert turns == [False, True] * 10


def test_how_old_the_backlog_is_is_told_as_before(ledger: Ledger, clock: HandClock) -> None:
    task = first_of(ledger, clock)
    settle(ledger, task, Ending.DONE)
    assert clock.at - 1_001 <= ledger.stats(SHARD).oldest_due_at <= clock.at - 1_000


def test_pages_show_it_once_and_leave_nothing_out(ledger: Ledger, clock: HandClock) -> None:
    task = first_of(ledger, clock)
    settle(ledger, task, Ending.DONE)
    shown: list[str] = []
    page = ledger.page(QUEUE, TaskFilter(), None, 100)
    while page.next:
        shown += [one.id for one in page.tasks]
        page = ledger.page(QUEUE, TaskFilter(), page.next, 100)
    shown += [one.id for one in page.tasks]
    assert len(shown) == len(set(shown)) == BACKLOG + 2
    assert notification(task) in shown


def test_one_that_is_due_before_all_else_stands_at_its_own_time(ledger: Ledger, clock: HandClock) -> None:
    ledger.add([new(**FIRST)])
    [task] = claim(ledger, 1)
    ledger.add([new("later", delay_ms=5)])
    settle(ledger, task, Ending.DONE)
    assert clock.at - 1 <= ledger.stats(SHARD).oldest_due_at <= clock.at
    clock.advance(5)
    assert [one.id for one in claim(ledger)] == [notification(task), "later"]
