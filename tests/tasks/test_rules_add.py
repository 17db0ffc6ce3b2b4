"""Adding: what a fresh task looks like, batches, payloads, debouncing, replacements that wait for a lease to end."""

import pytest

from duecourse.ledger.operations import MAX_ADD, AddReply, Reply, Settled, UniqueCondition
from duecourse.ledger.store.ledger import Ledger
from duecourse.ledger.task import Change, Ending, NewTask, OnDuplicate, RetryPolicy, Shard, Status, Task
from tests.support.clock import HandClock
from tests.support.ledger import LEASE_MS, SHARD, add, bring, claim, claim_one, lease_of, new, settle, stored_task

KEEP, REPLACE, DEBOUNCE = OnDuplicate.KEEP, OnDuplicate.REPLACE, OnDuplicate.DEBOUNCE


def test_a_fresh_task_is_kept_as_asked_for(store: Ledger, clock: HandClock) -> None:
    policy = RetryPolicy(max_attempts=7, backoff_ms=250, factor=1.5, max_backoff_ms=9_000, jitter=False)
    asked = NewTask("a", "report", '{"n":1}', group="g", state='{"s":1}', delay_ms=500, deadline_ms=100, retry=policy)
    store.add([asked])
    task = stored_task(store)
    assert task == Task(
        id="a",
        queue="default",
        tenant="-",
        kind="report",
        group="g",
        status=Status.SCHEDULED,
        payload_json='{"n":1}',
        state_json='{"s":1}',
        result_json="",
        due_at=clock.at + 500,
        created_at=clock.at,
        deadline_at=clock.at + 600,
        generation=task.generation,
        run=0,
        attempt=1,
        retry=policy,
        token="",
        claimed_at=0,
        log=(),
    )
    assert task.generation > 0


def test_an_instant_is_taken_as_given(store: Ledger, clock: HandClock) -> None:
    task = add(store, due_at=clock.at - 5_000, delay_ms=99, deadline_at=clock.at + 7, deadline_ms=99)
    assert (task.due_at, task.deadline_at) == (clock.at - 5_000, clock.at + 7)


@pytest.mark.parametrize(
    "payload", ['"ünïcödé \U0001f514 \\u0000 漢字"', '"' + "x" * 200_000 + '"', "null", '"\r\n\x7f"']
)
def test_a_payload_comes_back_byte_for_byte(store: Ledger, payload: str) -> None:
    assert claim_one(store, payload=payload, state='"é"').payload_json == payload
    assert stored_task(store).payload_json == payload
    assert stored_task(store).state_json == '"é"'


def test_answers_stand_in_the_order_of_the_tasks_over_several_queues(store: Ledger) -> None:
    store.add([new("b", queue="two"), new("d")])
    added = store.add([new("a", queue="one"), new("b", queue="two"), new("c", queue="one"), new("d")])
    assert [(a.id, a.reply) for a in added] == [
        ("a", Reply.CREATED),
        ("b", Reply.KEPT),
        ("c", Reply.CREATED),
        ("d", Reply.KEPT),
    ]
    assert store.shards() == [Shard("default"), Shard("one"), Shard("two")]


def test_the_same_id_in_two_queues_is_two_tasks(store: Ledger) -> None:
    store.add([new(queue="one", kind="x"), new(queue="two", kind="y")])
    assert [t.kind for q in ("one", "two") if (t := store.get(q, "a"))] == ["x", "y"]


def test_the_same_id_of_two_tenants_is_two_tasks(store: Ledger) -> None:
    assert [a.reply for a in store.add([new(tenant="t1"), new(tenant="t2")])] == [Reply.CREATED, Reply.CREATED]
    claimed = store.claim(SHARD, 10, lease_ms=LEASE_MS).tasks
    assert sorted(t.tenant for t in claimed) == ["t1", "t2"]
    assert store.get("default", "a") is None


def test_the_second_of_two_in_a_batch_sees_the_first(store: Ledger) -> None:
    added = store.add([new(payload="1"), new(payload="2"), new(payload="3", on_duplicate=REPLACE)])
    assert [a.reply for a in added] == [Reply.CREATED, Reply.KEPT, Reply.REPLACED]
    assert stored_task(store).payload_json == "3"
    assert store.stats(SHARD).scheduled == 1


def test_the_second_of_two_in_a_batch_sees_what_the_first_did_to_one_that_stands(store: Ledger) -> None:
    first = add(store, delay_ms=5)
    store.add([new(delay_ms=n, on_duplicate=REPLACE) for n in (6, 7)])
    at = first.created_at
    assert [entry.due_at for entry in stored_task(store).log if isinstance(entry, Change)] == [at + 5, at + 6]


