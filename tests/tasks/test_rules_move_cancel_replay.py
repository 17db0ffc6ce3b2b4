"""Moving, cancelling, replaying, groups and the sweep: what becomes of the task and of who was running it."""

from dataclasses import replace

import pytest

from duecourse.ledger.operation_types import Move, Reply, Settled
from duecourse.ledger.operations.ledger import Ledger
from duecourse.ledger.queue import QueueSettings
from duecourse.ledger.task import Ending, OnDuplicate, RetryPolicy, Status
from tests.support.clock import HandClock
from tests.support.ledger import (
    LATER_MS,
    LEASE_MS,
    SHARD,
    add,
    bring,
    claim,
    claim_one,
    lease_of,
    new,
    settle,
    stored_task,
)

QUEUE = SHARD.queue


def test_a_task_that_never_ran_is_moved_as_it_is(ledger: Ledger, clock: HandClock) -> None:
    before = add(ledger, delay_ms=500, state="1")
    assert ledger.move(QUEUE, [Move("a", due_at=clock.at + 9, delay_ms=77)]) == [Reply.OK]
    assert replace(stored_task(ledger), log=()) == replace(before, due_at=clock.at + 9)
    assert ledger.move(QUEUE, [Move("a", delay_ms=77, state="2")]) == [Reply.OK]
    assert replace(stored_task(ledger), log=()) == replace(before, due_at=clock.at + 77, state_json="2")
    clock.advance(77)
    assert len(claim(ledger)) == 1


def test_a_task_that_ran_is_moved_as_a_new_generation(ledger: Ledger, clock: HandClock) -> None:
    task = claim_one(ledger)
    settle(ledger, task, Ending.RETRY, delay_ms=10, detail="x")
    assert ledger.move(QUEUE, [Move("a", delay_ms=20)]) == [Reply.OK]
    moved = stored_task(ledger)
    assert moved.generation > task.fence
    assert (moved.run, moved.attempt, moved.token, moved.claimed_at) == (0, 1, "", 0)
    assert (moved.due_at, len(moved.history)) == (clock.at + 20, 1)


def test_force_takes_a_running_task_from_its_worker(ledger: Ledger, clock: HandClock) -> None:
    task = claim_one(ledger)
    assert ledger.move(QUEUE, [Move("a", delay_ms=20, force=True)]) == [Reply.OK]
    assert {settle(ledger, task, how) for how in Ending} == {Settled.STALE}
    assert ledger.extend(SHARD, [lease_of(task)], 99) == [0]
    assert not ledger.save(SHARD, lease_of(task), "1")
    moved = stored_task(ledger)
    assert (moved.status, moved.run, moved.attempt) == (Status.SCHEDULED, 0, 1)
    assert [run.outcome for run in moved.history] == ["taken"]
    assert moved.generation > task.generation
    clock.advance(20)
    assert claim(ledger)[0].run == 1
    assert ledger.stats(SHARD).leased == 1


def test_a_done_task_is_revived_without_its_result(ledger: Ledger, clock: HandClock) -> None:
    task = claim_one(ledger)
    settle(ledger, task, Ending.DONE, result="1")
    assert ledger.move(QUEUE, [Move("a", delay_ms=5, revive=True, state="4")]) == [Reply.OK]
    revived = stored_task(ledger)
    assert (revived.status, revived.result, revived.state, revived.run) == (Status.SCHEDULED, None, 4, 0)
    assert [r.outcome for r in revived.history] == ["done"]
    assert settle(ledger, task, Ending.DONE) == Settled.DONE
    assert stored_task(ledger) == revived
    clock.advance(5)
    assert len(claim(ledger)) == 1


