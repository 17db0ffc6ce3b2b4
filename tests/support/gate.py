"""A function's end whose calls wait until a test lets them through."""

import threading
from collections.abc import Callable
from typing import Any, Generic, TypeVar

T = TypeVar("T")


class Gate(Generic[T]):
    """Each call waits until it is let through, and is remembered; `answer` makes of its items what it answers."""

    def __init__(self, answer: Callable[[list[T]], Any] = lambda _: ()) -> None:
        self._answer = answer
        self._lock = threading.Lock()
        self.open = threading.Semaphore(0)
        self.calls: list[list[T]] = []
        self.running: list[list[T]] = []
        self.most_at_once = 0

    def __call__(self, items: list[T]) -> Any:
        """Wait, then answer."""
        with self._lock:
            self.calls.append(items)
            self.running.append(items)
            self.most_at_once = max(self.most_at_once, len(self.running))
        assert self.open.acquire(timeout=30)
        with self._lock:
            self.running.remove(items)
        return self._answer(items)
