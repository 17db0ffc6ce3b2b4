"""A receiver that keeps its first caller waiting, so that something can be done to who works the task meanwhile."""

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from tests.support.http_server import ReceivedRequest, Reply, Server, answering

SHORT_LEASE = {"DUECOURSE_LEASE": "PT2S", "DUECOURSE_MARGIN": "PT2S"}
DONE = Reply(200, b"{}")


class SlowAtFirst:
    """It waits until told otherwise."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._calls = 0
        self.asked = threading.Event()
        self.go_on = threading.Event()

    def __call__(self, _asked: ReceivedRequest) -> Reply:
        with self._lock:
            self._calls += 1
            first = self._calls == 1
        if first:
            self.asked.set()
            self.go_on.wait(30)
        return DONE


@contextmanager
def slow_at_first() -> Iterator[tuple[SlowAtFirst, Server]]:
    receiver = SlowAtFirst()
    with answering(receiver) as server:
        try:
            yield receiver, server
        finally:
            receiver.go_on.set()


def outcomes(task: Any) -> list[str]:
    """How a task's runs ended."""
    return [run["outcome"] for run in task["history"]]
