"""Tasks that are handed over: leases of delivery, what begins them, what becomes of those that nobody begins."""

from dataclasses import replace
from itertools import count
from typing import Any

import pytest

from duecourse.ledger.operation_types import Begun, Claim, Delivery, Lease, Move, Reply, Settled
from duecourse.ledger.operations.ledger import Ledger
from duecourse.ledger.queue import ThrottleReason
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


def claim(ledger: Ledger, limit: int = 100, most: int = 100) -> Claim:
    return ledger.claim(SHARD, limit, lease_ms=LEASE_MS, deliveries=deliveries(most))


def hand_over(ledger: Ledger, *ids: str, **fields: Any) -> list[Task]:
    """Tasks of a kind that is handed over, due now and claimed."""
    ledger.add([new(id, kind="report", **fields) for id in ids])
    return claim(ledger).tasks


def begin(ledger: Ledger, *tasks: Task, nonce: int = 0, each: int = 0) -> list[Begun]:
    nonces = [(nonce or next(NONCES)).to_bytes(8) for _ in tasks]
    return ledger.begin(SHARD, [lease_of(task) for task in tasks], LEASE_MS, nonces, each)


def begun(ledger: Ledger, task: Task) -> Task:
    """The task under the lease that its worker began."""
    [one] = begin(ledger, task)
    return replace(task, token=one.token, target="", delivery=task.token)


def waits_a_minute(ledger: Ledger, clock: HandClock) -> None:
    """The delivery lapses, and the task comes due again."""
    clock.advance(DELIVERY_MS)
    ledger.sweep(SHARD, retention_ms=LATER_MS)
    clock.at = max(clock.at, stored_task(ledger).due_at)


def test_what_is_handed_over_is_under_a_lease_of_delivery(ledger: Ledger, clock: HandClock) -> None:
    ledger.add([new("a", kind="report"), new("b")])
    a, b = sorted(claim(ledger).tasks, key=lambda task: task.id)
    assert (a.target, a.run, a.attempt, a.lease_expires_at) == (TARGET, 1, 1, clock.at + DELIVERY_MS)
    assert (b.target, b.lease_expires_at) == ("", clock.at + LEASE_MS)
    assert a == stored_task(ledger, "a")
    assert ledger.stats(SHARD).leased == 2


def test_who_begins_gets_a_new_token_and_the_lease_of_the_run(ledger: Ledger, clock: HandClock) -> None:
    a, b = hand_over(ledger, "a", "b")
    clock.advance(DELIVERY_MS - 1)
    first, second = begin(ledger, a, b)
    assert (first.run, first.expires_at) == (1, clock.at + LEASE_MS)
    assert len({first.token, second.token, a.token, b.token}) == 4
    task = stored_task(ledger)
    assert (task.token, task.delivery, task.target) == (first.token, a.token, "")
    assert (task.claimed_at, task.lease_expires_at) == (clock.at, clock.at + LEASE_MS)
    assert task.fence > a.fence


def test_a_lost_reply_is_asked_for_again_and_no_other_worker_begins(ledger: Ledger) -> None:
    [task] = hand_over(ledger, "a")
    [first] = begin(ledger, task, nonce=7_001)
    assert begin(ledger, task, nonce=7_001) == [first]
    assert begin(ledger, task, nonce=7_002) == [LOST]
    assert stored_task(ledger).token == first.token


def test_many_deliveries_of_one_call_are_answered_in_their_order(ledger: Ledger, clock: HandClock) -> None:
    ledger.add([new(f"t{n:02}", kind="report", payload=f'"{"x" * 40 * n}"') for n in range(50)])
    ledger.add([new("late", kind="report", deadline_ms=50), new("mine", kind="report"), new("others", kind="report")])
    tasks = {task.id: task for task in claim(ledger).tasks}
    [mine], [_] = begin(ledger, tasks["mine"], nonce=7_001), begin(ledger, tasks["others"], nonce=7_002)
    clock.advance(50)
    many = [tasks[f"t{n:02}"] for n in range(50)]
    asked = [*many[:20], tasks["late"], tasks["mine"], many[3], tasks["others"], *many[20:]]
    answers = begin(ledger, *asked, nonce=7_001)
    assert answers[20:24] == [LOST, mine._replace(expires_at=clock.at + LEASE_MS), LOST, LOST]
    began = answers[:20] + answers[24:]
    assert {(one.run, one.expires_at, one.late_ms) for one in began} == {(1, clock.at + LEASE_MS, 50)}
    fences = [int(one.token[:12], 16) for one in began]
    assert fences == sorted(set(fences))
    for task, one in zip(many, began, strict=True):
        now = stored_task(ledger, task.id)
        assert (now.token, now.delivery, now.lease_expires_at) == (one.token, task.token, one.expires_at)
        assert (now.payload_json, now.due_at) == (task.payload_json, task.due_at)
    assert stored_task(ledger, "late").status is Status.DEAD
    settled = ledger.settle(
        SHARD, [ending(one.under(task), Ending.DONE) for task, one in zip(many, began, strict=True)]
    )
    assert settled == [Settled.DONE] * 50


