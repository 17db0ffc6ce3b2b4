"""Waiting for ends in every store: each way to end is published where somebody waits, and nothing else is."""

from collections.abc import Callable, Iterator
from contextlib import closing
from dataclasses import replace

import pytest

from duecourse.ledger.many_tasks import Act, Bulk
from duecourse.ledger.operation_types import Delivery, EndListener, Move, Waited
from duecourse.ledger.operations.ledger import Ledger
from duecourse.ledger.schedule import Overlap
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
def listener(ledger: Ledger) -> Iterator[EndListener]:
    """The ends of a shard with somebody who waits."""
    with closing(ledger.end_listener()) as listener:
        ledger.add([new("other", queue="elsewhere", delay_ms=LEASE_MS), new("first", delay_ms=0)])
        settle(ledger, claim(ledger)[0], Ending.DONE)
        ledger.await_ends(SHARD, [], FOR_MS)
        yield listener


def heard(ledger: Ledger, listener: EndListener) -> list[Waited]:
    """All that was published until now: what is cancelled last is heard last."""
    ledger.add([new(LAST.id, delay_ms=LEASE_MS)])
    ledger.cancel("default", [LAST.id])
    found: list[Waited] = []
    while LAST not in found:
        some = listener.hear(HEARD_S)
        assert some, "nothing more is heard"
        found += some
    return found[:-1]


def ended(how: Ending, **fields: object) -> Callable[[Ledger, HandClock], None]:
    def end(ledger: Ledger, _clock: HandClock) -> None:
        settle(ledger, claim_one(ledger), how, **fields)

    return end


def cancelled(ledger: Ledger, _clock: HandClock) -> None:
    add(ledger, delay_ms=LEASE_MS)
    ledger.cancel("default", ["a"])


def taken_away(ledger: Ledger, _clock: HandClock) -> None:
    claim_one(ledger)
    ledger.cancel("default", ["a"], force=True)


def expired(ledger: Ledger, clock: HandClock) -> None:
    add(ledger, deadline_ms=10)
    clock.advance(1_000)
    claim(ledger)


def out_of_attempts(ledger: Ledger, _clock: HandClock) -> None:
    settle(ledger, claim_one(ledger, retry=replace(STEADY, max_attempts=1)), Ending.RETRY)


def lapsed(ledger: Ledger, clock: HandClock) -> None:
    claim_one(ledger, retry=replace(STEADY, max_attempts=1))
    clock.advance(LEASE_MS + 1)
    ledger.sweep(SHARD, retention_ms=LEASE_MS)


def notified(ledger: Ledger, _clock: HandClock) -> None:
    settle(ledger, claim_one(ledger, notify="alert"), Ending.DONE, result="7")


def cancelled_with_others(ledger: Ledger, _clock: HandClock) -> None:
    add(ledger, delay_ms=LEASE_MS)
    ledger.bulk("default", Bulk(Act.CANCEL, (Status.SCHEDULED,), kind="work"))


def purged(ledger: Ledger, _clock: HandClock) -> None:
    add(ledger, delay_ms=LEASE_MS)
    ledger.bulk("default", Bulk(Act.DELETE, (Status.SCHEDULED,)))


def begun_too_late(ledger: Ledger, clock: HandClock) -> None:
    add(ledger, deadline_ms=1_000)
    [task] = ledger.claim(SHARD, 1, lease_ms=LEASE_MS, deliveries=DELIVERED).tasks
    clock.advance(2_000)
    ledger.begin(SHARD, [lease_of(task)], LEASE_MS, [bytes(8)])


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


def replaced(ledger: Ledger, _clock: HandClock) -> None:
    task = claim_one(ledger)
    ledger.add([new("a", on_duplicate=OnDuplicate.REPLACE, delay_ms=LEASE_MS)])
    settle(ledger, task, Ending.DONE)


def moved(ledger: Ledger, _clock: HandClock) -> None:
    claim_one(ledger)
    ledger.move("default", [Move("a", delay_ms=LEASE_MS, force=True)])


def lapsed_once(ledger: Ledger, clock: HandClock) -> None:
    claim_one(ledger)
    clock.advance(LEASE_MS + 1)
    ledger.sweep(SHARD, retention_ms=LEASE_MS)


