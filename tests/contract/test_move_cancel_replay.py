"""Moving, cancelling, replaying, groups and the sweep: what becomes of the task and of who was running it."""

from duecourse.domain.outcomes import Ending
from duecourse.domain.queues import QueueSettings
from duecourse.domain.task import OnDuplicate, RetryPolicy, Status
from duecourse.ports.store import Move, Reply, Settled, Store
from tests.support.clock import HandClock
from tests.support.ledger import (
    LEASE_MS,
    SHARD,
    add,
    bring,
    claim,
    claim_one,
    lease_of,
    new,
    settle,
    standing,
)

QUEUE = SHARD.queue


def test_a_task_that_never_ran_is_moved_as_it_is(store: Store, clock: HandClock) -> None:
    before = add(store, delay_ms=500, state="1")
    assert store.move(QUEUE, [Move("a", due_at=clock.at + 9, delay_ms=77)]) == [Reply.OK]
    assert standing(store)._replace(log=()) == before._replace(due_at=clock.at + 9)
    assert store.move(QUEUE, [Move("a", delay_ms=77, state="2")]) == [Reply.OK]
    assert standing(store)._replace(log=()) == before._replace(due_at=clock.at + 77, state_json="2")
    clock.advance(77)
    assert len(claim(store)) == 1


def test_a_task_that_ran_is_moved_as_a_new_generation(store: Store, clock: HandClock) -> None:
    task = claim_one(store)
    settle(store, task, Ending.RETRY, delay_ms=10, detail="x")
    assert store.move(QUEUE, [Move("a", delay_ms=20)]) == [Reply.OK]
    moved = standing(store)
    assert moved.generation > task.fence
    assert (moved.run, moved.attempt, moved.token, moved.claimed_at) == (0, 1, "", 0)
    assert (moved.due_at, len(moved.history)) == (clock.at + 20, 1)


def test_force_takes_a_running_task_from_its_worker(store: Store, clock: HandClock) -> None:
    task = claim_one(store)
    assert store.move(QUEUE, [Move("a", delay_ms=20, force=True)]) == [Reply.OK]
    assert {settle(store, task, how) for how in Ending} == {Settled.STALE}
    assert store.extend(SHARD, [lease_of(task)], 99) == [0]
    assert not store.save(SHARD, lease_of(task), "1")
    moved = standing(store)
    assert (moved.status, moved.run, moved.attempt) == (Status.SCHEDULED, 0, 1)
    assert [run.outcome for run in moved.history] == ["taken"]
    assert moved.generation > task.generation
    clock.advance(20)
    assert claim(store)[0].run == 1
    assert store.stats(SHARD).leased == 1


def test_a_done_task_is_revived_without_its_result(store: Store, clock: HandClock) -> None:
    task = claim_one(store)
    settle(store, task, Ending.DONE, result="1")
    assert store.move(QUEUE, [Move("a", delay_ms=5, revive=True, state="4")]) == [Reply.OK]
    revived = standing(store)
    assert (revived.status, revived.result, revived.state, revived.run) == (Status.SCHEDULED, None, 4, 0)
    assert [r.outcome for r in revived.history] == ["done"]
    assert settle(store, task, Ending.DONE) == Settled.DONE
    assert standing(store) == revived
    clock.advance(5)
    assert len(claim(store)) == 1


def test_several_tasks_move_in_one_step_each_with_its_answer(store: Store, clock: HandClock) -> None:
    store.add([new("a", delay_ms=5), new("b"), new("c", delay_ms=5)])
    claim(store)
    moves = [Move("c", delay_ms=50), Move("x", delay_ms=50), Move("b", delay_ms=50), Move("a", delay_ms=50)]
    assert store.move(QUEUE, moves) == [Reply.OK, Reply.ABSENT, Reply.LEASED, Reply.OK]
    assert [standing(store, name).due_at - clock.at for name in "ac"] == [50, 50]


