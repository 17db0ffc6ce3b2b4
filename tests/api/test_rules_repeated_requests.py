"""What a verb compares with what the first try of a request saw, in the step that writes."""

from dataclasses import replace

import pytest

from duecourse.base.times import DAY_MS
from duecourse.ledger.many_tasks import Act, Bulk
from duecourse.ledger.operation_types import (
    KEPT_MS,
    KeyedRequest,
    Lease,
    Move,
    Reply,
    RequestState,
    SavedResponse,
    Version,
)
from duecourse.ledger.operations.ledger import Ledger
from duecourse.ledger.schedule import Every, Progress, Purge, Rule, Schedule
from duecourse.ledger.task import Change, Ending, OnDuplicate, Status, Task
from tests.support.clock import HandClock
from tests.support.ledger import LATER_MS, SHARD, add, bring, claim_one, new, settle, stored_task

QUEUE = SHARD.queue
ONE, TWO = b"1" * 8, b"2" * 8
SENT = KeyedRequest("-", "key", b"f" * 32)
MARK = b"mark" * 2


def seen(ledger: Ledger, id: str = "a") -> Version:
    found = ledger.seen(QUEUE, id)
    assert found
    return found.version


def test_a_note_is_there_for_every_later_try(ledger: Ledger, clock: HandClock) -> None:
    idempotency, begun_at = ledger.idempotency(), ledger.now()
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
    assert idempotency.begin(SENT, TWO, 1_000) == SavedResponse(RequestState.NEW, begun_at=ledger.now())


@pytest.mark.parametrize("state", ["scheduled", "dead"])
def test_no_task_of_a_later_generation_is_cancelled(ledger: Ledger, state: str, clock: HandClock) -> None:
    bring(ledger, state)
    before = seen(ledger).generation
    clock.advance(1)
    ledger.add([new(on_duplicate=OnDuplicate.REPLACE, delay_ms=LATER_MS)])
    assert ledger.cancel(QUEUE, ["a"], newest=before) == [Reply.CHANGED]
    assert stored_task(ledger).status is Status.SCHEDULED
    assert ledger.cancel(QUEUE, ["a"], newest=seen(ledger).generation) == [Reply.OK]


def test_a_replacement_that_waits_makes_another_version_of_its_task(ledger: Ledger) -> None:
    claim_one(ledger)
    before = seen(ledger)
    ledger.add([new(on_duplicate=OnDuplicate.REPLACE, delay_ms=LATER_MS)])
    assert seen(ledger).generation > before.generation
    assert ledger.cancel(QUEUE, ["a"], force=True, newest=before.generation) == [Reply.CHANGED]
    assert ledger.move(QUEUE, [Move("a", delay_ms=5, force=True, seen=before)]) == [Reply.CHANGED]
    assert stored_task(ledger).status is Status.LEASED


def test_a_move_by_its_mark_is_made_once_and_one_of_what_was_seen_only(ledger: Ledger, clock: HandClock) -> None:
    add(ledger, delay_ms=LATER_MS)
    before = seen(ledger)
    asked = Move("a", delay_ms=10_000, mark=MARK, seen=before)
    assert ledger.move(QUEUE, [asked]) == [Reply.OK]
    clock.advance(1)
    assert ledger.move(QUEUE, [Move("a", delay_ms=20_000)]) == [Reply.OK]
    newer = stored_task(ledger)
    assert ledger.move(QUEUE, [asked]) == [Reply.OK], "it was made before"
    assert ledger.move(QUEUE, [asked._replace(mark=b"another!")]) == [Reply.CHANGED]
    assert stored_task(ledger) == newer


def test_a_task_that_died_again_is_another_than_was_seen(ledger: Ledger, clock: HandClock) -> None:
    bring(ledger, "dead")
    before = seen(ledger)
    clock.advance(5)
    assert ledger.replay(QUEUE, ["a"], seen=[before]) == [Reply.OK]
    taken = ledger.take(QUEUE, "a", lease_ms=1_000)
    assert taken
    settle(ledger, taken, Ending.DROP, detail="no use")
    assert ledger.replay(QUEUE, ["a"], seen=[before]) == [Reply.CHANGED]
    assert stored_task(ledger).status is Status.DEAD


