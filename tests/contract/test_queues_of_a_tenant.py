"""Queues that come and go: how many a tenant may make, and that an empty one passes away in every store."""

import pytest

from duecourse.domain.task import NewTask
from duecourse.errors import QuotaExceeded
from duecourse.ports.queues import FORGET_MS
from duecourse.ports.store import Store
from duecourse.ports.tasks import Reply
from tests.support.clock import HandClock
from tests.support.ledger import LATER_MS, new


def task(queue: str, tenant: str = "acme", id: str = "a") -> NewTask:
    return new(id, queue=queue, tenant=tenant, delay_ms=LATER_MS)


def add(store: Store, *tasks: NewTask) -> list[Reply]:
    return [one.reply for one in store.add(tasks)]


def names(store: Store) -> set[str]:
    return {shard.queue for shard in store.shards()}


def pass_away(store: Store, clock: HandClock) -> None:
    """Ticks come before and after the time of an empty queue is over, when what ended is forgotten."""
    for _ in range(3):
        store.sweep_all(store.shards(), retention_ms=0, dead_retention_ms=0)
        clock.advance(FORGET_MS)


def test_a_tenant_makes_as_many_queues_as_it_may_and_no_more(narrow: Store) -> None:
    assert add(narrow, task("one")) == add(narrow, task("two")) == [Reply.CREATED]
    with pytest.raises(QuotaExceeded, match="tenant_max_queues") as rejected:
        narrow.add([task("three")])
    assert rejected.value.wait_ms == FORGET_MS
    assert names(narrow) == {"one", "two"}
    assert narrow.get("three", "a", "acme") is None
    assert add(narrow, task("one", id="b"), task("two", id="b")) == [Reply.CREATED] * 2


def test_of_a_batch_with_a_queue_too_many_nothing_is_added(narrow: Store, clock: HandClock) -> None:
    with pytest.raises(QuotaExceeded):
        narrow.add([task(name) for name in ("one", "two", "three")])
    assert [narrow.get(name, "a", "acme") for name in ("one", "two", "three")] == [None] * 3
    pass_away(narrow, clock)
    assert names(narrow) == set(), "what was made for it passes away"


def test_queues_of_everybody_do_not_count_and_those_of_others_as_ones_own(narrow: Store) -> None:
    add(narrow, task("theirs", "globex"), task("nobodys", "-"))
    for queue in ("default", "reminders", "theirs", "one"):
        assert add(narrow, task(queue)) == [Reply.CREATED]
    assert add(narrow, *[task(f"q{n}", "-") for n in range(9)]) == [Reply.CREATED] * 9
    for queue in ("nobodys", "three"):
        with pytest.raises(QuotaExceeded):
            narrow.add([task(queue)])
    assert add(narrow, task("three", "globex")) == [Reply.CREATED]


def test_a_queue_that_others_still_use_makes_room_once_its_tenant_has_left_it(narrow: Store, clock: HandClock) -> None:
    add(narrow, task("one"), task("two"), task("one", "globex"), task("two", "-"))
    narrow.cancel("one", ["a"], tenant="acme")
    with pytest.raises(QuotaExceeded):
        narrow.add([task("three")])
    clock.advance(FORGET_MS)
    assert add(narrow, task("three")) == [Reply.CREATED]
    with pytest.raises(QuotaExceeded):
        narrow.add([task("four")])


def test_a_queue_of_several_shards_is_one(narrow: Store) -> None:
    assert add(narrow, *[task("wide", id=f"t{n}") for n in range(40)]) == [Reply.CREATED] * 40
    assert add(narrow, task("two")) == [Reply.CREATED]
    with pytest.raises(QuotaExceeded):
        narrow.add([task("three")])


def test_the_queues_of_hosts_count_as_those_of_their_callers(narrow: Store) -> None:
    for host in ("a", "b"):
        narrow.configure(f"query:{host}", {"max_running": 4}, default=True, tenant="acme")
    with pytest.raises(QuotaExceeded):
        narrow.configure("query:c", {"max_running": 4}, default=True, tenant="acme")
    narrow.configure("query:a", {"max_running": 4}, default=True, tenant="acme")
    narrow.configure("three", {"paused": True})


def test_a_queue_that_passed_away_makes_room_for_another(narrow: Store, clock: HandClock) -> None:
    add(narrow, task("one"), task("two"))
    narrow.cancel("one", ["a"], tenant="acme")
    pass_away(narrow, clock)
    clock.advance(60_000)
    assert names(narrow) == {"two"}
    assert add(narrow, task("three")) == [Reply.CREATED]
    with pytest.raises(QuotaExceeded):
        narrow.add([task("four")])


@pytest.mark.parametrize("made", ["by a task", "by a query", "by a setting that is none"])
@pytest.mark.parametrize("queue", ["mine", "query:none.example", "reminders", "default"])
def test_an_empty_queue_without_settings_passes_away_and_comes_back(
    store: Store, clock: HandClock, queue: str, made: str
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
