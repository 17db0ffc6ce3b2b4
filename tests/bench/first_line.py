"""The lateness of a user's own function: from a task's due time to its first line, through bridge and harness."""

import os
import random
import signal
import tempfile
import time
from pathlib import Path

import psutil

from duecourse.ledger.connect import connect
from duecourse.ledger.operations.ledger import Ledger
from duecourse.ledger.task import NewTask
from duecourse.running.task_event import tasks_event
from duecourse.services.aws import LambdaInvoker
from duecourse_local.harness.aws.account import CREDENTIALS
from duecourse_local.harness.stack import Stack
from tests.bench.figures import Figure, in_rounds
from tests.bench.server import BenchServer
from tests.bench.stage import Measured
from tests.support.probe import FUNCTION, Line, Probe
from tests.support.wait import until

TASKS, OVER_MS = 1_000, 10_000
ALONE = 50
"""How many invocations tell what the harness alone takes."""
FIRST_MS = 1_500
AHEAD_S, IDLE_S = 6, 7
"""Ten idle minutes are seven seconds here."""
SETTINGS = {"DUECOURSE_WARM": f"PT{AHEAD_S}S", "DUECOURSE_WARM_IDLE": f"PT{IDLE_S}S"}
AIM, FIRST_AIM = "p50 ≤ 4, p99 ≤ 15", "≤ 30 ms"


def figures(server: BenchServer, _pending: int) -> Measured:
    """The first task after `up`, a hundred a second, the first after an idle spell whose functions have ended."""
    with tempfile.TemporaryDirectory(prefix="duecourse-bench-") as folder:
        probe = Probe(Path(folder))
        with Stack(probe.options(SETTINGS, store=server.url)) as stack, connect(server.url) as client:
            os.environ.update(CREDENTIALS, AWS_ENDPOINT_URL_LAMBDA=stack.lambda_url)
            bench = _Bench(probe, Ledger(client), stack)
            yield [Figure("own function, the first task after up", "", FIRST_AIM, _shown(bench.run(1, 1)))]
            bench.run(TASKS, OVER_MS)  # the processes that it takes are there after that
            late = _shown(bench.run(TASKS, OVER_MS))
            yield [Figure("own function, 100 tasks a second", "", AIM, late, f"an invocation alone: {bench.alone()}")]
            bench.idle()
            yield [Figure("own function, the first task after an idle spell", "", FIRST_AIM, _shown(bench.run(1, 1)))]


class _Bench:
    def __init__(self, probe: Probe, ledger: Ledger, stack: Stack) -> None:
        self._probe = probe
        self._ledger = ledger
        self._stack = stack
        self._invoker = LambdaInvoker(5_000)
        self._runs = 0

    def run(self, count: int, over_ms: int) -> list[float]:
        """The lateness of so many tasks, due at random instants within a time."""
        self._runs += 1
        first_ms = FIRST_MS if self._runs < 4 else AHEAD_S * 1000 + FIRST_MS
        ids = [f"{self._runs}-{n}" for n in range(count)]
        self._ledger.add([NewTask(id, "probe", delay_ms=first_ms + random.randrange(over_ms)) for id in ids])
        return [line.late_ms for line in self._lines(ids)]

    def alone(self) -> str:
        """How long after an asynchronous invocation by this process its function's first line runs."""
        self._runs += 1
        sent: list[tuple[str, float]] = []
        for n in range(ALONE):
            id = f"{self._runs}-{n}"
            self._ledger.add([NewTask(id, "probe", delay_ms=3_600_000)])
            task = self._ledger.take("default", id, lease_ms=60_000)
            assert task
            sent.append((id, time.time() * 1000))
            self._invoker.send(FUNCTION, tasks_event([task]))
            self._lines([id])
        lines = self._probe.lines()
        return _shown([lines[id].at - at for id, at in sent])

    def idle(self) -> None:
        """Let the spell pass, and its processes end as Lambda's do."""
        time.sleep(IDLE_S)
        functions = self._stack.pids()["functions"]
        for pid in functions[FUNCTION] + functions["OnExpiredFunction"]:
            os.kill(pid, signal.SIGKILL)
            until(lambda pid=pid: not psutil.pid_exists(pid))  # type: ignore[misc]

    def _lines(self, ids: list[str]) -> list[Line]:
        until(lambda: self._probe.lines().keys() >= set(ids), seconds=120, every=0.05)
        lines = self._probe.lines()
        return [lines[id] for id in ids]


def _shown(late_ms: list[float]) -> str:
    return f"{late_ms[0]:.1f} ms" if len(late_ms) == 1 else in_rounds(late_ms)