@pytest.mark.parametrize("mode", OnDuplicate)
@pytest.mark.parametrize("state", ["scheduled", "leased", "done", "cancelled", "dead"])
def test_an_add_keeps_what_was_added_since(ledger: Ledger, state: str, mode: OnDuplicate, clock: HandClock) -> None:
    since = ledger.now()
    clock.advance(1)
    before = bring(ledger, state)
    reply = Reply.CHANGED if mode is OnDuplicate.REJECT else Reply.KEPT
    for asked in ([new(on_duplicate=mode, delay_ms=7)], [new(on_duplicate=mode, delay_ms=7), new("b")]):
        [kept, *_] = ledger.add(asked, since=since, mark=MARK, echo=True)
        assert (kept.reply, stored_task(ledger)) == (reply, replaced_lease(before, stored_task(ledger)))
    assert ledger.add([new("b")], since=since, mark=MARK)[0].reply is Reply.CREATED, "by the batch before"


def replaced_lease(task: Task | None, other: Task) -> Task:
    """A task as another look at it sees it: an answer to a claim has the end of its lease too."""
    assert task
    return replace(task, lease_expires_at=other.lease_expires_at)


@pytest.mark.parametrize("mode", OnDuplicate)
@pytest.mark.parametrize("state", ["scheduled", "leased", "done", "cancelled", "dead"])
def test_an_add_knows_its_own_by_its_mark_whatever_the_clocks_say(
    ledger: Ledger, state: str, mode: OnDuplicate, clock: HandClock
) -> None:
    asked = new(on_duplicate=mode)
    ledger.add([asked], mark=MARK)
    assert stored_task(ledger).mark == MARK[:6]
    bring(ledger, state)  # which adds nothing: the task is there
    before = stored_task(ledger)
    clock.advance(10)
    [again] = ledger.add([asked], mark=MARK, since=ledger.now() + DAY_MS, echo=True)
    assert (again.reply, again.task and again.task.generation) == (Reply.CREATED, before.generation)
    assert stored_task(ledger) == before
    assert ledger.add([asked], mark=b"another!", since=ledger.now() + DAY_MS)[0].reply is not Reply.CREATED or (
        state in {"done", "cancelled"}
    ), "of another request it is not"


@pytest.mark.parametrize("state", ["scheduled", "leased"])
def test_what_took_the_place_of_an_own_task_is_kept_whatever_the_clocks_say(
    ledger: Ledger, state: str, clock: HandClock
) -> None:
    ledger.add([new(on_duplicate=OnDuplicate.REJECT, delay_ms=LATER_MS)], mark=MARK)
    clock.advance(1)
    ledger.add([new(on_duplicate=OnDuplicate.REPLACE)])
    if state == "leased":
        assert ledger.take(QUEUE, "a", lease_ms=1_000)
    clock.advance(1)
    ledger.add([new(on_duplicate=OnDuplicate.REPLACE, delay_ms=LATER_MS)], mark=b"another!")
    before = seen(ledger)
    for mode in (OnDuplicate.REPLACE, OnDuplicate.REJECT):
        [again] = ledger.add([new(on_duplicate=mode)], mark=MARK, since=ledger.now() + DAY_MS, echo=True)
        assert (again.reply, seen(ledger)) == (Reply.KEPT, before)
    assert all("\0" not in entry.by for entry in stored_task(ledger).log if isinstance(entry, Change))


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
    ledger: Ledger, state: str, mode: OnDuplicate, reply: Reply, clock: HandClock
) -> None:
    bring(ledger, state)
    clock.advance(1)
    begun_at = ledger.now()
    clock.advance(1)
    asked = new(on_duplicate=mode, delay_ms=LATER_MS)
    assert ledger.add([asked], mark=MARK, since=begun_at)[0].reply is reply


def test_a_large_batch_knows_all_its_own(ledger: Ledger, clock: HandClock) -> None:
    asked = [
        new(f"t{number % 600}", delay_ms=LATER_MS + number, on_duplicate=OnDuplicate.REPLACE) for number in range(700)
    ]
    first = ledger.add(asked, mark=MARK)
    assert [one.reply for one in first] == [Reply.CREATED] * 600 + [Reply.REPLACED] * 100
    before = [stored_task(ledger, f"t{number}") for number in range(600)]
    clock.advance(5)
    again = ledger.add(asked, mark=MARK, since=ledger.now())
    assert {one.reply for one in again[100:600]} == {Reply.CREATED}
    assert {one.reply for one in (*again[:100], *again[600:])} == {Reply.REPLACED}
    assert [stored_task(ledger, f"t{number}") for number in range(600)] == before


