"""Settling: what each ending does, who may settle, and what is remembered."""

from dataclasses import replace

import pytest

from duecourse.base.times import DAY_MS, MAX_DURATION_MS
from duecourse.ledger.operations import Lease, Settled, Swept
from duecourse.ledger.store.ledger import Ledger
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


def test_done_keeps_the_result_and_the_state(store: Ledger, clock: HandClock) -> None:
    task = claim_one(store, state='{"s":1}')
    clock.advance(5)
    assert settle(store, task, Ending.DONE, result='{"é":[1]}') == Settled.DONE
    done = stored_task(store)
    assert (done.status, done.result, done.state) == (Status.DONE, {"é": [1]}, {"s": 1})
    (run,) = done.history
    assert (run.run, run.fence, run.claimed_at, run.ended_at) == (1, task.fence, task.claimed_at, clock.at)
    assert (run.outcome, run.detail, done.lease_expires_at) == ("done", "", 0)


def test_again_runs_later_and_costs_no_attempt(store: Ledger, clock: HandClock) -> None:
    task = claim_one(store)
    assert settle(store, task, Ending.RETRY, delay_ms=10) == Settled.RETRIED
    clock.advance(10)
    (second,) = claim(store)
    assert second.attempt == 2
    assert settle(store, second, Ending.AGAIN, delay_ms=700, state='{"seen":3}') == Settled.AGAIN
    waiting = stored_task(store)
    assert (waiting.status, waiting.due_at, waiting.attempt) == (Status.SCHEDULED, clock.at + 700, 1)
    assert (waiting.state, waiting.run) == ({"seen": 3}, 2)
    assert [r.outcome for r in waiting.history] == ["retry", "again"]


@pytest.mark.parametrize("how", [Ending.AGAIN, Ending.RETRY, Ending.RELEASE])
def test_an_instant_to_run_at_wins_over_a_delay(store: Ledger, clock: HandClock, how: Ending) -> None:
    settle(store, claim_one(store), how, due_at=clock.at + 5, delay_ms=99)
    assert stored_task(store).due_at == clock.at + 5


def test_retry_spends_an_attempt_until_the_task_is_dead(store: Ledger, clock: HandClock) -> None:
    task = claim_one(store, retry=RetryPolicy(max_attempts=2))
    assert settle(store, task, Ending.RETRY, detail="once", delay_ms=10, state="1") == Settled.RETRIED
    assert (stored_task(store).attempt, stored_task(store).error, stored_task(store).due_at) == (
        2,
        "once",
        clock.at + 10,
    )
    clock.advance(10)
    (second,) = claim(store)
    assert settle(store, second, Ending.RETRY, detail="twice", delay_ms=10, state="2") == Settled.DEAD
    dead = stored_task(store)
    assert (dead.status, dead.attempt, dead.run, dead.error, dead.state) == (Status.DEAD, 2, 2, "twice", 2)
    assert store.stats(SHARD).dead == 1
    clock.advance(LEASE_MS)
    assert claim(store) == []


@pytest.mark.parametrize(
    ("how", "ends"),
    [(Ending.RETRY, [("retry", "why")]), (Ending.AGAIN, [("again", ""), ("expired", "past its deadline")])],
)
def test_a_task_past_its_deadline_dies_instead_of_waiting(
    store: Ledger, clock: HandClock, how: Ending, ends: list[tuple[str, str]]
) -> None:
    task = claim_one(store, deadline_ms=50)
    clock.advance(50)
    assert settle(store, task, how, delay_ms=1, detail="why", state="3") == Settled.DEAD
    dead = stored_task(store)
    assert (dead.status, dead.attempt, dead.state) == (Status.DEAD, 1, 3)
    assert [(run.outcome, run.detail) for run in dead.history] == ends
    assert dead.error == ends[-1][1]


def test_drop_kills_with_its_reason(store: Ledger) -> None:
    assert settle(store, claim_one(store), Ending.DROP, detail="no such customer", state="9") == Settled.DEAD
    assert (stored_task(store).status, stored_task(store).error) == (Status.DEAD, "no such customer")
    assert stored_task(store).state is None


