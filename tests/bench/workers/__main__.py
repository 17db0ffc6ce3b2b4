"""`python -m tests.bench.workers`: tasks through add, run and settle, beside BullMQ's worker on the same Redis.

Both sides have one process with the same concurrency, the same payload and a handler that does nothing, and keep what
is done. They take turns round by round, each with a worker of its own: read the ratios.

  added      tasks are added a thousand at a time and due at once: from the first add to the last settle
  due        tasks come due in one instant: from there to the last settle
  late       tasks come due at a steady rate: how long after it the handler begins
"""

import argparse
import statistics
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from functools import partial

import redis
from rich.console import Console
from rich.table import Table

from tests.bench.figures import lateness, per_second
from tests.bench.peers.installed import Lacking
from tests.bench.peers.installed import bullmq as installed
from tests.bench.server import bench_server
from tests.bench.workers.sides import Side, bullmq, ours
from tests.support.wait import until

WORKS = ("added", "due", "late")
HEAD_START_MS = 3_000
"""Time from an add to the first due time: long enough for the slower side to have added all."""


def main() -> None:
    """Measure, and print a row a side."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=3, help="how often each has its turn (default 3)")
    parser.add_argument("--tasks", type=int, default=5_000, help="tasks of a round (default 5000)")
    parser.add_argument("--rate", type=int, default=200, help="tasks a second of `late` (default 200)")
    parser.add_argument("--concurrency", type=int, default=16, help="tasks at a time in a process (default 16)")
    parser.add_argument("--processes", type=int, default=1, help="processes of each side (default 1)")
    given = parser.parse_args()
    console = Console(width=130)
    with bench_server() as server, redis.Redis.from_url(server.url) as client:
        sides = dict(_sides(console, server.url, given.concurrency, given.processes))
        rows: dict[str, dict[str, list[float]]] = {name: {work: [] for work in WORKS} for name in sides}
        for _ in range(given.rounds):
            for name, side in sides.items():
                _measure(client, side, given.tasks, given.rate, rows[name])
    what = f"{given.tasks:,} tasks, {given.processes} processes x {given.concurrency}, {given.rate}/s"
    console.print(_table(f"workers, Redis {server.version} on loopback, {what}", rows))


def _sides(
    console: Console, url: str, concurrency: int, processes: int
) -> Iterator[tuple[str, Callable[[], AbstractContextManager[Side]]]]:
    yield "duecourse", partial(ours, url, concurrency, processes)
    try:
        yield "BullMQ", partial(bullmq, url, installed(console), concurrency, processes)
    except Lacking as lacking:
        console.print(f"BullMQ is left out: {lacking}")


def _measure(
    client: redis.Redis,
    side: Callable[[], AbstractContextManager[Side]],
    tasks: int,
    rate: int,
    row: dict[str, list[float]],
) -> None:
    client.flushall()
    with side() as one:
        _work(one, 1_000, lambda: None)  # warms what is measured
        row["added"].append(_added(one, tasks))
        row["due"].append(_due(one, tasks))
        row["late"] += _late(client, one, tasks, rate)


def _work(side: Side, tasks: int, until_due: Callable[[], object], at: int = 0) -> float:
    """Seconds from when the tasks are due to the last settle."""
    before = side.settled()
    began = time.perf_counter()
    side.add("nothing", [at or _now()] * tasks)
    if at:
        until_due()
        began = time.perf_counter() - (_now() - at) / 1_000
    until(lambda: side.settled() >= before + tasks, seconds=300, every=0.005)
    return time.perf_counter() - began


def _added(side: Side, tasks: int) -> float:
    return tasks / _work(side, tasks, lambda: None)


def _due(side: Side, tasks: int) -> float:
    at = _now() + HEAD_START_MS
    return tasks / _work(side, tasks, lambda: time.sleep(max(0, at - _now()) / 1_000), at)


def _late(client: redis.Redis, side: Side, tasks: int, rate: int) -> list[float]:
    start = _now() + HEAD_START_MS
    client.delete("late")
    side.add("late", [start + n * 1_000 // rate for n in range(tasks)])
    until(lambda: client.llen("late") >= tasks, seconds=300, every=0.05)
    found: list[bytes] = client.lrange("late", 0, -1)  # type: ignore[assignment]
    return [float(one) for one in found]


def _now() -> int:
    return int(time.time() * 1_000)


def _table(title: str, rows: dict[str, dict[str, list[float]]]) -> Table:
    table = Table("", "added", "due at once", "late", title=title, title_justify="left")
    own = rows["duecourse"]
    for name, row in rows.items():
        cells = [per_second(statistics.median(row[work])) for work in WORKS[:2]]
        if row is not own:
            ratios = [statistics.median(a / b for a, b in zip(own[w], row[w], strict=True)) for w in WORKS[:2]]
            cells = [f"{cell}; duecourse {ratio:.2f} x" for cell, ratio in zip(cells, ratios, strict=True)]
        table.add_row(name, *cells, lateness(row["late"]))
    return table


if __name__ == "__main__":
    main()
