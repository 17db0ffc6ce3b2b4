"""What follows the end of a task: in the same step, whatever ended it, and in its shard."""

from collections.abc import Callable

import pytest

from duecourse.ledger.operation_types import Move, Settled
from duecourse.ledger.operations.ledger import Ledger
from duecourse.ledger.task import (
    DEAD,
    ENDED,
    POLICY,
    Ended,
    Ending,
    OnDuplicate,
    RetryPolicy,
    Shard,
    Status,
    Task,
    ended_of,
)
from tests.support.clock import HandClock
from tests.support.ledger import LEASE_MS, SHARD, add, bring, claim, claim_one, ending, new, settle, stored_task

QUEUE = SHARD.queue
URL = 'https://a.example/hook?a="ü"'
ONCE = RetryPolicy(max_attempts=1)


def spend_all(ledger: Ledger, _clock: HandClock) -> None:
    settle(ledger, claim_one(ledger, notify=URL, retry=ONCE), Ending.RETRY, detail="ü no")


def drop(ledger: Ledger, _clock: HandClock) -> None:
    settle(ledger, claim_one(ledger, notify=URL), Ending.DROP, detail="ü no")


def lapse_into_a_claim(ledger: Ledger, clock: HandClock) -> None:
    claim_one(ledger, notify=URL, retry=ONCE)
    clock.advance(LEASE_MS)
    ledger.claim(Shard(), 1, lease_ms=1, max_bytes=1)


def lapse_into_a_sweep(ledger: Ledger, clock: HandClock) -> None:
    claim_one(ledger, notify=URL, retry=ONCE)
    clock.advance(LEASE_MS)
    ledger.sweep(SHARD, retention_ms=10**9)


def expire(ledger: Ledger, clock: HandClock) -> None:
    add(ledger, notify=URL, deadline_ms=5)
    clock.advance(5)
    claim(ledger, 1)


def expire_after_again(ledger: Ledger, clock: HandClock) -> None:
    task = claim_one(ledger, notify=URL, deadline_ms=5)
    clock.advance(5)
    settle(ledger, task, Ending.AGAIN)


@pytest.mark.parametrize(
    ("notify", "kind", "url", "auth"),
    [
        ("https://a.example/in?a=b payload", ENDED, "https://a.example/in?a=b", ""),
        ("https://a.example/in?auth=b", ENDED, "https://a.example/in?auth=b", ""),
        ("https://a.example/in?auth=b payload auth=billing", ENDED, "https://a.example/in?auth=b", "billing"),
        ("https://a.example/in auth=a.b-c_D", ENDED, "https://a.example/in", "a.b-c_D"),
        ("audit payload", "audit", "", ""),
    ],
)
def test_who_is_told_is_one_thing_and_what_besides_another(
    ledger: Ledger, notify: str, kind: str, url: str, auth: str
) -> None:
    settle(ledger, claim_one(ledger, notify=notify), Ending.DONE)
    (notification,) = told(ledger).values()
    ended = ended_of(notification.payload)
    assert ended
    assert (notification.kind, ended.url, ended.auth, notification.notify) == (kind, url, auth, "")
    assert stored_task(ledger).notify == notify


DEATHS = [spend_all, drop, lapse_into_a_claim, lapse_into_a_sweep, expire, expire_after_again]


def told(ledger: Ledger, tenant: str = "-") -> dict[str, Task]:
    """The follow-ups there are, by kind."""
    tasks: list[Task] = []
    for shard in ledger.shards():
        tasks += ledger.claim(shard, 100, lease_ms=LEASE_MS).tasks
    return {task.kind: task for task in tasks if "~" in task.id and task.tenant == tenant}


def end_of(task: Task) -> Ended:
    ended = ended_of(task.payload)
    assert ended
    return ended


def test_a_task_that_is_done_is_followed_by_one_that_tells_of_it(ledger: Ledger, clock: HandClock) -> None:
    task = claim_one(ledger, notify=URL)
    before = ledger.stats(SHARD)
    assert settle(ledger, task, Ending.DONE, result="1") == Settled.DONE
    after = ledger.stats(SHARD)
    assert (before.scheduled, after.scheduled, after.done) == (0, 1, 1)
    assert after.bell_at == clock.at + 1
    notification = told(ledger)[ENDED]
    assert notification.id == f"a~{task.generation}.1~n"
    assert end_of(notification) == Ended("a", task.generation, 1, "done", clock.at, "", URL)
    assert (notification.retry, notification.by, notification.due_at, notification.attempt) == (
        POLICY,
        "duecourse",
        clock.at,
        1,
    )
    assert notification.generation > task.fence
    assert stored_task(ledger).status == Status.DONE


def test_a_kind_that_is_told_gets_a_task_of_its_own(ledger: Ledger) -> None:
    settle(ledger, claim_one(ledger, notify="audit"), Ending.DONE)
    assert end_of(told(ledger)["audit"]).url == ""


