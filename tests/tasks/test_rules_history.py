"""What a task remembers: its runs with their doors and lateness, and what callers did, in bounds."""

import pytest

from duecourse.ledger.operation_types import Move, Settled
from duecourse.ledger.operations.ledger import Ledger
from duecourse.ledger.task import (
    BY_LENGTH,
    LOG_BYTES,
    LOG_LENGTH,
    Action,
    Change,
    Ending,
    OnDuplicate,
    RetryPolicy,
    Run,
    Trigger,
)
from duecourse.ledger.timeline import timeline
from tests.support.clock import HandClock
from tests.support.ledger import LEASE_MS, SHARD, add, bring, claim, claim_one, new, settle, stored_task

QUEUE = SHARD.queue


def test_a_task_tells_by_which_door_it_was_added(ledger: Ledger) -> None:
    assert (add(ledger, by="http").by, add(ledger, "b").by) == ("http", "")
    assert add(ledger, "c", by="ü" * 200).by == "ü" * (BY_LENGTH // 2)


@pytest.mark.parametrize("trigger", Trigger)
def test_a_run_tells_by_which_door_it_was_found_and_how_late(
    ledger: Ledger, clock: HandClock, trigger: Trigger
) -> None:
    add(ledger, delay_ms=100)
    clock.advance(107)
    (task,) = ledger.claim(SHARD, 1, lease_ms=LEASE_MS, trigger=trigger).tasks
    assert task.trigger is stored_task(ledger).trigger is trigger
    clock.advance(5)
    settle(ledger, task, Ending.RETRY, delay_ms=1, detail="x")
    assert stored_task(ledger).log == (Run(1, task.fence, clock.at - 5, clock.at, "retry", "x", trigger, late_ms=7),)


@pytest.mark.parametrize("first", [Ending.DONE, Ending.RELEASE])
def test_a_task_that_was_due_decades_ago_ends_and_its_shard_goes_on(ledger: Ledger, first: Ending) -> None:
    add(ledger, due_at=0)
    settle(ledger, claim(ledger)[0], first, due_at=1)
    if first is Ending.RELEASE:
        settle(ledger, claim(ledger)[0], Ending.DONE)
    last = stored_task(ledger).log[-1]
    assert isinstance(last, Run)
    assert (last.outcome, last.late_ms) == ("done", 2**32 - 1)
    assert claim_one(ledger, "b").id == "b"


def test_a_lease_that_lapsed_tells_its_door_and_one_that_never_was_has_none(ledger: Ledger, clock: HandClock) -> None:
    add(ledger, deadline_ms=LEASE_MS, retry=RetryPolicy(max_attempts=9))
    ledger.claim(SHARD, 1, lease_ms=10, trigger=Trigger.TIMER)
    clock.advance(10)
    ledger.sweep(SHARD, retention_ms=99)
    clock.advance(LEASE_MS)
    claim(ledger)
    assert [(e.outcome, e.trigger, e.late_ms) for e in stored_task(ledger).history] == [
        ("lapsed", Trigger.TIMER, 0),
        ("expired", None, 0),
    ]


def test_leases_given_back_one_after_the_other_are_told_as_one(ledger: Ledger, clock: HandClock) -> None:
    add(ledger)
    for n in range(3):
        clock.advance(1)
        settle(ledger, claim(ledger)[0], Ending.RELEASE, detail=f"away {n}")
    (entry,) = stored_task(ledger).log
    assert isinstance(entry, Run)
    assert (entry.outcome, entry.run, entry.times, entry.detail) == ("release", 3, 3, "away 2")
    settle(ledger, claim(ledger)[0], Ending.AGAIN)
    settle(ledger, claim(ledger)[0], Ending.RELEASE)
    assert [(e.outcome, e.times) for e in stored_task(ledger).log if isinstance(e, Run)] == [
        ("release", 3),
        ("again", 1),
        ("release", 1),
    ]
    assert [e.outcome for e in stored_task(ledger).history] == ["again"]


def test_each_move_tells_from_when_to_when_and_by_whom(ledger: Ledger, clock: HandClock) -> None:
    add(ledger, delay_ms=10)
    ledger.move(QUEUE, [Move("a", delay_ms=20, by="http")])
    ledger.move(QUEUE, [Move("a", delay_ms=20, by="http")])
    ledger.move(QUEUE, [Move("a", delay_ms=5, by="client")])
    at = clock.at
    assert stored_task(ledger).log == (
        Change(at, Action.MOVED, "http", at + 10, at + 20),
        Change(at, Action.MOVED, "client", at + 20, at + 5),
    )


def test_what_is_replaced_tells_what_it_replaced_and_goes_on_with_its_log(ledger: Ledger, clock: HandClock) -> None:
    added_at = clock.at
    task = claim_one(ledger, by="http")
    settle(ledger, task, Ending.RETRY, delay_ms=50, detail="x")
    clock.advance(1)
    replaced = add(ledger, on_duplicate=OnDuplicate.REPLACE, delay_ms=9, by="client")
    run, origin = replaced.log
    assert isinstance(run, Run)
    assert (run.outcome, run.detail) == ("retry", "x")
    assert origin == Change(added_at, Action.ADDED, "http", 0, added_at + 50)
    assert (replaced.by, replaced.created_at, replaced.run) == ("client", clock.at, 0)
    again = add(ledger, on_duplicate=OnDuplicate.REPLACE, delay_ms=8, by="message")
    assert again.log[2] == Change(clock.at, Action.REPLACED, "client", 0, clock.at + 9)


def test_a_replacement_of_a_running_task_goes_on_with_its_log_after_the_lease(ledger: Ledger, clock: HandClock) -> None:
    task = claim_one(ledger, by="http")
    ledger.add([new(on_duplicate=OnDuplicate.REPLACE, delay_ms=9, by="client")])
    assert stored_task(ledger).log == ()
    settle(ledger, task, Ending.DONE)
    run, origin = stored_task(ledger).log
    assert isinstance(run, Run)
    assert (run.outcome, origin) == ("done", Change(clock.at, Action.ADDED, "http", 0, clock.at))
    assert stored_task(ledger).by == "client"


def test_debounces_in_a_row_are_told_as_one_and_the_first_add_is_kept(ledger: Ledger, clock: HandClock) -> None:
    at = clock.at
    add(ledger, delay_ms=10, by="http")
    for by in ("client", "message"):
        clock.advance(1)
        add(ledger, delay_ms=50, on_duplicate=OnDuplicate.DEBOUNCE, by=by)
    task = stored_task(ledger)
    assert (task.by, task.created_at) == ("http", at)
    assert task.log == (Change(at + 2, Action.DEBOUNCED, "message", at + 10, at + 52, times=2),)


def test_a_replay_and_a_cancel_tell_by_whom(ledger: Ledger, clock: HandClock) -> None:
    bring(ledger, "dead")
    ledger.replay(QUEUE, ["a"], by="http", delays_ms=[70])
    replay = stored_task(ledger).log[-1]
    assert replay == Change(clock.at, Action.REPLAYED, "http", clock.at, clock.at + 70)
    assert (stored_task(ledger).due_at, stored_task(ledger).history[0].outcome) == (clock.at + 70, "drop")
    clock.advance(1)
    ledger.cancel(QUEUE, ["a"], by="client")
    assert stored_task(ledger).log[-1] == Change(clock.at, Action.CANCELLED, "client", clock.at + 69)


@pytest.mark.parametrize("verb", ["cancel", "move"])
def test_a_run_that_is_ended_by_force_is_told_with_its_claim(ledger: Ledger, clock: HandClock, verb: str) -> None:
    at = clock.at
    add(ledger, delay_ms=100)
    clock.advance(107)
    (task,) = ledger.claim(SHARD, 1, lease_ms=LEASE_MS, trigger=Trigger.TICK).tasks
    clock.advance(5)
    if verb == "cancel":
        ledger.cancel(QUEUE, ["a"], force=True, by="http")
        change = Change(clock.at, Action.CANCELLED, "http", at + 100)
    else:
        ledger.move(QUEUE, [Move("a", delay_ms=9, force=True, by="http")])
        change = Change(clock.at, Action.MOVED, "http", at + 100, clock.at + 9)
    run = Run(1, task.fence, at + 107, clock.at, "taken", "", Trigger.TICK, late_ms=7)
    assert (stored_task(ledger).log, stored_task(ledger).error) == ((run, change), "")
    assert settle(ledger, task, Ending.DONE) is Settled.STALE
    happened = [one for one in timeline(stored_task(ledger)) if one.event in {"added", "claimed", "taken"}]
    assert [(one.event, one.at) for one in happened] == [("added", at), ("claimed", at + 107), ("taken", at + 112)]
    assert happened[-1].text == "Its lease was taken by force after 5 milliseconds."
    assert happened[0].due_at == at + 100


def test_replays_may_be_spread_over_time(ledger: Ledger, clock: HandClock) -> None:
    for id in "abc":
        bring(ledger, "dead", id)
    ledger.replay(QUEUE, ["c", "a", "b"], delays_ms=[0, 10, 20])
    assert [stored_task(ledger, id).due_at - clock.at for id in "cab"] == [0, 10, 20]
    assert [task.id for task in claim(ledger)] == ["c"]
    clock.advance(20)
    assert [task.id for task in claim(ledger)] == ["a", "b"]


def test_the_newest_of_everything_is_remembered_and_the_rest_counted(ledger: Ledger) -> None:
    add(ledger, delay_ms=999)
    for n in range(LOG_LENGTH + 7):
        ledger.move(QUEUE, [Move("a", delay_ms=n, by=str(n))])
    task = stored_task(ledger)
    assert [e.by for e in task.log if isinstance(e, Change)] == [str(n) for n in range(7, LOG_LENGTH + 7)]
    assert task.forgotten == 7


@pytest.mark.parametrize("runs", [0, 1, LOG_LENGTH - 1, LOG_LENGTH + 5])
def test_a_good_end_is_remembered_as_it_was_by_a_task_that_goes_on(ledger: Ledger, clock: HandClock, runs: int) -> None:
    add(ledger)
    for _ in range(runs):
        settle(ledger, claim(ledger)[0], Ending.AGAIN)
    settle(ledger, claim(ledger)[0], Ending.DONE, result="1")
    done = stored_task(ledger)
    ended_at = clock.at
    assert (len(done.log) + done.forgotten, len(done.log)) == (runs + 1, min(runs + 1, LOG_LENGTH))
    clock.advance(5)
    ledger.move(QUEUE, [Move("a", delay_ms=9, revive=True, by="x")])
    revived = stored_task(ledger)
    moved = Change(clock.at, Action.MOVED, "x", ended_at, clock.at + 9)
    assert revived.log == (*done.log, moved)[-LOG_LENGTH:]
    assert (len(revived.log) + revived.forgotten, revived.result_json) == (runs + 2, "")


def test_long_errors_make_it_remember_fewer(ledger: Ledger) -> None:
    ledger.add([new(retry=RetryPolicy(max_attempts=50))])
    for n in range(18):
        settle(ledger, claim(ledger)[0], Ending.RETRY, detail=f"{n}" + "x" * 500)
    task = stored_task(ledger)
    assert (len(task.log) + task.forgotten, task.log[-1].times) == (18, 1)
    sizes = 10 + 21 + 400
    assert len(task.log) == LOG_BYTES // sizes < LOG_LENGTH
    assert task.error.startswith("17x")
