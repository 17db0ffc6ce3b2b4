"""A process that drains: `python -m tests.support.drainer URL LEASE_MS SIZE`, told by lines on its standard input.

It says `ready`; each line that it gets is one drain of every shard, and the answer is one line of JSON, the counts.
After the line `on` it drains again and again, and says nothing. It fires schedules, and of each death it has another
task tell. A task's work is to be counted in the hash `ran`, and to wait at the list `gate` where its payload says so.
"""

import json
import os
import random
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

import redis

from duecourse.ledger.connect import connect
from duecourse.ledger.operations.ledger import Ledger
from duecourse.ledger.task import Task
from duecourse.running.drain import Drainer, Limits
from duecourse.running.run import Kind, Runner
from duecourse.running.threads import Threads
from duecourse.schedules.calendar import Calendar
from duecourse.schedules.firing import Firer
from tests.support.engine import Lambda, ample, targets_of
from tests.support.project import ROOT

NAMESPACE = "test"
GATE_S = 30.0
ON, PAUSE_S = "on", 0.005
ENVIRONMENT = {**os.environ, "PYTHONPATH": f"{ROOT / 'layers' / 'core'}{os.pathsep}{ROOT}"}


def counting(client: redis.Redis) -> Kind:
    """Work that counts itself, and waits at the gate if told."""

    def kind(task: Task) -> None:
        client.hincrby("ran", f"{task.id}:{task.run}")
        if task.payload.get("wait"):
            client.blpop(["gate"], GATE_S)

    return kind


def ran(client: redis.Redis) -> dict[str, int]:
    """How often each run was made, by `<task id>:<run>`."""
    found: Any = client.hgetall("ran")
    return {name.decode(): int(count) for name, count in found.items()}


def at_the_gate(client: redis.Redis) -> int:
    """How many tasks' works wait there: a work is counted before it does."""
    return int(client.info("clients")["blocked_clients"])


def drainer_of(ledger: Ledger, kind: Kind, threads: Threads, lease_ms: int) -> Drainer:
    """What works every task by `kind`."""
    runner = Runner(lambda _name: kind, None, ledger.now, random.Random())
    fire = Firer(ledger, Calendar()).fire
    return Drainer(ledger, runner, targets_of({}, Lambda()), threads, Limits(lease_ms, 1_000), fire)


def main(url: str, lease_ms: str, size: str) -> None:
    """Drain as told, until the input ends."""
    with connect(url) as client, redis.Redis.from_url(url) as counts:
        ledger, threads = Ledger(client, NAMESPACE, deaths=True), Threads(int(size))
        drainer = drainer_of(ledger, counting(counts), threads, int(lease_ms))
        print("ready", flush=True)
        for line in sys.stdin:
            while line.strip() == ON:
                drainer.drain(ledger.shards(), ample)
                time.sleep(PAUSE_S)
            print(json.dumps(drainer.drain(ledger.shards(), ample)._asdict()), flush=True)
        threads.close()


class Child:
    """Such a process, held by a test."""

    def __init__(self, process: "subprocess.Popen[str]") -> None:
        self.process = process

    def drain(self, how: str = "") -> None:
        """Begin a drain; `counts` waits for its end."""
        assert self.process.stdin
        self.process.stdin.write(f"{how}\n")
        self.process.stdin.flush()

    def drain_on(self) -> None:
        """Drain again and again, without a word, until it is killed."""
        self.drain(ON)

    def counts(self) -> dict[str, int]:
        """What the drain did."""
        return dict(json.loads(self.line()))

    def line(self) -> str:
        """What it says next."""
        assert self.process.stdout
        return self.process.stdout.readline().strip()


@contextmanager
def children(url: str, count: int, *, lease_ms: int = 30_000, size: int = 4) -> Iterator[list[Child]]:
    """Such processes, ready; killed at the end."""
    command = [sys.executable, "-W", "error", "-m", "tests.support.drainer", url, str(lease_ms), str(size)]
    pipe = subprocess.PIPE
    with ExitStack() as running:
        found = []
        for _ in range(count):
            process = running.enter_context(
                subprocess.Popen(command, env=ENVIRONMENT, stdin=pipe, stdout=pipe, text=True)
            )
            running.callback(process.kill)
            found.append(Child(process))
        assert {child.line() for child in found} == {"ready"}
        yield found


if __name__ == "__main__":
    main(*sys.argv[1:])
