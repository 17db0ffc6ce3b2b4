"""How many tasks a drain claims ahead of its threads, and how late those begin."""

import random
import threading
import time
from collections.abc import Iterable
from dataclasses import replace

import pytest

from duecourse.errors import TaskDamaged
from duecourse.ledger.task import Done, Ending, Settlement, Task
from duecourse.running.batches import LOOK_AGAIN_S, NoDisplay, WorkBatches
from duecourse.running.hand_over import Targets
from duecourse.running.run import Runner, RunTimes, release
from duecourse.running.threads import Threads, Work
from tests.support.clock import HandClock
from tests.support.engine import Broker, Lambda, targets_of
from tests.support.kinds import leased
from tests.support.ledger import SHARD
from tests.support.wait import until


def test_more_than_twice_is_claimed_ahead_only_while_more_finish_at_once_than_there_are_threads() -> None:
    threads = Threads(2)
    runner = Runner(lambda _kind: lambda _task: Done(), None, HandClock().now, random.Random(1))
    batches = WorkBatches(runner, targets_of({}, Lambda()), threads)

    def free_after(count: int) -> int:
        batches.begin(SHARD, [leased("work", {})] * count, {}, count)
        threads.close()  # all of them have finished
        assert len(batches.gather(0.0)) == count
        return batches.free

    assert [free_after(count) for count in (2, 2, 3, 7, 15, 16, 2)] == [4, 4, 7, 14, 16, 16, 4]


def test_a_task_that_waits_for_a_thread_is_later_than_its_claim() -> None:
    threads, gate, wait_ms = Threads(1), threading.Event(), 60

    def work(task: Task) -> None:
        assert task.id == "second" or gate.wait(30)

    runner = Runner(lambda _kind: work, None, HandClock().now, random.Random(1))
    batches = WorkBatches(runner, targets_of({}, Lambda()), threads)
    claimed = {"due_at": 1_000, "claimed_at": 1_300}
    batches.begin(SHARD, [leased("work", {}, id=id, token=id, **claimed) for id in ("first", "second")], {}, 1)
    began = time.monotonic()
    until(lambda: time.monotonic() - began > wait_ms / 1_000)
    gate.set()
    threads.close()
    ends = {end.id: end for _, [end] in batches.gather(0.0)}
    assert ends["second"].waited_ms >= wait_ms
    assert ends["second"].late_ms == 300 + ends["second"].waited_ms
    assert ends["first"].late_ms == 300 + ends["first"].waited_ms


def test_a_task_that_is_claimed_just_after_the_last_run_has_not_waited() -> None:
    threads, waiting = Threads(1), [leased("work", {}, id="second", due_at=1_000, claimed_at=1_300)]
    runner = Runner(lambda _kind: lambda _task: None, None, HandClock().now, random.Random(1))
    batches = WorkBatches(runner, targets_of({}, Lambda()), threads)

    class SlowTimes(RunTimes):
        """Usual times of runs: the thread that notes one has read the time, and is then kept for a while."""

        def note(self, kind: str, ms: float) -> None:
            super().note(kind, ms)
            ended = time.monotonic()
            until(lambda: time.monotonic() - ended > 0.002)
            while waiting:
                batches.begin(SHARD, [waiting.pop()], {}, 1)

    batches._times = SlowTimes()
    batches.begin(SHARD, [leased("work", {}, id="first")], {}, 1)
    threads.close()
    ends = {end.id: end for _, [end] in batches.gather(0.0)}
    assert (ends["second"].waited_ms, ends["second"].late_ms) == (0, 300)


def test_a_lease_that_is_given_back_or_handed_over_counts_no_lateness() -> None:
    task = leased("work", {}, due_at=1_000, claimed_at=1_300)
    assert release(task).with_lateness(task, 5) == release(task)
    handed = replace(task, target="lambda:report")
    dropped = Settlement.of(handed, Ending.DROP)
    assert dropped.with_lateness(handed, 5) == dropped
    assert Settlement.of(task, Ending.DONE).with_lateness(task, 5) == Settlement.of(
        task, Ending.DONE, late_ms=305, waited_ms=5
    )


