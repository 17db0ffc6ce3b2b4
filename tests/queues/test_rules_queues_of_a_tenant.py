"""Queues that come and go: how many a tenant may make, and that an empty one passes away in every store."""

import pytest

from duecourse.errors import QuotaExceeded
from duecourse.ledger.operation_types import FORGET_MS, AddReply, Reply
from duecourse.ledger.operations.ledger import Ledger
from duecourse.ledger.task import NewTask
from tests.support.clock import HandClock
from tests.support.ledger import LATER_MS, new


def task(queue: str, tenant: str = "acme", id: str = "a") -> NewTask:
    return new(id, queue=queue, tenant=tenant, delay_ms=LATER_MS)


def add(ledger: Ledger, *tasks: NewTask) -> list[Reply]:
    return [one.reply for one in ledger.add(tasks)]


def names(ledger: Ledger) -> set[str]:
    return {shard.queue for shard in ledger.shards()}


def pass_away(ledger: Ledger, clock: HandClock) -> None:
    """Ticks come before and after the time of an empty queue is over, when what ended is forgotten."""
    for _ in range(3):
        ledger.sweep_all(ledger.shards(), retention_ms=0, dead_retention_ms=0)
        clock.advance(FORGET_MS)


def test_a_tenant_makes_as_many_queues_as_it_may_and_no_more(ledger_of_two_queues: Ledger) -> None:
    assert add(ledger_of_two_queues, task("one")) == add(ledger_of_two_queues, task("two")) == [Reply.CREATED]
    with pytest.raises(QuotaExceeded, match="tenant_max_queues") as rejected:
        ledger_of_two_queues.add([task("three")])
    assert rejected.value.wait_ms == FORGET_MS
    assert names(ledger_of_two_queues) == {"one", "two"}
    assert ledger_of_two_queues.get("three", "a", "acme") is None
    assert add(ledger_of_two_queues, task("one", id="b"), task("two", id="b")) == [Reply.CREATED] * 2


def test_of_a_batch_with_a_queue_too_many_nothing_is_added(ledger_of_two_queues: Ledger, clock: HandClock) -> None:
    with pytest.raises(QuotaExceeded):
        ledger_of_two_queues.add([task(name) for name in ("one", "two", "three")])
    assert [ledger_of_two_queues.get(name, "a", "acme") for name in ("one", "two", "three")] == [None] * 3
    pass_away(ledger_of_two_queues, clock)
    assert names(ledger_of_two_queues) == set(), "what was made for it passes away"


def test_of_separate_callers_only_the_one_with_a_queue_too_many_is_rejected(ledger_of_two_queues: Ledger) -> None:
    one, two, three, again = ledger_of_two_queues.add_each(
        [task("one"), task("two"), task("three"), task("one", id="b")]
    )
    assert isinstance(three, QuotaExceeded)
    assert {reply.reply for reply in (one, two, again) if isinstance(reply, AddReply)} == {Reply.CREATED}
    assert names(ledger_of_two_queues) == {"one", "two"}


def test_queues_of_everybody_do_not_count_and_those_of_others_as_ones_own(ledger_of_two_queues: Ledger) -> None:
    add(ledger_of_two_queues, task("theirs", "globex"), task("nobodys", "-"))
    for queue in ("default", "reminders", "theirs", "one"):
        assert add(ledger_of_two_queues, task(queue)) == [Reply.CREATED]
    assert add(ledger_of_two_queues, *[task(f"q{n}", "-") for n in range(9)]) == [Reply.CREATED] * 9
    for queue in ("nobodys", "three"):
        with pytest.raises(QuotaExceeded):
            ledger_of_two_queues.add([task(queue)])
    assert add(ledger_of_two_queues, task("three", "globex")) == [Reply.CREATED]


def test_a_queue_that_others_still_use_makes_room_once_its_tenant_has_left_it(
    ledger_of_two_queues: Ledger, clock: HandClock
) -> None:
    add(ledger_of_two_queues, task("one"), task("two"), task("one", "globex"), task("two", "-"))
    ledger_of_two_queues.cancel("one", ["a"], tenant="acme")
    with pytest.raises(QuotaExceeded):
        ledger_of_two_queues.add([task("three")])
    clock.advance(FORGET_MS)
    assert add(ledger_of_two_queues, task("three")) == [Reply.CREATED]
    with pytest.raises(QuotaExceeded):
        ledger_of_two_queues.add([task("four")])


def test_a_queue_of_several_shards_is_one(ledger_of_two_queues: Ledger) -> None:
    assert add(ledger_of_two_queues, *[task("wide", id=f"t{n}") for n in range(40)]) == [Reply.CREATED] * 40
    assert add(ledger_of_two_queues, task("two")) == [Reply.CREATED]
    with pytest.raises(QuotaExceeded):
        ledger_of_two_queues.add([task("three")])


def test_the_queues_of_hosts_count_as_those_of_their_callers(ledger_of_two_queues: Ledger) -> None:
    for host in ("a", "b"):
        ledger_of_two_queues.configure(f"query:{host}", {"max_running": 4}, default=True, tenant="acme")
    with pytest.raises(QuotaExceeded):
        ledger_of_two_queues.configure("query:c", {"max_running": 4}, default=True, tenant="acme")
    ledger_of_two_queues.configure("query:a", {"max_running": 4}, default=True, tenant="acme")
    ledger_of_two_queues.configure("three", {"paused": True})


def test_a_queue_that_passed_away_makes_room_for_another(ledger_of_two_queues: Ledger, clock: HandClock) -> None:
    add(ledger_of_two_queues, task("one"), task("two"))
    ledger_of_two_queues.cancel("one", ["a"], tenant="acme")
    pass_away(ledger_of_two_queues, clock)
    clock.advance(60_000)
    assert names(ledger_of_two_queues) == {"two"}
    assert add(ledger_of_two_queues, task("three")) == [Reply.CREATED]
    with pytest.raises(QuotaExceeded):
        ledger_of_two_queues.add([task("four")])


@pytest.mark.parametrize("made", ["by a task", "by a query", "by a setting that is none"])
@pytest.mark.parametrize("queue", ["mine", "query:none.example", "reminders", "default"])
def test_an_empty_queue_without_settings_passes_away_and_comes_back(
    ledger: Ledger, clock: HandClock, queue: str, made: str
) -> None:
    if made == "by a query":
        ledger.configure(queue, {"max_running": 4}, default=True)
    elif made != "by a task":
        ledger.configure(queue, {"priority": 5})
    if made != "by a setting that is none":
        add(ledger, task(queue))
        ledger.cancel(queue, ["a"], tenant="acme")
    pass_away(ledger, clock)
    assert names(ledger) == set()
    assert add(ledger, task(queue)) == [Reply.CREATED]
    assert names(ledger) == {queue}
    pass_away(ledger, clock)
    assert names(ledger) == {queue}, "it has a task"
