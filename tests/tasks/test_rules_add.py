"""Adding: what a fresh task looks like, batches, payloads, debouncing, replacements that wait for a lease to end."""

import pytest

from duecourse.errors import InvalidInput
from duecourse.ledger.operation_types import MAX_ADD, AddReply, Reply, Settled, UniqueCondition
from duecourse.ledger.operations.ledger import Ledger
from duecourse.ledger.task import Change, Ending, NewTask, OnDuplicate, RetryPolicy, Shard, Status, Task
from tests.support.clock import HandClock
from tests.support.ledger import LEASE_MS, SHARD, add, bring, claim, claim_one, lease_of, new, settle, stored_task

KEEP, REPLACE, DEBOUNCE = OnDuplicate.KEEP, OnDuplicate.REPLACE, OnDuplicate.DEBOUNCE


def test_a_fresh_task_is_kept_as_asked_for(ledger: Ledger, clock: HandClock) -> None:
    policy = RetryPolicy(max_attempts=7, backoff_ms=250, factor=1.5, max_backoff_ms=9_000, jitter=False)
    asked = NewTask("a", "report", '{"n":1}', group="g", state='{"s":1}', delay_ms=500, deadline_ms=100, retry=policy)
    ledger.add([asked])
    task = stored_task(ledger)
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


def test_an_instant_is_taken_as_given(ledger: Ledger, clock: HandClock) -> None:
    task = add(ledger, due_at=clock.at - 5_000, delay_ms=99, deadline_at=clock.at + 7, deadline_ms=99)
    assert (task.due_at, task.deadline_at) == (clock.at - 5_000, clock.at + 7)


@pytest.mark.parametrize(
    "payload", ['"ünïcödé \U0001f514 \\u0000 漢字"', '"' + "x" * 200_000 + '"', "null", '"\r\n\x7f"']
)
def test_a_payload_comes_back_byte_for_byte(ledger: Ledger, payload: str) -> None:
    assert claim_one(ledger, payload=payload, state='"é"').payload_json == payload
    assert stored_task(ledger).payload_json == payload
    assert stored_task(ledger).state_json == '"é"'


def test_answers_stand_in_the_order_of_the_tasks_over_several_queues(ledger: Ledger) -> None:
    ledger.add([new("b", queue="two"), new("d")])
    added = ledger.add([new("a", queue="one"), new("b", queue="two"), new("c", queue="one"), new("d")])
    assert [(a.id, a.reply) for a in added] == [
        ("a", Reply.CREATED),
        ("b", Reply.KEPT),
        ("c", Reply.CREATED),
        ("d", Reply.KEPT),
    ]
    assert ledger.shards() == [Shard("default"), Shard("one"), Shard("two")]


def test_the_same_id_in_two_queues_is_two_tasks(ledger: Ledger) -> None:
    ledger.add([new(queue="one", kind="x"), new(queue="two", kind="y")])
    assert [t.kind for q in ("one", "two") if (t := ledger.get(q, "a"))] == ["x", "y"]


def test_the_same_id_of_two_tenants_is_two_tasks(ledger: Ledger) -> None:
    assert [a.reply for a in ledger.add([new(tenant="t1"), new(tenant="t2")])] == [Reply.CREATED, Reply.CREATED]
    claimed = ledger.claim(SHARD, 10, lease_ms=LEASE_MS).tasks
    assert sorted(t.tenant for t in claimed) == ["t1", "t2"]
    assert ledger.get("default", "a") is None


def test_the_second_of_two_in_a_batch_sees_the_first(ledger: Ledger) -> None:
    added = ledger.add([new(payload="1"), new(payload="2"), new(payload="3", on_duplicate=REPLACE)])
    assert [a.reply for a in added] == [Reply.CREATED, Reply.KEPT, Reply.REPLACED]
    assert stored_task(ledger).payload_json == "3"
    assert ledger.stats(SHARD).scheduled == 1


def test_the_second_of_two_in_a_batch_sees_what_the_first_did_to_one_that_stands(ledger: Ledger) -> None:
    first = add(ledger, delay_ms=5)
    ledger.add([new(delay_ms=n, on_duplicate=REPLACE) for n in (6, 7)])
    at = first.created_at
    assert [entry.due_at for entry in stored_task(ledger).log if isinstance(entry, Change)] == [at + 5, at + 6]


def test_each_of_two_in_a_batch_is_shown_as_it_was_answered_though_their_payloads_are_large(ledger: Ledger) -> None:
    old, fresh = (f'"{letter * 5_000}"' for letter in "of")
    add(ledger, payload=old)
    kept, replaced = ledger.add([new(payload=fresh), new(payload=fresh, on_duplicate=REPLACE)], echo=True)
    assert kept.task
    assert replaced.task
    assert (kept.reply, kept.task.payload_json) == (Reply.KEPT, old)
    assert (replaced.reply, replaced.task.payload_json) == (Reply.REPLACED, fresh)


