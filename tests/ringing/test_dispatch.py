"""The dispatcher by itself: threads, what is rejected and comes again, an orderly end."""

import logging
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager

import pytest

from duecourse.errors import InvocationRejected
from duecourse.ledger.task import RetryPolicy
from duecourse.ringing import dispatch
from duecourse.ringing.dispatch import Dispatcher, Rules
from tests.support.gate import Gate
from tests.support.wait import until

Call = Callable[[list[str]], Sequence[str]]


def dispatcher_of(call: Call, *, threads: int = 4, on_end: Callable[[], None] = lambda: None) -> Dispatcher[str]:
    return Dispatcher("things", call, Rules(threads, batch=100, calls=threads), key=str, on_end=on_end)


@contextmanager
def dispatching(gate: Gate[str], *, threads: int = 4) -> Iterator[Dispatcher[str]]:
    dispatcher = dispatcher_of(gate, threads=threads)
    dispatcher.start()
    try:
        yield dispatcher
    finally:
        gate.open.release(10_000)
        assert dispatcher.stop(5)


def reject_until(taken: threading.Event) -> Call:
    def answer(_: list[str]) -> Sequence[str]:
        if not taken.is_set():
            raise InvocationRejected("throttled")
        return ()

    return answer


def test_no_more_calls_are_under_way_than_there_are_threads_and_what_waits_goes_together() -> None:
    gate = Gate[str]()
    with dispatching(gate, threads=2) as dispatcher:
        dispatcher.put(["a"])
        until(lambda: len(gate.running) == 1)
        dispatcher.put(["b"])
        until(lambda: len(gate.running) == 2)
        for name in "cdefg":
            dispatcher.put([name])
        gate.open.release()
        until(lambda: len(gate.calls) == 3)
    assert gate.calls[2] == list("cdefg")
    assert gate.most_at_once == 2


def test_more_than_one_call_holds_is_for_several_threads() -> None:
    gate = Gate[str]()
    with dispatching(gate) as dispatcher:
        dispatcher.put([str(n) for n in range(120)])
        until(lambda: len(gate.running) == 2)
    assert sorted(len(call) for call in gate.calls) == [20, 100]


def test_what_is_to_go_again_goes_at_once() -> None:
    left = [["a"], []]
    gate = Gate[str](lambda _: left.pop(0))
    gate.open.release(10)
    with dispatching(gate) as dispatcher:
        dispatcher.put(["a", "b"])
        until(lambda: not left)
        assert (dispatcher.put_in, dispatcher.invocations) == (2, 2)
    assert gate.calls == [["a", "b"], ["a"]]


@pytest.mark.slow
def test_what_is_rejected_is_tried_again_until_it_is_accepted(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.WARNING)
    taken = threading.Event()
    gate = Gate(reject_until(taken))
    gate.open.release(10_000)
    with dispatching(gate) as dispatcher:
        dispatcher.put(["a"])
        until(lambda: dispatcher.rejected >= 3)
        taken.set()
        until(lambda: not dispatcher.kept)
        assert dispatcher.invocations == dispatcher.rejected + 1
    told = [(record.levelname, record.getMessage()) for record in caplog.records]
    assert told == [
        ("ERROR", "the function rejects things; they wait and are tried again: throttled"),
        ("WARNING", "the function accepts things again"),
    ]


@pytest.mark.slow
def test_a_function_that_rejects_all_is_asked_ever_less_often_however_much_comes() -> None:
    taken = threading.Event()
    gate = Gate(reject_until(taken))
    gate.open.release(10_000)
    with dispatching(gate) as dispatcher:
        names = {f"b{n}" for n in range(1_000)}
        over = time.monotonic() + 2
        while time.monotonic() < over:
            dispatcher.put(list(names))
            threading.Event().wait(0.01)
        assert len(gate.calls) < 60
        asked = len(gate.calls)
        taken.set()
        until(lambda: {name for call in gate.calls[asked:] for name in call} == names)


