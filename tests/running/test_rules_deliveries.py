"""Tasks that are handed over: leases of delivery, what begins them, what becomes of those that nobody begins."""

from dataclasses import replace
from itertools import count
from typing import Any

import pytest

from duecourse.ledger.operations import Begun, Claim, Delivery, Lease, Move, Reply, Settled
from duecourse.ledger.queue import ThrottleReason
from duecourse.ledger.store.ledger import Ledger
from duecourse.ledger.task import Ending, OnDuplicate, RetryPolicy, Run, Status, Task
from tests.support.clock import HandClock
from tests.support.ledger import LATER_MS, LEASE_MS, SHARD, add, claim_one, ending, lease_of, new, settle, stored_task

TARGET = "lambda:report"
DELIVERY_MS = 120_000
MOST_UNDELIVERED = 20
YEAR_MS = 31_536_000_000
PUT_ASIDE_MS = 900_000
"""Time after which a claim looks again at a task that was put aside, unless something makes it due before."""
NONCES = count(1)
LOST = Begun("", 0, 0)


def deliveries(most: int = 100) -> dict[str, Delivery]:
    return {"report": Delivery(TARGET, most, DELIVERY_MS)}


def claim(store: Ledger, limit: int = 100, most: int = 100) -> Claim:
    return store.claim(SHARD, limit, lease_ms=LEASE_MS, deliveries=deliveries(most))


def hand_over(store: Ledger, *ids: str, **fields: Any) -> list[Task]:
    """Tasks of a kind that is handed over, due now and claimed."""
    store.add([new(id, kind="report", **fields) for id in ids])
    return claim(store).tasks


def begin(store: Ledger, *tasks: Task, nonce: int = 0, each: int = 0) -> list[Begun]:
    nonces = [(nonce or next(NONCES)).to_bytes(8) for _ in tasks]
    return store.begin(SHARD, [lease_of(task) for task in tasks], LEASE_MS, nonces, each)


def begun(store: Ledger, task: Task) -> Task:
    """The task under the lease that its worker began."""
    [one] = begin(store, task)
    return replace(task, token=one.token, target="", delivery=task.token)


def waits_a_minute(store: Ledger, clock: HandClock) -> None:
    """The delivery lapses, and the task comes due again."""
    clock.advance(DELIVERY_MS)
    store.sweep(SHARD, retention_ms=LATER_MS)
    clock.at = max(clock.at, stored_task(store).due_at)


def test_what_is_handed_over_is_under_a_lease_of_delivery(store: Ledger, clock: HandClock) -> None:
    store.add([new("a", kind="report"), new("b")])
    a, b = sorted(claim(store).tasks, key=lambda task: task.id)
    assert (a.target, a.run, a.attempt, a.lease_expires_at) == (TARGET, 1, 1, clock.at + DELIVERY_MS)
    assert (b.target, b.lease_expires_at) == ("", clock.at + LEASE_MS)
    assert a == stored_task(store, "a")
    assert store.stats(SHARD).leased == 2


def test_who_begins_gets_a_new_token_and_the_lease_of_the_run(store: Ledger, clock: HandClock) -> None:
    a, b = hand_over(store, "a", "b")
    clock.advance(DELIVERY_MS - 1)
    first, second = begin(store, a, b)
    assert (first.run, first.expires_at) == (1, clock.at + LEASE_MS)
    assert len({first.token, second.token, a.token, b.token}) == 4
    task = stored_task(store)
    assert (task.token, task.delivery, task.target) == (first.token, a.token, "")
    assert (task.claimed_at, task.lease_expires_at) == (clock.at, clock.at + LEASE_MS)
    assert task.fence > a.fence


def test_a_lost_reply_is_asked_for_again_and_no_other_worker_begins(store: Ledger) -> None:
    [task] = hand_over(store, "a")
    [first] = begin(store, task, nonce=7_001)
    assert begin(store, task, nonce=7_001) == [first]
    assert begin(store, task, nonce=7_002) == [LOST]
    assert stored_task(store).token == first.token