STAYS = {
    "again": ended(Ending.AGAIN, delay_ms=LEASE_MS),
    "retried": ended(Ending.RETRY, delay_ms=LEASE_MS),
    "released": ended(Ending.RELEASE),
    "replaced while it ran": replaced,
    "moved": moved,
    "lapsed, with attempts left": lapsed_once,
}


@pytest.mark.parametrize("how", ENDS)
def test_each_end_is_published(ledger: Ledger, clock: HandClock, listener: EndListener, how: str) -> None:
    ENDS[how](ledger, clock)
    assert heard(ledger, listener) == [A]
    assert ledger.await_ends(SHARD, [A], FOR_MS) == [True]


def test_what_a_schedule_cancels_is_published(ledger: Ledger, listener: EndListener) -> None:
    put(ledger, overlap=Overlap.REPLACE)
    put(ledger, "t", overlap=Overlap.QUEUE)
    for id in ("s", "s", "t", "t"):
        fire(ledger, id)
    assert heard(ledger, listener) == [Waited("default", "-", occurrence(1))]
    ledger.drop_schedule("default", "t")
    assert heard(ledger, listener) == [Waited("default", "-", occurrence(2, "t"))]


@pytest.mark.parametrize("how", STAYS)
def test_what_goes_on_is_not_published(ledger: Ledger, clock: HandClock, listener: EndListener, how: str) -> None:
    STAYS[how](ledger, clock)
    assert heard(ledger, listener) == []
    assert ledger.await_ends(SHARD, [A], FOR_MS) == [False]


def test_many_ends_of_one_settle_are_all_heard(ledger: Ledger, listener: EndListener) -> None:
    tenants = [f"t{n % 7}" for n in range(300)]
    ledger.add([new(f"a{n}", tenant=tenant) for n, tenant in enumerate(tenants)])
    leased = [task for _ in range(9) for task in claim(ledger)]
    ledger.settle(SHARD, [ending(task, (Ending.DONE, Ending.DROP)[n % 2]) for n, task in enumerate(leased)])
    assert sorted(heard(ledger, listener)) == sorted(Waited("default", t, f"a{n}") for n, t in enumerate(tenants))


def test_nothing_is_published_where_nobody_waits(ledger: Ledger, clock: HandClock) -> None:
    with closing(ledger.end_listener()) as listener:
        for how in ENDS.keys() - {"done and notified"}:
            ENDS[how](ledger, clock)
            ledger.cancel("default", ["a"])
            ledger.sweep(SHARD, retention_ms=-1)
        ledger.add([new("other", queue="waited", delay_ms=LEASE_MS)])
        ledger.await_ends(Shard("waited"), [], FOR_MS)
        ledger.cancel("waited", ["other"])
        assert listener.hear(HEARD_S) == [Waited("waited", "-", "other")], "one shard's waiters cost no other anything"


@pytest.mark.parametrize("state", STATES)
def test_a_look_tells_what_has_ended_or_is_not_there(ledger: Ledger, state: str) -> None:
    bring(ledger, state)
    assert ledger.await_ends(SHARD, [A], FOR_MS) == [state not in {"scheduled", "leased"}]


def test_a_look_at_more_than_one_script_takes_answers_for_each(ledger: Ledger) -> None:
    ledger.add([new(f"a{n}", delay_ms=LEASE_MS) for n in range(800)])
    gone = [f"a{n}" for n in range(0, 800, 3)]
    ledger.cancel("default", gone)
    asked = [Waited("default", "-", f"a{n}") for n in range(800)]
    assert ledger.await_ends(SHARD, asked, FOR_MS) == [n % 3 == 0 for n in range(800)]


def test_a_listener_is_woken_and_proved(ledger: Ledger) -> None:
    with closing(ledger.end_listener()) as listener:
        listener.prove()
        listener.wake()
        assert listener.hear(HEARD_S) == []
        listener.prove()


def test_a_wait_for_what_never_was_leaves_nothing(ledger: Ledger) -> None:
    assert ledger.await_ends(Shard("nowhere"), [Waited("nowhere", "-", "a")], FOR_MS) == [True]
    assert ledger.shards() == []
    ledger.add([new("a", queue="nowhere")])
    with closing(ledger.end_listener()) as listener:
        ledger.cancel("nowhere", ["a"])
        add(ledger, "b", delay_ms=LEASE_MS)
        ledger.await_ends(SHARD, [], FOR_MS)
        ledger.cancel("default", ["b"])
        assert listener.hear(HEARD_S) == [A._replace(id="b")]
