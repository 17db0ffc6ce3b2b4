"""The dispatcher by itself: folding, caps, batches, backlog, refusals, an orderly end."""

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from duecourse.bridge.dispatcher import BATCH, JOIN_S, Dispatcher
from duecourse.bridge.rings import Ring
from duecourse.errors import InvocationRefused
from tests.support.wait import until


class Gate:
    """A function's end: each call waits until it is let through, and is remembered."""

    def __init__(self, answer: Callable[[list[str]], Any] = lambda _: {}) -> None:
        self._answer = answer
        self._lock = threading.Lock()
        self.open = threading.Semaphore(0)
        self.calls: list[list[str]] = []
        self.running: list[list[str]] = []
        self.most_at_once = 0

    def __call__(self, rings: list[Ring]) -> Any:
        keys = [ring.key for ring in rings]
        with self._lock:
            self.calls.append(keys)
            self.running.append(keys)
            self.most_at_once = max(self.most_at_once, len(self.running))
        assert self.open.acquire(timeout=10)
        with self._lock:
            self.running.remove(keys)
        return self._answer(keys)


@contextmanager
def dispatching(gate: Gate, in_flight: int = 4) -> Iterator[Dispatcher]:
    dispatcher = Dispatcher(gate, in_flight=in_flight, on_end=lambda: None)
    dispatcher.start()
    try:
        yield dispatcher
    finally:
        gate.open.release(1000)
        assert dispatcher.stop(5)


def ring(*names: str) -> list[Ring]:
    return [Ring(name, "expired", 1) for name in names]


def test_rings_for_a_bell_under_way_are_folded_into_one() -> None:
    gate = Gate()
    with dispatching(gate) as dispatcher:
        dispatcher.ring(ring("a"))
        until(lambda: gate.running)
        for _ in range(5):
            dispatcher.ring(ring("a"))
        gate.open.release(2)
        until(lambda: len(gate.calls) == 2)
        until(lambda: not gate.running)
    assert gate.calls == [["a"], ["a"]]


def test_a_bell_that_is_served_for_long_gets_a_second_invocation_and_no_third() -> None:
    gate = Gate()
    with dispatching(gate) as dispatcher:
        dispatcher.ring(ring("a"))
        until(lambda: gate.running)
        began = time.monotonic()
        dispatcher.ring(ring("a"))
        until(lambda: len(gate.running) == 2)
        assert time.monotonic() - began >= JOIN_S
        dispatcher.ring(ring("a"))
        dispatcher.ring(ring("b"))
        until(lambda: ["b"] in gate.calls)
        ended = time.monotonic() + 3 * JOIN_S
        until(lambda: time.monotonic() > ended)
        assert gate.calls == [["a"], ["a"], ["b"]]


def test_no_more_invocations_are_under_way_than_allowed_and_what_waits_goes_together() -> None:
    gate = Gate()
    with dispatching(gate, in_flight=2) as dispatcher:
        dispatcher.ring(ring("a"))
        until(lambda: len(gate.running) == 1)
        dispatcher.ring(ring("b"))
        until(lambda: len(gate.running) == 2)
        for name in "cdefg":
            dispatcher.ring(ring(name))
        gate.open.release()
        until(lambda: len(gate.calls) == 3)
    assert gate.calls[2] == list("cdefg")
    assert gate.most_at_once == 2


def test_an_invocation_carries_no_more_than_a_batch() -> None:
    gate = Gate()
    with dispatching(gate) as dispatcher:
        dispatcher.ring(ring(*(str(n) for n in range(BATCH + 20))))
        until(lambda: len(gate.calls) == 2)
    assert sorted(len(call) for call in gate.calls) == [20, BATCH]


def test_backlog_that_was_worked_at_is_served_again_at_once() -> None:
    left = [40, 0]
    gate = Gate(lambda _: {"claimed": 10, "backlog": left.pop(0)})
    gate.open.release(10)
    with dispatching(gate) as dispatcher:
        dispatcher.ring(ring("a"))
        until(lambda: not left)
    assert gate.calls == [["a"], ["a"]]


def test_backlog_of_which_nothing_was_claimed_waits_for_the_bell() -> None:
    gate = Gate(lambda _: {"claimed": 0, "backlog": 1000})
    gate.open.release(10)
    with dispatching(gate, in_flight=1) as dispatcher:
        dispatcher.ring(ring("a"))
        dispatcher.ring(ring("b"))
        until(lambda: "b" in [key for call in gate.calls for key in call])
    assert [key for call in gate.calls for key in call].count("a") == 1