def test_several_tasks_move_in_one_step_each_with_its_answer(ledger: Ledger, clock: HandClock) -> None:
    ledger.add([new("a", delay_ms=5), new("b"), new("c", delay_ms=5)])
    claim(ledger)
    moves = [Move("c", delay_ms=50), Move("x", delay_ms=50), Move("b", delay_ms=50), Move("a", delay_ms=50)]
    assert ledger.move(QUEUE, moves) == [Reply.OK, Reply.ABSENT, Reply.LEASED, Reply.OK]
    assert [stored_task(ledger, name).due_at - clock.at for name in "ac"] == [50, 50]


def test_a_cancelled_task_never_runs_and_is_still_shown(ledger: Ledger, clock: HandClock) -> None:
    add(ledger, delay_ms=10)
    assert ledger.cancel(QUEUE, ["a", "a", "b"]) == [Reply.OK, Reply.CANCELLED, Reply.ABSENT]
    clock.advance(10)
    assert claim(ledger) == []
    assert stored_task(ledger).status == Status.CANCELLED


def test_force_cancels_a_running_task_and_refuses_its_settle(ledger: Ledger, clock: HandClock) -> None:
    task = claim_one(ledger)
    assert ledger.cancel(QUEUE, ["a"], force=True) == [Reply.OK]
    assert {settle(ledger, task, how) for how in Ending} == {Settled.STALE}
    gone = stored_task(ledger)
    assert (gone.status, gone.token, gone.claimed_at) == (Status.CANCELLED, "", 0)
    assert [run.outcome for run in gone.history] == ["taken"]
    clock.advance(LEASE_MS)
    assert claim(ledger) == []


def test_cancelling_a_dead_task_deletes_it(ledger: Ledger) -> None:
    bring(ledger, "dead", group="g")
    assert ledger.cancel(QUEUE, ["a", "a"]) == [Reply.OK, Reply.ABSENT]
    assert ledger.get(QUEUE, "a") is None
    assert ledger.group(QUEUE, "g") == []
    assert ledger.stats(SHARD).dead == 0


def test_a_replayed_task_is_dead_so_long_after_it_was_due_again(ledger: Ledger, clock: HandClock) -> None:
    for id in "abc":
        bring(ledger, "dead", id)
    ledger.replay(QUEUE, ["c", "a", "b"], delays_ms=[0, 10, 20], deadlines_ms=[5, 7, 0])
    assert [stored_task(ledger, id).deadline_at - clock.at for id in "ca"] == [5, 17]
    assert stored_task(ledger, "b").deadline_at == 0
    clock.advance(17)
    assert claim(ledger) == []
    assert {stored_task(ledger, id).status for id in "ca"} == {Status.DEAD}
    clock.advance(3)
    assert [task.id for task in claim(ledger)] == ["b"]


def test_a_replayed_task_has_all_its_attempts_no_deadline_and_the_same_generation(
    ledger: Ledger, clock: HandClock
) -> None:
    task = claim_one(ledger, retry=RetryPolicy(max_attempts=2), deadline_ms=10)
    settle(ledger, task, Ending.RETRY, detail="x")
    settle(ledger, claim(ledger)[0], Ending.RETRY, detail="y")
    clock.advance(99)
    assert ledger.replay(QUEUE, ["a", "b", "a"]) == [Reply.OK, Reply.ABSENT, Reply.SCHEDULED]
    (again,) = claim(ledger)
    assert (again.idempotency_key, again.run, again.attempt) == (task.idempotency_key, 3, 1)
    assert (again.deadline_at, again.due_at, len(again.history)) == (0, clock.at, 2)


def test_a_group_is_told_by_id_whatever_its_tasks_states_are(ledger: Ledger) -> None:
    ledger.add([new("d", group="g"), new("b", group="g", delay_ms=5), new("c", group="g", delay_ms=5)])
    settle(ledger, claim(ledger)[0], Ending.DONE)
    ledger.cancel(QUEUE, ["c"])
    ledger.add([new("a", group="g"), new("x"), new("y", group="other"), new("z", group="g", tenant="t")])
    claim(ledger)
    assert [(t.id, t.status.value) for t in ledger.group(QUEUE, "g")] == [
        ("a", "leased"),
        ("b", "scheduled"),
        ("c", "cancelled"),
        ("d", "done"),
    ]
    assert [t.id for t in ledger.group(QUEUE, "g", "t")] == ["z"]
    assert ledger.group(QUEUE, "g")[0] == stored_task(ledger, "a")