def test_many_deliveries_of_one_call_are_answered_in_their_order(store: Ledger, clock: HandClock) -> None:
    store.add([new(f"t{n:02}", kind="report", payload=f'"{"x" * 40 * n}"') for n in range(50)])
    store.add([new("late", kind="report", deadline_ms=50), new("mine", kind="report"), new("others", kind="report")])
    tasks = {task.id: task for task in claim(store).tasks}
    [mine], [_] = begin(store, tasks["mine"], nonce=7_001), begin(store, tasks["others"], nonce=7_002)
    clock.advance(50)
    many = [tasks[f"t{n:02}"] for n in range(50)]
    asked = [*many[:20], tasks["late"], tasks["mine"], many[3], tasks["others"], *many[20:]]
    answers = begin(store, *asked, nonce=7_001)
    assert answers[20:24] == [LOST, mine._replace(expires_at=clock.at + LEASE_MS), LOST, LOST]
    began = answers[:20] + answers[24:]
    assert {(one.run, one.expires_at, one.late_ms) for one in began} == {(1, clock.at + LEASE_MS, 50)}
    fences = [int(one.token[:12], 16) for one in began]
    assert fences == sorted(set(fences))
    for task, one in zip(many, began, strict=True):
        now = stored_task(store, task.id)
        assert (now.token, now.delivery, now.lease_expires_at) == (one.token, task.token, one.expires_at)
        assert (now.payload_json, now.due_at) == (task.payload_json, task.due_at)
    assert stored_task(store, "late").status is Status.DEAD
    settled = store.settle(SHARD, [ending(one.under(task), Ending.DONE) for task, one in zip(many, began, strict=True)])
    assert settled == [Settled.DONE] * 50


def test_what_is_begun_is_settled_by_its_new_token_alone(store: Ledger) -> None:
    [task] = hand_over(store, "a")
    mine = begun(store, task)
    for how in (Ending.DONE, Ending.RETRY, Ending.RELEASE, Ending.UNDELIVERED):
        assert settle(store, task, how) == Settled.STALE
    assert store.extend(SHARD, [lease_of(task)], LEASE_MS) == [0]
    assert not store.save(SHARD, lease_of(task), "1")
    assert settle(store, mine, Ending.DONE, result="2") == Settled.DONE
    assert settle(store, mine, Ending.DONE, result="2") == Settled.DONE
    [run] = stored_task(store).history
    assert (run.run, run.outcome, run.fence) == (1, "done", mine.fence)
    assert begin(store, task) == [LOST]


def test_a_settle_without_a_begin_is_taken_if_it_is_the_first(store: Ledger) -> None:
    [task] = hand_over(store, "a")
    assert settle(store, task, Ending.RETRY, detail="503") == Settled.RETRIED
    assert settle(store, task, Ending.RETRY, detail="503") == Settled.RETRIED
    assert begin(store, task) == [LOST]
    assert (stored_task(store).run, stored_task(store).attempt, stored_task(store).error) == (1, 2, "503")
    [again] = claim(store).tasks
    assert again.run == 2


def test_an_unbegun_delivery_is_extended_and_saved_under(store: Ledger, clock: HandClock) -> None:
    [task] = hand_over(store, "a")
    assert store.extend(SHARD, [lease_of(task)], DELIVERY_MS + 1) == [clock.at + DELIVERY_MS + 1]
    assert store.save(SHARD, lease_of(task), '{"page":1}')
    assert (stored_task(store).target, stored_task(store).state) == (TARGET, {"page": 1})
    assert begin(store, task) != [LOST]