def test_what_is_begun_is_settled_by_its_new_token_alone(ledger: Ledger) -> None:
    [task] = hand_over(ledger, "a")
    mine = begun(ledger, task)
    for how in (Ending.DONE, Ending.RETRY, Ending.RELEASE, Ending.UNDELIVERED):
        assert settle(ledger, task, how) == Settled.STALE
    assert ledger.extend(SHARD, [lease_of(task)], LEASE_MS) == [0]
    assert not ledger.save(SHARD, lease_of(task), "1")
    assert settle(ledger, mine, Ending.DONE, result="2") == Settled.DONE
    assert settle(ledger, mine, Ending.DONE, result="2") == Settled.DONE
    [run] = stored_task(ledger).history
    assert (run.run, run.outcome, run.fence) == (1, "done", mine.fence)
    assert begin(ledger, task) == [LOST]


def test_a_settle_without_a_begin_is_taken_if_it_is_the_first(ledger: Ledger) -> None:
    [task] = hand_over(ledger, "a")
    assert settle(ledger, task, Ending.RETRY, detail="503") == Settled.RETRIED
    assert settle(ledger, task, Ending.RETRY, detail="503") == Settled.RETRIED
    assert begin(ledger, task) == [LOST]
    assert (stored_task(ledger).run, stored_task(ledger).attempt, stored_task(ledger).error) == (1, 2, "503")
    [again] = claim(ledger).tasks
    assert again.run == 2


def test_an_unbegun_delivery_is_extended_and_saved_under(ledger: Ledger, clock: HandClock) -> None:
    [task] = hand_over(ledger, "a")
    assert ledger.extend(SHARD, [lease_of(task)], DELIVERY_MS + 1) == [clock.at + DELIVERY_MS + 1]
    assert ledger.save(SHARD, lease_of(task), '{"page":1}')
    assert (stored_task(ledger).target, stored_task(ledger).state) == (TARGET, {"page": 1})
    assert begin(ledger, task) != [LOST]


def test_an_unbegun_delivery_that_lapses_spends_no_attempt_and_comes_back_later_each_time(
    ledger: Ledger, clock: HandClock
) -> None:
    hand_over(ledger, "a")
    delays = []
    for times in range(1, MOST_UNDELIVERED):
        clock.advance(DELIVERY_MS)
        ledger.sweep(SHARD, retention_ms=LATER_MS)
        task = stored_task(ledger)
        assert (task.status, task.run, task.attempt) == (Status.SCHEDULED, 0, 1)
        [entry] = task.log
        assert isinstance(entry, Run)
        assert (entry.outcome, entry.times) == ("undelivered", times)
        assert entry.detail == f"handed over to {TARGET}, but the function did not begin it"
        delays.append(task.due_at - clock.at)
        clock.at = task.due_at
        claim(ledger)
    assert delays == [min(1_000 * 2**n, 300_000) for n in range(MOST_UNDELIVERED - 1)]
    clock.advance(DELIVERY_MS)
    assert ledger.sweep(SHARD, retention_ms=LATER_MS).died == 1
    dead = stored_task(ledger)
    assert (dead.status, dead.run, dead.attempt) == (Status.DEAD, 0, 1)
    assert dead.error == f"undelivered: handed over to {TARGET}, but the function did not begin it"
    assert dead.history == ()


def test_deliveries_that_lapsed_do_not_add_up_over_a_run_that_was_begun(ledger: Ledger, clock: HandClock) -> None:
    hand_over(ledger, "a", retry=RetryPolicy(max_attempts=99, backoff_ms=0))
    for _ in range(2 * MOST_UNDELIVERED):
        waits_a_minute(ledger, clock)
        [task] = claim(ledger).tasks
        if stored_task(ledger).log[-1].times == MOST_UNDELIVERED - 1:
            settle(ledger, begun(ledger, task), Ending.RETRY)
            claim(ledger)
    assert stored_task(ledger).status is not Status.DEAD