def test_an_empty_batch_is_nothing(ledger: Ledger) -> None:
    assert ledger.add([]) == []
    assert ledger.settle(SHARD, []) == []
    assert ledger.extend(SHARD, [], 1_000) == []
    assert ledger.move("default", []) == []
    assert ledger.cancel("default", []) == []
    assert ledger.replay("default", []) == []


def test_a_batch_may_have_as_many_as_the_port_says_and_no_more(ledger: Ledger) -> None:
    tasks = [new(f"t{n}", delay_ms=9) for n in range(MAX_ADD)]
    assert {a.reply for a in ledger.add(tasks)} == {Reply.CREATED}
    assert ledger.stats(SHARD).scheduled == MAX_ADD
    with pytest.raises(ValueError, match="1000"):
        ledger.add([*tasks, new("one more")])
    assert ledger.get("default", "one more") is None


def test_echo_shows_the_record_kept_for_each_task(ledger: Ledger) -> None:
    (created,) = ledger.add([new()], echo=True)
    assert (created.id, created.reply, created.task) == ("a", Reply.CREATED, stored_task(ledger))
    (kept,) = ledger.add([new(payload="2")], echo=True)
    assert (kept.id, kept.reply, kept.task) == ("a", Reply.KEPT, stored_task(ledger))
    claim(ledger)
    (waiting,) = ledger.add([new(payload="3", on_duplicate=REPLACE)], echo=True)
    assert waiting.task
    assert (waiting.task.payload_json, waiting.task.status) == ("3", Status.SCHEDULED)
    (refused,) = ledger.add([new(on_duplicate=OnDuplicate.REJECT)], echo=True)
    assert refused == AddReply("a", Reply.LEASED)


@pytest.mark.parametrize("how", [Ending.DONE, Ending.DROP])
def test_a_task_added_again_after_its_end_is_a_new_generation(ledger: Ledger, how: Ending) -> None:
    first = claim_one(ledger)
    settle(ledger, first, how)
    again = add(ledger, on_duplicate=REPLACE, payload="2")
    assert again.generation > first.fence
    assert (again.run, again.attempt, again.token, again.payload_json) == (0, 1, "", "2")


def test_a_task_added_again_once_it_is_done_remembers_nothing(ledger: Ledger) -> None:
    first = claim_one(ledger)
    settle(ledger, first, Ending.DONE)
    assert add(ledger, payload="2").log == ()
    assert settle(ledger, first, Ending.DONE) == Settled.STALE


def test_replacing_a_scheduled_task_moves_it_to_its_new_due_time_alone(ledger: Ledger, clock: HandClock) -> None:
    first = add(ledger, delay_ms=100)
    second = add(ledger, delay_ms=900, on_duplicate=REPLACE)
    assert second.idempotency_key != first.idempotency_key
    clock.advance(100)
    assert claim(ledger) == []
    clock.advance(800)
    assert len(claim(ledger)) == 1


def test_debouncing_takes_the_newest_contents_and_pushes_the_due_time_back(ledger: Ledger, clock: HandClock) -> None:
    first = add(ledger, delay_ms=1_000, payload="1")
    clock.advance(600)
    pushed = add(ledger, delay_ms=1_000, payload="2", kind="other", on_duplicate=DEBOUNCE)
    assert (pushed.due_at, pushed.created_at) == (clock.at + 1_000, first.created_at)
    assert (pushed.payload_json, pushed.kind) == ("2", "other")
    assert pushed.generation > first.generation


def test_debouncing_never_goes_past_the_longest_wait_nor_before_the_due_time(ledger: Ledger, clock: HandClock) -> None:
    first = add(ledger, delay_ms=1_000)
    assert add(ledger, delay_ms=10, on_duplicate=DEBOUNCE).due_at == first.due_at
    late = add(ledger, delay_ms=9_000, max_wait_ms=5_000, deadline_ms=7, on_duplicate=DEBOUNCE)
    assert late.due_at == clock.at + 5_000
    assert late.deadline_at == late.due_at + 7
    assert add(ledger, delay_ms=9_000, max_wait_ms=2_000, on_duplicate=DEBOUNCE).due_at == late.due_at


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
    ledger: Ledger, clock: HandClock, mode: OnDuplicate, how: Ending, answer: Settled
) -> None:
    running = claim_one(ledger, payload="1")
    ledger.add([new(payload="2", delay_ms=10, on_duplicate=mode)])
    ledger.add([new(payload="3", delay_ms=20, on_duplicate=mode)])
    assert stored_task(ledger).payload_json == "1"
    assert stored_task(ledger).status == Status.LEASED
    assert settle(ledger, running, how, delay_ms=5_000, result="7") == answer
    after = stored_task(ledger)
    assert (after.status, after.payload_json, after.due_at, after.run) == (Status.SCHEDULED, "3", clock.at + 20, 0)
    assert (after.attempt, after.result_json) == (1, "")
    assert settle(ledger, running, how, delay_ms=5_000, result="7") == answer
    clock.advance(20)
    assert [t.payload_json for t in claim(ledger)] == ["3"]
    assert {settle(ledger, running, other) for other in Ending if other is not how} == {Settled.STALE}
    assert stored_task(ledger).status == Status.LEASED