def test_an_unbegun_delivery_that_lapses_spends_no_attempt_and_comes_back_later_each_time(
    store: Ledger, clock: HandClock
) -> None:
    hand_over(store, "a")
    delays = []
    for times in range(1, MOST_UNDELIVERED):
        clock.advance(DELIVERY_MS)
        store.sweep(SHARD, retention_ms=LATER_MS)
        task = stored_task(store)
        assert (task.status, task.run, task.attempt) == (Status.SCHEDULED, 0, 1)
        [entry] = task.log
        assert isinstance(entry, Run)
        assert (entry.outcome, entry.times) == ("undelivered", times)
        assert entry.detail == f"handed over to {TARGET}, but the function did not begin it"
        delays.append(task.due_at - clock.at)
        clock.at = task.due_at
        claim(store)
    assert delays == [min(1_000 * 2**n, 300_000) for n in range(MOST_UNDELIVERED - 1)]
    clock.advance(DELIVERY_MS)
    assert store.sweep(SHARD, retention_ms=LATER_MS).died == 1
    dead = stored_task(store)
    assert (dead.status, dead.run, dead.attempt) == (Status.DEAD, 0, 1)
    assert dead.error == f"undelivered: handed over to {TARGET}, but the function did not begin it"
    assert dead.history == ()


def test_deliveries_that_lapsed_do_not_add_up_over_a_run_that_was_begun(store: Ledger, clock: HandClock) -> None:
    hand_over(store, "a", retry=RetryPolicy(max_attempts=99, backoff_ms=0))
    for _ in range(2 * MOST_UNDELIVERED):
        waits_a_minute(store, clock)
        [task] = claim(store).tasks
        if stored_task(store).log[-1].times == MOST_UNDELIVERED - 1:
            settle(store, begun(store, task), Ending.RETRY)
            claim(store)
    assert stored_task(store).status is not Status.DEAD


def lapse(store: Ledger, clock: HandClock, id: str = "a") -> Task:
    """The task, once its delivery has lapsed."""
    clock.advance(DELIVERY_MS)
    store.sweep(SHARD, retention_ms=LATER_MS)
    return stored_task(store, id)


def begin_another(store: Ledger, clock: HandClock, kind: str = "report", target: str = TARGET) -> Task:
    """A task of `kind` that its target begins now, while others wait there."""
    id = f"other-{next(NONCES)}"
    store.add([new(id, kind=kind, due_at=clock.at - LATER_MS)])
    tasks = store.claim(SHARD, 1, lease_ms=LEASE_MS, deliveries={kind: Delivery(target, 100, DELIVERY_MS)}).tasks
    assert [task.id for task in tasks] == [id]
    return begun(store, tasks[0])


def test_a_delivery_that_waited_for_a_busy_target_is_no_strike(store: Ledger, clock: HandClock) -> None:
    delays = []
    [task] = hand_over(store, "a")
    for times in range(1, 2 * MOST_UNDELIVERED):
        clock.advance(1)
        settle(store, begin_another(store, clock), Ending.DONE)
        after = lapse(store, clock)
        assert (after.status, after.run, after.attempt) == (Status.SCHEDULED, 0, 1)
        [entry] = after.log
        assert isinstance(entry, Run)
        assert (entry.outcome, entry.times) == ("release", times)
        assert entry.detail == f"waited for {TARGET}, which was busy with other tasks"
        delays.append(after.due_at - clock.at)
        clock.at = after.due_at
        [task] = claim(store).tasks
    assert delays == [min(1_000 * 2**n, 30_000) for n in range(2 * MOST_UNDELIVERED - 1)]
    assert settle(store, begun(store, task), Ending.DONE) is Settled.DONE


def test_a_target_is_busy_while_what_it_began_before_runs_on(store: Ledger, clock: HandClock) -> None:
    long = begin_another(store, clock)
    for _ in range(2 * MOST_UNDELIVERED):
        clock.advance(LEASE_MS - 1)
        store.extend(SHARD, [lease_of(long)], LEASE_MS, at_least=True)
        if stored_task(store, long.id).status is Status.LEASED and not store.get(SHARD.queue, "a"):
            hand_over(store, "a")
        claim(store)
    task = stored_task(store, "a")
    assert (task.log[-1].outcome, task.status) == ("release", Status.LEASED)
    assert all(entry.outcome == "release" for entry in task.log)


