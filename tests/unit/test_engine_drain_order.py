"""Draining queues that are set: which one first, and places that come free."""

import threading
import time
from concurrent.futures import ThreadPoolExecutor

from duecourse.adapters.keyvalue.store import MemoryStore
from duecourse.domain.task import Shard, Task
from tests.support.clock import HandClock
from tests.support.engine import ample, engine
from tests.support.ledger import SHARD, new


def test_the_higher_priority_is_worked_first_while_it_has_work(clock: HandClock) -> None:
    store, order = MemoryStore(clock), ["low", "high", "middle"]
    shards = [Shard(queue) for queue in order]
    for queue, priority in zip(order, (1, 9, None), strict=True):
        store.configure(queue, {"priority": priority})
        store.add([new(f"{queue}{n}", queue=queue) for n in range(10)])
        store.configure(queue, {"paused": True})
    begun: list[str] = []
    with engine(store, lambda task: begun.append(task.id), size=1) as run:
        run.drainer.drain(shards, ample)  # each claim tells its queue's priority
        for queue in order:
            store.configure(queue, {"paused": False})
        run.drainer.drain(shards, ample)
    assert [id.rstrip("0123456789") for id in begun] == ["high"] * 10 + ["middle"] * 10 + ["low"] * 10


def test_a_place_that_was_freed_is_filled_while_others_run(clock: HandClock) -> None:
    store = MemoryStore(clock)
    store.configure("default", {"max_running": 2})
    store.add([new("a-slow"), *(new(f"t-{n}") for n in range(20))])
    gate = threading.Event()
    done = threading.Semaphore(0)

    def work(task: Task) -> None:
        if task.id == "a-slow":
            gate.wait(10)
        done.release()

    with engine(store, work) as run, ThreadPoolExecutor(1) as pool:
        drain = pool.submit(run.drainer.drain, [SHARD], ample)
        began = time.monotonic()
        for _ in range(20):
            assert done.acquire(timeout=5)
        took = time.monotonic() - began
        gate.set()
        assert drain.result().done == 21
    assert took < 1.5, "a look each tenth of a second would have taken two"
