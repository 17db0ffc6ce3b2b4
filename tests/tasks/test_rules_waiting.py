"""Waiting for ends in every store: each way to end is published where somebody waits, and nothing else is."""

from collections.abc import Callable, Iterator
from contextlib import closing
from dataclasses import replace

import pytest

from duecourse.ledger.many_tasks import Act, Bulk
from duecourse.ledger.operations import Delivery, Endings, Move, Waited
from duecourse.ledger.schedule import Overlap
from duecourse.ledger.store.ledger import Ledger
from duecourse.ledger.task import Ending, OnDuplicate, Shard, Status
from tests.support.clock import HandClock
from tests.support.ledger import (
    LEASE_MS,
    SHARD,
    STATES,
    STEADY,
    add,
    bring,
    claim,
    claim_one,
    ending,
    lease_of,
    new,
    settle,
)
from tests.support.schedules import fire, occurrence, put

HEARD_S = 10.0
DELIVERED = {"work": Delivery("lambda:work", 100, LEASE_MS)}
FOR_MS = 60_000
A = Waited("default", "-", "a")
LAST = Waited("default", "-", "last")


@pytest.fixture
def endings(store: Ledger) -> Iterator[Endings]:
    """The ends of a shard with somebody who waits."""
    with closing(store.endings()) as endings:
        store.add([new("other", queue="elsewhere", delay_ms=LEASE_MS), new("first", delay_ms=0)])
        settle(store, claim(store)[0], Ending.DONE)
        store.await_ends(SHARD, [], FOR_MS)
        yield endings


def heard(store: Ledger, endings: Endings) -> list[Waited]:
    """All that was published until now: what is cancelled last is heard last."""
    store.add([new(LAST.id, delay_ms=LEASE_MS)])
    store.cancel("default", [LAST.id])
    found: list[Waited] = []
    while LAST not in found:
        some = endings.hear(HEARD_S)
        assert some, "nothing more is heard"
        found += some
    return found[:-1]


def ended(how: Ending, **fields: object) -> Callable[[Ledger, HandClock], None]:
    def end(store: Ledger, _clock: HandClock) -> None:
        settle(store, claim_one(store), how, **fields)

    return end


def cancelled(store: Ledger, _clock: HandClock) -> None:
    add(store, delay_ms=LEASE_MS)
    store.cancel("default", ["a"])


def taken_away(store: Ledger, _clock: HandClock) -> None:
    claim_one(store)
    store.cancel("default", ["a"], force=True)


def expired(store: Ledger, clock: HandClock) -> None:
    add(store, deadline_ms=10)
    clock.advance(1_000)
    claim(store)


def out_of_attempts(store: Ledger, _clock: HandClock) -> None:
    settle(store, claim_one(store, retry=replace(STEADY, max_attempts=1)), Ending.RETRY)


def lapsed(store: Ledger, clock: HandClock) -> None:
    claim_one(store, retry=replace(STEADY, max_attempts=1))
    clock.advance(LEASE_MS + 1)
    store.sweep(SHARD, retention_ms=LEASE_MS)


def notified(store: Ledger, _clock: HandClock) -> None:
    settle(store, claim_one(store, notify="alert"), Ending.DONE, result="7")


def cancelled_with_others(store: Ledger, _clock: HandClock) -> None:
    add(store, delay_ms=LEASE_MS)
    store.bulk("default", Bulk(Act.CANCEL, (Status.SCHEDULED,), kind="work"))


def purged(store: Ledger, _clock: HandClock) -> None:
    add(store, delay_ms=LEASE_MS)
    store.bulk("default", Bulk(Act.DELETE, (Status.SCHEDULED,)))


def begun_too_late(store: Ledger, clock: HandClock) -> None:
    add(store, deadline_ms=1_000)
    [task] = store.claim(SHARD, 1, lease_ms=LEASE_MS, deliveries=DELIVERED).tasks
    clock.advance(2_000)
    store.begin(SHARD, [lease_of(task)], LEASE_MS, [bytes(8)])


ENDS = {
    "done": ended(Ending.DONE),
    "done with a result": ended(Ending.DONE, result='{"rows":3}'),
    "done and notified": notified,
    "dropped": ended(Ending.DROP, detail="no use"),
    "out of attempts": out_of_attempts,
    "cancelled": cancelled,
    "cancelled by force": taken_away,
    "cancelled with others": cancelled_with_others,
    "purged": purged,
    "past its deadline": expired,
    "its last lease lapsed": lapsed,
    "begun past its deadline": begun_too_late,
}


def replaced(store: Ledger, _clock: HandClock) -> None:
    task = claim_one(store)
    store.add([new("a", on_duplicate=OnDuplicate.REPLACE, delay_ms=LEASE_MS)])
    settle(store, task, Ending.DONE)


