"""Processor time: of a piece of work, and of a stack's functions, as the machine counts it."""

import time
from collections.abc import Callable
from typing import Any

import psutil

from duecourse_local.harness.stack import Stack

LINEAR, QUADRATIC = 3.5, 7.0
"""Most that `growth` may be of a work of that kind: near what the next worse kind has, for caches are filled too."""
LEAST_S = 0.005
"""Less than that is as good as nothing."""


def is_soon(work: Callable[[], object], within_s: float, tries: int = 3) -> bool:
    """True if `work` takes this thread less than so many seconds of the processor, at one of a few tries.

    A virtual machine that was not scheduled for a while counts that time as the thread's own.
    """
    for _ in range(tries):
        began = time.thread_time()
        work()
        if time.thread_time() - began < within_s:
            return True
    return False


def growth(work: Callable[[int], object], size: int, tries: int = 3) -> float:
    """How many times as long `work` takes this thread for twice the size: 2 if it is linear, 4 if quadratic.

    A slow machine is as slow in both. The best of a few tries of each, in turn: what disturbs one is in no other.
    """
    once, more = [], []
    for _ in range(tries):
        once.append(_takes_s(work, size))
        more.append(_takes_s(work, 2 * size))
    return min(more) / max(min(once), LEAST_S)


def _takes_s(work: Callable[[int], object], size: int) -> float:
    began = time.thread_time()
    work(size)
    return time.thread_time() - began


def used_s(stack: Stack, function: str) -> float:
    """Seconds of the processor that a function's living processes have used so far."""
    pids: Any = stack.pids()["functions"].get(function, ())
    return sum(_of(pid) for pid in pids)


def _of(pid: int) -> float:
    times = psutil.Process(pid).cpu_times()
    return float(times.user + times.system)
