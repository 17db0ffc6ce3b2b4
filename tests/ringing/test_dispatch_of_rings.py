"""The dispatcher of rings by itself: rings folded by bell, batches, backlog."""

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from duecourse.ringing.bridge import BATCH, JOIN_S, ring_dispatcher
from duecourse.ringing.bridge_event import Ring
from duecourse.ringing.dispatch import Dispatcher
from tests.support.gate import Gate
from tests.support.wait import until


def answering(answer: Callable[[list[Ring]], Any] = lambda _: {}) -> Gate[Ring]:
    return Gate(answer)


def keys(gate: Gate[Ring]) -> list[list[str]]:
    return [[ring.key for ring in call] for call in gate.calls]


@contextmanager
def dispatching(gate: Gate[Ring], in_flight: int = 4) -> Iterator[Dispatcher[Ring]]:
    dispatcher = ring_dispatcher(gate, in_flight=in_flight, on_end=lambda: None)
    dispatcher.start()
    try:
        yield dispatcher
    finally:
        gate.open.release(1000)
        assert dispatcher.stop(5)


def ring(*names: str) -> list[Ring]:
    return [Ring(name, "expired", 1) for name in names]


def test_rings_for_a_bell_under_way_are_folded_into_one() -> None:
    gate = answering()
    with dispatching(gate) as rings:
        rings.put(ring("a"))
        until(lambda: gate.running)
        for _ in range(5):
            rings.put(ring("a"))
        gate.open.release(2)
        until(lambda: len(gate.calls) == 2)
        until(lambda: not gate.running)
        assert rings.put_in == 6
    assert keys(gate) == [["a"], ["a"]]


def test_a_bell_that_is_served_for_long_gets_a_second_invocation_and_no_third() -> None:
    gate = answering()
    with dispatching(gate) as rings:
        rings.put(ring("a"))
        until(lambda: gate.running)
        began = time.monotonic()
        rings.put(ring("a"))
        until(lambda: len(gate.running) == 2)
        assert time.monotonic() - began >= JOIN_S
        rings.put(ring("a"))
        rings.put(ring("b"))
        until(lambda: ["b"] in keys(gate))
        ended = time.monotonic() + 3 * JOIN_S
        until(lambda: time.monotonic() > ended)
        assert keys(gate) == [["a"], ["a"], ["b"]]


def test_an_invocation_carries_no_more_than_a_batch() -> None:
    gate = answering()
    with dispatching(gate) as rings:
        rings.put(ring(*(str(n) for n in range(BATCH + 20))))
        until(lambda: len(gate.calls) == 2)
    assert sorted(len(call) for call in gate.calls) == [20, BATCH]


def test_an_invocation_carries_bells_of_one_primary_alone() -> None:
    """One that is away has its own rejected, and no others."""
    gate = answering()
    gate.open.release(10)
    with dispatching(gate, in_flight=1) as rings:
        rings.put([Ring(name, "expired", 1, server=server) for name, server in (("a", "1"), ("b", "2"), ("c", "1"))])
        until(lambda: not rings.kept)
    assert keys(gate) == [["a", "c"], ["b"]]


def test_backlog_that_was_worked_at_is_served_again_at_once() -> None:
    left = [40, 0]
    gate = answering(lambda _: {"claimed": 10, "backlog": left.pop(0)})
    gate.open.release(10)
    with dispatching(gate) as rings:
        rings.put(ring("a"))
        until(lambda: not left)
    assert keys(gate) == [["a"], ["a"]]


@pytest.mark.parametrize("answer", [{"claimed": 0, "backlog": 1000}, {"claimed": 5, "backlog": 0}, None])
def test_without_a_backlog_that_was_worked_at_it_is_served_once(answer: Any) -> None:
    """What could not be claimed waits for the bell; an answer of another shape is taken for no backlog."""
    gate = answering(lambda _: answer)
    gate.open.release(10)
    with dispatching(gate, in_flight=1) as rings:
        rings.put(ring("a"))
        until(lambda: not rings.kept)
        rings.put(ring("b"))
        until(lambda: not rings.kept)
    assert keys(gate) == [["a"], ["b"]]