def lapse(ledger: Ledger, clock: HandClock, id: str = "a") -> Task:
    """The task, once its delivery has lapsed."""
    clock.advance(DELIVERY_MS)
    ledger.sweep(SHARD, retention_ms=LATER_MS)
    return stored_task(ledger, id)


def begin_another(ledger: Ledger, clock: HandClock, kind: str = "report", target: str = TARGET) -> Task:
    """A task of `kind` that its target begins now, while others wait there."""
    id = f"other-{next(NONCES)}"
    ledger.add([new(id, kind=kind, due_at=clock.at - LATER_MS)])
    tasks = ledger.claim(SHARD, 1, lease_ms=LEASE_MS, deliveries={kind: Delivery(target, 100, DELIVERY_MS)}).tasks
    assert [task.id for task in tasks] == [id]
    return begun(ledger, tasks[0])


def test_a_delivery_that_waited_for_a_busy_target_is_no_strike(ledger: Ledger, clock: HandClock) -> None:
    delays = []
    [task] = hand_over(ledger, "a")
    for times in range(1, 2 * MOST_UNDELIVERED):
        clock.advance(1)
        settle(ledger, begin_another(ledger, clock), Ending.DONE)
        after = lapse(ledger, clock)
        assert (after.status, after.run, after.attempt) == (Status.SCHEDULED, 0, 1)
        [entry] = after.log
        assert isinstance(entry, Run)
        assert (entry.outcome, entry.times) == ("release", times)
        assert entry.detail == f"waited for {TARGET}, which was busy with other tasks"
        delays.append(after.due_at - clock.at)
        clock.at = after.due_at
        [task] = claim(ledger).tasks
    assert delays == [min(1_000 * 2**n, 30_000) for n in range(2 * MOST_UNDELIVERED - 1)]
    assert settle(ledger, begun(ledger, task), Ending.DONE) is Settled.DONE


def test_a_target_is_busy_while_what_it_began_before_runs_on(ledger: Ledger, clock: HandClock) -> None:
    long = begin_another(ledger, clock)
    for _ in range(2 * MOST_UNDELIVERED):
        clock.advance(LEASE_MS - 1)
        ledger.extend(SHARD, [lease_of(long)], LEASE_MS, at_least=True)
        if stored_task(ledger, long.id).status is Status.LEASED and not ledger.get(SHARD.queue, "a"):
            hand_over(ledger, "a")
        claim(ledger)
    task = stored_task(ledger, "a")
    assert (task.log[-1].outcome, task.status) == ("release", Status.LEASED)
    assert all(entry.outcome == "release" for entry in task.log)


def test_each_begin_counts_however_short_its_lease_is(ledger: Ledger, clock: HandClock) -> None:
    def begin_for_a_second() -> None:
        ledger.add([new(id := f"other-{next(NONCES)}", kind="report", due_at=clock.at - LATER_MS)])
        [task] = claim(ledger, limit=1).tasks
        assert task.id == id
        ledger.begin(SHARD, [lease_of(task)], 1_000, [bytes(8)])

    begin_for_a_second()
    clock.advance(2_000)
    hand_over(ledger, "a")
    clock.advance(2_000)
    begin_for_a_second()
    assert lapse(ledger, clock).log[-1].outcome == "release"


def test_tasks_that_another_target_begins_excuse_no_delivery(ledger: Ledger, clock: HandClock) -> None:
    hand_over(ledger, "a")
    for _ in range(MOST_UNDELIVERED):
        clock.advance(1)
        begin_another(ledger, clock, kind="mail", target="lambda:mail")
        clock.at = max(clock.at, lapse(ledger, clock).due_at)
        claim(ledger)
    assert (stored_task(ledger).status, stored_task(ledger).log[-1].times) == (Status.DEAD, MOST_UNDELIVERED)


def test_strikes_of_a_run_add_up_over_deliveries_that_were_none(ledger: Ledger, clock: HandClock) -> None:
    [task] = hand_over(ledger, "a")
    for times in range(1, MOST_UNDELIVERED):
        clock.at = lapse(ledger, clock).due_at
        [task] = claim(ledger).tasks
        assert settle(ledger, task, Ending.UNDELIVERED, detail="throttled") is Settled.RELEASED
        after = stored_task(ledger)
        assert {entry.outcome: entry.times for entry in after.log} == {"undelivered": times, "release": times}
        clock.at = after.due_at + 60_000  # by then it no longer counts as busy
        claim(ledger)
    assert lapse(ledger, clock).status is Status.DEAD


