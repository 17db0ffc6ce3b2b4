"""Functions that take longer than a lease to get to what they were handed: nothing dies that never ran."""

import threading
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from queue import SimpleQueue

import pytest

from duecourse.base.json_text import Json
from duecourse.ledger.connect import connect
from duecourse.ledger.embedded.ledger import EmbeddedLedger
from duecourse.ledger.many_tasks import MAX_PAGE, PagePosition, TaskFilter
from duecourse.ledger.operation_types import MAX_ADD
from duecourse.ledger.operations.ledger import Ledger
from duecourse.ledger.task import Ending, RetryPolicy, Settlement, Status, Task
from duecourse.running.drain import Drainer, Limits
from duecourse.running.hand_over import MAX_TASKS
from duecourse.running.received_tasks import ReceivedTasks
from duecourse.running.task_event import decode_tasks
from duecourse.running.threads import Threads
from tests.support.engine import ample, engine, fire_nothing, targets_of
from tests.support.ledger import SHARD, new
from tests.support.matrix import in_turn
from tests.support.redis_server import RedisServer, need, newest
from tests.support.wait import until

pytestmark = pytest.mark.slow

LEASE_MS = 1_000
"""Far less than it takes to work all of what is due."""
MOST = 100
BATCH_S = 0.04
TARGET = "lambda:report"


class Service:
    """Lambda's own queue before a function, and the few invocations of it that run at a time."""

    def __init__(self, function: Callable[[Json], None], concurrency: int) -> None:
        self._events: SimpleQueue[Json] = SimpleQueue()
        self._function = function
        self._threads = [threading.Thread(target=self._serve) for _ in range(concurrency)]
        for thread in self._threads:
            thread.start()

    def invoke(self, function: str, event: Json) -> Json:
        raise NotImplementedError

    def send(self, _function: str, event: Json) -> None:
        self._events.put(event)

    def close(self) -> None:
        for _ in self._threads:
            self._events.put(None)
        for thread in self._threads:
            thread.join()

    def _serve(self) -> None:
        while (event := self._events.get()) is not None:
            self._function(event)


@pytest.fixture(params=in_turn("redis", "memory"))
def stored(request: pytest.FixtureRequest) -> Iterator[Ledger]:
    """A ledger by the real time: in memory, or Redis."""
    if request.param == "memory":
        yield EmbeddedLedger()
        return
    with RedisServer(need(newest())) as server, connect(server.url) as client:
        yield Ledger(client)


@contextmanager
def draining(ledger: Ledger, service: Service) -> Iterator[None]:
    """Drains one after the other, each as soon as the bell says that there is something to do."""
    enough = threading.Event()

    def ring() -> None:
        while not enough.wait(0.002):
            if ledger.stats(SHARD).bell_at <= ledger.now():  # 0 where Redis has forgotten one that has gone
                drainer.drain([SHARD], ample)

    with engine(ledger, lambda _task: None) as made:
        targets = targets_of({"report": TARGET}, service, outstanding=MOST, delivery_lease_ms=60_000)
        drainer = Drainer(ledger, made.runner, targets, made.threads, Limits(LEASE_MS, 0), fire_nothing)
        bell = threading.Thread(target=ring)
        bell.start()
        try:
            yield
        finally:
            enough.set()
            bell.join()
            service.close()


def add(ledger: Ledger, count: int) -> list[str]:
    ids = [f"t{n}" for n in range(count)]
    for first in range(0, count, MAX_ADD):
        ledger.add([new(id, kind="report", retry=RetryPolicy(max_attempts=2)) for id in ids[first : first + MAX_ADD]])
    return ids


def ended(ledger: Ledger, count: int) -> bool:
    stats = ledger.stats(SHARD)
    return stats.done + stats.dead == count


@pytest.mark.parametrize("many", in_turn(300, 1_000))
def test_many_tasks_of_a_slow_function_all_run_once_and_few_wait_for_it_at_a_time(stored: Ledger, many: int) -> None:
    ran: Counter[str] = Counter()
    counts: Counter[str] = Counter()
    outstanding: list[int] = []
    sizes: list[int] = []
    threads = Threads(MAX_TASKS)

    def kind(task: Task) -> None:
        ran[task.id] += 1
        threading.Event().wait(BATCH_S)

    with engine(stored, kind) as made:

        def function(event: Json) -> None:
            worker, tasks = ReceivedTasks(stored, made.runner, threads, ample, LEASE_MS), decode_tasks(event)
            sizes.append(len(tasks))
            counts.update(worker.work(tasks))
            outstanding.append(unbegun(stored))

        ids = add(stored, many)
        with draining(stored, Service(function, concurrency=1)):
            until(lambda: ended(stored, many), seconds=60, every=0.05)
    threads.close()
    assert ran == Counter(ids)
    assert (counts["done"], counts["stale"]) == (many, 0)
    assert stored.stats(SHARD).dead == 0
    assert 0 < max(outstanding) <= MOST
    assert len(sizes) <= many // MAX_TASKS + 1  # an invocation takes as long for one task as for ten


def test_a_function_that_works_first_and_settles_later_loses_nothing(stored: Ledger) -> None:
    ran: Counter[str] = Counter()

    def function(event: Json) -> None:
        tasks = decode_tasks(event)
        for task in tasks:
            ran[task.id] += 1
            threading.Event().wait(BATCH_S)
        stored.settle(SHARD, [Settlement(task.id, task.tenant, task.token, Ending.DONE) for task in tasks])

    ids = add(stored, 100)
    with draining(stored, Service(function, concurrency=1)):
        until(lambda: ended(stored, 100), seconds=60, every=0.05)
    tasks = [task for id in ids if (task := stored.get(SHARD.queue, id))]
    assert ran == Counter(ids)
    assert {(task.status, task.run, task.attempt) for task in tasks} == {(Status.DONE, 1, 1)}


def unbegun(ledger: Ledger) -> int:
    """How many tasks are handed over and not begun."""
    after: PagePosition | None = None
    found = 0
    while True:
        page = ledger.page(SHARD.queue, TaskFilter(Status.LEASED), after, MAX_PAGE)
        found += sum(bool(task.target) for task in page.tasks)
        after = page.next
        if after is None:
            return found