def test_each_of_two_in_a_batch_is_shown_as_it_was_answered_though_their_payloads_are_large(store: Ledger) -> None:
    old, fresh = (f'"{letter * 5_000}"' for letter in "of")
    add(store, payload=old)
    kept, replaced = store.add([new(payload=fresh), new(payload=fresh, on_duplicate=REPLACE)], echo=True)
    assert kept.task
    assert replaced.task
    assert (kept.reply, kept.task.payload_json) == (Reply.KEPT, old)
    assert (replaced.reply, replaced.task.payload_json) == (Reply.REPLACED, fresh)


def test_an_empty_batch_is_nothing(store: Ledger) -> None:
    assert store.add([]) == []
    assert store.settle(SHARD, []) == []
    assert store.extend(SHARD, [], 1_000) == []
    assert store.move("default", []) == []
    assert store.cancel("default", []) == []
    assert store.replay("default", []) == []


def test_a_batch_may_have_as_many_as_the_port_says_and_no_more(store: Ledger) -> None:
    tasks = [new(f"t{n}", delay_ms=9) for n in range(MAX_ADD)]
    assert {a.reply for a in store.add(tasks)} == {Reply.CREATED}
    assert store.stats(SHARD).scheduled == MAX_ADD
    with pytest.raises(ValueError, match="1000"):
        store.add([*tasks, new("one more")])
    assert store.get("default", "one more") is None


def test_echo_shows_the_record_kept_for_each_task(store: Ledger) -> None:
    (created,) = store.add([new()], echo=True)
    assert created == AddReply("a", Reply.CREATED, stored_task(store))
    (kept,) = store.add([new(payload="2")], echo=True)
    assert kept == AddReply("a", Reply.KEPT, stored_task(store))
    claim(store)
    (waiting,) = store.add([new(payload="3", on_duplicate=REPLACE)], echo=True)
    assert waiting.task
    assert (waiting.task.payload_json, waiting.task.status) == ("3", Status.SCHEDULED)
    (refused,) = store.add([new(on_duplicate=OnDuplicate.REJECT)], echo=True)
    assert refused == AddReply("a", Reply.LEASED)


@pytest.mark.parametrize("how", [Ending.DONE, Ending.DROP])
def test_a_task_added_again_after_its_end_is_a_new_generation(store: Ledger, how: Ending) -> None:
    first = claim_one(store)
    settle(store, first, how)
    again = add(store, on_duplicate=REPLACE, payload="2")
    assert again.generation > first.fence
    assert (again.run, again.attempt, again.token, again.payload_json) == (0, 1, "", "2")


def test_a_task_added_again_once_it_is_done_remembers_nothing(store: Ledger) -> None:
    first = claim_one(store)
    settle(store, first, Ending.DONE)
    assert add(store, payload="2").log == ()
    assert settle(store, first, Ending.DONE) == Settled.STALE


def test_replacing_a_scheduled_task_moves_it_to_its_new_due_time_alone(store: Ledger, clock: HandClock) -> None:
    first = add(store, delay_ms=100)
    second = add(store, delay_ms=900, on_duplicate=REPLACE)
    assert second.idempotency_key != first.idempotency_key
    clock.advance(100)
    assert claim(store) == []
    clock.advance(800)
    assert len(claim(store)) == 1


def test_debouncing_takes_the_newest_contents_and_pushes_the_due_time_back(store: Ledger, clock: HandClock) -> None:
    first = add(store, delay_ms=1_000, payload="1")
    clock.advance(600)
    pushed = add(store, delay_ms=1_000, payload="2", kind="other", on_duplicate=DEBOUNCE)
    assert (pushed.due_at, pushed.created_at) == (clock.at + 1_000, first.created_at)
    assert (pushed.payload_json, pushed.kind) == ("2", "other")
    assert pushed.generation > first.generation


def test_debouncing_never_goes_past_the_longest_wait_nor_before_the_due_time(store: Ledger, clock: HandClock) -> None:
    first = add(store, delay_ms=1_000)
    assert add(store, delay_ms=10, on_duplicate=DEBOUNCE).due_at == first.due_at
    late = add(store, delay_ms=9_000, max_wait_ms=5_000, deadline_ms=7, on_duplicate=DEBOUNCE)
    assert late.due_at == clock.at + 5_000
    assert late.deadline_at == late.due_at + 7
    assert add(store, delay_ms=9_000, max_wait_ms=2_000, on_duplicate=DEBOUNCE).due_at == late.due_at


