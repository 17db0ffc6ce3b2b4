"""Threads beside a test that wait for their turns."""

import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager

from duecourse.base.cpu_turns import Turns


@contextmanager
def beside(*works: Callable[[], None]) -> Iterator[None]:
    """Each of the works in a thread of its own, meanwhile."""
    threads = [threading.Thread(target=work) for work in works]
    for thread in threads:
        thread.start()
    yield
    for thread in threads:
        thread.join()


@contextmanager
def beside_a_holder(turns: Turns, *works: Callable[[], None]) -> Iterator[None]:
    """The same while this thread has the turn, which is the tenant `noisy`'s; the works end after it."""
    with ExitStack() as threads, turns.computing("noisy", 1) as long:
        long.take_turn()
        threads.enter_context(beside(*works))
        yield


def waiting(turns: Turns) -> int:
    """How many computations wait for a turn."""
    return sum(map(len, turns._waiting.values()))


def take(turns: Turns, tenant: str) -> None:
    """Take one turn, as soon as it comes."""
    with turns.computing(tenant, 1) as computation:
        computation.take_turn()