def test_a_busy_target_is_handed_half_as_much_and_more_with_each_begin(ledger: Ledger, clock: HandClock) -> None:
    ledger.add([new(f"t{n:02}", kind="report", due_at=clock.at - 100 + n) for n in range(90)])
    first = claim(ledger, most=60).tasks
    clock.advance(1)
    begin(ledger, first[0])
    clock.at = lapse(ledger, clock, "t01").due_at
    second = claim(ledger, most=60).tasks
    assert len(second) == (60 - 1) // 2 - 9  # in whole events
    for task in second:
        begin(ledger, task)
    assert len(claim(ledger, most=60).tasks) == (60 - 1) // 2 + 20 - 9


def test_a_busy_target_rings_for_what_waits_by_the_places_that_it_has_left(ledger: Ledger, clock: HandClock) -> None:
    ledger.add([new(f"t{n:02}", kind="report", due_at=clock.at - 100 + n) for n in range(90)])
    first = claim(ledger, most=60).tasks
    clock.advance(1)
    begin(ledger, first[0])
    lapse(ledger, clock, "t01")
    second = claim(ledger, most=60).tasks
    assert claim(ledger, most=60).tasks == []
    assert ledger.stats(SHARD).bell_at > clock.at + 1
    begin(ledger, *second[:10])
    assert ledger.stats(SHARD).bell_at == clock.at + 1


@pytest.mark.parametrize(("each", "whole"), [(0, 10), (4, 4)])
def test_a_target_that_tasks_wait_for_is_handed_whole_events(
    ledger: Ledger, clock: HandClock, each: int, whole: int
) -> None:
    ledger.add([new(f"t{n:02}", kind="report", due_at=clock.at - 100 + n) for n in range(60)])
    first = claim(ledger, most=20).tasks
    for task in first[: whole - 1]:
        begin(ledger, task, each=each)
    ledger.add([new("fresh", kind="report", due_at=clock.at - LATER_MS)])
    assert claim(ledger, most=20).tasks == []
    assert ledger.stats(SHARD).bell_at > clock.at + 1_000
    begin(ledger, first[whole - 1], each=each)
    assert ledger.stats(SHARD).bell_at == clock.at + 1
    begin(ledger, *first[whole : 2 * whole - 1], each=each)
    assert len(claim(ledger, most=20).tasks) == whole
    assert claim(ledger, most=20).tasks == []


def test_a_claim_that_makes_many_due_again_hands_over_whole_events(ledger: Ledger) -> None:
    ledger.add([new(f"t{n}", kind="report") for n in range(200)])
    first = claim(ledger).tasks
    assert claim(ledger).aside == 100
    begin(ledger, *first)
    assert len(claim(ledger).tasks) == 60


def test_the_rest_of_what_waits_is_handed_over_though_it_is_no_whole_event(ledger: Ledger) -> None:
    ledger.add([new(f"t{n}", kind="report") for n in range(23)])
    first = claim(ledger, most=20).tasks
    begin(ledger, *first[:10])
    assert len(claim(ledger, most=20).tasks) == 3


def test_a_claim_with_little_room_of_its_own_hands_over_what_it_can(ledger: Ledger) -> None:
    ledger.add([new(f"t{n}", kind="report") for n in range(30)])
    begin(ledger, *claim(ledger, most=20).tasks[:10])
    assert [len(claim(ledger, limit=4, most=20).tasks) for _ in range(2)] == [4, 0]


def test_a_claim_answers_how_many_tasks_one_invocation_has_time_for(ledger: Ledger) -> None:
    ledger.add([new(f"t{n}", kind="report") for n in range(9)])
    got = claim(ledger, limit=1)
    answers = [got.each]
    for each in (0, 3, 0, 2, 10, 0, 9):
        begin(ledger, got.tasks[0], each=each)
        got = claim(ledger, limit=1)
        answers.append(got.each)
    few = {TARGET: 3}
    assert answers == [{}, {}, few, few, {TARGET: 2}, {}, {}, {TARGET: 9}]
    ledger.add([new("other", kind="mail")])
    others = ledger.claim(SHARD, 1, lease_ms=LEASE_MS, deliveries={"mail": Delivery("lambda:mail", 9, DELIVERY_MS)})
    assert others.each == {}


def test_a_target_that_had_no_room_for_one_event_counts_as_busy(ledger: Ledger, clock: HandClock) -> None:
    refused, _ = hand_over(ledger, "a", "b")
    settle(ledger, refused, Ending.UNDELIVERED, detail="throttled")
    assert "busy" in lapse(ledger, clock, "b").log[-1].detail


