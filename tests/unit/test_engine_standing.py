"""A drain that stays: what rings is worked at once, whatever else runs, until it is stopped."""

import random
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import pytest

from duecourse.adapters.embedded.store import MemoryStore
from duecourse.domain.history import Trigger
from duecourse.domain.outcomes import Done, Settlement
from duecourse.domain.task import Shard, Status, Task
from duecourse.engine.run import Kind, Runner
from duecourse.engine.standing import StandingDrain
from duecourse.engine.threads import Threads
from duecourse.errors import StoreUnavailable
from duecourse.ports.leases import Settled
from tests.support.clock import HandClock
from tests.support.engine import fire_nothing, targets_of
from tests.support.ledger import SHARD, new, standing
from tests.support.wait import until


@contextmanager
def serving(store: MemoryStore, kind: Kind, size: int = 2) -> Iterator[StandingDrain]:
    """A drain that runs on a thread of its own, stopped at the end."""
    threads = Threads(size)
    runner = Runner(lambda _name: kind, None, store.now, random.Random(7))
    drain = StandingDrain(store, runner, targets_of({}), threads, 30_000, fire_nothing)
    thread = threading.Thread(target=drain.run)
    thread.start()
    try:
        yield drain
    finally:
        drain.stop()
        thread.join(30)
        assert not thread.is_alive()
        threads.close()


def ring(drain: StandingDrain, shard: Shard = SHARD) -> None:
    drain.ring({shard: Trigger.RING})


def status(store: MemoryStore, *ids: str) -> Callable[[], bool]:
    return lambda: all(standing(store, id).status == Status.DONE for id in ids)


class Gate:
    """A kind whose tasks named `slow…` wait until the gate opens."""

    def __init__(self) -> None:
        self.begun, self.opened = threading.Event(), threading.Event()

    def __call__(self, task: Task) -> Done:
        if task.id.startswith("slow"):
            self.begun.set()
            assert self.opened.wait(60)
        return Done()


def test_a_slow_task_holds_up_no_ring(store: MemoryStore) -> None:
    gate = Gate()
    with serving(store, gate) as drain:
        store.add([new("slow")])
        ring(drain)
        assert gate.begun.wait(30)
        store.add([new("quick")])
        ring(drain)
        until(status(store, "quick"))
        assert standing(store, "slow").status == Status.LEASED
        gate.opened.set()
        until(status(store, "slow"))


def test_what_no_thread_is_free_for_is_worked_once_one_is(store: MemoryStore) -> None:
    gate = Gate()
    with serving(store, gate, size=1) as drain:
        store.add([new("slow")])
        ring(drain)
        assert gate.begun.wait(30)
        store.add([new("next")])
        ring(drain)
        gate.opened.set()
        until(status(store, "slow", "next"))


def test_a_stop_gives_back_what_has_not_begun_and_waits_for_what_runs(store: MemoryStore) -> None:
    gate = Gate()
    threads = Threads(1)
    runner = Runner(lambda _name: gate, None, store.now, random.Random(7))
    drain = StandingDrain(store, runner, targets_of({}), threads, 30_000, fire_nothing)
    thread = threading.Thread(target=drain.run)
    store.add([new("slow")])
    ring(drain)
    thread.start()
    assert gate.begun.wait(30)
    drain.stop()
    store.add([new("late")])
    ring(drain)
    assert thread.is_alive()
    gate.opened.set()
    thread.join(30)
    threads.close()
    assert (standing(store, "slow").status, standing(store, "late").status) == (Status.DONE, Status.SCHEDULED)
    assert standing(store, "late").run == 0


def test_rings_of_a_queue_that_is_full_are_not_lost(store: MemoryStore) -> None:
    store.configure("default", {"max_running": 1})
    with serving(store, lambda _task: Done()) as drain:
        store.add([new(f"t{n}") for n in range(20)])
        ring(drain)
        until(status(store, *(f"t{n}" for n in range(20))))


class Away(MemoryStore):
    """A store that can be away."""

    def __init__(self, clock: HandClock) -> None:
        super().__init__(clock)
        self.away = False

    def ping(self) -> None:
        if self.away:
            raise StoreUnavailable

    def claim(self, *given: object, **named: object):  # type: ignore[no-untyped-def,override]
        self.ping()
        return super().claim(*given, **named)  # type: ignore[arg-type]

    def settle(self, shard: Shard, settlements: list[Settlement]) -> list[Settled]:  # type: ignore[override]
        self.ping()
        return super().settle(shard, settlements)


@pytest.mark.parametrize("rings", [True, False])
def test_what_finished_while_the_store_was_away_is_settled_and_what_waited_is_claimed(
    clock: HandClock, rings: bool
) -> None:
    store, gate = Away(clock), Gate()
    with serving(store, gate) as drain:
        store.add([new("slow"), new("next", queue="other")])
        ring(drain)
        assert gate.begun.wait(30)
        store.away = True
        ring(drain, Shard("other"))
        gate.opened.set()
        store.away = False
        if rings:
            ring(drain, Shard("other"))
        until(status(store, "slow"))
        until(lambda: (task := store.get("other", "next")) and task.status == Status.DONE)
