"""Turns of the processor: long computations run one at a time, tenant by tenant, and end with their time."""

import gc
import threading
import time
from contextlib import suppress
from functools import partial

import pytest

from duecourse.base import cpu_turns as turns_of
from duecourse.base.cpu_turns import QUICK_S, OutOfTime, Turns
from duecourse.errors import Crowded
from tests.support.cpu import is_soon
from tests.support.turns import beside, beside_a_holder, take, waiting
from tests.support.wait import until


def compute(turns: Turns, tenant: str, seconds: float, most_s: float = 1.0) -> None:
    """Take so many seconds of the processor."""
    began = time.thread_time()
    with turns.computing(tenant, most_s) as computation:
        while time.thread_time() - began < seconds:
            computation.look()


def test_a_computation_ends_with_its_time() -> None:
    def end() -> None:
        with pytest.raises(OutOfTime, match=r"more than 0\.02 s of the processor"):
            compute(Turns(), "a", 10, most_s=0.02)

    assert is_soon(end, 0.1)


def test_the_time_of_other_threads_is_not_its_own() -> None:
    stop = threading.Event()

    def spin() -> None:
        while not stop.is_set():
            pass

    with beside(spin, spin):
        compute(Turns(), "a", 0.02, most_s=0.05)
        stop.set()


@pytest.mark.slow
def test_a_full_garbage_collection_is_not_its_own() -> None:
    heap: list[list[int]] = [[] for _ in range(500_000)]
    with Turns().computing("a", most_s=0.005) as computation:
        began = time.thread_time()
        gc.collect()
        assert time.thread_time() - began > 0.005, "so many objects were to take longer"
        computation.look()
    del heap


def test_a_quick_computation_waits_for_no_turn() -> None:
    turns = Turns()
    with turns.computing("a", 1) as long:
        long.take_turn()
        compute(turns, "a", QUICK_S / 3)


def test_long_computations_run_one_at_a_time_and_a_failing_one_hands_its_turn_on() -> None:
    turns, running, most = Turns(), 0, 0

    def work() -> None:
        nonlocal running, most
        with turns.computing("a", 1) as computation:
            computation.take_turn()
            running += 1
            most = max(most, running)
            time.sleep(0.001)
            running -= 1
            raise OutOfTime

    def failing() -> None:
        with pytest.raises(OutOfTime):
            work()

    with beside(*[failing] * 8):
        pass
    assert most == 1
    compute(turns, "a", 2 * QUICK_S)


def test_tenants_take_turns_whoever_came_first() -> None:
    turns, order = Turns(), []

    def work(tenant: str) -> None:
        with turns.computing(tenant, 1) as computation:
            computation.take_turn()
            order.append(tenant)

    with turns.computing("first", 1) as first:
        first.take_turn()
        threads = []
        for count, tenant in enumerate(["noisy", "noisy", "noisy", "noisy", "quiet", "other"], 1):
            threads.append(threading.Thread(target=work, args=(tenant,)))
            threads[-1].start()
            until(lambda count=count: waiting(turns) == count)  # type: ignore[misc]
    for thread in threads:
        thread.join()
    assert order == ["noisy", "quiet", "other", "noisy", "noisy", "noisy"]


def test_a_task_waits_for_its_turn_for_a_moment_and_the_tenants_next_are_not_begun(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(turns_of, "AWAY_S", 0.05)
    turns = Turns()
    with beside_a_holder(turns, partial(take, turns, "noisy")):
        until(lambda: waiting(turns) == 1)
        with pytest.raises(Crowded), turns.computing("noisy", 1, wait_s=0.01) as late:
            late.take_turn()
        assert waiting(turns) == 1
        with pytest.raises(Crowded):
            turns.admit("noisy")
        turns.admit("quiet")
    until(lambda: admitted(turns, "noisy"))
    compute(turns, "noisy", 2 * QUICK_S)


def test_the_first_of_a_tenant_waits_for_others_for_as_long_as_it_takes_and_is_next() -> None:
    turns, order = Turns(), []

    def work(tenant: str) -> None:
        with turns.computing(tenant, 1, wait_s=0.001) as computation:
            computation.take_turn()
            order.append(tenant)

    with beside_a_holder(turns, partial(work, "noisy"), partial(work, "quiet")):
        until(lambda: waiting(turns) == 2)
        time.sleep(0.01)  # ten times as long as another would wait
    assert order == ["quiet", "noisy"]


def admitted(turns: Turns, tenant: str) -> bool:
    with suppress(Crowded):
        turns.admit(tenant)
        return True
    return False


def test_turns_that_are_given_up_as_they_come_are_not_lost() -> None:
    turns, done = Turns(), 0

    def work() -> None:
        nonlocal done
        for _ in range(200):
            with suppress(Crowded), turns.computing("a", 1, wait_s=0.0002) as computation:
                computation.take_turn()
                time.sleep(0.0002)
        done += 1

    with beside(*[work] * 4):
        pass
    assert (done, waiting(turns)) == (4, 0)
    compute(turns, "a", 2 * QUICK_S)


def test_a_thread_beside_a_long_computation_gets_the_interpreter_soon() -> None:
    """Without pauses, each of these waits takes the 5 ms for which Python has a thread wait for another."""
    turns, stop = Turns(), threading.Event()

    def work() -> None:
        with turns.computing("a", 60) as computation:
            while not stop.is_set():
                computation.look()

    with beside(*[work] * 8):
        until(lambda: waiting(turns) == 7)
        waits = sorted(_waited() for _ in range(50))
        stop.set()
    assert waits[10] < 0.004, "a busy machine makes many longer, but the quickest show what Python adds"


def _waited() -> float:
    """Seconds between the end of a short sleep and the thread's next step."""
    began = time.monotonic()
    time.sleep(0.002)
    return time.monotonic() - began - 0.002