def test_release_gives_a_task_back_without_a_trace_in_its_history(store: Ledger, clock: HandClock) -> None:
    task = claim_one(store, state="1")
    assert settle(store, task, Ending.RELEASE, delay_ms=25, state="2") == Settled.RELEASED
    back = stored_task(store)
    assert (back.status, back.due_at, back.attempt, back.run) == (Status.SCHEDULED, clock.at + 25, 1, 1)
    assert (back.history, back.state) == ((), 1)


@pytest.mark.parametrize("how", ANSWERS)
def test_the_same_token_and_ending_again_gets_the_same_answer(store: Ledger, clock: HandClock, how: Ending) -> None:
    task = claim_one(store)
    assert settle(store, task, how, delay_ms=40, result="1") == ANSWERS[how]
    after, stats = stored_task(store), store.stats(SHARD)
    clock.advance(7)
    assert settle(store, task, how, delay_ms=40, result="1") == ANSWERS[how]
    assert stored_task(store) == after
    assert store.stats(SHARD) == stats._replace(now=clock.at)


@pytest.mark.parametrize("how", [Ending.AGAIN, Ending.RETRY, Ending.RELEASE])
def test_another_ending_for_a_settled_lease_is_stale(store: Ledger, how: Ending) -> None:
    task = claim_one(store)
    settle(store, task, how, delay_ms=40)
    assert {settle(store, task, other) for other in Ending if other is not how} == {Settled.STALE}
    assert stored_task(store).status == Status.SCHEDULED


@pytest.mark.parametrize("how", [Ending.AGAIN, Ending.RETRY])
def test_an_old_settle_is_answered_as_before_while_the_history_remembers_it(store: Ledger, how: Ending) -> None:
    task = claim_one(store)
    settle(store, task, how)
    (second,) = claim(store)
    assert settle(store, task, how) == ANSWERS[how]
    assert settle(store, task, Ending.DONE) == Settled.STALE
    assert stored_task(store) == second
    settle(store, second, Ending.DONE)
    assert settle(store, task, how) == ANSWERS[how]


@pytest.mark.parametrize("how", [Ending.RELEASE, Ending.RETRY])
def test_a_settle_is_answered_as_before_though_its_task_died_unclaimed_since(
    store: Ledger, clock: HandClock, how: Ending
) -> None:
    task = claim_one(store, deadline_ms=50)
    settle(store, task, how, delay_ms=60)
    clock.advance(60)
    assert store.claim(SHARD, 5, lease_ms=LEASE_MS).died == 1
    assert settle(store, task, how) == ANSWERS[how]
    assert stored_task(store).claimed_at == task.claimed_at


def test_an_old_release_is_stale_once_the_task_runs_again(store: Ledger) -> None:
    task = claim_one(store)
    settle(store, task, Ending.RELEASE)
    claim(store)
    assert settle(store, task, Ending.RELEASE) == Settled.STALE


@pytest.mark.parametrize("how", [Ending.RETRY, Ending.DROP])
def test_a_settle_that_killed_is_answered_so_after_a_replay(store: Ledger, how: Ending) -> None:
    task = claim_one(store, retry=RetryPolicy(max_attempts=1))
    assert settle(store, task, how) == Settled.DEAD
    store.replay("default", ["a"])
    assert settle(store, task, how) == Settled.DEAD
    assert stored_task(store).status == Status.SCHEDULED


def test_a_lapsed_lease_is_not_answered_by_what_an_earlier_one_was_settled_with(
    store: Ledger, clock: HandClock
) -> None:
    settle(store, claim_one(store), Ending.RETRY)
    (second,) = claim(store)
    clock.advance(LEASE_MS)
    store.sweep(SHARD, retention_ms=1_000)
    assert settle(store, second, Ending.RETRY) == Settled.STALE
    assert len(stored_task(store).history) == 2


def test_a_batch_of_settlements_leaves_no_lease_behind(store: Ledger) -> None:
    store.add([new(f"t{n}") for n in range(5)])
    store.settle(SHARD, [ending(task, Ending.RELEASE) for task in claim(store)])
    store.settle(SHARD, [ending(task, how) for task, how in zip(claim(store, 5), ANSWERS, strict=True)])
    stats = store.stats(SHARD)
    assert (stats.scheduled, stats.leased, stats.done, stats.dead) == (3, 0, 1, 1)