def test_a_target_that_has_grown_is_halved_from_what_it_has(ledger: Ledger, clock: HandClock) -> None:
    ledger.add([new(f"t{n:03}", kind="report", due_at=clock.at - 200 + n) for n in range(120)])
    refused, *others = claim(ledger, most=40).tasks
    clock.advance(1)
    settle(ledger, refused, Ending.UNDELIVERED, detail="throttled")
    for task in others:
        begin(ledger, task)
    clock.advance(1)
    again = claim(ledger, most=40).tasks
    assert len(again) == 40
    clock.advance(1)
    for task in again:
        settle(ledger, task, Ending.UNDELIVERED, detail="throttled")
    clock.advance(1)
    assert len(claim(ledger, most=40).tasks) == 20


def test_a_target_that_is_never_free_keeps_room_for_one_invocation(ledger: Ledger, clock: HandClock) -> None:
    ledger.add([new(f"t{n:02}", kind="report") for n in range(90)])
    tasks = claim(ledger, most=60).tasks
    for _ in range(6):
        for task in tasks:
            settle(ledger, task, Ending.UNDELIVERED, detail="throttled")
        clock.advance(LATER_MS)
        tasks = claim(ledger, most=60).tasks
    assert len(tasks) == 10


def test_a_begun_task_lapses_like_any(ledger: Ledger, clock: HandClock) -> None:
    begin(ledger, *hand_over(ledger, "a"))
    clock.advance(LEASE_MS)
    ledger.sweep(SHARD, retention_ms=LATER_MS)
    assert (stored_task(ledger).attempt, stored_task(ledger).error) == (2, "the lease lapsed")


def test_a_released_delivery_is_no_run(ledger: Ledger, clock: HandClock) -> None:
    [task] = hand_over(ledger, "a")
    assert settle(ledger, task, Ending.RELEASE, delay_ms=5, detail="throttled") == Settled.RELEASED
    assert settle(ledger, task, Ending.RELEASE, delay_ms=5, detail="throttled") == Settled.RELEASED
    assert (stored_task(ledger).run, stored_task(ledger).due_at) == (0, clock.at + 5)
    clock.advance(5)
    [task] = claim(ledger).tasks
    assert task.run == 1


def test_no_more_are_handed_over_than_a_target_may_have_unbegun(ledger: Ledger, clock: HandClock) -> None:
    ledger.add([new(f"t{n}", kind="report", due_at=clock.at - 100 + n) for n in range(25)])
    ledger.add([new("behind")])
    first = claim(ledger, most=20)
    assert [task.id for task in first.tasks] == [*(f"t{n}" for n in range(20)), "behind"]
    assert (first.aside, first.backlog) == (5, 0)
    assert claim(ledger, most=20).tasks == []
    assert stored_task(ledger, "t24").due_at == clock.at - 76
    begin(ledger, *first.tasks[:10])
    assert claim(ledger, most=20).tasks[0].id == "t20"


@pytest.mark.parametrize(("most", "rings_at"), [(5, 2), (10, 5), (20, 10), (200, 20)])
def test_places_that_are_free_again_ring_for_what_waits_once_a_tenth_or_a_whole_event_is(
    ledger: Ledger, clock: HandClock, most: int, rings_at: int
) -> None:
    ledger.add([new(f"t{n}", kind="report") for n in range(2 * most)])
    first = claim(ledger, limit=most, most=most).tasks
    assert claim(ledger, most=most).tasks == []
    begin(ledger, *first[: rings_at - 1])
    assert ledger.stats(SHARD).bell_at > clock.at + 1_000
    settle(ledger, first[rings_at - 1], Ending.RELEASE, delay_ms=LATER_MS)
    assert ledger.stats(SHARD).bell_at == clock.at + 1
    ledger.add([new("later", delay_ms=LATER_MS)])
    assert ledger.stats(SHARD).bell_at == clock.at + 1
    assert len(claim(ledger, most=most).tasks) == rings_at
    assert ledger.stats(SHARD).bell_at > clock.at + 1_000


