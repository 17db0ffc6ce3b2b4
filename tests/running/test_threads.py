"""The pool of threads: as many as it has tasks at a time, and no more than its size."""

import threading
from contextlib import ExitStack

import pytest

from duecourse.ledger.task import DEFAULT_TENANT
from duecourse.running.event_loop import ASYNC_PARALLEL
from duecourse.running.threads import Threads, places
from tests.support.wait import until


def alive(pool: Threads) -> int:
    """How many serve in this pool: another test's may still be at their last task."""
    return sum(thread.is_alive() for thread in pool._threads)


@pytest.mark.parametrize(
    ("parallel", "are_async", "most"),
    [(None, False, 8), (3, False, 3), (9, False, 8), (None, True, ASYNC_PARALLEL), (9, True, 9)],
)
def test_tasks_need_a_thread_each_unless_all_are_async(parallel: int | None, are_async: bool, most: int) -> None:
    assert places(8, parallel, are_async=are_async) == most


def test_work_is_done_by_as_many_threads_as_there_are_places() -> None:
    threads, together = Threads(3), threading.Barrier(3, timeout=30)
    done: list[int] = []
    for _ in range(6):
        threads.do(lambda: done.append(together.wait()))
    threads.close()
    assert len(done) == 6
    assert alive(threads) == 0


def test_threads_are_started_as_work_comes_and_kept() -> None:
    threads = Threads(8)
    assert alive(threads) == 0
    names: list[str] = []
    threads.do(lambda: names.append(threading.current_thread().name))
    until(lambda: names)
    assert alive(threads) == 1
    threads.close()


def test_a_pool_never_outgrows_its_size_whoever_gives_it_work() -> None:
    threads, gate = Threads(2), threading.Event()
    givers = [
        threading.Thread(target=lambda: [threads.do(lambda: gate.wait(30) and None) for _ in range(20)])
        for _ in range(4)
    ]
    for giver in givers:
        giver.start()
    for giver in givers:
        giver.join()
    assert alive(threads) == 2
    gate.set()
    threads.close()


def test_work_that_gives_more_work_while_its_pool_closes_is_all_done() -> None:
    threads, done = Threads(4), list[str]()

    def give() -> None:
        until(lambda: not threads._inbox.empty())  # the close has begun
        threads.do(lambda: done.append("first"))
        threads.do(lambda: threads.do(lambda: done.append("second")))

    threads.do(give)
    closing = threading.Thread(target=threads.close, daemon=True)
    closing.start()
    until(lambda: not closing.is_alive())
    assert (done, alive(threads)) == (["first", "second"], 0)


def test_a_closed_pool_can_be_given_work_again() -> None:
    threads, done = Threads(1), list[int]()
    for n in range(2):
        threads.do(lambda n=n: done.append(n))  # type: ignore[misc]
        threads.close()
    assert done == [0, 1]


@pytest.mark.parametrize(("size", "most"), [(1, 1), (2, 1), (3, 2), (4, 3), (16, 12)])
def test_a_tenant_never_holds_all_threads_where_there_are_two(size: int, most: int) -> None:
    threads = Threads(size)
    with ExitStack() as held:
        granted = [held.enter_context(threads.held_by("hostile")) for _ in range(size + 1)]
        assert granted == [number < most for number in range(size + 1)]
        with threads.held_by("victim") as its_own:
            assert its_own
    with threads.held_by("hostile") as again:
        assert again


def test_a_ledger_without_tenants_has_all_threads() -> None:
    threads = Threads(4)
    with ExitStack() as held:
        assert all(held.enter_context(threads.held_by(DEFAULT_TENANT)) for _ in range(9))
