"""Settling: what each ending does, who may settle, and what is remembered."""

from dataclasses import replace

import pytest

from duecourse.base.times import DAY_MS, MAX_DURATION_MS
from duecourse.ledger.operation_types import Lease, Settled, Swept
from duecourse.ledger.operations.ledger import Ledger
from duecourse.ledger.task import FENCE_DIGITS, Ending, RetryPolicy, Settlement, Status
from tests.support.clock import HandClock
from tests.support.ledger import (
    LEASE_MS,
    SHARD,
    add,
    bring,
    claim,
    claim_one,
    ending,
    lease_of,
    new,
    settle,
    stored_task,
)

ANSWERS = {
    Ending.DONE: Settled.DONE,
    Ending.AGAIN: Settled.AGAIN,
    Ending.RETRY: Settled.RETRIED,
    Ending.DROP: Settled.DEAD,
    Ending.RELEASE: Settled.RELEASED,
}


def test_done_keeps_the_result_and_the_state(ledger: Ledger, clock: HandClock) -> None:
    task = claim_one(ledger, state='{"s":1}')
    clock.advance(5)
    assert settle(ledger, task, Ending.DONE, result='{"é":[1]}') == Settled.DONE
    done = stored_task(ledger)
    assert (done.status, done.result, done.state) == (Status.DONE, {"é": [1]}, {"s": 1})
    (run,) = done.history
    assert (run.run, run.fence, run.claimed_at, run.ended_at) == (1, task.fence, task.claimed_at, clock.at)
    assert (run.outcome, run.detail, done.lease_expires_at) == ("done", "", 0)


def test_again_runs_later_and_costs_no_attempt(ledger: Ledger, clock: HandClock) -> None:
    task = claim_one(ledger)
    assert settle(ledger, task, Ending.RETRY, delay_ms=10) == Settled.RETRIED
    clock.advance(10)
    (second,) = claim(ledger)
    assert second.attempt == 2
    assert settle(ledger, second, Ending.AGAIN, delay_ms=700, state='{"seen":3}') == Settled.AGAIN
    waiting = stored_task(ledger)
    assert (waiting.status, waiting.due_at, waiting.attempt) == (Status.SCHEDULED, clock.at + 700, 1)
    assert (waiting.state, waiting.run) == ({"seen": 3}, 2)
    assert [r.outcome for r in waiting.history] == ["retry", "again"]


@pytest.mark.parametrize("how", [Ending.AGAIN, Ending.RETRY, Ending.RELEASE])
def test_an_instant_to_run_at_wins_over_a_delay(ledger: Ledger, clock: HandClock, how: Ending) -> None:
    settle(ledger, claim_one(ledger), how, due_at=clock.at + 5, delay_ms=99)
    assert stored_task(ledger).due_at == clock.at + 5


def test_retry_spends_an_attempt_until_the_task_is_dead(ledger: Ledger, clock: HandClock) -> None:
    task = claim_one(ledger, retry=RetryPolicy(max_attempts=2))
    assert settle(ledger, task, Ending.RETRY, detail="once", delay_ms=10, state="1") == Settled.RETRIED
    assert (stored_task(ledger).attempt, stored_task(ledger).error, stored_task(ledger).due_at) == (
        2,
        "once",
        clock.at + 10,
    )
    clock.advance(10)
    (second,) = claim(ledger)
    assert settle(ledger, second, Ending.RETRY, detail="twice", delay_ms=10, state="2") == Settled.DEAD
    dead = stored_task(ledger)
    assert (dead.status, dead.attempt, dead.run, dead.error, dead.state) == (Status.DEAD, 2, 2, "twice", 2)
    assert ledger.stats(SHARD).dead == 1
    clock.advance(LEASE_MS)
    assert claim(ledger) == []


@pytest.mark.parametrize(
    ("how", "ends"),
    [(Ending.RETRY, [("retry", "why")]), (Ending.AGAIN, [("again", ""), ("expired", "past its deadline")])],
)
def test_a_task_past_its_deadline_dies_instead_of_waiting(
    ledger: Ledger, clock: HandClock, how: Ending, ends: list[tuple[str, str]]
) -> None:
    task = claim_one(ledger, deadline_ms=50)
    clock.advance(50)
    assert settle(ledger, task, how, delay_ms=1, detail="why", state="3") == Settled.DEAD
    dead = stored_task(ledger)
    assert (dead.status, dead.attempt, dead.state) == (Status.DEAD, 1, 3)
    assert [(run.outcome, run.detail) for run in dead.history] == ends
    assert dead.error == ends[-1][1]