@pytest.mark.parametrize("how", ["begin", "settle", "lapse", "cancel", "move", "expire", "undelivered"])
def test_whatever_ends_a_delivery_frees_its_place(ledger: Ledger, clock: HandClock, how: str) -> None:
    ledger.add(
        [new("a", kind="report", deadline_ms=50), new("b", kind="report", delay_ms=1, deadline_ms=DELIVERY_MS * 2)]
    )
    clock.advance(1)
    [a] = claim(ledger, most=1).tasks
    ways = {
        "begin": lambda: begin(ledger, a),
        "settle": lambda: settle(ledger, a, Ending.DONE),
        "lapse": lambda: clock.advance(DELIVERY_MS),
        "cancel": lambda: ledger.cancel(SHARD.queue, ["a"], force=True),
        "move": lambda: ledger.move(SHARD.queue, [Move("a", delay_ms=LATER_MS, force=True)]),
        "expire": lambda: (clock.advance(60), begin(ledger, a)),
        "undelivered": lambda: settle(ledger, a, Ending.UNDELIVERED),
    }
    assert claim(ledger, most=1).tasks == []
    ways[how]()
    assert [task.id for task in claim(ledger, most=1).tasks] == ["b"]


def test_what_was_put_aside_and_moved_or_cancelled_since_is_not_made_due(ledger: Ledger, clock: HandClock) -> None:
    ledger.add([new("a", kind="report")])
    ledger.add([new(id, kind="report", delay_ms=1) for id in ("b", "c", "d")])
    clock.advance(1)
    [a] = claim(ledger, most=1).tasks
    assert ledger.move(SHARD.queue, [Move("b", delay_ms=LATER_MS)]) == [Reply.OK]
    assert ledger.cancel(SHARD.queue, ["c"]) == [Reply.OK]
    settle(ledger, a, Ending.DONE)
    assert [task.id for task in claim(ledger, most=3).tasks] == ["d"]
    clock.advance(LATER_MS)
    assert [task.id for task in claim(ledger, most=3).tasks] == ["b"]


def test_however_long_tasks_waited_a_place_that_is_free_is_taken_at_once(ledger: Ledger, clock: HandClock) -> None:
    ledger.add([new("first", kind="report"), *(new(f"t{n}", kind="report", delay_ms=1) for n in range(9))])
    clock.advance(1)
    [first] = claim(ledger, most=1).tasks
    for _ in range(5):
        ledger.extend(SHARD, [lease_of(first)], 2 * PUT_ASIDE_MS)
        clock.advance(PUT_ASIDE_MS)
        assert claim(ledger, most=1).aside == 9
    ledger.move(SHARD.queue, [Move(f"t{n}", delay_ms=LATER_MS) for n in range(8)])
    settle(ledger, first, Ending.DONE)
    assert [task.id for task in claim(ledger, most=1).tasks] == ["t8"]


@pytest.mark.parametrize("kind_is", ["handed to another function", "worked inline"])
def test_what_waits_for_a_target_that_its_kind_no_longer_has_is_claimed(
    ledger: Ledger, clock: HandClock, kind_is: str
) -> None:
    ledger.add([new(f"t{n}", kind="report", tenant=f"tenant{n}") for n in range(5)])
    [first] = claim(ledger, most=1).tasks
    settle(ledger, first, Ending.DONE)
    elsewhere = {"report": Delivery("lambda:renamed", 100, DELIVERY_MS)} if "function" in kind_is else {}
    claimed = ledger.claim(SHARD, 100, lease_ms=LEASE_MS, deliveries=elsewhere)
    assert len(claimed.tasks) == 4
    assert claimed.bell_at > clock.at + 1_000


def test_tasks_of_many_tenants_wait_for_one_target(ledger: Ledger) -> None:
    tenants = [f"tenant{n:03}" for n in range(150)]
    ledger.add([new("a", kind="report", tenant=tenant) for tenant in tenants])
    served: list[str] = []
    for _ in range(40):
        tasks = claim(ledger, most=10).tasks
        served += [task.tenant for task in tasks]
        for task in tasks:
            ledger.settle(SHARD, [ending(task, Ending.DONE)])
    assert sorted(served) == tenants


def test_a_great_backlog_for_one_target_is_moved_once_and_holds_nothing_up(ledger: Ledger) -> None:
    for part in range(3):
        ledger.add([new(f"t{part}-{n}", kind="report") for n in range(900)])
    ledger.add([new("other", delay_ms=0)])
    moved, claims = 0, 0
    while True:
        got = claim(ledger, limit=20, most=5)
        moved, claims = moved + got.aside, claims + 1
        if not (got.tasks or got.aside):
            break
        assert claims < 500
    assert moved == 2_695
    assert stored_task(ledger, "other").status is Status.LEASED
    assert ledger.stats(SHARD).oldest_due_at == stored_task(ledger, "t0-899").due_at