def test_one_groups_name_may_begin_with_anothers(ledger: Ledger) -> None:
    ledger.add([new("a", group="g"), new("b", group="g1"), new("c", group="g/")])
    assert [[t.id for t in ledger.group(QUEUE, group)] for group in ("g", "g1", "g/")] == [["a"], ["b"], ["c"]]


def test_a_replaced_task_changes_its_group(ledger: Ledger) -> None:
    add(ledger, group="one", delay_ms=5)
    add(ledger, group="two", delay_ms=5, on_duplicate=OnDuplicate.REPLACE)
    assert (ledger.group(QUEUE, "one"), [t.id for t in ledger.group(QUEUE, "two")]) == ([], ["a"])


def test_a_running_task_stands_in_its_own_group_and_in_that_of_its_replacement(ledger: Ledger) -> None:
    running = claim_one(ledger, group="one")
    ledger.add([new(group="two", on_duplicate=OnDuplicate.REPLACE)])
    assert [[t.group for t in ledger.group(QUEUE, group)] for group in ("one", "two")] == [["one"], ["one"]]
    settle(ledger, running, Ending.DONE)
    assert [[t.group for t in ledger.group(QUEUE, group)] for group in ("one", "two")] == [[], ["two"]]


def test_a_replacement_that_is_itself_replaced_leaves_its_group(ledger: Ledger) -> None:
    running = claim_one(ledger, group="one")
    ledger.add([new(group="two", on_duplicate=OnDuplicate.REPLACE)])
    ledger.add([new(group="three", on_duplicate=OnDuplicate.REPLACE)])
    assert [len(ledger.group(QUEUE, group)) for group in ("one", "two", "three")] == [1, 0, 1]
    settle(ledger, running, Ending.DONE)
    assert [len(ledger.group(QUEUE, group)) for group in ("one", "two", "three")] == [0, 0, 1]


def test_a_sweep_forgets_what_finished_long_ago_and_nothing_else(ledger: Ledger, clock: HandClock) -> None:
    for state in ("done", "cancelled", "dead"):
        bring(ledger, state, state, group="g")
    clock.advance(1)
    bring(ledger, "done", "later", group="g")
    bring(ledger, "scheduled", "waiting", group="g")
    clock.advance(998)
    assert ledger.sweep(SHARD, retention_ms=1_000).pruned == 0
    clock.advance(1)
    swept = ledger.sweep(SHARD, retention_ms=1_000)
    assert (swept.pruned, swept.reclaimed, swept.died, swept.more) == (2, 0, 0, False)
    assert [t.id for t in ledger.group(QUEUE, "g")] == ["dead", "later", "waiting"]
    assert (swept.now, swept.bell_at) == (clock.at, stored_task(ledger, "waiting").due_at)
    assert add(ledger, "done").history == ()


def test_a_sweep_takes_lapsed_leases_back(ledger: Ledger, clock: HandClock) -> None:
    claim_one(ledger, "a", retry=RetryPolicy(max_attempts=1))
    claim_one(ledger, "b")
    clock.advance(LEASE_MS)
    swept = ledger.sweep(SHARD, retention_ms=1_000)
    assert (swept.reclaimed, swept.died, swept.more) == (2, 1, False)
    assert [stored_task(ledger, name).status.value for name in "ab"] == ["dead", "scheduled"]


def test_a_sweep_forgets_a_bounded_number_at_a_time(ledger: Ledger, clock: HandClock) -> None:
    ids = [f"t{n}" for n in range(700)]
    ledger.add([new(name, delay_ms=5) for name in ids])
    ledger.cancel(QUEUE, ids)
    clock.advance(10)
    sweeps = [ledger.sweep(SHARD, retention_ms=10) for _ in range(2)]
    assert [(s.pruned, s.more) for s in sweeps] == [(500, True), (200, False)]
    assert ledger.stats(SHARD).done == 0