def test_each_begin_counts_however_short_its_lease_is(store: Ledger, clock: HandClock) -> None:
    def begin_for_a_second() -> None:
        store.add([new(id := f"other-{next(NONCES)}", kind="report", due_at=clock.at - LATER_MS)])
        [task] = claim(store, limit=1).tasks
        assert task.id == id
        store.begin(SHARD, [lease_of(task)], 1_000, [bytes(8)])

    begin_for_a_second()
    clock.advance(2_000)
    hand_over(store, "a")
    clock.advance(2_000)
    begin_for_a_second()
    assert lapse(store, clock).log[-1].outcome == "release"


def test_tasks_that_another_target_begins_excuse_no_delivery(store: Ledger, clock: HandClock) -> None:
    hand_over(store, "a")
    for _ in range(MOST_UNDELIVERED):
        clock.advance(1)
        begin_another(store, clock, kind="mail", target="lambda:mail")
        clock.at = max(clock.at, lapse(store, clock).due_at)
        claim(store)
    assert (stored_task(store).status, stored_task(store).log[-1].times) == (Status.DEAD, MOST_UNDELIVERED)


def test_strikes_of_a_run_add_up_over_deliveries_that_were_none(store: Ledger, clock: HandClock) -> None:
    [task] = hand_over(store, "a")
    for times in range(1, MOST_UNDELIVERED):
        clock.at = lapse(store, clock).due_at
        [task] = claim(store).tasks
        assert settle(store, task, Ending.UNDELIVERED, detail="throttled") is Settled.RELEASED
        after = stored_task(store)
        assert {entry.outcome: entry.times for entry in after.log} == {"undelivered": times, "release": times}
        clock.at = after.due_at + 60_000  # by then it no longer counts as busy
        claim(store)
    assert lapse(store, clock).status is Status.DEAD


def test_a_busy_target_is_handed_half_as_much_and_more_with_each_begin(store: Ledger, clock: HandClock) -> None:
    store.add([new(f"t{n:02}", kind="report", due_at=clock.at - 100 + n) for n in range(90)])
    first = claim(store, most=60).tasks
    clock.advance(1)
    begin(store, first[0])
    clock.at = lapse(store, clock, "t01").due_at
    second = claim(store, most=60).tasks
    assert len(second) == (60 - 1) // 2
    for task in second[:3]:
        begin(store, task)
    assert len(claim(store, most=60).tasks) == 3 + 3


def test_a_claim_answers_how_many_tasks_one_invocation_has_time_for(store: Ledger) -> None:
    store.add([new(f"t{n}", kind="report") for n in range(9)])
    got = claim(store, limit=1)
    answers = [got.each]
    for each in (0, 3, 0, 2, 10, 0, 9):
        begin(store, got.tasks[0], each=each)
        got = claim(store, limit=1)
        answers.append(got.each)
    few = {TARGET: 3}
    assert answers == [{}, {}, few, few, {TARGET: 2}, {}, {}, {TARGET: 9}]
    store.add([new("other", kind="mail")])
    others = store.claim(SHARD, 1, lease_ms=LEASE_MS, deliveries={"mail": Delivery("lambda:mail", 9, DELIVERY_MS)})
    assert others.each == {}


def test_a_target_that_had_no_room_for_one_event_counts_as_busy(store: Ledger, clock: HandClock) -> None:
    refused, _ = hand_over(store, "a", "b")
    settle(store, refused, Ending.UNDELIVERED, detail="throttled")
    assert "busy" in lapse(store, clock, "b").log[-1].detail


def test_a_target_that_has_grown_is_halved_from_what_it_has(store: Ledger, clock: HandClock) -> None:
    store.add([new(f"t{n:03}", kind="report", due_at=clock.at - 200 + n) for n in range(120)])
    refused, *others = claim(store, most=40).tasks
    clock.advance(1)
    settle(store, refused, Ending.UNDELIVERED, detail="throttled")
    for task in others:
        begin(store, task)
    clock.advance(1)
    again = claim(store, most=40).tasks
    assert len(again) == 40
    clock.advance(1)
    for task in again:
        settle(store, task, Ending.UNDELIVERED, detail="throttled")
    clock.advance(1)
    assert len(claim(store, most=40).tasks) == 20