def test_a_cancelled_task_never_runs_and_is_still_shown(store: Store, clock: HandClock) -> None:
    add(store, delay_ms=10)
    assert store.cancel(QUEUE, ["a", "a", "b"]) == [Reply.OK, Reply.CANCELLED, Reply.ABSENT]
    clock.advance(10)
    assert claim(store) == []
    assert standing(store).status == Status.CANCELLED


def test_force_cancels_a_running_task_and_refuses_its_settle(store: Store, clock: HandClock) -> None:
    task = claim_one(store)
    assert store.cancel(QUEUE, ["a"], force=True) == [Reply.OK]
    assert {settle(store, task, how) for how in Ending} == {Settled.STALE}
    gone = standing(store)
    assert (gone.status, gone.token, gone.claimed_at) == (Status.CANCELLED, "", 0)
    assert [run.outcome for run in gone.history] == ["taken"]
    clock.advance(LEASE_MS)
    assert claim(store) == []


def test_cancelling_a_dead_task_deletes_it(store: Store) -> None:
    bring(store, "dead", group="g")
    assert store.cancel(QUEUE, ["a", "a"]) == [Reply.OK, Reply.ABSENT]
    assert store.get(QUEUE, "a") is None
    assert store.group(QUEUE, "g") == []
    assert store.stats(SHARD).dead == 0


def test_a_replayed_task_is_dead_so_long_after_it_was_due_again(store: Store, clock: HandClock) -> None:
    for id in "abc":
        bring(store, "dead", id)
    store.replay(QUEUE, ["c", "a", "b"], delays_ms=[0, 10, 20], deadlines_ms=[5, 7, 0])
    assert [standing(store, id).deadline_at - clock.at for id in "ca"] == [5, 17]
    assert standing(store, "b").deadline_at == 0
    clock.advance(17)
    assert claim(store) == []
    assert {standing(store, id).status for id in "ca"} == {Status.DEAD}
    clock.advance(3)
    assert [task.id for task in claim(store)] == ["b"]


def test_a_replayed_task_has_all_its_attempts_no_deadline_and_the_same_generation(
    store: Store, clock: HandClock
) -> None:
    task = claim_one(store, retry=RetryPolicy(max_attempts=2), deadline_ms=10)
    settle(store, task, Ending.RETRY, detail="x")
    settle(store, claim(store)[0], Ending.RETRY, detail="y")
    clock.advance(99)
    assert store.replay(QUEUE, ["a", "b", "a"]) == [Reply.OK, Reply.ABSENT, Reply.SCHEDULED]
    (again,) = claim(store)
    assert (again.idempotency_key, again.run, again.attempt) == (task.idempotency_key, 3, 1)
    assert (again.deadline_at, again.due_at, len(again.history)) == (0, clock.at, 2)


def test_a_group_is_told_by_id_whatever_its_tasks_states_are(store: Store) -> None:
    store.add([new("d", group="g"), new("b", group="g", delay_ms=5), new("c", group="g", delay_ms=5)])
    settle(store, claim(store)[0], Ending.DONE)
    store.cancel(QUEUE, ["c"])
    store.add([new("a", group="g"), new("x"), new("y", group="other"), new("z", group="g", tenant="t")])
    claim(store)
    assert [(t.id, t.status.value) for t in store.group(QUEUE, "g")] == [
        ("a", "leased"),
        ("b", "scheduled"),
        ("c", "cancelled"),
        ("d", "done"),
    ]
    assert [t.id for t in store.group(QUEUE, "g", "t")] == ["z"]
    assert store.group(QUEUE, "g")[0] == standing(store, "a")


def test_one_groups_name_may_begin_with_anothers(store: Store) -> None:
    store.add([new("a", group="g"), new("b", group="g1"), new("c", group="g/")])
    assert [[t.id for t in store.group(QUEUE, group)] for group in ("g", "g1", "g/")] == [["a"], ["b"], ["c"]]


