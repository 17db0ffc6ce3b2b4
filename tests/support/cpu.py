"""Processor time: of a piece of work, and of a stack's functions, as the machine counts it."""

import time
from collections.abc import Callable
from typing import Any

import psutil

from duecourse_local.stack.stack import Stack


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


def used_s(stack: Stack, function: str) -> float:
    """Seconds of the processor that a function's living processes have used so far."""
    pids: Any = stack.pids()["functions"].get(function, ())
    return sum(_of(pid) for pid in pids)


def _of(pid: int) -> float:
    times = psutil.Process(pid).cpu_times()
    return float(times.user + times.system)
