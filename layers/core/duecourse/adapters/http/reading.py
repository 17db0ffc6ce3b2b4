"""Reading of answers: each within its time, and within a bounded time of the processor.

A destination chooses its answer: interim answers, chunks of a byte and packed nothing go on without end, and Python
reads them on and on. Such a thread would take its part of the processor from all others.
"""

import http.client
import io
import socket
import threading
import time
from typing import Any

from duecourse.errors import CallFailed, Crowded

QUICK_S = 0.005
"""Seconds of the processor that an answer may take before it is read in the lane; one of 1 MiB takes 2 to 15 ms."""
MOST_S = 0.25
"""Maximum seconds of the processor for one answer."""
WAIT_S = 0.25
"""Maximum wait for the lane: it holds a thread meanwhile, which others need."""


class Lane:
    """Lane of the answers that take long to read: one thread of a process is in it at a time."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._of_thread = threading.local()

    def enter(self, within_s: float) -> bool:
        """Wait for the lane; False if it is not free in time."""
        self._of_thread.inside = self._lock.acquire(timeout=within_s)
        return bool(self._of_thread.inside)

    def leave(self) -> None:
        """Leave the lane, if this thread is in it."""
        if getattr(self._of_thread, "inside", False):
            self._of_thread.inside = False
            self._lock.release()


class _BoundedReads(io.RawIOBase):
    """A socket's bytes, all of which must come before one deadline: a slow drip cannot hold a worker."""

    def __init__(self, source: io.RawIOBase, sock: socket.socket, lane: Lane) -> None:
        self._source = source
        self._sock = sock
        self._lane = lane
        self._deadline = time.monotonic() + (sock.gettimeout() or 0.0)
        self._began = time.thread_time()

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any, /) -> int | None:
        self._lane.leave()  # to wait for the network takes nothing from others
        self._sock.settimeout(self._left_s())
        count = self._source.readinto(buffer)
        self._take_turn()
        return count

    def close(self) -> None:
        self._source.close()
        super().close()

    def _take_turn(self) -> None:
        used_s = time.thread_time() - self._began
        if used_s > MOST_S:
            raise CallFailed(f"the answer takes more than {MOST_S:g} s of the processor to read")
        if used_s > QUICK_S and not self._lane.enter(min(WAIT_S, self._left_s())):
            raise Crowded

    def _left_s(self) -> float:
        left = self._deadline - time.monotonic()
        if left <= 0:
            raise TimeoutError("the answer took too long")
        return left


class BoundedAnswer(http.client.HTTPResponse):
    """An answer whose head and body must both come within the timeout that its socket has as it begins."""

    def __init__(self, sock: socket.socket, *args: Any, lane: Lane, **kwargs: Any) -> None:
        super().__init__(sock, *args, **kwargs)
        self.fp = io.BufferedReader(_BoundedReads(self.fp.detach(), sock, lane))
