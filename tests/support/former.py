"""A ledger that an earlier version wrote to Redis, on a server of its own."""

import json
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, NamedTuple

import redis

from duecourse.adapters.redis.connect import connect
from duecourse.adapters.redis.store import RedisStore
from duecourse.domain.history import Run
from duecourse.domain.task import Status, Task
from tests.support.clock import HandClock
from tests.support.project import ROOT
from tests.support.redis_server import RedisServer, need

LEDGERS = ROOT / "tests" / "integration" / "fixtures" / "ledgers"
VERSIONS = ["743e568", "be6de37"]
"""The trees whose ledgers there are: that of 0.1.0, and the last one before version 5 of the record."""


class Former(NamedTuple):
    """The ledger, and how its own version showed it when it was written."""

    store: RedisStore
    client: redis.Redis
    clock: HandClock
    shown: dict[str, Any]

    def get(self, id: str) -> Task:
        """One of its tasks as it stands."""
        task = self.store.get("default", id, self.shown["tasks"][id]["tenant"])
        assert task
        return task

    def every(self, *statuses: Status) -> list[Task]:
        """The tasks that had one of these, as they stand."""
        return [self.get(id) for id, told in self.shown["tasks"].items() if told["status"] in statuses]


@contextmanager
def former_ledger(version: str, binary: str) -> Iterator[Former]:
    """The ledger of a tree on a server of this version."""
    shown = json.loads((LEDGERS / f"{version}.rdb.json").read_text())
    clock, server = HandClock(shown["at"]), RedisServer(need(binary))
    shutil.copy(LEDGERS / f"{version}.rdb", server.folder / "dump.rdb")
    with server, connect(server.url) as client:
        yield Former(RedisStore(client, travel=clock, deaths=True), client, clock, shown)


def told(task: Task) -> dict[str, Any]:
    """A task in the words of the file beside the ledger."""
    as_is = [
        *("tenant", "group", "kind", "due_at", "created_at", "deadline_at", "generation", "run", "attempt", "token"),
        *("lease_expires_at", "by", "notify", "target", "forgotten"),
    ]
    return {name: getattr(task, name) for name in as_is} | {
        "status": str(task.status),
        "payload": len(task.payload_json),
        "state": task.state_json,
        "result": task.result_json,
        "log": [entry.outcome if isinstance(entry, Run) else str(entry.action) for entry in task.log],
    }