def test_a_replaced_task_changes_its_group(store: Store) -> None:
    add(store, group="one", delay_ms=5)
    add(store, group="two", delay_ms=5, on_duplicate=OnDuplicate.REPLACE)
    assert (store.group(QUEUE, "one"), [t.id for t in store.group(QUEUE, "two")]) == ([], ["a"])


def test_a_running_task_stands_in_its_own_group_and_in_that_of_its_replacement(store: Store) -> None:
    running = claim_one(store, group="one")
    store.add([new(group="two", on_duplicate=OnDuplicate.REPLACE)])
    assert [[t.group for t in store.group(QUEUE, group)] for group in ("one", "two")] == [["one"], ["one"]]
    settle(store, running, Ending.DONE)
    assert [[t.group for t in store.group(QUEUE, group)] for group in ("one", "two")] == [[], ["two"]]


def test_a_replacement_that_is_itself_replaced_leaves_its_group(store: Store) -> None:
    running = claim_one(store, group="one")
    store.add([new(group="two", on_duplicate=OnDuplicate.REPLACE)])
    store.add([new(group="three", on_duplicate=OnDuplicate.REPLACE)])
    assert [len(store.group(QUEUE, group)) for group in ("one", "two", "three")] == [1, 0, 1]
    settle(store, running, Ending.DONE)
    assert [len(store.group(QUEUE, group)) for group in ("one", "two", "three")] == [0, 0, 1]


def test_a_sweep_forgets_what_finished_long_ago_and_nothing_else(store: Store, clock: HandClock) -> None:
    for state in ("done", "cancelled", "dead"):
        bring(store, state, state, group="g")
    clock.advance(1)
    bring(store, "done", "later", group="g")
    bring(store, "scheduled", "waiting", group="g")
    clock.advance(998)
    assert store.sweep(SHARD, retention_ms=1_000).pruned == 0
    clock.advance(1)
    swept = store.sweep(SHARD, retention_ms=1_000)
    assert (swept.pruned, swept.reclaimed, swept.died, swept.more) == (2, 0, 0, False)
    assert [t.id for t in store.group(QUEUE, "g")] == ["dead", "later", "waiting"]
    assert (swept.now, swept.bell_at) == (clock.at, standing(store, "waiting").due_at)
    assert add(store, "done").history == ()


def test_a_sweep_takes_lapsed_leases_back(store: Store, clock: HandClock) -> None:
    claim_one(store, "a", retry=RetryPolicy(max_attempts=1))
    claim_one(store, "b")
    clock.advance(LEASE_MS)
    swept = store.sweep(SHARD, retention_ms=1_000)
    assert (swept.reclaimed, swept.died, swept.more) == (2, 1, False)
    assert [standing(store, name).status.value for name in "ab"] == ["dead", "scheduled"]


def test_a_sweep_forgets_a_bounded_number_at_a_time(store: Store, clock: HandClock) -> None:
    ids = [f"t{n}" for n in range(700)]
    store.add([new(name, delay_ms=5) for name in ids])
    store.cancel(QUEUE, ids)
    clock.advance(10)
    sweeps = [store.sweep(SHARD, retention_ms=10) for _ in range(2)]
    assert [(s.pruned, s.more) for s in sweeps] == [(500, True), (200, False)]
    assert store.stats(SHARD).done == 0


def test_the_stats_tell_a_shard_in_numbers(store: Store, clock: HandClock) -> None:
    for n, state in enumerate(("leased", "done", "cancelled", "dead", "scheduled")):
        bring(store, state, f"t{n}")
    clock.advance(1)
    due_at = standing(store, "t4").due_at
    assert store.stats(SHARD)._asdict() == {
        "scheduled": 1,
        "leased": 1,
        "done": 2,
        "dead": 1,
        "oldest_due_at": due_at,
        "bell_at": clock.at - 1 + LEASE_MS,
        "settings": QueueSettings(),
        "now": clock.at,
    }
    assert store.now() == clock.at
    store.ping()