def test_a_target_that_is_never_free_keeps_room_for_one_invocation(store: Ledger, clock: HandClock) -> None:
    store.add([new(f"t{n:02}", kind="report") for n in range(90)])
    tasks = claim(store, most=60).tasks
    for _ in range(6):
        for task in tasks:
            settle(store, task, Ending.UNDELIVERED, detail="throttled")
        clock.advance(LATER_MS)
        tasks = claim(store, most=60).tasks
    assert len(tasks) == 10


def test_a_begun_task_lapses_like_any(store: Ledger, clock: HandClock) -> None:
    begin(store, *hand_over(store, "a"))
    clock.advance(LEASE_MS)
    store.sweep(SHARD, retention_ms=LATER_MS)
    assert (stored_task(store).attempt, stored_task(store).error) == (2, "the lease lapsed")


def test_a_released_delivery_is_no_run(store: Ledger, clock: HandClock) -> None:
    [task] = hand_over(store, "a")
    assert settle(store, task, Ending.RELEASE, delay_ms=5, detail="throttled") == Settled.RELEASED
    assert settle(store, task, Ending.RELEASE, delay_ms=5, detail="throttled") == Settled.RELEASED
    assert (stored_task(store).run, stored_task(store).due_at) == (0, clock.at + 5)
    clock.advance(5)
    [task] = claim(store).tasks
    assert task.run == 1


def test_no_more_are_handed_over_than_a_target_may_have_unbegun(store: Ledger, clock: HandClock) -> None:
    store.add([new(f"t{n}", kind="report", due_at=clock.at - 100 + n) for n in range(25)])
    store.add([new("behind")])
    first = claim(store, most=20)
    assert [task.id for task in first.tasks] == [*(f"t{n}" for n in range(20)), "behind"]
    assert (first.aside, first.backlog) == (5, 0)
    assert claim(store, most=20).tasks == []
    assert stored_task(store, "t24").due_at == clock.at - 76
    begin(store, first.tasks[0])
    assert claim(store, most=20).tasks[0].id == "t20"


def test_a_place_that_is_free_again_rings_for_what_waits_once_a_tenth_of_them_is(
    store: Ledger, clock: HandClock
) -> None:
    store.add([new(f"t{n}", kind="report") for n in range(25)])
    first = claim(store, most=20).tasks
    begin(store, first[0])
    assert store.stats(SHARD).bell_at > clock.at + 1_000
    settle(store, first[1], Ending.RELEASE, delay_ms=LATER_MS)
    assert store.stats(SHARD).bell_at == clock.at + 1
    store.add([new("later", delay_ms=LATER_MS)])
    assert store.stats(SHARD).bell_at == clock.at + 1
    assert len(claim(store, most=20).tasks) == 2
    assert store.stats(SHARD).bell_at > clock.at + 1_000


@pytest.mark.parametrize("how", ["begin", "settle", "lapse", "cancel", "move", "expire", "undelivered"])
def test_whatever_ends_a_delivery_frees_its_place(store: Ledger, clock: HandClock, how: str) -> None:
    store.add(
        [new("a", kind="report", deadline_ms=50), new("b", kind="report", delay_ms=1, deadline_ms=DELIVERY_MS * 2)]
    )
    clock.advance(1)
    [a] = claim(store, most=1).tasks
    ways = {
        "begin": lambda: begin(store, a),
        "settle": lambda: settle(store, a, Ending.DONE),
        "lapse": lambda: clock.advance(DELIVERY_MS),
        "cancel": lambda: store.cancel(SHARD.queue, ["a"], force=True),
        "move": lambda: store.move(SHARD.queue, [Move("a", delay_ms=LATER_MS, force=True)]),
        "expire": lambda: (clock.advance(60), begin(store, a)),
        "undelivered": lambda: settle(store, a, Ending.UNDELIVERED),
    }
    assert claim(store, most=1).tasks == []
    ways[how]()
    assert [task.id for task in claim(store, most=1).tasks] == ["b"]


