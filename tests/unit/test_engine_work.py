"""Working what was handed over: only under leases that hold, settled as each finishes."""

import threading
from collections.abc import Sequence

import pytest

from duecourse.adapters.keyvalue.store import MemoryStore
from duecourse.domain.outcomes import Done, Drop, Outcome, Retry, Settlement
from duecourse.domain.shards import Sharding
from duecourse.domain.task import Shard, Status, Task
from duecourse.engine.run import Kind
from duecourse.engine.work import Worker
from duecourse.errors import StoreUnavailable
from duecourse.ports.store import Settled
from duecourse.wire.invocation import decode_tasks, tasks_event
from tests.support.clock import START, HandClock
from tests.support.engine import MARGIN_MS, engine
from tests.support.ledger import SHARD, claim, new, standing


class Lapse(MemoryStore):
    """A store that does not take the first settlements."""

    def __init__(self, clock: HandClock, misses: int) -> None:
        super().__init__(clock)
        self.misses = misses

    def settle(self, shard: Shard, settlements: Sequence[Settlement]) -> list[Settled]:
        self.misses -= 1
        if self.misses >= 0:
            raise StoreUnavailable
        return super().settle(shard, settlements)


def work(store: MemoryStore, kind: Kind, tasks: list[Task], remaining_ms: int = 20_000) -> dict[str, int]:
    """What became of tasks that came by an invocation."""
    with engine(store, kind) as run:
        worker = Worker(store, run.runner, run.crew, MARGIN_MS)
        return worker.work(decode_tasks(tasks_event(tasks)), lambda: remaining_ms)


def leased(store: MemoryStore, *ids: str) -> list[Task]:
    store.add([new(id, payload='{"n":1}') for id in ids])
    return claim(store, lease_ms=5_000)


def meeting(others: threading.Barrier) -> Kind:
    """A kind whose tasks wait for each other."""

    def kind(_task: Task) -> None:
        others.wait()

    return kind


def test_each_task_is_run_and_settled_under_its_own_lease(store: MemoryStore) -> None:
    outcomes: dict[str, Outcome] = {"a": Done({"ok": True}), "b": Retry(error="503"), "c": Drop("never")}
    counts = work(store, lambda task: outcomes[task.id], leased(store, "a", "b", "c"))
    assert {name: count for name, count in counts.items() if count} == {"done": 1, "retried": 1, "dead": 1}
    assert (standing(store, "a").result, standing(store, "b").error) == ({"ok": True}, "503")


def test_a_handler_gets_the_task_as_it_was_claimed(store: MemoryStore) -> None:
    seen: list[Task] = []
    (task,) = leased(store, "a")
    work(store, seen.append, [task])
    got = seen[0]
    assert (got.id, got.payload, got.run, got.attempt, got.retry) == ("a", {"n": 1}, 1, 1, task.retry)
    assert got.idempotency_key == task.idempotency_key


def test_leases_are_made_to_outlast_the_function(store: MemoryStore) -> None:
    seen: list[Task] = []
    work(store, seen.append, leased(store, "a"), remaining_ms=20_000)
    assert seen[0].lease_expires_at == START + 20_000 + MARGIN_MS


def test_a_late_invocation_does_not_run_what_has_gone_to_another(store: MemoryStore, clock: HandClock) -> None:
    late = leased(store, "a", "b")
    clock.advance(5_001)
    claim(store)
    ran: list[str] = []
    assert work(store, lambda task: ran.append(task.id), late)["stale"] == 2
    assert ran == []


def test_a_lease_that_has_lapsed_and_gone_to_nobody_still_holds(store: MemoryStore, clock: HandClock) -> None:
    late = leased(store, "a")
    clock.advance(60_000)
    assert work(store, lambda _task: None, late)["done"] == 1


def test_tasks_of_one_invocation_run_beside_each_other(store: MemoryStore) -> None:
    together = threading.Barrier(4, timeout=10)
    counts = work(store, meeting(together), leased(store, "a", "b", "c", "d"))
    assert counts["done"] == 4


def test_tasks_of_several_queues_go_back_to_their_own(store: MemoryStore) -> None:
    store.add([new("a"), new("b", queue="other")])
    both = claim(store) + store.claim(Shard("other"), 1, lease_ms=5_000).tasks
    together = threading.Barrier(2, timeout=10)
    assert work(store, meeting(together), both)["done"] == 2
    assert store.stats(SHARD).done == store.stats(Shard("other")).done == 1


def test_tasks_are_settled_in_their_own_shards_as_their_groups_and_ids_tell(clock: HandClock) -> None:
    store = MemoryStore(clock, Sharding({"default": 8}))
    store.add([new("a"), new("b"), new("c", group="g"), new("d", group="g")])
    tasks = [task for shard in store.shards() for task in store.claim(shard, 9, lease_ms=5_000).tasks]
    assert len(store.shards()) == 3
    sent = decode_tasks(tasks_event(tasks))
    assert work(store, lambda _task: None, sent)["done"] == 4


def test_a_settlement_that_is_not_taken_is_tried_again_with_the_next(clock: HandClock) -> None:
    store = Lapse(clock, misses=1)
    assert work(store, lambda _task: None, leased(store, "a", "b"))["done"] == 2


def test_a_store_that_stays_away_is_told_when_all_have_run(clock: HandClock) -> None:
    store = Lapse(clock, misses=99)
    ran: list[str] = []
    with pytest.raises(StoreUnavailable):
        work(store, lambda task: ran.append(task.id), leased(store, "a", "b"))
    assert sorted(ran) == ["a", "b"]
    assert standing(store, "a").status is Status.LEASED


def test_no_tasks_are_no_work(store: MemoryStore) -> None:
    assert set(work(store, lambda _task: None, []).values()) == {0}