def test_a_delivery_counts_as_running(ledger: Ledger) -> None:
    ledger.configure(SHARD.queue, {"max_running": 2})
    tasks = hand_over(ledger, "a", "b", "c")
    assert len(tasks) == 2
    begin(ledger, tasks[0])
    assert claim(ledger).tasks == []
    settle(ledger, tasks[1], Ending.DONE)
    assert len(claim(ledger).tasks) == 1


def test_one_past_its_deadline_dies_instead_of_being_begun(
    ledger_that_reports_deaths: Ledger, clock: HandClock
) -> None:
    [task] = hand_over(ledger_that_reports_deaths, "a", deadline_ms=50)
    clock.advance(50)
    assert begin(ledger_that_reports_deaths, task) == [LOST]
    assert (stored_task(ledger_that_reports_deaths).status, stored_task(ledger_that_reports_deaths).error) == (
        Status.DEAD,
        "past its deadline",
    )
    assert [task.kind for task in claim(ledger_that_reports_deaths).tasks] == ["task.dead"]


def test_a_run_is_never_an_undelivered_one(ledger: Ledger) -> None:
    task = claim_one(ledger)
    assert settle(ledger, task, Ending.UNDELIVERED) is Settled.STALE
    assert stored_task(ledger).status is Status.LEASED


def test_a_run_that_was_begun_after_an_undelivered_one_is_none_either(ledger: Ledger, clock: HandClock) -> None:
    [task] = hand_over(ledger, "a")
    assert settle(ledger, task, Ending.UNDELIVERED) is Settled.RELEASED
    clock.at = stored_task(ledger).due_at
    [task] = claim(ledger).tasks
    assert settle(ledger, begun(ledger, task), Ending.UNDELIVERED) is Settled.STALE
    assert stored_task(ledger).status is Status.LEASED


def test_one_past_its_deadline_that_is_not_delivered_is_dead(ledger: Ledger, clock: HandClock) -> None:
    [task] = hand_over(ledger, "a", deadline_ms=5)
    clock.advance(6)
    assert settle(ledger, task, Ending.UNDELIVERED) is Settled.DEAD
    assert stored_task(ledger).status is Status.DEAD


def test_a_clock_that_is_put_back_excuses_no_delivery(ledger: Ledger, clock: HandClock) -> None:
    clock.advance(YEAR_MS)
    [other] = hand_over(ledger, "b")
    assert settle(ledger, begun(ledger, other), Ending.DONE) is Settled.DONE
    clock.advance(-YEAR_MS)
    ledger.add([new("a", kind="report")])
    for _ in range(MOST_UNDELIVERED):
        claim(ledger)
        waits_a_minute(ledger, clock)
    assert stored_task(ledger).error.startswith("undelivered")


def test_a_target_is_busy_again_after_its_clock_is_put_back(ledger: Ledger, clock: HandClock) -> None:
    clock.advance(YEAR_MS)
    [other] = hand_over(ledger, "b")
    assert settle(ledger, begun(ledger, other), Ending.DONE) is Settled.DONE
    clock.advance(-YEAR_MS)
    _, b = hand_over(ledger, "a", "c")
    begun(ledger, b)
    waits_a_minute(ledger, clock)
    [entry] = stored_task(ledger).log
    assert isinstance(entry, Run)
    assert (entry.outcome, stored_task(ledger).error) == ("release", "")


@pytest.mark.parametrize("lapses", [True, False])
def test_a_task_whose_deadline_ends_while_it_waits_says_what_it_died_of(
    ledger: Ledger, clock: HandClock, lapses: bool
) -> None:
    [waits] = hand_over(ledger, "a", deadline_ms=DELIVERY_MS - 1)
    begin(ledger, *hand_over(ledger, "b"))
    clock.advance(DELIVERY_MS)
    if lapses:
        ledger.sweep(SHARD, retention_ms=LATER_MS)
    else:
        assert settle(ledger, waits, Ending.UNDELIVERED, detail="throttled") is Settled.DEAD
    dead = stored_task(ledger)
    assert (dead.status, dead.error, dead.attempt) == (Status.DEAD, "past its deadline", 1)
    assert [entry.outcome for entry in dead.log if isinstance(entry, Run)] == ["release", "expired"]


def test_an_event_that_never_arrives_is_no_strike_however_often(ledger: Ledger, clock: HandClock) -> None:
    [task] = hand_over(ledger, "a")
    for times in range(1, 3 * MOST_UNDELIVERED):
        assert settle(ledger, task, Ending.UNDELIVERED, detail="EventAgeExceeded") == Settled.RELEASED
        after = stored_task(ledger)
        assert (after.run, after.attempt, after.error) == (0, 1, "")
        [entry] = after.log
        assert isinstance(entry, Run)
        assert (entry.outcome, entry.detail, entry.times) == ("release", "EventAgeExceeded", times)
        assert after.due_at == clock.at + min(1_000 * 2 ** (times - 1), 30_000)
        clock.at = after.due_at
        [task] = claim(ledger).tasks


