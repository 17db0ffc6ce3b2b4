"""Travelled time: runs of the test kit, of tasks that are due together, and each by itself."""

import random
import time
from collections.abc import Mapping

from duecourse import Again, Task
from duecourse.testing import Duecourse
from tests.bench.figures import Figure
from tests.bench.server import BenchServer
from tests.bench.stage import Measured

RUNS = 20_000
TOGETHER = 100
DAYS_S = 30 * 86_400
AT_ONCE = 1_000
"""Tasks of one add."""


def figures(_server: BenchServer, _pending: int) -> Measured:
    """Both in memory, without the server."""
    yield [_figure(f"{TOGETHER} tasks come again each minute, {RUNS // TOGETHER:,} times", *_again())]
    yield [_figure(f"{RUNS:,} tasks over 30 days, each due by itself", *_spread())]


def _figure(name: str, runs: int, wall_s: float, busy_s: float) -> Figure:
    each = f"{busy_s / runs * 1e6:.0f} µs of the processor a run"
    return Figure(
        name, "", "≤ 600 µs", each, f"{runs:,} runs in {busy_s:.1f} s of the processor, {wall_s:.1f} s in all"
    )


def _again() -> tuple[int, float, float]:
    with Duecourse() as duecourse:
        duecourse.handle("report", lambda _: Again(after=60))
        _add(duecourse, [{"id": f"t{n}", "delay": 60} for n in range(TOGETHER)])
        return _timed(duecourse, 60 * RUNS // TOGETHER)


def _spread() -> tuple[int, float, float]:
    def done(_: Task) -> None:
        return None

    chance = random.Random(1)
    with Duecourse() as duecourse:
        duecourse.handle("report", done)
        _add(duecourse, [{"id": f"t{n}", "delay": round(chance.random() * DAYS_S, 3)} for n in range(RUNS)])
        return _timed(duecourse, DAYS_S)


def _add(duecourse: Duecourse, wanted: list[Mapping[str, object]]) -> None:
    tasks = [{"kind": "report", "payload": {"month": "2026-10"}, **one} for one in wanted]
    for start in range(0, len(tasks), AT_ONCE):
        duecourse.client.add_many(tasks[start : start + AT_ONCE])  # type: ignore[arg-type]


def _timed(duecourse: Duecourse, span_s: int) -> tuple[int, float, float]:
    """Number of runs, and the seconds that they took: of the wall's clock, and of the processor."""
    wall, busy = time.perf_counter(), time.process_time()
    runs = duecourse.advance(span_s)
    return runs, time.perf_counter() - wall, time.process_time() - busy
