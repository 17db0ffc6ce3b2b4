"""What a verb compares with what the first try of a request saw, in the step that writes."""

from dataclasses import replace

import pytest

from duecourse.base.times import DAY_MS
from duecourse.ledger.many_tasks import Act, Bulk
from duecourse.ledger.operations import KEPT_MS, KeyedRequest, Lease, Move, Reply, RequestState, SavedResponse, Version
from duecourse.ledger.schedule import Every, Progress, Purge, Rule, Schedule
from duecourse.ledger.store.ledger import Ledger
from duecourse.ledger.task import Change, Ending, OnDuplicate, Status, Task
from tests.support.clock import HandClock
from tests.support.ledger import LATER_MS, SHARD, add, bring, claim_one, new, settle, stored_task

QUEUE = SHARD.queue
ONE, TWO = b"1" * 8, b"2" * 8
SENT = KeyedRequest("-", "key", b"f" * 32)
MARK = b"mark" * 2


def seen(store: Ledger, id: str = "a") -> Version:
    found = store.seen(QUEUE, id)
    assert found
    return found.version


def test_a_note_is_there_for_every_later_try(store: Ledger, clock: HandClock) -> None:
    idempotency, begun_at = store.idempotency(), store.now()
    idempotency.begin(SENT, ONE, 1_000)
    assert idempotency.note(SENT, ONE, b'["seen"] 1')
    assert idempotency.begin(SENT, TWO, 1_000).state is RequestState.UNDER_WAY
    clock.advance(1_000)
    noted = SavedResponse(RequestState.AGAIN, begun_at=begun_at, note=b'["seen"] 1')
    assert idempotency.begin(SENT, TWO, 1_000) == noted
    assert not idempotency.note(SENT, ONE, b"late"), "the request is another's by now"
    assert idempotency.release(SENT, TWO)
    assert idempotency.begin(SENT, ONE, 1_000) == noted, "given back, it has its note still"
    assert idempotency.end(SENT, ONE, b"answer")
    assert idempotency.begin(SENT, TWO, 1_000).answer == b"answer"
    clock.advance(KEPT_MS)
    assert idempotency.begin(SENT, TWO, 1_000) == SavedResponse(RequestState.FRESH, begun_at=store.now())


@pytest.mark.parametrize("state", ["scheduled", "dead"])
def test_no_task_of_a_later_generation_is_cancelled(store: Ledger, state: str, clock: HandClock) -> None:
    bring(store, state)
    before = seen(store).generation
    clock.advance(1)
    store.add([new(on_duplicate=OnDuplicate.REPLACE, delay_ms=LATER_MS)])
    assert store.cancel(QUEUE, ["a"], newest=before) == [Reply.CHANGED]
    assert stored_task(store).status is Status.SCHEDULED
    assert store.cancel(QUEUE, ["a"], newest=seen(store).generation) == [Reply.OK]


def test_a_replacement_that_waits_makes_another_version_of_its_task(store: Ledger) -> None:
    claim_one(store)
    before = seen(store)
    store.add([new(on_duplicate=OnDuplicate.REPLACE, delay_ms=LATER_MS)])
    assert seen(store).generation > before.generation
    assert store.cancel(QUEUE, ["a"], force=True, newest=before.generation) == [Reply.CHANGED]
    assert store.move(QUEUE, [Move("a", delay_ms=5, force=True, seen=before)]) == [Reply.CHANGED]
    assert stored_task(store).status is Status.LEASED


def test_a_move_by_its_mark_is_made_once_and_one_of_what_was_seen_only(store: Ledger, clock: HandClock) -> None:
    add(store, delay_ms=LATER_MS)
    before = seen(store)
    asked = Move("a", delay_ms=10_000, mark=MARK, seen=before)
    assert store.move(QUEUE, [asked]) == [Reply.OK]
    clock.advance(1)
    assert store.move(QUEUE, [Move("a", delay_ms=20_000)]) == [Reply.OK]
    newer = stored_task(store)
    assert store.move(QUEUE, [asked]) == [Reply.OK], "it was made before"
    assert store.move(QUEUE, [asked._replace(mark=b"another!")]) == [Reply.CHANGED]
    assert stored_task(store) == newer


def test_a_task_that_died_again_is_another_than_was_seen(store: Ledger, clock: HandClock) -> None:
    bring(store, "dead")
    before = seen(store)
    clock.advance(5)
    assert store.replay(QUEUE, ["a"], seen=[before]) == [Reply.OK]
    taken = store.take(QUEUE, "a", lease_ms=1_000)
    assert taken
    settle(store, taken, Ending.DROP, detail="no use")
    assert store.replay(QUEUE, ["a"], seen=[before]) == [Reply.CHANGED]
    assert stored_task(store).status is Status.DEAD


