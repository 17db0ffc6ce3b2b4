"""The two that are measured: each adds tasks, has a worker of its own work them, and counts those that are settled."""

import json
import os
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from typing import Any, Protocol

import redis

from duecourse.base.ids import new_id
from duecourse.ledger.connect import connect
from duecourse.ledger.operation_types import MAX_ADD
from duecourse.ledger.store.ledger import Ledger
from duecourse.ledger.task import NewTask, Shard
from tests.bench.peers.installed import NODE
from tests.support.project import ROOT

PAD = "x" * 80
"""Filling of a payload of some 120 bytes."""
HERE = ROOT / "tests/bench/workers"


class Side(Protocol):
    """One of the two."""

    name: str

    def add(self, kind: str, at: Sequence[int]) -> None:
        """Add tasks, due at these instants (epoch ms)."""

    def settled(self) -> int:
        """Number of tasks that are settled, since the server was emptied."""


class Ours:
    """duecourse: a store as the client has, and `python -m duecourse.worker`."""

    name = "duecourse"

    def __init__(self, ledger: Ledger) -> None:
        self._ledger = ledger

    def add(self, kind: str, at: Sequence[int]) -> None:
        """See Side."""
        tasks = [NewTask(new_id(), kind, json.dumps({"due": due, "pad": PAD}), due_at=due) for due in at]
        for first in range(0, len(tasks), MAX_ADD):
            self._ledger.add(tasks[first : first + MAX_ADD])

    def settled(self) -> int:
        """See Side."""
        return self._ledger.stats(Shard()).done


class BullMq:
    """BullMQ: a node process that adds, and one that works."""

    name = "BullMQ"

    def __init__(self, adder: "subprocess.Popen[str]", client: redis.Redis) -> None:
        self._adder = adder
        self._client = client

    def add(self, kind: str, at: Sequence[int]) -> None:
        """See Side."""
        assert self._adder.stdin
        assert self._adder.stdout
        self._adder.stdin.write(json.dumps({"kind": kind, "at": list(at), "pad": PAD}) + "\n")
        self._adder.stdin.flush()
        assert self._adder.stdout.readline().strip() == "added"

    def settled(self) -> int:
        """See Side."""
        count: Any = self._client.zcard("bull:bench:completed")
        return int(count)


@contextmanager
def ours(url: str, concurrency: int, processes: int) -> Iterator[Side]:
    """Our side, its worker ready."""
    options = ["--import", "handlers", "--concurrency", str(concurrency), "--processes", str(processes)]
    environment = {**os.environ, "DUECOURSE_STORE": url, "PYTHONPATH": str(ROOT / "layers/core")}
    command = [sys.executable, "-m", "duecourse.worker", *options]
    with connect(url) as client, _said("worker ready", command, environment):
        yield Ours(Ledger(client))


@contextmanager
def bullmq(url: str, node: Sequence[str], concurrency: int, processes: int) -> Iterator[Side]:
    """BullMQ's side, its workers ready; `node` is the program."""
    program = [*node[:1], str(HERE / "bullmq.mjs"), url, str(NODE)]
    with ExitStack() as running:
        for _ in range(processes):
            running.enter_context(_said("ready", [*program, "work", str(concurrency)], os.environ))
        adder = running.enter_context(_said("ready", [*program, "add"], os.environ))
        yield BullMq(adder, running.enter_context(redis.Redis.from_url(url)))


@contextmanager
def _said(word: str, command: Sequence[str], environment: Any) -> Iterator["subprocess.Popen[str]"]:
    pipe = subprocess.PIPE
    with subprocess.Popen(
        command, cwd=HERE, env=environment, stdin=pipe, stdout=pipe, stderr=subprocess.DEVNULL, text=True
    ) as process:
        assert process.stdout
        try:
            while not (line := process.stdout.readline()).startswith(word):
                if not line:
                    raise SystemExit(f"{' '.join(command)} ended with status {process.wait()}")
            yield process
        finally:
            process.terminate()
