"""Calls of many threads made as one: who goes with whom, and whose error it is."""

import multiprocessing
import threading
from collections.abc import Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import ExitStack

import pytest

from duecourse.base.batches import SharedCalls
from duecourse.errors import StoreFull, StoreMisused, StoreUnavailable
from tests.support.wait import until


class Doubler:
    """Answers each item with its double; a call stays under way until it is let go."""

    def __init__(self) -> None:
        self.calls: list[list[int]] = []
        self.errors: dict[int, BaseException] = {}
        self.gate = threading.Semaphore(0)

    def __call__(self, items: Sequence[int]) -> list[int]:
        self.calls.append(list(items))
        assert self.gate.acquire(timeout=30)
        for item in items:
            if item in self.errors:
                raise self.errors[item]
        return [2 * item for item in items]

    def let_go(self, calls: int) -> None:
        self.gate.release(calls)


class Callers:
    """Threads that each bring one item, in order."""

    def __init__(self, shared: SharedCalls[int, int], doubler: Doubler, threads: ThreadPoolExecutor) -> None:
        self.shared, self.doubler, self._threads = shared, doubler, threads

    def bring(self, *items: int, key: str = "k", size: int = 1) -> list[Future[int]]:
        futures = []
        for item in items:
            known = self.known(key)
            futures.append(self._threads.submit(self.shared.do, key, item, size, self.doubler))
            until(lambda known=known: self.known(key) != known)  # type: ignore[misc]
        return futures

    def known(self, key: str) -> tuple[int, int]:
        waiting = self.shared._waiting.get(key)
        return len(self.doubler.calls), -1 if waiting is None else len(waiting)


@pytest.fixture
def doubler() -> Doubler:
    return Doubler()


@pytest.fixture
def callers(doubler: Doubler) -> Iterator[Callers]:
    with ThreadPoolExecutor(20) as threads, ExitStack() as after:
        after.callback(doubler.let_go, 100)
        yield Callers(SharedCalls(4, 100, StoreUnavailable), doubler, threads)


def results(futures: list[Future[int]]) -> list[int]:
    return [future.result(10) for future in futures]


def test_one_that_comes_alone_goes_at_once(callers: Callers, doubler: Doubler) -> None:
    for item in (1, 2):
        [future] = callers.bring(item)
        doubler.let_go(1)
        assert future.result(10) == 2 * item
    assert doubler.calls == [[1], [2]]
    assert callers.shared._waiting == {}


def test_those_that_come_meanwhile_go_together_and_each_gets_its_own_answer(callers: Callers, doubler: Doubler) -> None:
    futures = callers.bring(1, 2, 3, 4)
    doubler.let_go(2)
    assert results(futures) == [2, 4, 6, 8]
    assert doubler.calls == [[1], [2, 3, 4]]


def test_no_more_go_together_than_one_call_takes(callers: Callers, doubler: Doubler) -> None:
    futures = callers.bring(*range(8))
    doubler.let_go(3)
    assert results(futures) == [0, 2, 4, 6, 8, 10, 12, 14]
    assert doubler.calls == [[0], [1, 2, 3, 4], [5, 6, 7]]


def test_what_is_large_goes_with_fewer_and_what_is_larger_alone(callers: Callers, doubler: Doubler) -> None:
    futures = callers.bring(1) + callers.bring(2, 3, 4, size=40) + callers.bring(5, size=1_000)
    doubler.let_go(4)
    assert results(futures) == [2, 4, 6, 8, 10]
    assert doubler.calls == [[1], [2, 3], [4], [5]]


def test_those_of_another_key_do_not_wait_and_stay_apart(callers: Callers, doubler: Doubler) -> None:
    futures = callers.bring(1, 2, key="a") + callers.bring(3, key="b")
    assert doubler.calls == [[1], [3]]
    doubler.let_go(3)
    assert results(futures) == [2, 4, 6]
    assert doubler.calls == [[1], [3], [2]]


def test_a_store_that_is_away_is_told_to_each_by_an_error_of_its_own(callers: Callers, doubler: Doubler) -> None:
    futures = callers.bring(1, 2, 3)
    doubler.errors[2] = StoreUnavailable("gone")
    doubler.let_go(2)
    assert futures[0].result(10) == 2
    errors = [future.exception(10) for future in futures[1:]]
    assert [(type(error), str(error)) for error in errors] == 2 * [(StoreUnavailable, "gone")]
    assert errors[0] is not errors[1]
    assert doubler.calls == [[1], [2, 3]]