def test_what_was_put_aside_and_moved_or_cancelled_since_is_not_made_due(store: Ledger, clock: HandClock) -> None:
    store.add([new("a", kind="report")])
    store.add([new(id, kind="report", delay_ms=1) for id in ("b", "c", "d")])
    clock.advance(1)
    [a] = claim(store, most=1).tasks
    assert store.move(SHARD.queue, [Move("b", delay_ms=LATER_MS)]) == [Reply.OK]
    assert store.cancel(SHARD.queue, ["c"]) == [Reply.OK]
    settle(store, a, Ending.DONE)
    assert [task.id for task in claim(store, most=3).tasks] == ["d"]
    clock.advance(LATER_MS)
    assert [task.id for task in claim(store, most=3).tasks] == ["b"]


def test_however_long_tasks_waited_a_place_that_is_free_is_taken_at_once(store: Ledger, clock: HandClock) -> None:
    store.add([new("first", kind="report"), *(new(f"t{n}", kind="report", delay_ms=1) for n in range(9))])
    clock.advance(1)
    [first] = claim(store, most=1).tasks
    for _ in range(5):
        store.extend(SHARD, [lease_of(first)], 2 * PUT_ASIDE_MS)
        clock.advance(PUT_ASIDE_MS)
        assert claim(store, most=1).aside == 9
    store.move(SHARD.queue, [Move(f"t{n}", delay_ms=LATER_MS) for n in range(8)])
    settle(store, first, Ending.DONE)
    assert [task.id for task in claim(store, most=1).tasks] == ["t8"]


@pytest.mark.parametrize("kind_is", ["handed to another function", "worked inline"])
def test_what_waits_for_a_target_that_its_kind_no_longer_has_is_claimed(
    store: Ledger, clock: HandClock, kind_is: str
) -> None:
    store.add([new(f"t{n}", kind="report", tenant=f"tenant{n}") for n in range(5)])
    [first] = claim(store, most=1).tasks
    settle(store, first, Ending.DONE)
    elsewhere = {"report": Delivery("lambda:renamed", 100, DELIVERY_MS)} if "function" in kind_is else {}
    claimed = store.claim(SHARD, 100, lease_ms=LEASE_MS, deliveries=elsewhere)
    assert len(claimed.tasks) == 4
    assert claimed.bell_at > clock.at + 1_000


def test_tasks_of_many_tenants_wait_for_one_target(store: Ledger) -> None:
    tenants = [f"tenant{n:03}" for n in range(150)]
    store.add([new("a", kind="report", tenant=tenant) for tenant in tenants])
    served: list[str] = []
    for _ in range(40):
        tasks = claim(store, most=10).tasks
        served += [task.tenant for task in tasks]
        for task in tasks:
            store.settle(SHARD, [ending(task, Ending.DONE)])
    assert sorted(served) == tenants


def test_a_great_backlog_for_one_target_is_moved_once_and_holds_nothing_up(store: Ledger) -> None:
    for part in range(3):
        store.add([new(f"t{part}-{n}", kind="report") for n in range(900)])
    store.add([new("other", delay_ms=0)])
    moved, claims = 0, 0
    while True:
        got = claim(store, limit=20, most=5)
        moved, claims = moved + got.aside, claims + 1
        if not (got.tasks or got.aside):
            break
        assert claims < 500
    assert moved == 2_695
    assert stored_task(store, "other").status is Status.LEASED
    assert store.stats(SHARD).oldest_due_at == stored_task(store, "t0-899").due_at


def test_a_delivery_counts_as_running(store: Ledger) -> None:
    store.configure(SHARD.queue, {"max_running": 2})
    tasks = hand_over(store, "a", "b", "c")
    assert len(tasks) == 2
    begin(store, tasks[0])
    assert claim(store).tasks == []
    settle(store, tasks[1], Ending.DONE)
    assert len(claim(store).tasks) == 1


