"""Bound on the calls of a process that are under way to one place, whatever names lead there."""

import os
import threading
from collections import Counter
from typing import TypeAlias

from duecourse.errors import HostCrowded

Place: TypeAlias = tuple[str, int]
"""Address and port of a connection's other end."""


class Crowd:
    """Calls under way by place, at most `most` at each; each thread has one call at a time."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._begin()

    def _begin(self) -> None:
        self._process = os.getpid()
        self._lock = threading.Lock()
        self._at: Counter[Place] = Counter()
        self._mine = threading.local()

    def enter(self, place: Place) -> None:
        """Count this thread's call at a place, and no longer at another. Raises HostCrowded."""
        if self._process != os.getpid():
            self._begin()  # in a forked child, the calls of its parent's threads are not under way
        if getattr(self._mine, "place", None) == place:
            return
        self.leave()
        with self._lock:
            if self._at[place] >= self._most:
                raise HostCrowded
            self._at[place] += 1
        self._mine.place = place

    def leave(self) -> None:
        """Count this thread's call nowhere: it is over, or never began."""
        place = getattr(self._mine, "place", None)
        if place is None:
            return
        self._mine.place = None
        with self._lock:
            self._at[place] -= 1
            if not self._at[place]:
                del self._at[place]