def test_drop_kills_with_its_reason(ledger: Ledger) -> None:
    assert settle(ledger, claim_one(ledger), Ending.DROP, detail="no such customer", state="9") == Settled.DEAD
    assert (stored_task(ledger).status, stored_task(ledger).error) == (Status.DEAD, "no such customer")
    assert stored_task(ledger).state is None


def test_release_gives_a_task_back_without_a_trace_in_its_history(ledger: Ledger, clock: HandClock) -> None:
    task = claim_one(ledger, state="1")
    assert settle(ledger, task, Ending.RELEASE, delay_ms=25, state="2") == Settled.RELEASED
    back = stored_task(ledger)
    assert (back.status, back.due_at, back.attempt, back.run) == (Status.SCHEDULED, clock.at + 25, 1, 1)
    assert (back.history, back.state) == ((), 1)


@pytest.mark.parametrize("how", ANSWERS)
def test_the_same_token_and_ending_again_gets_the_same_answer(ledger: Ledger, clock: HandClock, how: Ending) -> None:
    task = claim_one(ledger)
    assert settle(ledger, task, how, delay_ms=40, result="1") == ANSWERS[how]
    after, stats = stored_task(ledger), ledger.stats(SHARD)
    clock.advance(7)
    assert settle(ledger, task, how, delay_ms=40, result="1") == ANSWERS[how]
    assert stored_task(ledger) == after
    assert ledger.stats(SHARD) == stats._replace(now=clock.at)


@pytest.mark.parametrize("how", [Ending.AGAIN, Ending.RETRY, Ending.RELEASE])
def test_another_ending_for_a_settled_lease_is_stale(ledger: Ledger, how: Ending) -> None:
    task = claim_one(ledger)
    settle(ledger, task, how, delay_ms=40)
    assert {settle(ledger, task, other) for other in Ending if other is not how} == {Settled.STALE}
    assert stored_task(ledger).status == Status.SCHEDULED


@pytest.mark.parametrize("how", [Ending.AGAIN, Ending.RETRY])
def test_an_old_settle_is_answered_as_before_while_the_history_remembers_it(ledger: Ledger, how: Ending) -> None:
    task = claim_one(ledger)
    settle(ledger, task, how)
    (second,) = claim(ledger)
    assert settle(ledger, task, how) == ANSWERS[how]
    assert settle(ledger, task, Ending.DONE) == Settled.STALE
    assert stored_task(ledger) == second
    settle(ledger, second, Ending.DONE)
    assert settle(ledger, task, how) == ANSWERS[how]


@pytest.mark.parametrize("how", [Ending.RELEASE, Ending.RETRY])
def test_a_settle_is_answered_as_before_though_its_task_died_unclaimed_since(
    ledger: Ledger, clock: HandClock, how: Ending
) -> None:
    task = claim_one(ledger, deadline_ms=50)
    settle(ledger, task, how, delay_ms=60)
    clock.advance(60)
    assert ledger.claim(SHARD, 5, lease_ms=LEASE_MS).died == 1
    assert settle(ledger, task, how) == ANSWERS[how]
    assert stored_task(ledger).claimed_at == task.claimed_at


def test_an_old_release_is_stale_once_the_task_runs_again(ledger: Ledger) -> None:
    task = claim_one(ledger)
    settle(ledger, task, Ending.RELEASE)
    claim(ledger)
    assert settle(ledger, task, Ending.RELEASE) == Settled.STALE


@pytest.mark.parametrize("how", [Ending.RETRY, Ending.DROP])
def test_a_settle_that_killed_is_answered_so_after_a_replay(ledger: Ledger, how: Ending) -> None:
    task = claim_one(ledger, retry=RetryPolicy(max_attempts=1))
    assert settle(ledger, task, how) == Settled.DEAD
    ledger.replay("default", ["a"])
    assert settle(ledger, task, how) == Settled.DEAD
    assert stored_task(ledger).status == Status.SCHEDULED


def test_a_lapsed_lease_is_not_answered_by_what_an_earlier_one_was_settled_with(
    ledger: Ledger, clock: HandClock
) -> None:
    settle(ledger, claim_one(ledger), Ending.RETRY)
    (second,) = claim(ledger)
    clock.advance(LEASE_MS)
    ledger.sweep(SHARD, retention_ms=1_000)
    assert settle(ledger, second, Ending.RETRY) == Settled.STALE
    assert len(stored_task(ledger).history) == 2


def test_a_batch_of_settlements_leaves_no_lease_behind(ledger: Ledger) -> None:
    ledger.add([new(f"t{n}") for n in range(5)])
    ledger.settle(SHARD, [ending(task, Ending.RELEASE) for task in claim(ledger)])
    ledger.settle(SHARD, [ending(task, how) for task, how in zip(claim(ledger, 5), ANSWERS, strict=True)])
    stats = ledger.stats(SHARD)
    assert (stats.scheduled, stats.leased, stats.done, stats.dead) == (3, 0, 1, 1)