@pytest.mark.parametrize("mode", [REPLACE, DEBOUNCE])
@pytest.mark.parametrize(
    ("how", "answer"),
    [
        (Ending.DONE, Settled.DONE),
        (Ending.AGAIN, Settled.AGAIN),
        (Ending.RETRY, Settled.RETRIED),
        (Ending.DROP, Settled.DEAD),
        (Ending.RELEASE, Settled.RELEASED),
    ],
)
def test_a_replacement_for_a_running_task_runs_after_the_lease_ends(
    store: Ledger, clock: HandClock, mode: OnDuplicate, how: Ending, answer: Settled
) -> None:
    running = claim_one(store, payload="1")
    store.add([new(payload="2", delay_ms=10, on_duplicate=mode)])
    store.add([new(payload="3", delay_ms=20, on_duplicate=mode)])
    assert stored_task(store).payload_json == "1"
    assert stored_task(store).status == Status.LEASED
    assert settle(store, running, how, delay_ms=5_000, result="7") == answer
    after = stored_task(store)
    assert (after.status, after.payload_json, after.due_at, after.run) == (Status.SCHEDULED, "3", clock.at + 20, 0)
    assert (after.attempt, after.result_json) == (1, "")
    assert settle(store, running, how, delay_ms=5_000, result="7") == answer
    clock.advance(20)
    assert [t.payload_json for t in claim(store)] == ["3"]
    assert {settle(store, running, other) for other in Ending if other is not how} == {Settled.STALE}
    assert stored_task(store).status == Status.LEASED


def test_a_replacement_runs_after_a_lapse_too_and_costs_no_attempt(store: Ledger, clock: HandClock) -> None:
    claim_one(store, payload="1", retry=RetryPolicy(max_attempts=1))
    store.add([new(payload="2", on_duplicate=REPLACE, retry=RetryPolicy(max_attempts=1))])
    clock.advance(LEASE_MS)
    claimed = store.claim(SHARD, 5, lease_ms=LEASE_MS)
    assert [(t.payload_json, t.attempt, t.run) for t in claimed.tasks] == [("2", 1, 1)]
    assert claimed.died == 0


def test_a_retry_that_died_beside_a_replacement_is_answered_so_again(store: Ledger) -> None:
    running = claim_one(store, retry=RetryPolicy(max_attempts=1))
    store.add([new(on_duplicate=REPLACE, delay_ms=10)])
    assert settle(store, running, Ending.RETRY) == Settled.DEAD
    assert settle(store, running, Ending.RETRY) == Settled.DEAD
    assert store.stats(SHARD).dead == 0


def test_a_running_task_keeps_its_lease_while_a_replacement_waits(store: Ledger, clock: HandClock) -> None:
    running = claim_one(store)
    store.add([new(on_duplicate=REPLACE)])
    assert store.extend(SHARD, [lease_of(running)], 99_000) == [clock.at + 99_000]
    assert store.save(SHARD, lease_of(running), '{"page":2}')
    assert stored_task(store).state == {"page": 2}
    assert [a.reply for a in store.add([new()])] == [Reply.KEPT]


def test_a_group_that_is_taken_takes_no_other_task(store: Ledger) -> None:
    tasks = [new("x", group="g", on_duplicate=REPLACE), new("y", group="g", on_duplicate=REPLACE)]
    assert [added.reply for added in store.add(tasks, unique=UniqueCondition("g", 0))] == [Reply.CREATED, Reply.CREATED]
    assert store.add([new("x", payload="2", group="g", on_duplicate=REPLACE)], unique=UniqueCondition("g", 0)) == []
    assert store.add([new("z")], unique=UniqueCondition("g", 1_000_000)) == [], "live, though older"
    assert store.get(SHARD.queue, "z") is None
    assert stored_task(store, "x").payload_json == "{}"
    assert store.add([new("z")], unique=UniqueCondition("other", 0))
    assert store.add([new("w", tenant="t")], unique=UniqueCondition("g", 0)), "another tenant's group"


@pytest.mark.parametrize("state", ["done", "dead"])
def test_a_group_whose_tasks_have_ended_is_taken_for_who_has_not_seen_them(store: Ledger, state: str) -> None:
    bring(store, state, group="g")
    seen = stored_task(store).generation
    assert store.add([new("b")], unique=UniqueCondition("g", seen - 1)) == []
    assert store.add([new("b")], unique=UniqueCondition("g", seen))