def test_a_fault_of_the_engine_costs_neither_the_thread_nor_the_slot(caplog: pytest.LogCaptureFixture) -> None:
    class Broken(Runner):
        def run(self, task: Task) -> Settlement:
            if task.id == "broken":
                raise TypeError("a fault of duecourse")
            return super().run(task)

    threads = Threads(1)
    runner = Broken(lambda _kind: lambda _task: Done(), None, HandClock().now, random.Random(1))
    batches = WorkBatches(runner, targets_of({}, Lambda()), threads)
    batches.begin(SHARD, [leased("work", {}, id=id, token=id) for id in ("broken", "whole")], {}, 1)
    threads.close()  # all of them have finished
    ends = {batch.tasks[0].id: ends for batch, ends in batches.gather(0.0)}
    assert ends["broken"] == []
    assert [end.id for end in ends["whole"]] == ["whole"]
    assert (batches.in_flight, "a fault of duecourse" in caplog.text) == (0, True)


def test_a_delivery_is_shown_until_its_function_has_it_and_what_is_published_never() -> None:
    shown: set[str] = set()

    class Seen(NoDisplay):
        def hold(self, tasks: Iterable[Task]) -> None:
            shown.update(task.token for task in tasks)

        def drop(self, tokens: Iterable[str]) -> None:
            shown.difference_update(tokens)

    def prepare(task: Task) -> Task:
        if task.id == "damaged":
            raise TaskDamaged(task.id)
        return task

    threads, broker = Threads(1), Broker()
    limits = {"outstanding": 100, "delivery_lease_ms": 300_000}
    targets = Targets(
        {"report": "lambda:report", "mail": "sqs:mail"}, Lambda().send, {"sqs": broker}, prepare, **limits
    )
    runner = Runner(lambda _kind: lambda _task: Done(), None, HandClock().now, random.Random(1))
    batches = WorkBatches(runner, targets, threads, Seen())
    handed = [leased("report", {}, id=id, token=id, target="lambda:report") for id in ("whole", "damaged")]
    batches.begin(SHARD, [*handed, leased("mail", {}, id="mail", token="mail")], {}, 3)
    assert shown == {"whole", "damaged"}
    threads.close()
    assert {end.id for _, ends in batches.gather(0.0) for end in ends} == {"damaged", "mail"}
    assert shown == {"damaged"}, "its end is to be settled"


def test_a_task_whose_lease_lapsed_while_its_process_stood_still_does_not_begin() -> None:
    threads, begun = Late(2), list[str]()
    runner = Runner(lambda _kind: lambda task: begun.append(task.id), None, HandClock().now, random.Random(1))
    batches = WorkBatches(runner, targets_of({}, Lambda()), threads)
    leases = {"short": 1_010, "long": 31_000, "without": 0}
    tasks = [leased("work", {}, id=id, token=id, claimed_at=1_000, lease_expires_at=at) for id, at in leases.items()]
    batches.begin(SHARD, tasks, {}, 3)
    time.sleep(0.011)  # a lease ends by itself
    threads.begin_all()
    threads.close()
    ends = {end.id: end.ending for _, [end] in batches.gather(0.0)}
    assert ends == {"short": Ending.RELEASE, "long": Ending.DONE, "without": Ending.DONE}
    assert set(begun) == {"long", "without"}


class Late(Threads):
    """Threads that begin what they are handed only when told to."""

    def __init__(self, size: int) -> None:
        super().__init__(size)
        self.handed: list[Work] = []

    def do(self, work: Work) -> None:
        self.handed.append(work)

    def begin_all(self) -> None:
        handed, self.handed = self.handed, []
        for work in handed:
            super().do(work)


def test_slow_tasks_bound_a_worker_for_a_moment_only_while_threads_are_free(monkeypatch: pytest.MonkeyPatch) -> None:
    threads, gate = Late(4), threading.Event()
    begun: list[str] = []

    def work(task: Task) -> None:
        begun.append(task.id)
        assert gate.wait(30)

    runner = Runner(lambda _kind: work, None, HandClock().now, random.Random(1))
    batches = WorkBatches(runner, targets_of({}, Lambda()), threads)
    monkeypatch.setattr("duecourse.running.batches.GROW_S", 0.2)
    try:
        batches.begin(SHARD, [leased("work", {}, id=id, token=id) for id in ("a", "b")], {}, 2)
        threads.begin_all()
        until(lambda: len(begun) == 2)
        time.sleep(LOOK_AGAIN_S)
        batches.begin(SHARD, [leased("work", {}, id="c", token="c")], {}, 1)
        assert batches.gather(0.0) == [], "it was claimed just now"
        given_back = until(lambda: batches.gather(0.0))
        assert [batch.tasks[0].id for batch, _ in given_back] == ["c"]
        assert batches.free == 0, "no more is claimed than has a thread"
        until(lambda: batches.gather(0.0) == [] and batches.free > 0)
    finally:
        gate.set()
        threads.begin_all()
        threads.close()
