"""Places of a drain and threads of the event loop: what fills them keeps no other task from its own."""

import asyncio
import random
import subprocess
import sys
import threading
from collections.abc import Iterator

import pytest

from duecourse.ledger.task import Done, Ending, Outcome, Settlement, Task
from duecourse.running.batches import WorkBatches
from duecourse.running.event_loop import LOOP
from duecourse.running.run import Runner
from duecourse.running.threads import Threads
from tests.support.clock import HandClock
from tests.support.engine import Lambda, Table, targets_of
from tests.support.kinds import leased
from tests.support.ledger import SHARD
from tests.support.wait import until

SIZE = 4
MORE_THAN_AN_EXECUTOR_HAS = 40
"""asyncio's default executor has at most 32 threads."""


@pytest.fixture
def threads() -> Iterator[Threads]:
    made = Threads(SIZE)
    yield made
    made.close()


def tasks_of(kind: str, count: int) -> list[Task]:
    return [leased(kind, {}, id=f"{kind}{n}", token=f"{kind}{n}") for n in range(count)]


def test_a_result_is_stored_while_handlers_fill_the_threads_of_to_thread() -> None:
    gate, ends = threading.Event(), list[Settlement]()

    async def answer(_task: Task) -> Outcome:
        return Done({"n": 1})

    runner = Runner(
        lambda _kind: None, Table(), HandClock().now, random.Random(1), async_kind_of={"awaited": answer}.get
    )

    async def run() -> None:
        ends.append(await runner.run_async(leased("awaited", {})))

    try:
        for _ in range(MORE_THAN_AN_EXECUTOR_HAS):
            LOOP.start(lambda: asyncio.to_thread(gate.wait, 60))  # type: ignore[arg-type, return-value]
        LOOP.start(run)
        until(lambda: ends)
    finally:
        gate.set()
    assert [end.ending for end in ends] == [Ending.DONE]


HANGS = """
import asyncio, threading, time
from duecourse.running.event_loop import LOOP

began = threading.Event()

def hang():
    began.set()
    time.sleep(600)

LOOP.start(lambda: asyncio.to_thread(hang))
assert began.wait(30)
"""


def test_a_result_is_stored_though_another_handler_cancels_all_tasks_of_the_loop() -> None:
    putting, gate, ends, runs = threading.Event(), threading.Event(), list[Settlement](), list[str]()

    class SlowTable(Table):
        def put(self, task: Task, result_json: str, now: int) -> bool:
            putting.set()
            return gate.wait(60) and super().put(task, result_json, now)

    async def answer(task: Task) -> Outcome:
        runs.append(task.id)
        return Done({"n": 1})

    kinds, table = {"awaited": answer}, SlowTable()
    runner = Runner(lambda _kind: None, table, HandClock().now, random.Random(1), async_kind_of=kinds.get)

    async def run() -> None:
        ends.append(await runner.run_async(leased("awaited", {})))

    async def cancel_all() -> None:
        for other in asyncio.all_tasks() - {asyncio.current_task()}:
            other.cancel()

    LOOP.start(run)
    assert putting.wait(60)
    LOOP.run(cancel_all)
    gate.set()
    until(lambda: ends)
    assert ([end.ending for end in ends], runs) == ([Ending.DONE], list(table.results))


def test_a_call_that_never_returns_on_a_thread_of_to_thread_lets_its_process_end() -> None:
    subprocess.run([sys.executable, "-c", HANGS], timeout=30, check=True)


def batches_beside(threads: Threads, gate: threading.Event) -> WorkBatches:
    def work(task: Task) -> None:
        if task.kind == "lasting":
            assert gate.wait(60)

    runner = Runner(lambda _kind: work, None, HandClock().now, random.Random(1))
    batches = WorkBatches(runner, targets_of({}, Lambda()), threads)
    batches._times.note("instant", 0.0)
    return batches


def test_instant_tasks_have_a_thread_beside_a_run_that_lasts(threads: Threads) -> None:
    gate = threading.Event()
    batches = batches_beside(threads, gate)
    try:
        batches.begin(SHARD, tasks_of("lasting", 1), {}, 1)
        until(lambda: not batches._unstarted)
        batches.begin(SHARD, tasks_of("instant", 3), {}, 3)
        # Nobody gathers, as while a claim of a slow store is awaited: nobody looks whether they wait.
        until(lambda: len(batches._outbox) == 3)
    finally:
        gate.set()


def test_instant_tasks_of_one_claim_with_a_run_that_lasts_have_a_thread(threads: Threads) -> None:
    gate = threading.Event()
    batches = batches_beside(threads, gate)
    try:
        batches.begin(SHARD, tasks_of("lasting", 1) + tasks_of("instant", 3), {}, 4)
        until(lambda: len(batches._outbox) == 3)
    finally:
        gate.set()


def test_instant_tasks_of_several_turns_keep_a_thread_beside_a_run_that_lasts(threads: Threads) -> None:
    gate = threading.Event()
    batches = batches_beside(threads, gate)
    count = 4_000  # of several turns of a thread
    try:
        batches.begin(SHARD, tasks_of("lasting", 2), {}, 2)
        until(lambda: not batches._unstarted)
        batches.begin(SHARD, tasks_of("instant", count), {}, count)
        batches._call(3)  # once, as `_wait` does after 2 ms: one thread begins them, for a turn
        until(lambda: len(batches._outbox) == count)
    finally:
        gate.set()


def test_a_task_that_was_not_run_says_nothing_of_its_kind(threads: Threads) -> None:
    batches = batches_beside(threads, threading.Event())
    lapsed = [leased("slow", {}, id=f"t{n}", token=f"t{n}", lease_expires_at=1) for n in range(3)]
    batches.begin(SHARD, lapsed, {}, 3)
    until(lambda: len(batches._outbox) == 3 and not batches._called)
    assert {end.ending for _, ends in batches._outbox for end in ends} == {Ending.RELEASE}
    assert batches._times.of("slow", unknown=-1) == -1