@pytest.mark.parametrize("length", [1, 255, 256, 65_535])
def test_who_is_told_may_have_a_name_of_any_length(ledger: Ledger, length: int) -> None:
    settle(ledger, claim_one(ledger, notify="http://".rjust(length, "h")), Ending.DONE)
    assert len(claim(ledger)) == 1


@pytest.mark.parametrize("die", DEATHS)
def test_each_way_to_die_is_followed(
    ledger: Ledger, clock: HandClock, die: Callable[[Ledger, HandClock], None]
) -> None:
    die(ledger, clock)
    dead = stored_task(ledger)
    assert dead.status == Status.DEAD
    notification = ledger.get(QUEUE, f"a~{dead.generation}.{dead.run}~n")
    assert notification
    assert end_of(notification) == Ended("a", dead.generation, dead.run, "dead", clock.at, dead.history[-1].detail, URL)
    assert ledger.stats(SHARD).bell_at in {clock.at + 1, notification.lease_expires_at}


@pytest.mark.parametrize("die", DEATHS)
def test_of_a_death_the_dead_target_is_told_too(
    ledger_that_reports_deaths: Ledger, clock: HandClock, die: Callable[[Ledger, HandClock], None]
) -> None:
    die(ledger_that_reports_deaths, clock)
    dead = stored_task(ledger_that_reports_deaths)
    for mark, kind in (("n", ENDED), ("d", DEAD)):
        notification = ledger_that_reports_deaths.get(QUEUE, f"a~{dead.generation}.{dead.run}~{mark}")
        assert notification
        assert notification.kind == kind
    assert ledger_that_reports_deaths.stats(SHARD).dead == 1


def test_what_a_claim_leaves_to_be_told_rings_at_once(ledger_that_reports_deaths: Ledger, clock: HandClock) -> None:
    add(ledger_that_reports_deaths, notify="audit", deadline_ms=5)
    clock.advance(5)
    claimed = ledger_that_reports_deaths.claim(SHARD, 1, lease_ms=LEASE_MS)
    assert (claimed.died, len(claimed.tasks) + claimed.backlog, claimed.backlog > 0) == (1, 2, True)
    assert claimed.bell_at == clock.at + 1


def test_of_what_is_done_the_dead_target_is_not_told(ledger_that_reports_deaths: Ledger) -> None:
    settle(ledger_that_reports_deaths, claim_one(ledger_that_reports_deaths), Ending.DONE)
    assert told(ledger_that_reports_deaths) == {}


@pytest.mark.parametrize("how", [Ending.AGAIN, Ending.RETRY, Ending.RELEASE])
def test_what_goes_on_has_not_ended(ledger_that_reports_deaths: Ledger, how: Ending) -> None:
    settle(ledger_that_reports_deaths, claim_one(ledger_that_reports_deaths, notify=URL), how)
    assert told(ledger_that_reports_deaths) == {}


def test_what_nobody_asked_for_is_not_told(ledger: Ledger) -> None:
    settle(ledger, claim_one(ledger, "a"), Ending.DONE)
    settle(ledger, claim_one(ledger, "b"), Ending.DROP, detail="x")
    assert ledger.stats(SHARD).scheduled == 0


def test_a_cancel_and_the_deletion_of_a_dead_one_are_no_ends(ledger_that_reports_deaths: Ledger) -> None:
    add(ledger_that_reports_deaths, notify=URL)
    ledger_that_reports_deaths.cancel(QUEUE, ["a"])
    bring(ledger_that_reports_deaths, "dead", "b")
    told(ledger_that_reports_deaths)
    ledger_that_reports_deaths.cancel(QUEUE, ["b"])
    assert told(ledger_that_reports_deaths) == {}


def test_a_settle_that_is_sent_again_is_told_of_once(ledger_that_reports_deaths: Ledger) -> None:
    task = claim_one(ledger_that_reports_deaths, notify=URL, retry=ONCE)
    for _ in range(3):
        assert ledger_that_reports_deaths.settle(SHARD, [ending(task, Ending.RETRY)] * 2) == [Settled.DEAD] * 2
    assert ledger_that_reports_deaths.stats(SHARD).scheduled == 2


def test_a_follow_up_has_none_of_its_own(ledger_that_reports_deaths: Ledger) -> None:
    bring(ledger_that_reports_deaths, "dead")
    notification = told(ledger_that_reports_deaths)[DEAD]
    settle(ledger_that_reports_deaths, notification, Ending.DROP, detail="x")
    assert told(ledger_that_reports_deaths) == {}
    assert ledger_that_reports_deaths.stats(SHARD).dead == 2