def test_a_stale_token_settles_nothing(ledger: Ledger) -> None:
    task = claim_one(ledger)
    fence, nonce = task.token[:12], task.token[12:]
    forged = [fence + 16 * "0", f"{task.fence - 1:012x}{nonce}", 12 * "0" + nonce, nonce + fence, 28 * "f"]
    shapeless = ["", "nonsense", 28 * "z", task.token[:-2], task.token + "00", task.token[:12], fence + "." + nonce]
    spaced = [f" {task.token}", f"{fence}\n{nonce}"]
    for token in (*forged, *shapeless, *spaced):
        for how in Ending:
            assert ledger.settle(SHARD, [Settlement("a", "-", token, how)]) == [Settled.STALE]
        assert ledger.extend(SHARD, [Lease("a", token)], 99) == [0]
        assert not ledger.save(SHARD, Lease("a", token), "1")
    assert stored_task(ledger) == task


def test_a_fence_that_no_run_had_is_answered_like_none_that_is_remembered(ledger: Ledger) -> None:
    task = claim_one(ledger)
    settle(ledger, task, Ending.AGAIN)
    again = claim(ledger)[0]
    between = f"{task.fence + 10:012x}{task.token[12:]}"
    for how in Ending:
        assert ledger.settle(SHARD, [Settlement("a", "-", between, how)]) == [Settled.STALE]
    assert stored_task(ledger) == again


@pytest.mark.parametrize("payload", ["{}", "\0" * 14 + "x" * 7], ids=["plain", "like a lease's end"])
@pytest.mark.parametrize("token", ["", "0" * 28, "nonsense"])
def test_no_token_settles_a_task_that_never_ran(ledger: Ledger, token: str, payload: str) -> None:
    before = add(ledger, payload=payload)
    for how in Ending:
        assert ledger.settle(SHARD, [Settlement("a", "-", token, how)]) == [Settled.STALE]
    assert stored_task(ledger) == before


def test_another_tenants_or_an_unknown_task_is_stale(ledger: Ledger) -> None:
    task = claim_one(ledger)
    assert ledger.settle(SHARD, [ending(task, Ending.DONE)._replace(tenant="other")]) == [Settled.STALE]
    assert ledger.settle(SHARD, [ending(task, Ending.DONE)._replace(id="b")]) == [Settled.STALE]


def test_a_batch_is_answered_in_order_and_a_task_twice_in_it_once(ledger: Ledger) -> None:
    ledger.add([new("a"), new("b"), new("c")])
    a, b, c = claim(ledger)
    answers = ledger.settle(
        SHARD,
        [
            ending(c, Ending.RETRY, delay_ms=5),
            ending(a, Ending.DONE),
            ending(a, Ending.DONE),
            ending(b, Ending.RELEASE),
            ending(b, Ending.DONE),
        ],
    )
    assert answers == [Settled.RETRIED, Settled.DONE, Settled.DONE, Settled.RELEASED, Settled.STALE]
    assert len(stored_task(ledger, "a").history) == 1
    stats = ledger.stats(SHARD)
    assert (stats.scheduled, stats.leased, stats.done) == (2, 0, 1)


def test_a_lease_that_is_done_twice_in_a_batch_gives_its_place_back_once(ledger: Ledger) -> None:
    ledger.configure("default", {"tenant_max_running": 2})
    ledger.add([new(id) for id in "abcd"])
    a, _ = claim(ledger)
    ends = [ending(a, how) for how in (Ending.DONE, Ending.DONE, Ending.DROP)]
    assert ledger.settle(SHARD, ends) == [Settled.DONE, Settled.DONE, Settled.STALE]
    assert [task.id for task in claim(ledger)] == ["c"]


def test_the_history_holds_the_newest_twenty_runs(ledger: Ledger) -> None:
    ledger.add([new(retry=RetryPolicy(max_attempts=50))])
    for n in range(23):
        settle(ledger, claim(ledger)[0], Ending.RETRY, detail=f"failure {n}")
    task = stored_task(ledger)
    assert [r.detail for r in task.history] == [f"failure {n}" for n in range(3, 23)]
    assert [r.run for r in task.history] == list(range(4, 24))
    assert (task.attempt, task.forgotten) == (24, 3)


@pytest.mark.parametrize("detail", ["x" * 399 + "é", "é" * 300, "\U0001f514" * 200, "y" * 400, "z" * 70_000])
def test_a_detail_is_cut_to_400_bytes_of_whole_characters(ledger: Ledger, detail: str) -> None:
    settle(ledger, claim_one(ledger), Ending.RETRY, detail=detail)
    kept = stored_task(ledger).error
    assert detail.startswith(kept)
    assert 396 < len(kept.encode()) <= 400
    assert settle(ledger, claim(ledger)[0], Ending.DROP, detail=detail) == Settled.DEAD
    assert stored_task(ledger).error == kept