def test_a_stale_token_settles_nothing(store: Ledger) -> None:
    task = claim_one(store)
    fence, nonce = task.token[:12], task.token[12:]
    forged = [fence + 16 * "0", f"{task.fence - 1:012x}{nonce}", 12 * "0" + nonce, nonce + fence, 28 * "f"]
    shapeless = ["", "nonsense", 28 * "z", task.token[:-2], task.token + "00", task.token[:12], fence + "." + nonce]
    spaced = [f" {task.token}", f"{fence}\n{nonce}"]
    for token in (*forged, *shapeless, *spaced):
        for how in Ending:
            assert store.settle(SHARD, [Settlement("a", "-", token, how)]) == [Settled.STALE]
        assert store.extend(SHARD, [Lease("a", token)], 99) == [0]
        assert not store.save(SHARD, Lease("a", token), "1")
    assert stored_task(store) == task


def test_a_fence_that_no_run_had_is_answered_like_none_that_is_remembered(store: Ledger) -> None:
    task = claim_one(store)
    settle(store, task, Ending.AGAIN)
    again = claim(store)[0]
    between = f"{task.fence + 10:012x}{task.token[12:]}"
    for how in Ending:
        assert store.settle(SHARD, [Settlement("a", "-", between, how)]) == [Settled.STALE]
    assert stored_task(store) == again


@pytest.mark.parametrize("payload", ["{}", "\0" * 14 + "x" * 7], ids=["plain", "like a lease's end"])
@pytest.mark.parametrize("token", ["", "0" * 28, "nonsense"])
def test_no_token_settles_a_task_that_never_ran(store: Ledger, token: str, payload: str) -> None:
    before = add(store, payload=payload)
    for how in Ending:
        assert store.settle(SHARD, [Settlement("a", "-", token, how)]) == [Settled.STALE]
    assert stored_task(store) == before


def test_another_tenants_or_an_unknown_task_is_stale(store: Ledger) -> None:
    task = claim_one(store)
    assert store.settle(SHARD, [ending(task, Ending.DONE)._replace(tenant="other")]) == [Settled.STALE]
    assert store.settle(SHARD, [ending(task, Ending.DONE)._replace(id="b")]) == [Settled.STALE]