def test_each_death_of_a_replayed_task_is_told(ledger_that_reports_deaths: Ledger) -> None:
    bring(ledger_that_reports_deaths, "dead")
    first = told(ledger_that_reports_deaths)[DEAD]
    settle(ledger_that_reports_deaths, first, Ending.DONE)
    ledger_that_reports_deaths.replay(QUEUE, ["a"])
    settle(ledger_that_reports_deaths, claim(ledger_that_reports_deaths)[0], Ending.DROP, detail="again")
    second = told(ledger_that_reports_deaths)[DEAD]
    assert second.id != first.id
    assert (end_of(second).run, end_of(second).error) == (2, "again")


def test_a_task_that_expires_again_unclaimed_is_told_of_anew_once_the_first_time_was_told(
    ledger_that_reports_deaths: Ledger, clock: HandClock
) -> None:
    add(ledger_that_reports_deaths, notify="audit", deadline_ms=5)
    clock.advance(5)
    [first] = ledger_that_reports_deaths.claim(SHARD, 1, lease_ms=LEASE_MS).tasks
    assert (ledger_that_reports_deaths.stats(SHARD).leased, ledger_that_reports_deaths.stats(SHARD).scheduled) == (1, 1)
    expire_again(ledger_that_reports_deaths, clock)
    [second] = claim(ledger_that_reports_deaths)
    assert (
        settle(ledger_that_reports_deaths, first, Ending.DONE)
        == settle(ledger_that_reports_deaths, second, Ending.DONE)
        == Settled.DONE
    )
    expire_again(ledger_that_reports_deaths, clock)
    assert {task.id for task in claim(ledger_that_reports_deaths)} == {first.id, second.id}


def expire_again(ledger: Ledger, clock: HandClock) -> None:
    ledger.replay(QUEUE, ["a"], deadlines_ms=[5])
    clock.advance(5)


def test_the_end_of_a_task_that_is_replaced_while_it_runs_is_told(ledger: Ledger) -> None:
    task = claim_one(ledger, notify=URL)
    ledger.add([new(on_duplicate=OnDuplicate.REPLACE, delay_ms=99)])
    settle(ledger, task, Ending.DONE)
    assert end_of(told(ledger)[ENDED]).generation == task.generation
    assert stored_task(ledger).status == Status.SCHEDULED


def test_a_follow_up_is_in_its_tasks_shard_and_in_no_group(sharded: Ledger) -> None:
    ids = [f"t{n}" for n in range(12)]
    sharded.add([new(id, group="" if n % 2 else f"g{n}", notify="audit") for n, id in enumerate(ids)])
    for shard in sharded.shards():
        for task in sharded.claim(shard, 99, lease_ms=LEASE_MS).tasks:
            assert sharded.settle(shard, [ending(task, Ending.DONE)]) == [Settled.DONE]
        for notification in sharded.claim(shard, 99, lease_ms=LEASE_MS).tasks:
            ended = end_of(notification)
            assert notification.group in {ended.id, *(f"g{n}" for n in range(12))}
            assert sharded.shard_of(QUEUE, notification.id, notification.group) == shard
            assert sharded.get(QUEUE, notification.id) == notification
            assert sharded.settle(shard, [ending(notification, Ending.DONE)]) == [Settled.DONE]
            ids.remove(ended.id)
    assert ids == []
    assert [task.id for task in sharded.group(QUEUE, "g2")] == ["t2"]


def test_a_follow_up_is_its_tasks_tenants(ledger_that_reports_deaths: Ledger) -> None:
    ledger_that_reports_deaths.add([new("a", tenant="t")])
    (task,) = (
        ledger_that_reports_deaths.claim(SHARD, 9, lease_ms=LEASE_MS).tasks
        or ledger_that_reports_deaths.claim(SHARD, 9, lease_ms=LEASE_MS).tasks
    )
    settle(ledger_that_reports_deaths, task, Ending.DROP, detail="x")
    assert list(told(ledger_that_reports_deaths, "t")) == [DEAD]


def test_a_batch_of_ends_is_followed_by_a_batch(ledger_that_reports_deaths: Ledger) -> None:
    ledger_that_reports_deaths.add([new(f"t{n}", notify="audit") for n in range(300)])
    tasks = claim(ledger_that_reports_deaths, 300)
    ledger_that_reports_deaths.settle(
        SHARD, [ending(t, Ending.DROP if n % 3 else Ending.DONE) for n, t in enumerate(tasks)]
    )
    assert ledger_that_reports_deaths.stats(SHARD).scheduled == 300 + 200
    notifications = claim(ledger_that_reports_deaths, 500)
    assert len({task.generation for task in notifications}) == 500
    assert sorted({task.kind for task in notifications}) == ["audit", DEAD]


def test_a_moved_follow_up_is_no_groups_member(ledger: Ledger) -> None:
    settle(ledger, claim_one(ledger, group="g", notify=URL), Ending.DONE)
    notification = told(ledger)[ENDED]
    settle(ledger, notification, Ending.RETRY, delay_ms=9)
    ledger.move(QUEUE, [Move(notification.id, delay_ms=5)])
    assert [task.id for task in ledger.group(QUEUE, "g")] == ["a"]