def test_an_error_keeps_its_class(callers: Callers, doubler: Doubler) -> None:
    futures = callers.bring(1, 2, 3)
    doubler.errors[2] = StoreFull()
    doubler.let_go(2)
    assert [type(future.exception(10)) for future in futures[1:]] == [StoreFull, StoreFull]


def test_an_error_that_may_be_anothers_is_nobodys_but_its_own(callers: Callers, doubler: Doubler) -> None:
    futures = callers.bring(1, 2, 3, 4)
    doubler.errors[3] = StoreMisused("that record")
    doubler.let_go(10)
    assert futures[1].result(10) == 4
    assert futures[2].exception(10) is doubler.errors[3]
    assert futures[3].result(10) == 8
    assert doubler.calls[:2] == [[1], [2, 3, 4]]
    assert sorted(doubler.calls[2:]) == [[2], [3], [4]]


@pytest.mark.parametrize("error", [ValueError("a fault"), KeyboardInterrupt()])
def test_after_an_interruption_of_the_one_that_calls_the_others_call_by_themselves(
    callers: Callers, doubler: Doubler, error: BaseException
) -> None:
    futures = callers.bring(1, 2, 3, 4)
    doubler.errors[2] = error
    doubler.let_go(10)
    assert futures[1].exception(10) is error
    assert results(futures[2:]) == [6, 8]
    assert sorted(doubler.calls[2:]) == [[3], [4]]


def test_a_call_that_fails_lets_those_behind_it_go(callers: Callers, doubler: Doubler) -> None:
    doubler.errors[1] = KeyboardInterrupt()
    futures = callers.bring(1, 2)
    doubler.let_go(2)
    assert isinstance(futures[0].exception(10), KeyboardInterrupt)
    assert futures[1].result(10) == 4
    assert callers.shared._waiting == {}


def test_one_that_has_waited_long_enough_calls_by_itself(
    callers: Callers, doubler: Doubler, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("duecourse.base.batches.PATIENCE_S", 0.05)
    futures = callers.bring(1, 2)
    until(lambda: doubler.calls == [[1], [2]])
    doubler.let_go(2)
    assert results(futures) == [2, 4]
    assert callers.shared._waiting == {}


def test_one_that_goes_when_it_is_its_turn_leaves_it_to_the_next(callers: Callers, doubler: Doubler) -> None:
    first, second, third = callers.bring(1, 2, 3)
    part = callers.shared._waiting["k"][0]
    part.woken.release()  # as if it were woken by something else
    callers.shared._step_out("k", part)
    doubler.let_go(3)
    assert [one.result(10) for one in (first, second, third)] == [2, 4, 6]
    assert sorted(doubler.calls) == [[1], [2], [3]]
    assert second.result(10) == 4  # one that is interrupted does not get this far


def test_many_threads_get_their_own_answers_again_and_again() -> None:
    shared, calls = SharedCalls[int, int](64, 10**9, StoreUnavailable), list[int]()

    def call(items: Sequence[int]) -> list[int]:
        calls.append(len(items))
        return [2 * item for item in items]

    def work(first: int) -> list[int]:
        return [shared.do("k", item, 1, call) for item in range(first, first + 200)]

    with ThreadPoolExecutor(20) as threads:
        answers = list(threads.map(work, range(0, 20_000, 1_000)))
    assert answers == [[2 * item for item in range(first, first + 200)] for first in range(0, 20_000, 1_000)]
    assert sum(calls) == 20 * 200


def _in_a_child(shared: SharedCalls[int, int], answers: "multiprocessing.SimpleQueue[int]") -> None:
    answers.put(shared.do("k", 5, 1, _doubled))


def _doubled(items: Sequence[int]) -> list[int]:
    return [2 * item for item in items]


def test_a_forked_child_does_not_wait_for_its_parents_threads(callers: Callers, doubler: Doubler) -> None:
    futures = callers.bring(1, 2)
    fork = multiprocessing.get_context("fork")
    answers = fork.SimpleQueue()
    child = fork.Process(target=_in_a_child, args=(callers.shared, answers))
    child.start()
    child.join(10)
    assert child.exitcode == 0
    assert answers.get() == 10
    doubler.let_go(2)
    assert results(futures) == [2, 4]
