"""A backlog for a function that runs one invocation at a time: how much of the ideal rate it comes to."""

import tempfile
import time
from itertools import pairwise
from pathlib import Path

from duecourse.ledger.connect import connect
from duecourse.ledger.operation_types import MAX_ADD
from duecourse.ledger.operations.ledger import Ledger
from duecourse.ledger.task import NewTask, Shard, Status
from duecourse.running.hand_over import MAX_TASKS
from duecourse_local.harness.stack import Stack
from tests.bench.figures import ROUNDS, Figure, Rounds
from tests.bench.server import BenchServer
from tests.bench.stage import Measured
from tests.support.probe import Probe
from tests.support.wait import until

TASKS, TAKES_S = 600, 1
IDEAL_S = TASKS / MAX_TASKS * TAKES_S
"""The tasks of an invocation run at the same time, on threads: an invocation of ten takes as long as one task."""
AIM = "≥ 0.8 x"
SETTINGS = {"DUECOURSE_DELIVERY_LEASE": "PT6S"}
"""Less than the time in which the function begins the 100 tasks that it is handed at first."""


def figures(server: BenchServer, _pending: int) -> Measured:
    """The rate of each fifth of the tasks beside the ideal one."""
    with tempfile.TemporaryDirectory(prefix="duecourse-bench-") as folder, connect(server.url) as client:
        client.flushall()
        probe, ledger = Probe(Path(folder), at_once=1), Ledger(client)
        with Stack(probe.options(SETTINGS, store=server.url)):
            yield [_measure(probe, ledger)]


def _measure(probe: Probe, ledger: Ledger) -> Figure:
    added_at = time.time() * 1_000
    tasks = [NewTask(f"t{n}", "probe", payload=str(TAKES_S)) for n in range(TASKS)]
    for first in range(0, TASKS, MAX_ADD):
        ledger.add(tasks[first : first + MAX_ADD])
    shard = Shard("default", 0)
    until(lambda: ledger.stats(shard).done + ledger.stats(shard).dead == TASKS, seconds=6 * IDEAL_S, every=0.5)
    began = sorted(line.at for line in probe.lines().values())
    ends = [added_at, *began[TASKS // ROUNDS :: TASKS // ROUNDS], began[-1] + TAKES_S * 1_000]
    rate = Rounds(IDEAL_S * 1_000 / ROUNDS / (end - start) for start, end in pairwise(ends))
    ended = [task for one in tasks if (task := ledger.get(shard.queue, one.id))]
    once = sum((task.status, task.run, task.attempt) == (Status.DONE, 1, 1) for task in ended)
    took_s = (ends[-1] - added_at) / 1_000
    name = f"{TASKS} tasks of {TAKES_S} s, one invocation at a time"
    ran = f"the ideal is {IDEAL_S:.0f} s; {once} of {TASKS} ran once"
    return Figure(name, rate.times("the ideal rate"), AIM, f"{took_s:.1f} s in all", ran)