def test_one_past_its_deadline_dies_instead_of_being_begun(store_that_reports_deaths: Ledger, clock: HandClock) -> None:
    [task] = hand_over(store_that_reports_deaths, "a", deadline_ms=50)
    clock.advance(50)
    assert begin(store_that_reports_deaths, task) == [LOST]
    assert (stored_task(store_that_reports_deaths).status, stored_task(store_that_reports_deaths).error) == (
        Status.DEAD,
        "past its deadline",
    )
    assert [task.kind for task in claim(store_that_reports_deaths).tasks] == ["task.dead"]


def test_a_run_is_never_an_undelivered_one(store: Ledger) -> None:
    task = claim_one(store)
    assert settle(store, task, Ending.UNDELIVERED) is Settled.STALE
    assert stored_task(store).status is Status.LEASED


def test_a_run_that_was_begun_after_an_undelivered_one_is_none_either(store: Ledger, clock: HandClock) -> None:
    [task] = hand_over(store, "a")
    assert settle(store, task, Ending.UNDELIVERED) is Settled.RELEASED
    clock.at = stored_task(store).due_at
    [task] = claim(store).tasks
    assert settle(store, begun(store, task), Ending.UNDELIVERED) is Settled.STALE
    assert stored_task(store).status is Status.LEASED


def test_one_past_its_deadline_that_is_not_delivered_is_dead(store: Ledger, clock: HandClock) -> None:
    [task] = hand_over(store, "a", deadline_ms=5)
    clock.advance(6)
    assert settle(store, task, Ending.UNDELIVERED) is Settled.DEAD
    assert stored_task(store).status is Status.DEAD


def test_a_clock_that_is_put_back_excuses_no_delivery(store: Ledger, clock: HandClock) -> None:
    clock.advance(YEAR_MS)
    [other] = hand_over(store, "b")
    assert settle(store, begun(store, other), Ending.DONE) is Settled.DONE
    clock.advance(-YEAR_MS)
    store.add([new("a", kind="report")])
    for _ in range(MOST_UNDELIVERED):
        claim(store)
        waits_a_minute(store, clock)
    assert stored_task(store).error.startswith("undelivered")


def test_a_target_is_busy_again_after_its_clock_is_put_back(store: Ledger, clock: HandClock) -> None:
    clock.advance(YEAR_MS)
    [other] = hand_over(store, "b")
    assert settle(store, begun(store, other), Ending.DONE) is Settled.DONE
    clock.advance(-YEAR_MS)
    _, b = hand_over(store, "a", "c")
    begun(store, b)
    waits_a_minute(store, clock)
    [entry] = stored_task(store).log
    assert isinstance(entry, Run)
    assert (entry.outcome, stored_task(store).error) == ("release", "")


@pytest.mark.parametrize("lapses", [True, False])
def test_a_task_whose_deadline_ends_while_it_waits_says_what_it_died_of(
    store: Ledger, clock: HandClock, lapses: bool
) -> None:
    [waits] = hand_over(store, "a", deadline_ms=DELIVERY_MS - 1)
    begin(store, *hand_over(store, "b"))
    clock.advance(DELIVERY_MS)
    if lapses:
        store.sweep(SHARD, retention_ms=LATER_MS)
    else:
        assert settle(store, waits, Ending.UNDELIVERED, detail="throttled") is Settled.DEAD
    dead = stored_task(store)
    assert (dead.status, dead.error, dead.attempt) == (Status.DEAD, "past its deadline", 1)
    assert [entry.outcome for entry in dead.log if isinstance(entry, Run)] == ["release", "expired"]


def test_an_event_that_never_arrives_is_no_strike_however_often(store: Ledger, clock: HandClock) -> None:
    [task] = hand_over(store, "a")
    for times in range(1, 3 * MOST_UNDELIVERED):
        assert settle(store, task, Ending.UNDELIVERED, detail="EventAgeExceeded") == Settled.RELEASED
        after = stored_task(store)
        assert (after.run, after.attempt, after.error) == (0, 1, "")
        [entry] = after.log
        assert isinstance(entry, Run)
        assert (entry.outcome, entry.detail, entry.times) == ("release", "EventAgeExceeded", times)
        assert after.due_at == clock.at + min(1_000 * 2 ** (times - 1), 30_000)
        clock.at = after.due_at
        [task] = claim(store).tasks