def test_a_replacement_waits_for_a_delivery_and_follows_where_that_comes_to_nothing(
    ledger: Ledger, clock: HandClock
) -> None:
    hand_over(ledger, "a")
    replacement = new("a", kind="report", payload="2", on_duplicate=OnDuplicate.REPLACE)
    assert ledger.add([replacement])[0].reply == Reply.REPLACED
    clock.advance(DELIVERY_MS)
    [task] = claim(ledger).tasks
    assert (task.payload, task.run) == (2, 1)


@pytest.mark.parametrize("is_late", [False, True])
def test_what_is_replaced_before_it_begins_does_not_begin(
    ledger_that_reports_deaths: Ledger, clock: HandClock, is_late: bool
) -> None:
    tasks = hand_over(ledger_that_reports_deaths, "a", "b", group="old", deadline_ms=5)
    ledger_that_reports_deaths.add(
        [new("a", kind="report", payload="2", group="new", on_duplicate=OnDuplicate.REPLACE, deadline_ms=9)]
    )
    clock.advance(6 if is_late else 1)
    [replaced, other] = begin(ledger_that_reports_deaths, *tasks)
    assert (replaced, other == LOST) == (LOST, is_late)
    assert stored_task(ledger_that_reports_deaths).status is Status.SCHEDULED
    assert [one.id for one in ledger_that_reports_deaths.group(SHARD.queue, "new")] == ["a"]
    [after] = [task for task in claim(ledger_that_reports_deaths).tasks if task.id == "a"]
    assert (after.payload, after.run, after.attempt) == (2, 1, 1)
    assert begin(ledger_that_reports_deaths, tasks[0]) == [LOST]
    assert begun(ledger_that_reports_deaths, after).token


@pytest.mark.parametrize("how", ["done", "retry", "lapse"])
def test_a_replacement_of_what_is_handed_over_waits_for_the_run_that_is_begun(
    ledger: Ledger, clock: HandClock, how: str
) -> None:
    [task] = hand_over(ledger, "a", group="old")
    mine = begun(ledger, task)
    ledger.add([new("a", kind="report", payload="2", group="new", on_duplicate=OnDuplicate.REPLACE)])
    assert [one.id for one in ledger.group(SHARD.queue, "new")] == ["a"]
    if how == "lapse":
        clock.advance(LEASE_MS)
    else:
        settle(ledger, mine, Ending(how))
    [after] = claim(ledger).tasks
    assert (after.payload, after.run, after.attempt) == (2, 1, 1)
    assert ledger.group(SHARD.queue, "old") == []


def test_a_lease_that_ends_later_is_not_cut_short_where_at_least_is_asked(ledger: Ledger, clock: HandClock) -> None:
    add(ledger)
    [task] = ledger.claim(SHARD, 1, lease_ms=LEASE_MS).tasks
    assert ledger.extend(SHARD, [lease_of(task)], 10, at_least=True) == [clock.at + LEASE_MS]
    assert ledger.extend(SHARD, [lease_of(task)], LEASE_MS + 1, at_least=True) == [clock.at + LEASE_MS + 1]
    assert ledger.extend(SHARD, [lease_of(task)], 10) == [clock.at + 10]


def test_what_does_not_stand_there_is_not_begun(ledger: Ledger) -> None:
    add(ledger)
    [task] = ledger.claim(SHARD, 1, lease_ms=LEASE_MS).tasks
    strangers = [Lease("none", "0" * 28), Lease("a", task.token), Lease("a", "x")]
    assert ledger.begin(SHARD, strangers, LEASE_MS, [bytes(8)] * 3) == [LOST] * 3


def test_that_a_task_waits_for_room_at_its_target_is_told(ledger: Ledger) -> None:
    ledger.add([new("a", kind="report"), new("b", kind="report"), new("c", kind="report", delay_ms=LATER_MS)])
    [task] = claim(ledger, most=1).tasks
    waiting = stored_task(ledger, "b" if task.id == "a" else "a")
    assert ledger.throttle(SHARD, "-", waiting).reason is ThrottleReason.TARGET
    assert ledger.throttle(SHARD, "-", stored_task(ledger, "c")).reason is None
    assert ledger.throttle(SHARD).reason is None
