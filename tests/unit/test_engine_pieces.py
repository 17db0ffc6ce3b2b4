"""How many tasks a drain claims ahead of its threads, and how late those begin."""

import random
import threading
import time

import pytest

from duecourse.domain.outcomes import Done, Ending, Settlement
from duecourse.domain.task import Task
from duecourse.domain.values import replaced
from duecourse.engine.pieces import Pieces
from duecourse.engine.run import Runner, release
from duecourse.engine.threads import Threads
from tests.support.clock import HandClock
from tests.support.engine import Lambda, targets_of
from tests.support.kinds import leased
from tests.support.ledger import SHARD
from tests.support.wait import until


def test_more_than_twice_is_claimed_ahead_only_while_more_finish_at_once_than_there_are_threads() -> None:
    threads = Threads(2)
    runner = Runner(lambda _kind: lambda _task: Done(), None, HandClock().now, random.Random(1))
    pieces = Pieces(runner, targets_of({}, Lambda()), threads)

    def free_after(count: int) -> int:
        pieces.begin(SHARD, [leased("work", {})] * count, {}, count)
        threads.close()  # all of them have finished
        assert len(pieces.gather(0.0)) == count
        return pieces.free

    assert [free_after(count) for count in (2, 2, 3, 7, 15, 16, 2)] == [4, 4, 7, 14, 16, 16, 4]


def test_a_task_that_waits_for_a_thread_is_later_than_its_claim() -> None:
    threads, gate, wait_ms = Threads(1), threading.Event(), 60

    def work(task: Task) -> None:
        assert task.id == "second" or gate.wait(30)

    runner = Runner(lambda _kind: work, None, HandClock().now, random.Random(1))
    pieces = Pieces(runner, targets_of({}, Lambda()), threads)
    claimed = {"due_at": 1_000, "claimed_at": 1_300}
    pieces.begin(SHARD, [leased("work", {}, id=id, token=id, **claimed) for id in ("first", "second")], {}, 1)
    began = time.monotonic()
    until(lambda: time.monotonic() - began > wait_ms / 1_000)
    gate.set()
    threads.close()
    ends = {end.id: end for _, [end] in pieces.gather(0.0)}
    assert ends["second"].waited_ms >= wait_ms
    assert ends["second"].late_ms == 300 + ends["second"].waited_ms
    assert ends["first"].late_ms == 300 + ends["first"].waited_ms


def test_a_lease_that_is_given_back_or_handed_over_counts_no_lateness() -> None:
    task = leased("work", {}, due_at=1_000, claimed_at=1_300)
    assert release(task).with_lateness(task, 5) == release(task)
    handed = replaced(task, target="lambda:report")
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
    pieces = Pieces(runner, targets_of({}, Lambda()), threads)
    pieces.begin(SHARD, [leased("work", {}, id=id, token=id) for id in ("broken", "whole")], {}, 1)
    ends = {piece.tasks[0].id: ends for _ in "12" for piece, ends in pieces.gather(30.0)}
    threads.close()
    assert ends["broken"] == []
    assert [end.id for end in ends["whole"]] == ["whole"]
    assert (pieces.in_flight, "a fault of duecourse" in caplog.text) == (0, True)
