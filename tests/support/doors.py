"""The function `on_expired` in the test's own process: what a bridge invokes, and what that did."""

import json
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from duecourse.adapters.redis_scripts import connect
from duecourse.adapters.redis_store import RedisStore
from duecourse.domain.task import Task
from duecourse.engine.crew import Crew
from duecourse.engine.sweep import Sweeper
from duecourse.wire.rings import Rings, show_drained
from tests.support.answering import Asked, Reply
from tests.support.bridges import NAMESPACE
from tests.support.drainer import drainer_of
from tests.support.engine import ample
from tests.support.redis_server import RedisServer

LEASE_MS = 30_000


class Doors:
    """Both doors to a ledger: an Invoker for the bridge, and a tick. Each task's work is to be written down."""

    def __init__(self, store: RedisStore, crew: Crew) -> None:
        drainer = drainer_of(store, self._work, crew, LEASE_MS)
        self._drainer = drainer
        self._lock = threading.Lock()
        self.store = store
        self.sweeper = Sweeper(store, drainer, retention_ms=3_600_000, margin_ms=1_000)
        self.ran: list[Task] = []
        self.invoked_at: list[float] = []

    def invoke(self, function: str, event: Any) -> Any:
        """Drain what rang, as the function does."""
        assert function == "on_expired"
        with self._lock:
            self.invoked_at.append(time.monotonic())
        rang = Rings.model_validate_json(json.dumps(event)).heard(NAMESPACE)
        assert rang.strangers == []
        return show_drained(self._drainer.drain(rang.shards, ample, rang.doors)._asdict())

    def send(self, function: str, event: Any) -> None:
        raise AssertionError((function, event))

    def answer(self, asked: Asked) -> Reply:
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


@contextmanager
def doors(server: RedisServer) -> Iterator[Doors]:
    """The doors to the ledger on a server; their threads and connections end with the test."""
    with connect(server.url) as client:
        crew = Crew(4)
        yield Doors(RedisStore(client, NAMESPACE), crew)
        crew.close()
