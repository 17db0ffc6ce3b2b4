"""`python -m tests.bench.peers`: adds a second, beside a no-op script and beside BullMQ, docket and Celery.

Each is a process of its own with one connection, on one Redis; all get the same payload of 120 bytes, due in an hour.
They take turns round by round, so that what slows the machine slows all of them: read the ratios.
"""

import argparse
import os
import statistics
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from typing import NamedTuple

from rich.console import Console
from rich.table import Table

from tests.bench.figures import per_second
from tests.bench.ledger import HOUR_MS, PAYLOAD
from tests.bench.peers.installed import NODE, Lacking, bullmq, python
from tests.bench.server import BenchServer, bench_server
from tests.support.project import ROOT

BATCH = 1_000
WORKS = {"one": "one by one", "many": f"{BATCH:,} at a time"}
NO_BATCHES = {"Celery"}
"""Who has no add of many at once."""
LIMIT, OURS = "no-op EVALSHA, redis-py", "duecourse"
HERE = "tests.bench.peers"


class Peer:
    """A process that does works when it is told to, and tells how long they took."""

    def __init__(self, command: Sequence[str], process: "subprocess.Popen[str]") -> None:
        self._command = command
        self._process = process

    def rate(self, work: str, count: int) -> float:
        """How many adds a second."""
        assert self._process.stdin is not None
        self._process.stdin.write(f"{work} {count}\n")
        self._process.stdin.flush()
        return count / float(self.said())

    def said(self) -> str:
        """The next line."""
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        if not line:
            raise SystemExit(f"{' '.join(self._command)} ended with status {self._process.wait()}")
        return line.strip()


class Measured(NamedTuple):
    """The rates of one peer, a list of rounds a work."""

    name: str
    rates: dict[str, list[float]]

    def median(self, work: str) -> float:
        """A work's median rate."""
        return statistics.median(self.rates[work])

    def beside(self, other: "Measured", work: str) -> float:
        """The median of the rounds' ratios."""
        return statistics.median(own / its for own, its in zip(self.rates[work], other.rates[work], strict=True))


def main() -> None:
    """Measure, and print a row a peer."""
    parser = argparse.ArgumentParser(HERE, description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=9, help="how often each has its turn (default 9)")
    parser.add_argument("--only", nargs="*", default=None, help="these peers, such as BullMQ, besides duecourse")
    options = parser.parse_args()
    console = Console(width=110)
    with bench_server() as server, ExitStack() as running:
        peers = {}
        for name, command in _commands(console, server, options.only):
            peers[name] = running.enter_context(_started(command))
        measured = _measure(peers, options.rounds)
    console.print(_table(server.version, measured))


def _commands(console: Console, server: BenchServer, only: Sequence[str] | None) -> Iterator[tuple[str, list[str]]]:
    yield LIMIT, [sys.executable, "-m", f"{HERE}.no_op", server.url]
    yield OURS, [sys.executable, "-m", f"{HERE}.ours", server.url]
    setups = {
        "BullMQ": lambda: [*bullmq(console), server.url, str(NODE)],
        "docket": lambda: [python(console), "-m", f"{HERE}.docket_adds", server.url],
        "Celery": lambda: [python(console), "-m", f"{HERE}.celery_adds", server.url],
    }
    for name, setup in setups.items():
        if only is None or name in only:
            try:
                yield name, setup()
            except Lacking as lacking:
                console.print(f"{name} is left out: {lacking}")


@contextmanager
def _started(command: list[str]) -> Iterator[Peer]:
    environment = {**os.environ, "PAYLOAD": PAYLOAD, "DELAY_MS": str(HOUR_MS), "PYTHONPATH": str(ROOT)}
    with subprocess.Popen(
        command, cwd=ROOT, env=environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:
        peer = Peer(command, process)
        try:
            while peer.said() != "ready":
                pass
            yield peer
        finally:
            process.kill()


def _measure(peers: dict[str, Peer], rounds: int) -> list[Measured]:
    counts = {"one": 300, "many": 3 * BATCH}
    measured = [Measured(name, {work: [] for work in WORKS}) for name in peers]
    for turn in range(rounds + 1):
        for work, count in counts.items():
            for row in measured:
                if work == "many" and row.name in NO_BATCHES:
                    continue
                rate = peers[row.name].rate(work, count)
                if turn:  # the first is for warming
                    row.rates[work].append(rate)
    return measured


def _table(version: str, measured: Sequence[Measured]) -> Table:
    title = f"adds a second, Redis {version} on loopback, payload {len(PAYLOAD)} bytes"
    table = Table("", *WORKS.values(), title=title, title_justify="left")
    limit, ours = measured[0], measured[1]
    for row in measured:
        cells = [_cell(row, work, limit, ours) for work in WORKS]
        table.add_row(row.name, *cells)
    return table


def _cell(row: Measured, work: str, limit: Measured, ours: Measured) -> str:
    if not row.rates[work]:
        return "-"
    if row is limit:
        return per_second(row.median(work))
    beside = f"{per_second(row.median(work))} = {row.beside(limit, work):.2f} x no-op"
    return beside if row is ours else f"{beside}; duecourse {ours.beside(row, work):.2f} x"


if __name__ == "__main__":
    main()