def test_a_replacement_waits_for_a_delivery_and_follows_where_that_comes_to_nothing(
    store: Ledger, clock: HandClock
) -> None:
    hand_over(store, "a")
    replacement = new("a", kind="report", payload="2", on_duplicate=OnDuplicate.REPLACE)
    assert store.add([replacement])[0].reply == Reply.REPLACED
    clock.advance(DELIVERY_MS)
    [task] = claim(store).tasks
    assert (task.payload, task.run) == (2, 1)


@pytest.mark.parametrize("is_late", [False, True])
def test_what_is_replaced_before_it_begins_does_not_begin(
    store_that_reports_deaths: Ledger, clock: HandClock, is_late: bool
) -> None:
    tasks = hand_over(store_that_reports_deaths, "a", "b", group="old", deadline_ms=5)
    store_that_reports_deaths.add(
        [new("a", kind="report", payload="2", group="new", on_duplicate=OnDuplicate.REPLACE, deadline_ms=9)]
    )
    clock.advance(6 if is_late else 1)
    [replaced, other] = begin(store_that_reports_deaths, *tasks)
    assert (replaced, other == LOST) == (LOST, is_late)
    assert stored_task(store_that_reports_deaths).status is Status.SCHEDULED
    assert [one.id for one in store_that_reports_deaths.group(SHARD.queue, "new")] == ["a"]
    [after] = [task for task in claim(store_that_reports_deaths).tasks if task.id == "a"]
    assert (after.payload, after.run, after.attempt) == (2, 1, 1)
    assert begin(store_that_reports_deaths, tasks[0]) == [LOST]
    assert begun(store_that_reports_deaths, after).token


@pytest.mark.parametrize("how", ["done", "retry", "lapse"])
def test_a_replacement_of_what_is_handed_over_waits_for_the_run_that_is_begun(
    store: Ledger, clock: HandClock, how: str
) -> None:
    [task] = hand_over(store, "a", group="old")
    mine = begun(store, task)
    store.add([new("a", kind="report", payload="2", group="new", on_duplicate=OnDuplicate.REPLACE)])
    assert [one.id for one in store.group(SHARD.queue, "new")] == ["a"]
    if how == "lapse":
        clock.advance(LEASE_MS)
    else:
        settle(store, mine, Ending(how))
    [after] = claim(store).tasks
    assert (after.payload, after.run, after.attempt) == (2, 1, 1)
    assert store.group(SHARD.queue, "old") == []


def test_a_lease_that_ends_later_is_not_cut_short_where_at_least_is_asked(store: Ledger, clock: HandClock) -> None:
    add(store)
    [task] = store.claim(SHARD, 1, lease_ms=LEASE_MS).tasks
    assert store.extend(SHARD, [lease_of(task)], 10, at_least=True) == [clock.at + LEASE_MS]
    assert store.extend(SHARD, [lease_of(task)], LEASE_MS + 1, at_least=True) == [clock.at + LEASE_MS + 1]
    assert store.extend(SHARD, [lease_of(task)], 10) == [clock.at + 10]


def test_what_does_not_stand_there_is_not_begun(store: Ledger) -> None:
    add(store)
    [task] = store.claim(SHARD, 1, lease_ms=LEASE_MS).tasks
    strangers = [Lease("none", "0" * 28), Lease("a", task.token), Lease("a", "x")]
    assert store.begin(SHARD, strangers, LEASE_MS, [bytes(8)] * 3) == [LOST] * 3


def test_that_a_task_waits_for_room_at_its_target_is_told(store: Ledger) -> None:
    store.add([new("a", kind="report"), new("b", kind="report"), new("c", kind="report", delay_ms=LATER_MS)])
    [task] = claim(store, most=1).tasks
    waiting = stored_task(store, "b" if task.id == "a" else "a")
    assert store.throttle(SHARD, "-", waiting).reason is ThrottleReason.TARGET
    assert store.throttle(SHARD, "-", stored_task(store, "c")).reason is None
    assert store.throttle(SHARD).reason is None
