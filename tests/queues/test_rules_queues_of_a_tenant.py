"""Queues that come and go: how many a tenant may make, and that an empty one passes away in every store."""

import pytest

from duecourse.errors import QuotaExceeded
from duecourse.ledger.operations import FORGET_MS, Reply
from duecourse.ledger.store.ledger import Ledger
from duecourse.ledger.task import NewTask
from tests.support.clock import HandClock
from tests.support.ledger import LATER_MS, new


def task(queue: str, tenant: str = "acme", id: str = "a") -> NewTask:
    return new(id, queue=queue, tenant=tenant, delay_ms=LATER_MS)


def add(store: Ledger, *tasks: NewTask) -> list[Reply]:
    return [one.reply for one in store.add(tasks)]


def names(store: Ledger) -> set[str]:
    return {shard.queue for shard in store.shards()}


def pass_away(store: Ledger, clock: HandClock) -> None:
    """Ticks come before and after the time of an empty queue is over, when what ended is forgotten."""
    for _ in range(3):
        store.sweep_all(store.shards(), retention_ms=0, dead_retention_ms=0)
        clock.advance(FORGET_MS)


def test_a_tenant_makes_as_many_queues_as_it_may_and_no_more(store_of_two_queues: Ledger) -> None:
    assert add(store_of_two_queues, task("one")) == add(store_of_two_queues, task("two")) == [Reply.CREATED]
    with pytest.raises(QuotaExceeded, match="tenant_max_queues") as rejected:
        store_of_two_queues.add([task("three")])
    assert rejected.value.wait_ms == FORGET_MS
    assert names(store_of_two_queues) == {"one", "two"}
    assert store_of_two_queues.get("three", "a", "acme") is None
    assert add(store_of_two_queues, task("one", id="b"), task("two", id="b")) == [Reply.CREATED] * 2


def test_of_a_batch_with_a_queue_too_many_nothing_is_added(store_of_two_queues: Ledger, clock: HandClock) -> None:
    with pytest.raises(QuotaExceeded):
        store_of_two_queues.add([task(name) for name in ("one", "two", "three")])
    assert [store_of_two_queues.get(name, "a", "acme") for name in ("one", "two", "three")] == [None] * 3
    pass_away(store_of_two_queues, clock)
    assert names(store_of_two_queues) == set(), "what was made for it passes away"


def test_queues_of_everybody_do_not_count_and_those_of_others_as_ones_own(store_of_two_queues: Ledger) -> None:
    add(store_of_two_queues, task("theirs", "globex"), task("nobodys", "-"))
    for queue in ("default", "reminders", "theirs", "one"):
        assert add(store_of_two_queues, task(queue)) == [Reply.CREATED]
    assert add(store_of_two_queues, *[task(f"q{n}", "-") for n in range(9)]) == [Reply.CREATED] * 9
    for queue in ("nobodys", "three"):
        with pytest.raises(QuotaExceeded):
            store_of_two_queues.add([task(queue)])
    assert add(store_of_two_queues, task("three", "globex")) == [Reply.CREATED]


def test_a_queue_that_others_still_use_makes_room_once_its_tenant_has_left_it(
    store_of_two_queues: Ledger, clock: HandClock
) -> None:
    add(store_of_two_queues, task("one"), task("two"), task("one", "globex"), task("two", "-"))
    store_of_two_queues.cancel("one", ["a"], tenant="acme")
    with pytest.raises(QuotaExceeded):
        store_of_two_queues.add([task("three")])
    clock.advance(FORGET_MS)
    assert add(store_of_two_queues, task("three")) == [Reply.CREATED]
    with pytest.raises(QuotaExceeded):
        store_of_two_queues.add([task("four")])


def test_a_queue_of_several_shards_is_one(store_of_two_queues: Ledger) -> None:
    assert add(store_of_two_queues, *[task("wide", id=f"t{n}") for n in range(40)]) == [Reply.CREATED] * 40
    assert add(store_of_two_queues, task("two")) == [Reply.CREATED]
    with pytest.raises(QuotaExceeded):
        store_of_two_queues.add([task("three")])


def test_the_queues_of_hosts_count_as_those_of_their_callers(store_of_two_queues: Ledger) -> None:
    for host in ("a", "b"):
        store_of_two_queues.configure(f"query:{host}", {"max_running": 4}, default=True, tenant="acme")
    with pytest.raises(QuotaExceeded):
        store_of_two_queues.configure("query:c", {"max_running": 4}, default=True, tenant="acme")
    store_of_two_queues.configure("query:a", {"max_running": 4}, default=True, tenant="acme")
    store_of_two_queues.configure("three", {"paused": True})


def test_a_queue_that_passed_away_makes_room_for_another(store_of_two_queues: Ledger, clock: HandClock) -> None:
    add(store_of_two_queues, task("one"), task("two"))
    store_of_two_queues.cancel("one", ["a"], tenant="acme")
    pass_away(store_of_two_queues, clock)
    clock.advance(60_000)
    assert names(store_of_two_queues) == {"two"}
    assert add(store_of_two_queues, task("three")) == [Reply.CREATED]
    with pytest.raises(QuotaExceeded):
        store_of_two_queues.add([task("four")])


@pytest.mark.parametrize("made", ["by a task", "by a query", "by a setting that is none"])
@pytest.mark.parametrize("queue", ["mine", "query:none.example", "reminders", "default"])
def test_an_empty_queue_without_settings_passes_away_and_comes_back(
    store: Ledger, clock: HandClock, queue: str, made: str
) -> None:
    if made == "by a query":
        store.configure(queue, {"max_running": 4}, default=True)
    elif made != "by a task":
        store.configure(queue, {"priority": 5})
    if made != "by a setting that is none":
        add(store, task(queue))
        store.cancel(queue, ["a"], tenant="acme")
    pass_away(store, clock)
    assert names(store) == set()
    assert add(store, task(queue)) == [Reply.CREATED]
    assert names(store) == {queue}
    pass_away(store, clock)
    assert names(store) == {queue}, "it has a task"