def test_a_replacement_runs_after_a_lapse_too_and_costs_no_attempt(ledger: Ledger, clock: HandClock) -> None:
    claim_one(ledger, payload="1", retry=RetryPolicy(max_attempts=1))
    ledger.add([new(payload="2", on_duplicate=REPLACE, retry=RetryPolicy(max_attempts=1))])
    clock.advance(LEASE_MS)
    claimed = ledger.claim(SHARD, 5, lease_ms=LEASE_MS)
    assert [(t.payload_json, t.attempt, t.run) for t in claimed.tasks] == [("2", 1, 1)]
    assert claimed.died == 0


def test_a_retry_that_died_beside_a_replacement_is_answered_so_again(ledger: Ledger) -> None:
    running = claim_one(ledger, retry=RetryPolicy(max_attempts=1))
    ledger.add([new(on_duplicate=REPLACE, delay_ms=10)])
    assert settle(ledger, running, Ending.RETRY) == Settled.DEAD
    assert settle(ledger, running, Ending.RETRY) == Settled.DEAD
    assert ledger.stats(SHARD).dead == 0


def test_a_running_task_keeps_its_lease_while_a_replacement_waits(ledger: Ledger, clock: HandClock) -> None:
    running = claim_one(ledger)
    ledger.add([new(on_duplicate=REPLACE)])
    assert ledger.extend(SHARD, [lease_of(running)], 99_000) == [clock.at + 99_000]
    assert ledger.save(SHARD, lease_of(running), '{"page":2}')
    assert stored_task(ledger).state == {"page": 2}
    assert [a.reply for a in ledger.add([new()])] == [Reply.KEPT]


def test_a_group_that_is_taken_takes_no_other_task(ledger: Ledger) -> None:
    tasks = [new("x", group="g", on_duplicate=REPLACE), new("y", group="g", on_duplicate=REPLACE)]
    assert [added.reply for added in ledger.add(tasks, unique=UniqueCondition("g", 0))] == [
        Reply.CREATED,
        Reply.CREATED,
    ]
    assert ledger.add([new("x", payload="2", group="g", on_duplicate=REPLACE)], unique=UniqueCondition("g", 0)) == []
    assert ledger.add([new("z")], unique=UniqueCondition("g", 1_000_000)) == [], "live, though older"
    assert ledger.get(SHARD.queue, "z") is None
    assert stored_task(ledger, "x").payload_json == "{}"
    assert ledger.add([new("z")], unique=UniqueCondition("other", 0))
    assert ledger.add([new("w", tenant="t")], unique=UniqueCondition("g", 0)), "another tenant's group"


@pytest.mark.parametrize("state", ["done", "dead"])
def test_a_group_whose_tasks_have_ended_is_taken_for_who_has_not_seen_them(ledger: Ledger, state: str) -> None:
    bring(ledger, state, group="g")
    seen = stored_task(ledger).generation
    assert ledger.add([new("b")], unique=UniqueCondition("g", seen - 1)) == []
    assert ledger.add([new("b")], unique=UniqueCondition("g", seen))


def test_of_tasks_of_separate_callers_each_has_its_own_reply_or_error(ledger: Ledger) -> None:
    add(ledger, id="there")
    asked = [new("a"), new("too long", kind=300 * "k"), new("there", on_duplicate=OnDuplicate.REJECT), new("a")]
    created, wrong, there, again = ledger.add_each(asked)
    assert isinstance(wrong, InvalidInput)
    assert isinstance(created, AddReply)
    assert (created.reply, created.task) == (Reply.CREATED, stored_task(ledger))
    assert there == AddReply("there", Reply.SCHEDULED)
    assert isinstance(again, AddReply)
    assert (again.reply, again.task) == (Reply.KEPT, stored_task(ledger))
    assert ledger.add_each([]) == []