def test_a_task_that_was_added_without_a_key_has_no_mark(ledger: Ledger) -> None:
    assert add(ledger).mark == b""


def test_an_add_keeps_what_was_debounced_or_waits_since(ledger: Ledger, clock: HandClock) -> None:
    add(ledger, delay_ms=LATER_MS)
    claim_one(ledger, "b")
    clock.advance(10)
    since = ledger.now()
    ledger.add([new(on_duplicate=OnDuplicate.DEBOUNCE, delay_ms=2 * LATER_MS)])
    ledger.add([new("b", on_duplicate=OnDuplicate.REPLACE, payload='{"newer":1}')])
    older = [new(on_duplicate=OnDuplicate.DEBOUNCE, delay_ms=9), new("b", on_duplicate=OnDuplicate.REPLACE)]
    before = [seen(ledger), seen(ledger, "b")]
    assert [one.reply for one in ledger.add(older, since=since, mark=MARK)] == [Reply.KEPT, Reply.KEPT]
    assert [seen(ledger), seen(ledger, "b")] == before


@pytest.mark.parametrize(("act", "status"), [(Act.DELETE, Status.SCHEDULED), (Act.CANCEL, Status.SCHEDULED)])
@pytest.mark.parametrize("group", ["", "g"])
def test_an_act_on_many_ends_at_a_place_and_leaves_newer_ones(
    ledger: Ledger, clock: HandClock, act: Act, status: Status, group: str
) -> None:
    ledger.add([new(f"t{n}", group=group, delay_ms=LATER_MS + n) for n in range(4)])
    asked = Bulk(Act.COUNT, (status,), limit=2, group=group)
    counted = ledger.bulk(QUEUE, asked)
    before = ledger.now()
    clock.advance(1)
    ledger.add([new("s", group=group, delay_ms=10), new("t1x", group=group, delay_ms=LATER_MS)])
    ledger.move(QUEUE, [Move("t0", delay_ms=20)], group=group)
    done = ledger.bulk(QUEUE, asked._replace(act=act, limit=9, before=before, until=counted.next))
    assert (done.tasks, done.next) == (1, counted.next), "t1 alone: t0 was moved, the others are newer, or behind"


def test_a_schedule_that_was_added_later_is_not_deleted(ledger: Ledger, clock: HandClock) -> None:
    schedules = [Schedule(id, "work", Rule(Every(1_000), 1)) for id in ("a", "b")]
    for one in schedules:
        ledger.put_schedule(one, Progress())
    first = ledger.schedule(QUEUE, "a")
    assert first
    ledger.drop_schedule(QUEUE, "a")
    clock.advance(1)
    ledger.put_schedule(schedules[0], Progress())
    assert not ledger.drop_schedule(QUEUE, "a", created_at=first.created_at)
    assert ledger.purge_schedules(QUEUE, Purge(limit=9, until="b", before=first.created_at)).schedules == 1
    assert ledger.schedule_ids(QUEUE) == ["a"]


def test_settings_that_another_change_has_made_stay(ledger: Ledger) -> None:
    ledger.configure(QUEUE, {"paused": True}, mark=MARK)
    mine = ledger.mark_of(QUEUE)
    assert MARK.hex() in mine
    ledger.configure(QUEUE, {"paused": False})
    assert not ledger.configure(QUEUE, {"paused": True}, mark=ONE, seen=mine)
    assert ledger.configure(QUEUE, {"max_running": 3}, mark=ONE, seen=ledger.mark_of(QUEUE))
    [settings] = ledger.settings_of([QUEUE])
    assert (settings.paused, settings.max_running) == (False, 3)


def test_a_newer_checkpoint_stays(ledger: Ledger) -> None:
    lease = Lease.of(claim_one(ledger))
    assert ledger.save(SHARD, lease, '{"page":1}', instead_of="")
    assert ledger.save(SHARD, lease, '{"page":2}')
    assert ledger.save(SHARD, lease, '{"page":1}', instead_of=""), "the lease is its own still"
    assert stored_task(ledger).state == {"page": 2}
