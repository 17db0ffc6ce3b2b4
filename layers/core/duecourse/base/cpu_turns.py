"""Turns of the processor: long computations of a process run one at a time, tenant by tenant, in slices.

Python runs one thread at a time, and a thread that waits for it waits 5 ms for each one that computes. Sixteen
computations at once thus end together, late, and hold up every thread beside them.
"""

import gc
import os
import threading
import time
from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from duecourse.errors import Crowded

QUICK_S = 0.005
"""Seconds of the processor that a computation may take before it waits for its turn."""
SLICE_S = 0.001
"""Seconds after which a long computation lets the other threads run."""
PAUSE_S = 0.000_05
WAIT_S = 0.25
"""Seconds for which a task waits behind others of its tenant: it holds a thread meanwhile, which others need."""
AWAY_S = 0.25
"""Seconds for which no task of a tenant is begun after one has waited in vain."""
MET = 1_000
"""Maximum number of tenants of which that is remembered."""


class _Collections(threading.local):
    """Full garbage collections of this thread."""

    began_s = 0.0
    took_s = 0.0

    def note(self, phase: str, info: dict[str, Any]) -> None:
        """Count the processor time of a full collection; `gc` calls this before and after each."""
        # Younger generations hold what the computation made; the oldest is the heap of the whole process. With a
        # million objects it takes half a second, in whichever thread happens to make one object more.
        if info["generation"] < FULL:
            return
        if phase == "start":
            self.began_s = time.thread_time()
        else:
            self.took_s += time.thread_time() - self.began_s


FULL = 2
"""Generation of a full collection."""
_collections = _Collections()
gc.callbacks.append(_collections.note)


def cpu_s() -> float:
    """Return seconds of the processor that this thread has used, without those of full garbage collections."""
    return time.thread_time() - _collections.took_s


class OutOfTime(Exception):
    """A computation has used up the processor time that it may take."""


class Turns:
    """Queue of the long computations of one process: one runs at a time, and tenants take turns."""

    def __init__(self) -> None:
        self._begin()

    def _begin(self) -> None:
        self._process = os.getpid()
        self._lock = threading.Lock()
        self._taken = False
        self._waiting: dict[str, deque[threading.Lock]] = {}
        self._crowded_until: dict[str, float] = {}

    @contextmanager
    def computing(self, tenant: str, most_s: float, wait_s: float = -1) -> Iterator["Computation"]:
        """One computation, in this thread, of at most so many seconds of the processor.

        Its turn must come within `wait_s`, or `look` raises Crowded; -1 waits without limit.
        """
        computation = Computation(self, tenant, most_s, wait_s)
        try:
            yield computation
        finally:
            if computation.has_turn:
                self._hand_on(tenant)

    def admit(self, tenant: str) -> None:
        """Return if the tenant's long computations get their turns. Raises Crowded."""
        if time.monotonic() < self._crowded_until.get(tenant, 0.0):
            raise Crowded

    def wait(self, tenant: str, wait_s: float) -> None:
        """Wait until it is the tenant's turn. The caller hands it on. Raises Crowded."""
        if self._process != os.getpid():
            self._begin()  # in a forked child, the threads that had turns of its parent's are not there
        with self._lock:
            if not self._taken:
                self._taken = True
                return
            mine = threading.Lock()
            mine.acquire()
            self._waiting.setdefault(tenant, deque()).append(mine)
        while not mine.acquire(timeout=wait_s):  # released by whoever hands the turn on
            if not self._is_next(tenant, mine):
                raise Crowded

    def _is_next(self, tenant: str, mine: threading.Lock) -> bool:
        """True for the first waiting computation of its tenant; any other gives up."""
        with self._lock:
            waiting = self._waiting.get(tenant)
            if not waiting or mine not in waiting or waiting[0] is mine:
                return True  # or it came at the last moment
            waiting.remove(mine)
            if len(self._crowded_until) >= MET:
                self._crowded_until.clear()
            self._crowded_until[tenant] = time.monotonic() + AWAY_S
            return False

    def _hand_on(self, tenant: str) -> None:
        """Hand the turn to another tenant, the longest without one first, or to the next of this one."""
        with self._lock:
            if not self._waiting:
                self._taken = False
                return
            following = next((other for other in self._waiting if other != tenant), tenant)
            waiting = self._waiting.pop(following)
            waiting.popleft().release()
            if waiting:
                self._waiting[following] = waiting  # behind the tenants that wait already


class Computation:
    """Computation of one thread, which calls `look` often meanwhile."""

    def __init__(self, turns: Turns, tenant: str, most_s: float, wait_s: float = -1) -> None:
        self.has_turn = False
        self._wait_s = wait_s
        self._turns = turns
        self._tenant = tenant
        self._most_s = most_s
        self._began = cpu_s()
        self._until = self._began + most_s
        self._long_from = self._began + QUICK_S
        self.look_at = time.monotonic() + (SLICE_S if most_s > 0 else 0)
        """Time (monotonic seconds) before which `look` does nothing: callers that look often may spare the call."""

    @property
    def used_s(self) -> float:
        """Seconds of the processor that it has taken so far."""
        return cpu_s() - self._began

    def look(self) -> None:
        """Wait for a turn once the computation is long, and let other threads run now and then.

        Raises OutOfTime, and Crowded.
        """
        # The clock on the wall is read at a tenth of the cost, and is never behind the thread's own.
        if time.monotonic() < self.look_at:
            return
        now = cpu_s()
        if now > self._until:
            raise OutOfTime(f"it takes more than {self._most_s:g} s of the processor")
        if self.has_turn:
            time.sleep(PAUSE_S)
        elif now > self._long_from:
            self.take_turn()
        self.look_at = time.monotonic() + SLICE_S

    def take_turn(self) -> None:
        """Wait for a turn at once, before a long computation. Raises Crowded."""
        if not self.has_turn:
            self._turns.wait(self._tenant, self._wait_s)
            self.has_turn = True