def test_a_batch_is_answered_in_order_and_a_task_twice_in_it_once(store: Ledger) -> None:
    store.add([new("a"), new("b"), new("c")])
    a, b, c = claim(store)
    answers = store.settle(
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
    assert len(stored_task(store, "a").history) == 1
    stats = store.stats(SHARD)
    assert (stats.scheduled, stats.leased, stats.done) == (2, 0, 1)


def test_a_lease_that_is_done_twice_in_a_batch_gives_its_place_back_once(store: Ledger) -> None:
    store.configure("default", {"tenant_max_running": 2})
    store.add([new(id) for id in "abcd"])
    a, _ = claim(store)
    ends = [ending(a, how) for how in (Ending.DONE, Ending.DONE, Ending.DROP)]
    assert store.settle(SHARD, ends) == [Settled.DONE, Settled.DONE, Settled.STALE]
    assert [task.id for task in claim(store)] == ["c"]


def test_the_history_holds_the_newest_twenty_runs(store: Ledger) -> None:
    store.add([new(retry=RetryPolicy(max_attempts=50))])
    for n in range(23):
        settle(store, claim(store)[0], Ending.RETRY, detail=f"failure {n}")
    task = stored_task(store)
    assert [r.detail for r in task.history] == [f"failure {n}" for n in range(3, 23)]
    assert [r.run for r in task.history] == list(range(4, 24))
    assert (task.attempt, task.forgotten) == (24, 3)


@pytest.mark.parametrize("detail", ["x" * 399 + "é", "é" * 300, "\U0001f514" * 200, "y" * 400, "z" * 70_000])
def test_a_detail_is_cut_to_400_bytes_of_whole_characters(store: Ledger, detail: str) -> None:
    settle(store, claim_one(store), Ending.RETRY, detail=detail)
    kept = stored_task(store).error
    assert detail.startswith(kept)
    assert 396 < len(kept.encode()) <= 400
    assert settle(store, claim(store)[0], Ending.DROP, detail=detail) == Settled.DEAD
    assert stored_task(store).error == kept


def test_a_done_task_keeps_no_error_of_an_attempt_before(store: Ledger) -> None:
    settle(store, claim_one(store), Ending.RETRY, detail="away")
    assert stored_task(store).error == "away"
    settle(store, claim(store)[0], Ending.DONE)
    assert stored_task(store).error == ""
    assert [run.detail for run in stored_task(store).history] == ["away", ""]


def test_a_large_result_is_kept_whole(store: Ledger) -> None:
    result = '"' + "r" * 65_000 + '"'
    settle(store, claim_one(store), Ending.DONE, result=result)
    assert stored_task(store).result_json == result


def test_an_extended_lease_lapses_later(store: Ledger, clock: HandClock) -> None:
    task = claim_one(store)
    clock.advance(LEASE_MS - 1)
    assert store.extend(SHARD, [lease_of(task), Lease("b", "1.00")], LEASE_MS) == [clock.at + LEASE_MS, 0]
    assert stored_task(store).lease_expires_at == clock.at + LEASE_MS
    clock.advance(LEASE_MS - 1)
    assert claim(store) == []
    clock.advance(1)
    assert len(claim(store)) == 1
    assert store.extend(SHARD, [lease_of(task)], LEASE_MS) == [0]


def test_a_lease_can_be_shortened(store: Ledger, clock: HandClock) -> None:
    task = claim_one(store)
    assert store.extend(SHARD, [lease_of(task)], 5) == [clock.at + 5]
    clock.advance(5)
    assert [t.attempt for t in claim(store)] == [2]


def test_a_checkpoint_outlives_the_lease(store: Ledger, clock: HandClock) -> None:
    task = claim_one(store, state='{"page":1}')
    assert store.save(SHARD, lease_of(task), '{"page":2,"ü":"\U0001f514"}')
    clock.advance(LEASE_MS)
    (second,) = claim(store)
    assert second.state == {"page": 2, "ü": "\U0001f514"}
    assert len(second.history) == 1
    assert not store.save(SHARD, lease_of(task), '{"page":3}')
    assert stored_task(store).state["page"] == 2


def test_a_retention_longer_than_time_itself_keeps_everything(store: Ledger) -> None:
    settle(store, claim_one(store), Ending.DONE)
    swept = store.sweep(SHARD, retention_ms=MAX_DURATION_MS)
    assert (swept.pruned, stored_task(store).status) == (0, Status.DONE)


def test_the_dead_are_forgotten_once_a_sweep_has_known_of_them_for_their_retention(
    store: Ledger, clock: HandClock
) -> None:
    for id in ("old", "older"):
        bring(store, Status.DEAD, id)
    clock.advance(40 * DAY_MS)
    terms = {"retention_ms": DAY_MS, "dead_retention_ms": 30 * DAY_MS}
    store.sweep(SHARD, **terms)  # after a jump of the clock it believes the time ten minutes later
    clock.advance(600_000)
    assert store.sweep(SHARD, **terms).pruned == 0, "nothing goes at once where the dead were kept for good before"
    clock.advance(30 * DAY_MS - 600_000)
    store.sweep(SHARD, **terms)
    clock.advance(600_000 - 1)
    bring(store, Status.DEAD, "new")
    assert store.sweep(SHARD, **terms).pruned == 0
    clock.advance(1)
    assert store.sweep(SHARD, retention_ms=DAY_MS).pruned == 0, "nobody asked for it"
    [swept] = store.sweep_all([SHARD], **terms)
    assert isinstance(swept, Swept)
    assert swept.pruned == 2
    assert store.get("default", "old") is None
    assert stored_task(store, "new").status == Status.DEAD


def test_no_token_tells_another_of_the_same_claim(store: Ledger) -> None:
    store.add([new(f"t{n}") for n in range(6)])
    mine, *others = claim(store)
    nonces = {task.token[FENCE_DIGITS:] for task in (mine, *others)}
    assert len(nonces) == 6
    for task in others:
        guessed = f"{task.fence:0{FENCE_DIGITS}x}{mine.token[FENCE_DIGITS:]}"
        assert settle(store, replace(task, token=guessed), Ending.DONE) is Settled.STALE