def test_a_done_task_keeps_no_error_of_an_attempt_before(ledger: Ledger) -> None:
    settle(ledger, claim_one(ledger), Ending.RETRY, detail="away")
    assert stored_task(ledger).error == "away"
    settle(ledger, claim(ledger)[0], Ending.DONE)
    assert stored_task(ledger).error == ""
    assert [run.detail for run in stored_task(ledger).history] == ["away", ""]


def test_a_large_result_is_kept_whole(ledger: Ledger) -> None:
    result = '"' + "r" * 65_000 + '"'
    settle(ledger, claim_one(ledger), Ending.DONE, result=result)
    assert stored_task(ledger).result_json == result


def test_an_extended_lease_lapses_later(ledger: Ledger, clock: HandClock) -> None:
    task = claim_one(ledger)
    clock.advance(LEASE_MS - 1)
    assert ledger.extend(SHARD, [lease_of(task), Lease("b", "1.00")], LEASE_MS) == [clock.at + LEASE_MS, 0]
    assert stored_task(ledger).lease_expires_at == clock.at + LEASE_MS
    clock.advance(LEASE_MS - 1)
    assert claim(ledger) == []
    clock.advance(1)
    assert len(claim(ledger)) == 1
    assert ledger.extend(SHARD, [lease_of(task)], LEASE_MS) == [0]


def test_a_lease_can_be_shortened(ledger: Ledger, clock: HandClock) -> None:
    task = claim_one(ledger)
    assert ledger.extend(SHARD, [lease_of(task)], 5) == [clock.at + 5]
    clock.advance(5)
    assert [t.attempt for t in claim(ledger)] == [2]


def test_a_checkpoint_outlives_the_lease(ledger: Ledger, clock: HandClock) -> None:
    task = claim_one(ledger, state='{"page":1}')
    assert ledger.save(SHARD, lease_of(task), '{"page":2,"ü":"\U0001f514"}')
    clock.advance(LEASE_MS)
    (second,) = claim(ledger)
    assert second.state == {"page": 2, "ü": "\U0001f514"}
    assert len(second.history) == 1
    assert not ledger.save(SHARD, lease_of(task), '{"page":3}')
    assert stored_task(ledger).state["page"] == 2


def test_a_retention_longer_than_time_itself_keeps_everything(ledger: Ledger) -> None:
    settle(ledger, claim_one(ledger), Ending.DONE)
    swept = ledger.sweep(SHARD, retention_ms=MAX_DURATION_MS)
    assert (swept.pruned, stored_task(ledger).status) == (0, Status.DONE)


def test_the_dead_are_forgotten_once_a_sweep_has_known_of_them_for_their_retention(
    ledger: Ledger, clock: HandClock
) -> None:
    for id in ("old", "older"):
        bring(ledger, Status.DEAD, id)
    clock.advance(40 * DAY_MS)
    terms = {"retention_ms": DAY_MS, "dead_retention_ms": 30 * DAY_MS}
    ledger.sweep(SHARD, **terms)  # after a jump of the clock it believes the time ten minutes later
    clock.advance(600_000)
    assert ledger.sweep(SHARD, **terms).pruned == 0, "nothing goes at once where the dead were kept for good before"
    clock.advance(30 * DAY_MS - 600_000)
    ledger.sweep(SHARD, **terms)
    clock.advance(600_000 - 1)
    bring(ledger, Status.DEAD, "new")
    assert ledger.sweep(SHARD, **terms).pruned == 0
    clock.advance(1)
    assert ledger.sweep(SHARD, retention_ms=DAY_MS).pruned == 0, "nobody asked for it"
    [swept] = ledger.sweep_all([SHARD], **terms)
    assert isinstance(swept, Swept)
    assert swept.pruned == 2
    assert ledger.get("default", "old") is None
    assert stored_task(ledger, "new").status == Status.DEAD


def test_no_token_tells_another_of_the_same_claim(ledger: Ledger) -> None:
    ledger.add([new(f"t{n}") for n in range(6)])
    mine, *others = claim(ledger)
    nonces = {task.token[FENCE_DIGITS:] for task in (mine, *others)}
    assert len(nonces) == 6
    for task in others:
        guessed = f"{task.fence:0{FENCE_DIGITS}x}{mine.token[FENCE_DIGITS:]}"
        assert settle(ledger, replace(task, token=guessed), Ending.DONE) is Settled.STALE
