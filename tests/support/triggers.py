"""Triggers of work in the test's own process: `on_expired` for a bridge, and a tick."""

import json
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from duecourse.ledger.connect import connect
from duecourse.ledger.operations.ledger import Ledger
from duecourse.ledger.task import Task
from duecourse.ledger.watched_keys import ExpiredKey, Watch
from duecourse.ringing.bridge_event import read_rings, shards_of
from duecourse.ringing.tick import Retention, Sweeper
from duecourse.running.threads import Threads
from duecourse.tasks.verbs import Watches
from tests.support.bridges import NAMESPACE, Served
from tests.support.drainer import drainer_of
from tests.support.engine import ample
from tests.support.http_server import ReceivedRequest, Reply

LEASE_MS = 30_000


class Triggers:
    """Both triggers of a ledger's work, a ring and a tick; each run is recorded."""

    def __init__(self, ledger: Ledger, threads: Threads, watches: Sequence[Watch] = ()) -> None:
        drainer = drainer_of(ledger, self._work, threads, LEASE_MS)
        self._drainer = drainer
        self._lock = threading.Lock()
        self._watches = Watches(ledger, NAMESPACE, watches, None)
        self.ledger = ledger
        self.sweeper = Sweeper(ledger, drainer, Retention(3_600_000), margin_ms=1_000)
        self.ran: list[Task] = []
        self.invoked_at: list[float] = []
        self.heard: list[ExpiredKey] = []
        self.gate = threading.Event()
        self.gate.set()

    def invoke(self, function: str, event: Any) -> Any:
        """Make tasks of watched keys and drain what rang, as the function does."""
        assert function == "on_expired"
        with self._lock:
            self.invoked_at.append(time.monotonic())
        told = read_rings(json.loads(json.dumps(event)))
        rang, expired = shards_of(told.bells, NAMESPACE), told.expired
        noted = self._watches.note(expired)
        self.heard += expired
        assert (rang.unknown, noted.unknown) == ([], [])
        return {"added": noted.added, **self._drainer.drain(rang.shards, ample, rang.triggers)._asdict()}

    def send(self, function: str, event: Any) -> None:
        raise AssertionError((function, event))

    def answer(self, asked: ReceivedRequest) -> Reply:
        """The same by Lambda's Invoke API."""
        assert asked.path.endswith("/on_expired/invocations")
        return Reply(200, json.dumps(self.invoke("on_expired", json.loads(asked.body))).encode())

    def runs(self) -> dict[str, int]:
        """How often each task ran."""
        found: dict[str, int] = {}
        for task in list(self.ran):
            found[task.id] = found.get(task.id, 0) + 1
        return found

    def lateness_ms(self) -> list[int]:
        """How long after it was due each was claimed, the latest last."""
        return sorted(task.claimed_at - task.due_at for task in list(self.ran))

    def _work(self, task: Task) -> None:
        self.ran.append(task)
        assert self.gate.wait(30)


@contextmanager
def triggers(server: Served, watches: Sequence[Watch] = ()) -> Iterator[Triggers]:
    """The triggers of the ledger on a server; their threads and connections end with the test."""
    with connect(server.url) as client:
        threads = Threads(4)
        made = Triggers(Ledger(client, NAMESPACE), threads, watches)
        yield made
        made.gate.set()
        threads.close()