@pytest.mark.parametrize("mode", OnDuplicate)
@pytest.mark.parametrize("state", ["scheduled", "leased", "done", "cancelled", "dead"])
def test_an_add_keeps_what_was_added_since(store: Ledger, state: str, mode: OnDuplicate, clock: HandClock) -> None:
    since = store.now()
    clock.advance(1)
    before = bring(store, state)
    reply = Reply.CHANGED if mode is OnDuplicate.REJECT else Reply.KEPT
    for asked in ([new(on_duplicate=mode, delay_ms=7)], [new(on_duplicate=mode, delay_ms=7), new("b")]):
        [kept, *_] = store.add(asked, since=since, mark=MARK, echo=True)
        assert (kept.reply, stored_task(store)) == (reply, replaced_lease(before, stored_task(store)))
    assert store.add([new("b")], since=since, mark=MARK)[0].reply is Reply.CREATED, "by the batch before"


def replaced_lease(task: Task | None, other: Task) -> Task:
    """A task as another look at it sees it: an answer to a claim has the end of its lease too."""
    assert task
    return replace(task, lease_expires_at=other.lease_expires_at)


@pytest.mark.parametrize("mode", OnDuplicate)
@pytest.mark.parametrize("state", ["scheduled", "leased", "done", "cancelled", "dead"])
def test_an_add_knows_its_own_by_its_mark_whatever_the_clocks_say(
    store: Ledger, state: str, mode: OnDuplicate, clock: HandClock
) -> None:
    asked = new(on_duplicate=mode)
    store.add([asked], mark=MARK)
    assert stored_task(store).mark == MARK[:6]
    bring(store, state)  # which adds nothing: the task is there
    before = stored_task(store)
    clock.advance(10)
    [again] = store.add([asked], mark=MARK, since=store.now() + DAY_MS, echo=True)
    assert (again.reply, again.task and again.task.generation) == (Reply.CREATED, before.generation)
    assert stored_task(store) == before
    assert store.add([asked], mark=b"another!", since=store.now() + DAY_MS)[0].reply is not Reply.CREATED or (
        state in {"done", "cancelled"}
    ), "of another request it is not"


@pytest.mark.parametrize("state", ["scheduled", "leased"])
def test_what_took_the_place_of_an_own_task_is_kept_whatever_the_clocks_say(
    store: Ledger, state: str, clock: HandClock
) -> None:
    store.add([new(on_duplicate=OnDuplicate.REJECT, delay_ms=LATER_MS)], mark=MARK)
    clock.advance(1)
    store.add([new(on_duplicate=OnDuplicate.REPLACE)])
    if state == "leased":
        assert store.take(QUEUE, "a", lease_ms=1_000)
    clock.advance(1)
    store.add([new(on_duplicate=OnDuplicate.REPLACE, delay_ms=LATER_MS)], mark=b"another!")
    before = seen(store)
    for mode in (OnDuplicate.REPLACE, OnDuplicate.REJECT):
        [again] = store.add([new(on_duplicate=mode)], mark=MARK, since=store.now() + DAY_MS, echo=True)
        assert (again.reply, seen(store)) == (Reply.KEPT, before)
    assert all("\0" not in entry.by for entry in stored_task(store).log if isinstance(entry, Change))


@pytest.mark.parametrize(
    ("state", "mode", "reply"),
    [
        ("scheduled", OnDuplicate.REPLACE, Reply.REPLACED),
        ("scheduled", OnDuplicate.DEBOUNCE, Reply.DEBOUNCED),
        ("scheduled", OnDuplicate.REJECT, Reply.SCHEDULED),
        ("scheduled", OnDuplicate.KEEP, Reply.KEPT),
        ("leased", OnDuplicate.REPLACE, Reply.REPLACED),
        ("leased", OnDuplicate.REJECT, Reply.LEASED),
        ("done", OnDuplicate.REJECT, Reply.CREATED),
        ("cancelled", OnDuplicate.KEEP, Reply.CREATED),
        ("dead", OnDuplicate.KEEP, Reply.DEAD),
    ],
)
def test_what_another_added_just_before_is_no_task_of_the_request(
    store: Ledger, state: str, mode: OnDuplicate, reply: Reply, clock: HandClock
) -> None:
    bring(store, state)
    clock.advance(1)
    begun_at = store.now()
    clock.advance(1)
    asked = new(on_duplicate=mode, delay_ms=LATER_MS)
    assert store.add([asked], mark=MARK, since=begun_at)[0].reply is reply


