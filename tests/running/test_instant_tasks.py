"""Tasks that take no time: one thread works them, and none waits behind one that takes longer than it should."""

import random
import threading
import time
from collections.abc import Callable, Iterator

import pytest

from duecourse.ledger.task import Ending, Settlement, Task
from duecourse.running.batches import INSTANT_MS, RESCUE_S, WorkBatches
from duecourse.running.run import SLOWLY, Runner
from duecourse.running.threads import Threads
from tests.support.clock import HandClock
from tests.support.engine import Lambda, targets_of
from tests.support.kinds import leased
from tests.support.ledger import SHARD
from tests.support.wait import until

SIZE = 8


@pytest.fixture
def threads() -> Iterator[Threads]:
    made = Threads(SIZE)
    yield made
    made.close()


def batches_of(threads: Threads, handler: Callable[[Task], None]) -> WorkBatches:
    runner = Runner(lambda _kind: handler, None, HandClock().now, random.Random(1))
    return WorkBatches(runner, targets_of({}, Lambda()), threads)


def begin(batches: WorkBatches, count: int, kind: str = "instant", name: str = "t") -> list[str]:
    names = [f"{name}{n}" for n in range(count)]
    batches.begin(SHARD, [leased(kind, {}, id=one, token=one) for one in names], {}, count)
    return names


def gathered(batches: WorkBatches, count: int) -> list[Settlement]:
    found: list[Settlement] = []

    def are_all() -> bool:
        found.extend(end for _, ends in batches.gather(0.1) for end in ends)
        return len(found) >= count

    until(are_all)
    return found


def held(gate: threading.Event) -> None:
    assert gate.wait(30)


def know(batches: WorkBatches, kind: str = "instant") -> None:
    """Work so many that the kind is known to take no time, whatever else the machine did meanwhile."""
    until(lambda: gathered(batches, len(begin(batches, 4 * SLOWLY, kind))) and batches._times.of(kind) < 0.1)


def test_instant_tasks_are_all_worked_by_one_thread_once_they_are_known(threads: Threads) -> None:
    taking_part = list[int]()
    batches = batches_of(threads, lambda _task: taking_part.append(batches._called))
    know(batches)
    until(lambda: batches._called == 0)
    taking_part.clear()
    given = begin(batches, 3)
    until(lambda: len(taking_part) == 3)  # a drain that waits would call a second one where the machine is slow
    assert [end.id for end in gathered(batches, 3)] == given
    assert taking_part == [1, 1, 1]


def test_those_behind_one_that_takes_longer_than_it_should_get_threads_of_their_own(threads: Threads) -> None:
    gate = threading.Event()
    batches = batches_of(threads, lambda task: None if task.id != "slow0" else held(gate))
    know(batches)
    try:
        begin(batches, 1, name="slow")
        others = begin(batches, 50)
        assert {end.id for end in gathered(batches, 50) if end.ending is Ending.DONE} == {*others}
        assert batches.in_flight == 1
    finally:
        gate.set()
    assert [end.id for end in gathered(batches, 1)] == ["slow0"]


def test_a_drain_that_never_waits_for_long_gives_those_behind_a_slow_one_threads_too(threads: Threads) -> None:
    gate = threading.Event()
    batches = batches_of(threads, lambda task: None if task.id != "slow0" else held(gate))
    know(batches)
    ended = list[Settlement]()

    def are_all() -> bool:
        # As where rings come all the time: the time until a rescue does not begin anew with each wait.
        ended.extend(end for _, ends in batches.gather(RESCUE_S / 8) for end in ends)
        return len(ended) == 50

    try:
        begin(batches, 1, name="slow")
        others = begin(batches, 50)
        until(are_all, every=0.0)
        assert {end.id for end in ended if end.ending is Ending.DONE} == {*others}
    finally:
        gate.set()


def test_of_instant_tasks_one_counts_as_begun_by_its_claim_and_of_others_one_for_each_thread(threads: Threads) -> None:
    batches = batches_of(threads, lambda task: time.sleep(0.002) if task.kind == "lasting" else None)
    assert batches.idle == SIZE, "nothing is known yet"
    know(batches)
    until(lambda: gathered(batches, len(begin(batches, SIZE, "lasting"))) and batches._times.of("lasting") > INSTANT_MS)
    for kind, idle in (("instant", 1), ("lasting", SIZE), ("instant", 1)):
        begin(batches, 1, kind)
        gathered(batches, 1)
        assert batches.idle == idle


def test_what_has_ended_does_not_wait_to_be_settled_for_what_runs_after_it(threads: Threads) -> None:
    is_told = list[bool]()

    def work(task: Task) -> None:
        if task.kind == "lasting":
            is_told.append(not batches._news.empty())

    batches = batches_of(threads, work)
    know(batches)
    until(lambda: batches._called == 0)
    batches.gather(0)
    tasks = [leased(kind, {}, id=kind, token=kind) for kind in ("instant", "lasting")]
    batches.begin(SHARD, tasks, {}, 2)
    until(lambda: is_told)
    assert is_told == [True]


def test_a_kind_that_takes_its_time_has_a_thread_for_each_task(threads: Threads) -> None:
    together = threading.Barrier(SIZE, timeout=30)

    def meet(_task: Task) -> None:
        together.wait()
        time.sleep(0.002)  # it takes its time, and so it is known

    batches = batches_of(threads, meet)
    for _ in range(3):  # a barrier that is not full breaks
        begin(batches, SIZE, "lasting")
        gathered(batches, SIZE)
    assert not together.broken


def test_more_tasks_than_threads_are_each_worked_once_whatever_becomes_of_their_kind(threads: Threads) -> None:
    gate, worked = threading.Event(), list[str]()

    def work(task: Task) -> None:
        worked.append(task.id)
        if task.id.endswith("7"):
            held(gate)

    gate.set()
    batches = batches_of(threads, work)
    know(batches)
    worked.clear()
    gate.clear()
    given = begin(batches, 400)
    gate.set()
    ended = [end.id for end in gathered(batches, 400)]
    assert sorted(ended) == sorted(worked) == sorted(given)
    until(lambda: batches._called == 0)