def test_an_answer_of_another_shape_is_taken_for_no_backlog() -> None:
    gate = Gate(lambda _: None)
    gate.open.release(10)
    with dispatching(gate) as dispatcher:
        dispatcher.ring(ring("a"))
        until(lambda: gate.calls and not gate.running)
    assert gate.calls == [["a"]]


def test_a_refused_ring_is_held_back_and_tried_again_without_heat() -> None:
    refusals = threading.Semaphore(3)

    def refuse(_: list[str]) -> Any:
        if refusals.acquire(blocking=False):
            raise InvocationRefused("throttled")
        return {}

    gate = Gate(refuse)
    gate.open.release(1000)
    with dispatching(gate) as dispatcher:
        dispatcher.ring(ring("a"))
        until(lambda: len(gate.calls) == 4)
        assert dispatcher.refused == 3


def held_s(refusals: int) -> list[float]:
    """For how long each of a hundred bells is held back, refused so often in a row."""
    dispatcher = Dispatcher(lambda _: {}, in_flight=1, on_end=lambda: None)
    bells = [f"b-{n}" for n in range(100)]
    with dispatcher._changed:
        for _ in range(refusals):
            for one in ring(*bells):
                dispatcher._hold(one)
    return [dispatcher._held[bell] - time.monotonic() for bell in bells]


@pytest.mark.parametrize(("refusals", "longest"), [(1, 0.2), (3, 0.8), (50, 5.0)])
def test_the_holds_grow_with_every_refusal_and_are_spread(refusals: int, longest: float) -> None:
    held = held_s(refusals)
    assert 0.7 * longest < max(held) <= longest
    assert min(held) < 0.3 * longest


def test_while_a_bell_is_held_back_its_rings_wait_and_others_do_not() -> None:
    gate = Gate(refuse_a)
    gate.open.release(1000)
    with dispatching(gate) as dispatcher:
        dispatcher.ring(ring("a"))
        until(lambda: dispatcher.refused)
        for _ in range(200):
            dispatcher.ring(ring("a"))
        dispatcher.ring(ring("b"))
        until(lambda: ["b"] in gate.calls)
    assert len(gate.calls) < 20


def test_a_function_that_refuses_all_is_asked_ever_less_often_however_many_bells_ring() -> None:
    refused = threading.Event()
    gate = Gate(refuse_until(refused))
    gate.open.release(10_000)
    with dispatching(gate) as dispatcher:
        names = [f"b{n}" for n in range(1_000)]
        began = time.monotonic()
        while time.monotonic() - began < 2:
            dispatcher.ring(ring(*names))
            threading.Event().wait(0.01)
        assert len(gate.calls) < 60
        refused.set()
        until(lambda: {name for call in gate.calls[-40:] for name in call} == set(names), seconds=15)


def test_one_bell_that_is_always_refused_keeps_no_other_waiting() -> None:
    gate = Gate(refuse_a)
    gate.open.release(1000)
    with dispatching(gate) as dispatcher:
        dispatcher.ring(ring("a"))
        until(lambda: dispatcher.refused == 4)
        for n in range(20):
            began = time.monotonic()
            dispatcher.ring(ring(f"b{n}"))
            until(lambda: [f"b{n}"] in gate.calls)  # noqa: B023 - waited for here
            assert time.monotonic() - began < 0.1


def refuse_until(taken: threading.Event) -> Callable[[list[str]], Any]:
    def answer(_: list[str]) -> Any:
        if not taken.is_set():
            raise InvocationRefused("throttled")
        return {}

    return answer


def refuse_a(keys: list[str]) -> Any:
    if "a" in keys:
        raise InvocationRefused("throttled")
    return {}


def test_stopping_waits_for_what_is_under_way_and_begins_nothing_new() -> None:
    gate = Gate()
    dispatcher = Dispatcher(gate, in_flight=1, on_end=lambda: None)
    dispatcher.start()
    dispatcher.ring(ring("a"))
    until(lambda: gate.running)
    dispatcher.ring(ring("b"))
    assert not dispatcher.stop(0.05), "one is still under way"
    gate.open.release(10)
    assert dispatcher.stop(5)
    assert gate.calls == [["a"]]


@pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning")
def test_a_fault_in_the_invoker_is_told_to_the_bridge() -> None:
    def fail(_: list[Ring]) -> Any:
        raise ZeroDivisionError

    ended = threading.Event()
    dispatcher = Dispatcher(fail, in_flight=1, on_end=ended.set)
    dispatcher.start()
    dispatcher.ring(ring("a"))
    assert ended.wait(5)
    dispatcher.stop(5)