def test_a_large_batch_knows_all_its_own(store: Ledger, clock: HandClock) -> None:
    asked = [
        new(f"t{number % 600}", delay_ms=LATER_MS + number, on_duplicate=OnDuplicate.REPLACE) for number in range(700)
    ]
    first = store.add(asked, mark=MARK)
    assert [one.reply for one in first] == [Reply.CREATED] * 600 + [Reply.REPLACED] * 100
    before = [stored_task(store, f"t{number}") for number in range(600)]
    clock.advance(5)
    again = store.add(asked, mark=MARK, since=store.now())
    assert {one.reply for one in again[100:600]} == {Reply.CREATED}
    assert {one.reply for one in (*again[:100], *again[600:])} == {Reply.REPLACED}
    assert [stored_task(store, f"t{number}") for number in range(600)] == before


def test_a_task_that_was_added_without_a_key_has_no_mark(store: Ledger) -> None:
    assert add(store).mark == b""


def test_an_add_keeps_what_was_debounced_or_waits_since(store: Ledger, clock: HandClock) -> None:
    add(store, delay_ms=LATER_MS)
    claim_one(store, "b")
    clock.advance(10)
    since = store.now()
    store.add([new(on_duplicate=OnDuplicate.DEBOUNCE, delay_ms=2 * LATER_MS)])
    store.add([new("b", on_duplicate=OnDuplicate.REPLACE, payload='{"newer":1}')])
    older = [new(on_duplicate=OnDuplicate.DEBOUNCE, delay_ms=9), new("b", on_duplicate=OnDuplicate.REPLACE)]
    before = [seen(store), seen(store, "b")]
    assert [one.reply for one in store.add(older, since=since, mark=MARK)] == [Reply.KEPT, Reply.KEPT]
    assert [seen(store), seen(store, "b")] == before


@pytest.mark.parametrize(("act", "status"), [(Act.DELETE, Status.SCHEDULED), (Act.CANCEL, Status.SCHEDULED)])
@pytest.mark.parametrize("group", ["", "g"])
def test_an_act_on_many_ends_at_a_place_and_leaves_newer_ones(
    store: Ledger, clock: HandClock, act: Act, status: Status, group: str
) -> None:
    store.add([new(f"t{n}", group=group, delay_ms=LATER_MS + n) for n in range(4)])
    asked = Bulk(Act.COUNT, (status,), limit=2, group=group)
    counted = store.bulk(QUEUE, asked)
    before = store.now()
    clock.advance(1)
    store.add([new("s", group=group, delay_ms=10), new("t1x", group=group, delay_ms=LATER_MS)])
    store.move(QUEUE, [Move("t0", delay_ms=20)], group=group)
    done = store.bulk(QUEUE, asked._replace(act=act, limit=9, before=before, until=counted.next))
    assert (done.tasks, done.next) == (1, counted.next), "t1 alone: t0 was moved, the others are newer, or behind"


def test_a_schedule_that_was_added_later_is_not_deleted(store: Ledger, clock: HandClock) -> None:
    schedules = [Schedule(id, "work", Rule(Every(1_000), 1)) for id in ("a", "b")]
    for one in schedules:
        store.put_schedule(one, Progress())
    first = store.schedule(QUEUE, "a")
    assert first
    store.drop_schedule(QUEUE, "a")
    clock.advance(1)
    store.put_schedule(schedules[0], Progress())
    assert not store.drop_schedule(QUEUE, "a", created_at=first.created_at)
    assert store.purge_schedules(QUEUE, Purge(limit=9, until="b", before=first.created_at)).schedules == 1
    assert store.schedule_ids(QUEUE) == ["a"]


def test_settings_that_another_change_has_made_stay(store: Ledger) -> None:
    store.configure(QUEUE, {"paused": True}, mark=MARK)
    mine = store.mark_of(QUEUE)
    assert MARK.hex() in mine
    store.configure(QUEUE, {"paused": False})
    assert not store.configure(QUEUE, {"paused": True}, mark=ONE, seen=mine)
    assert store.configure(QUEUE, {"max_running": 3}, mark=ONE, seen=store.mark_of(QUEUE))
    [settings] = store.settings_of([QUEUE])
    assert (settings.paused, settings.max_running) == (False, 3)


def test_a_newer_checkpoint_stays(store: Ledger) -> None:
    lease = Lease.of(claim_one(store))
    assert store.save(SHARD, lease, '{"page":1}', instead_of="")
    assert store.save(SHARD, lease, '{"page":2}')
    assert store.save(SHARD, lease, '{"page":1}', instead_of=""), "the lease is its own still"
    assert stored_task(store).state == {"page": 2}