def test_the_stats_tell_a_shard_in_numbers(ledger: Ledger, clock: HandClock) -> None:
    for n, state in enumerate(("leased", "done", "cancelled", "dead", "scheduled")):
        bring(ledger, state, f"t{n}")
    clock.advance(1)
    due_at = stored_task(ledger, "t4").due_at
    assert ledger.stats(SHARD)._asdict() == {
        "scheduled": 1,
        "leased": 1,
        "lapsed": 0,
        "lapsed_at_target": 0,
        "done": 2,
        "dead": 1,
        "oldest_due_at": due_at,
        "bell_at": clock.at - 1 + LEASE_MS,
        "settings": QueueSettings(),
        "now": clock.at,
        "schedules": 0,
        "fires_at": 0,
    }
    assert ledger.now() == clock.at
    ledger.ping()


@pytest.mark.parametrize("verb", ["move", "cancel"])
def test_what_waits_to_replace_a_task_that_is_taken_by_force_stands_there_then(
    ledger: Ledger, clock: HandClock, verb: str
) -> None:
    running = claim_one(ledger, group="one")
    (waiting,) = ledger.add(
        [new(payload="2", group="two", delay_ms=5, state="7", on_duplicate=OnDuplicate.REPLACE)], echo=True
    )
    assert waiting.task
    if verb == "move":
        assert ledger.move(QUEUE, [Move("a", delay_ms=20, force=True)]) == [Reply.OK]
    else:
        assert ledger.cancel(QUEUE, ["a"], force=True) == [Reply.OK]
    assert settle(ledger, running, Ending.DONE) is Settled.STALE
    task = stored_task(ledger)
    assert (task.payload_json, task.state_json, task.generation) == ("2", "7", waiting.task.generation)
    assert (task.run, task.attempt, task.token) == (0, 1, "")
    assert [run.outcome for run in task.history] == ["taken"]
    assert [[t.id for t in ledger.group(QUEUE, group)] for group in ("one", "two")] == [[], ["a"]]
    clock.advance(20)
    assert [task.payload_json for task in claim(ledger)] == (["2"] if verb == "move" else [])
    assert ledger.stats(SHARD).leased == (verb == "move")


def test_a_deadline_given_as_a_duration_counts_from_the_new_due_time(ledger: Ledger, clock: HandClock) -> None:
    add(ledger, delay_ms=10, deadline_ms=30)
    assert ledger.move(QUEUE, [Move("a", delay_ms=500)]) == [Reply.OK]
    assert stored_task(ledger).deadline_at == clock.at + 530
    clock.advance(500)
    (task,) = claim(ledger)
    settle(ledger, task, Ending.RETRY, delay_ms=10)
    assert ledger.move(QUEUE, [Move("a", delay_ms=100)]) == [Reply.OK]
    assert stored_task(ledger).deadline_at == clock.at + 130
    clock.advance(129)
    assert len(claim(ledger)) == 1


@pytest.mark.parametrize("how", [Ending.RETRY, Ending.AGAIN, Ending.RELEASE, Ending.DONE])
def test_it_counts_from_the_first_due_time_of_a_task_that_ran(ledger: Ledger, clock: HandClock, how: Ending) -> None:
    add(ledger, delay_ms=10, deadline_ms=30)
    clock.advance(14)
    settle(ledger, claim(ledger)[0], how, delay_ms=9)
    assert ledger.move(QUEUE, [Move("a", delay_ms=100, revive=True)]) == [Reply.OK]
    assert stored_task(ledger).deadline_at == clock.at + 130