def moved(store: Ledger, _clock: HandClock) -> None:
    claim_one(store)
    store.move("default", [Move("a", delay_ms=LEASE_MS, force=True)])


def lapsed_once(store: Ledger, clock: HandClock) -> None:
    claim_one(store)
    clock.advance(LEASE_MS + 1)
    store.sweep(SHARD, retention_ms=LEASE_MS)


STAYS = {
    "again": ended(Ending.AGAIN, delay_ms=LEASE_MS),
    "retried": ended(Ending.RETRY, delay_ms=LEASE_MS),
    "released": ended(Ending.RELEASE),
    "replaced while it ran": replaced,
    "moved": moved,
    "lapsed, with attempts left": lapsed_once,
}


@pytest.mark.parametrize("how", ENDS)
def test_each_end_is_published(store: Ledger, clock: HandClock, endings: Endings, how: str) -> None:
    ENDS[how](store, clock)
    assert heard(store, endings) == [A]
    assert store.await_ends(SHARD, [A], FOR_MS) == [True]


def test_what_a_schedule_cancels_is_published(store: Ledger, endings: Endings) -> None:
    put(store, overlap=Overlap.REPLACE)
    put(store, "t", overlap=Overlap.QUEUE)
    for id in ("s", "s", "t", "t"):
        fire(store, id)
    assert heard(store, endings) == [Waited("default", "-", occurrence(1))]
    store.drop_schedule("default", "t")
    assert heard(store, endings) == [Waited("default", "-", occurrence(2, "t"))]


@pytest.mark.parametrize("how", STAYS)
def test_what_goes_on_is_not_published(store: Ledger, clock: HandClock, endings: Endings, how: str) -> None:
    STAYS[how](store, clock)
    assert heard(store, endings) == []
    assert store.await_ends(SHARD, [A], FOR_MS) == [False]


def test_many_ends_of_one_settle_are_all_heard(store: Ledger, endings: Endings) -> None:
    tenants = [f"t{n % 7}" for n in range(300)]
    store.add([new(f"a{n}", tenant=tenant) for n, tenant in enumerate(tenants)])
    leased = [task for _ in range(9) for task in claim(store)]
    store.settle(SHARD, [ending(task, (Ending.DONE, Ending.DROP)[n % 2]) for n, task in enumerate(leased)])
    assert sorted(heard(store, endings)) == sorted(Waited("default", t, f"a{n}") for n, t in enumerate(tenants))


def test_nothing_is_published_where_nobody_waits(store: Ledger, clock: HandClock) -> None:
    with closing(store.endings()) as endings:
        for how in ENDS.keys() - {"done and notified"}:
            ENDS[how](store, clock)
            store.cancel("default", ["a"])
            store.sweep(SHARD, retention_ms=-1)
        store.add([new("other", queue="waited", delay_ms=LEASE_MS)])
        store.await_ends(Shard("waited"), [], FOR_MS)
        store.cancel("waited", ["other"])
        assert endings.hear(HEARD_S) == [Waited("waited", "-", "other")], "one shard's waiters cost no other anything"


@pytest.mark.parametrize("state", STATES)
def test_a_look_tells_what_has_ended_or_is_not_there(store: Ledger, state: str) -> None:
    bring(store, state)
    assert store.await_ends(SHARD, [A], FOR_MS) == [state not in {"scheduled", "leased"}]


def test_a_look_at_more_than_one_script_takes_answers_for_each(store: Ledger) -> None:
    store.add([new(f"a{n}", delay_ms=LEASE_MS) for n in range(800)])
    gone = [f"a{n}" for n in range(0, 800, 3)]
    store.cancel("default", gone)
    asked = [Waited("default", "-", f"a{n}") for n in range(800)]
    assert store.await_ends(SHARD, asked, FOR_MS) == [n % 3 == 0 for n in range(800)]


def test_a_listener_is_woken_and_proved(store: Ledger) -> None:
    with closing(store.endings()) as endings:
        endings.prove()
        endings.wake()
        assert endings.hear(HEARD_S) == []
        endings.prove()


def test_a_wait_for_what_never_was_leaves_nothing(store: Ledger) -> None:
    assert store.await_ends(Shard("nowhere"), [Waited("nowhere", "-", "a")], FOR_MS) == [True]
    assert store.shards() == []
    store.add([new("a", queue="nowhere")])
    with closing(store.endings()) as endings:
        store.cancel("nowhere", ["a"])
        add(store, "b", delay_ms=LEASE_MS)
        store.await_ends(SHARD, [], FOR_MS)
        store.cancel("default", ["b"])
        assert endings.hear(HEARD_S) == [A._replace(id="b")]
