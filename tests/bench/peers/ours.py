"""duecourse: adds by `Client`, and `python -m duecourse.worker` with the handlers in this module."""

import os
import sys
import time
from collections.abc import Sequence
from datetime import UTC, datetime

from duecourse import Task, task_handler
from duecourse.app import PROCESS, App
from duecourse.client.client import Client
from duecourse.client.typed_dicts import TaskFields
from duecourse.settings import Settings
from tests.bench.peers import turns
from tests.bench.peers.turns import BATCH, DELAY_S, PAYLOAD, held_s, instants, note_late, serve

KINDS = ("report", "nothing", "late", "held")


@task_handler(kind="nothing")
def nothing(_task: Task) -> None:
    """Do nothing."""


@task_handler(kind="late")
def late(task: Task) -> None:
    """Note how late it is."""
    note_late(task.payload)


@task_handler(kind="held")
def held(_task: Task) -> None:
    """Last while the file HOLD is there."""
    time.sleep(held_s())


def add(url: str) -> None:
    """Serve adds."""
    with PROCESS.using(App(Settings(store=url, targets=dict.fromkeys(KINDS, "lambda:none")))):
        client = Client.from_env()
    asked: TaskFields = {"kind": "report", "payload": PAYLOAD, "delay": DELAY_S}

    def one(count: int) -> None:
        for _ in range(count):
            client.add(kind="report", payload=PAYLOAD, delay=DELAY_S)

    def many(count: int) -> None:
        for _ in range(0, count, BATCH):
            client.add_many([asked] * BATCH)

    def due(count: int, kind: str, first_at: float, every_ms: float) -> None:
        tasks = [_due(kind, at, is_now=not first_at) for at in instants(count, first_at, every_ms)]
        for first in range(0, count, BATCH):
            client.add_many(tasks[first : first + BATCH])

    serve(one=one, many=many, due=due)


def _due(kind: str, at: float, *, is_now: bool) -> TaskFields:
    if is_now:
        return {"kind": kind, "payload": turns.payload(at)}
    return {"kind": kind, "payload": turns.payload(at), "due_at": datetime.fromtimestamp(at / 1_000, UTC)}


def work(url: str, settings: Sequence[str]) -> None:
    """Become a worker with these options."""
    command = [sys.executable, "-m", "duecourse.worker", "--import", "tests.bench.peers.ours", *settings]
    os.execve(sys.executable, command, {**os.environ, "DUECOURSE_STORE": url})  # noqa: S606 - it is the worker


if __name__ == "__main__":
    role, where, *given = sys.argv[1:]
    add(where) if role == "add" else work(where, given)