def test_what_took_the_place_of_a_task_that_ran_counts_from_its_own_due_time(ledger: Ledger, clock: HandClock) -> None:
    settle(ledger, claim_one(ledger), Ending.RETRY, delay_ms=9)
    add(ledger, delay_ms=70, deadline_ms=30, on_duplicate=OnDuplicate.REPLACE)
    assert ledger.move(QUEUE, [Move("a", delay_ms=100)]) == [Reply.OK]
    assert stored_task(ledger).deadline_at == clock.at + 130


@pytest.mark.parametrize("state", ["scheduled", "leased", "done"])
@pytest.mark.parametrize("late", [0, 1])
def test_a_task_is_not_moved_past_a_deadline_given_as_an_instant(
    ledger: Ledger, clock: HandClock, state: str, late: int
) -> None:
    deadline_at = clock.at + 2 * LATER_MS
    bring(ledger, state, deadline_at=deadline_at)
    before = stored_task(ledger), ledger.stats(SHARD)
    move = Move("a", due_at=deadline_at + late, force=True, revive=True)
    assert ledger.move(QUEUE, [move]) == [Reply.PAST_DEADLINE]
    assert (stored_task(ledger), ledger.stats(SHARD)) == before
    assert ledger.move(QUEUE, [move._replace(due_at=deadline_at - 1)]) == [Reply.OK]
    assert (stored_task(ledger).due_at, stored_task(ledger).deadline_at) == (deadline_at - 1, deadline_at)


def test_a_task_whose_deadline_is_over_is_not_moved_to_a_time_before_that(ledger: Ledger, clock: HandClock) -> None:
    for id, deadline in (("a", {"deadline_at": clock.at + 5}), ("b", {"deadline_ms": 5})):
        ledger.add([new(id, **deadline)])
    before = clock.at
    clock.advance(5)
    moves = [Move(id, due_at=before) for id in "ab"]
    assert ledger.move(QUEUE, moves) == [Reply.PAST_DEADLINE, Reply.PAST_DEADLINE]
    assert ledger.move(QUEUE, [Move("b")]) == [Reply.OK]
    assert [task.id for task in claim(ledger)] == ["b"]


def test_what_waits_to_replace_a_task_keeps_its_own_deadline_where_that_is_taken_by_force(
    ledger: Ledger, clock: HandClock
) -> None:
    claim_one(ledger, deadline_at=clock.at + 10)
    ledger.add([new(deadline_at=clock.at + 50, on_duplicate=OnDuplicate.REPLACE)])
    before = stored_task(ledger), ledger.stats(SHARD)
    assert ledger.move(QUEUE, [Move("a", delay_ms=50, force=True)]) == [Reply.PAST_DEADLINE]
    assert (stored_task(ledger), ledger.stats(SHARD)) == before
    assert ledger.move(QUEUE, [Move("a", delay_ms=49, force=True)]) == [Reply.OK]


def test_a_task_is_not_pushed_back_past_a_deadline_given_as_an_instant(ledger: Ledger, clock: HandClock) -> None:
    add(ledger, delay_ms=50)
    before = stored_task(ledger)
    pushed = new(delay_ms=10, deadline_at=clock.at + 50, on_duplicate=OnDuplicate.DEBOUNCE, payload="2")
    (added,) = ledger.add([pushed], echo=True)
    assert (added.reply, added.task) == (Reply.PAST_DEADLINE, None)
    assert stored_task(ledger) == before
    (added,) = ledger.add([pushed._replace(deadline_at=clock.at + 51)])
    assert added.reply is Reply.DEBOUNCED


def test_a_replayed_task_is_moved_with_the_time_it_was_given(ledger: Ledger, clock: HandClock) -> None:
    bring(ledger, "dead", deadline_at=clock.at + 5)
    ledger.replay(QUEUE, ["a"], delays_ms=[10], deadlines_ms=[30])
    assert ledger.move(QUEUE, [Move("a", delay_ms=100)]) == [Reply.OK]
    assert stored_task(ledger).deadline_at == clock.at + 130