def test_one_that_is_always_rejected_keeps_no_other_waiting() -> None:
    def answer(names: list[str]) -> Sequence[str]:
        if "a" in names:
            raise InvocationRejected("throttled")
        return ()

    gate = Gate(answer)
    gate.open.release(1000)
    with dispatching(gate) as dispatcher:
        dispatcher.put(["a"])
        until(lambda: dispatcher.rejected >= 4)
        for n in range(20):
            dispatcher.put([f"b{n}"])
            until(lambda n=n: [f"b{n}"] in gate.calls)  # type: ignore[misc]
        assert dispatcher.rejected < 20


def test_stopping_waits_for_what_is_under_way_and_begins_nothing_new() -> None:
    gate = Gate[str]()
    dispatcher = dispatcher_of(gate, threads=1)
    dispatcher.start()
    dispatcher.put(["a"])
    until(lambda: gate.running)
    dispatcher.put(["b"])
    assert not dispatcher.stop(0.05), "one is still under way"
    gate.open.release(10)
    assert dispatcher.stop(5)
    assert (gate.calls, dispatcher.kept) == ([["a"]], 1)


def test_at_its_end_what_waits_can_be_handed_over() -> None:
    taken = threading.Event()
    gate = Gate(reject_until(taken))
    gate.open.release(10_000)
    dispatcher = dispatcher_of(gate)
    dispatcher.start()
    dispatcher.put(["a"])
    until(lambda: dispatcher.rejected)
    threading.Timer(0.1, taken.set).start()
    began = time.monotonic()
    assert dispatcher.stop(30, hand_over=True)
    assert dispatcher.kept == 0
    assert time.monotonic() - began < 25, "no thread waits for the end of the patience"


def test_at_its_end_no_thread_waits_for_what_another_has_handed_over(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(dispatch, "PAUSES", RetryPolicy(backoff_ms=60_000, max_backoff_ms=60_000, jitter=False))
    first, go_on = threading.Event(), threading.Event()

    def call(items: list[str]) -> Sequence[str]:
        if items == ["a"]:
            first.set()
            assert go_on.wait(10)
        elif not go_on.is_set():
            raise InvocationRejected("throttled")
        return ()

    dispatcher = Dispatcher("things", call, Rules(threads=3, batch=1, calls=3), key=lambda _: "", on_end=lambda: None)
    dispatcher.start()
    dispatcher.put(["a"])
    assert first.wait(5)
    dispatcher.put(["b"])
    until(lambda: dispatcher.rejected)
    threading.Timer(0.2, go_on.set).start()
    began = time.monotonic()
    assert dispatcher.stop(30, hand_over=True)
    assert (dispatcher.kept, time.monotonic() - began < 25) == (0, True)


def test_what_waits_beyond_the_end_is_left_and_every_thread_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(dispatch, "PAUSES", RetryPolicy(backoff_ms=60_000, max_backoff_ms=60_000, jitter=False))
    ended = threading.Semaphore(0)
    gate = Gate(reject_until(threading.Event()))
    gate.open.release(10_000)
    dispatcher = dispatcher_of(gate, threads=2, on_end=ended.release)
    dispatcher.start()
    dispatcher.put(["a", "b"])
    until(lambda: dispatcher.rejected)
    dispatcher.stop(0.3, hand_over=True)
    assert all(ended.acquire(timeout=30) for _ in range(2))
    assert dispatcher.kept == 2


@pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning")
def test_a_fault_in_the_call_is_told() -> None:
    def fail(_: list[str]) -> Sequence[str]:
        raise ZeroDivisionError

    ended = threading.Event()
    dispatcher = dispatcher_of(fail, threads=1, on_end=ended.set)
    dispatcher.start()
    dispatcher.put(["a"])
    assert ended.wait(30)
    dispatcher.stop(5)
