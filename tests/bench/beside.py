"""`python -m tests.bench.beside OTHER`: claim, settle and lateness of this tree beside another one's, in one run.

OTHER is a working tree of another commit (`git worktree add --detach OTHER main`). Each has a process and a Redis of
its own, and they take turns in slices; read the ratios. The processor's time is the server's, of which other programs
take nothing.
"""

import argparse
import json
import os
import statistics
import subprocess
import sys
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from duecourse_local.doctor.python_build import is_optimised
from tests.bench import machine
from tests.bench.figures import lateness
from tests.bench.server import bench_server
from tests.support.project import ROOT
from tests.support.redis_server import newest

SLICES = Path("tests", "bench", "slices.py")
"""Each tree measures by its own: names change between commits."""


class Side:
    """A tree's process: a line names a slice, its answer is a line of JSON."""

    def __init__(self, tree: Path, running: ExitStack) -> None:
        parts = (tree / "layers" / "core", tree / "local", tree)
        environment = {**os.environ, "PYTHONPATH": os.pathsep.join(map(str, parts))}
        self._process = running.enter_context(
            subprocess.Popen(
                [sys.executable, SLICES, running.enter_context(bench_server()).url],
                cwd=tree,
                env=environment,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                text=True,
            )
        )
        running.callback(self._process.kill)

    def slice(self, name: str) -> Any:
        """What a slice measured."""
        assert self._process.stdin
        assert self._process.stdout
        self._process.stdin.write(f"{name}\n")
        self._process.stdin.flush()
        return json.loads(self._process.stdout.readline())


def main() -> None:
    """Measure, and print a line a figure."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("other", type=Path)
    parser.add_argument("--rounds", type=int, default=30)
    parser.add_argument("--late", type=int, default=4, help="rounds of lateness, ten seconds a side")
    given = parser.parse_args()
    machine.adopt()
    quiet = machine.Quiet(machine.PATIENCE_S, print)
    print(*(f"{what}: {said}" for what, said in machine.described(newest()).items()), sep="\n")
    if not is_optimised():
        print(machine.SLOW_BUILD)
    with ExitStack() as running:
        sides = [Side(tree, running) for tree in (given.other, ROOT)]
        for name in ("free", "limited", "single"):
            is_quiet, others = quiet.wait(), machine.Others()
            rounds = [[side.slice(name) for side in sides[:: 1 if n % 2 else -1]] for n in range(given.rounds)]
            pairs = [pair[:: 1 if n % 2 else -1] for n, pair in enumerate(rounds)][1:]
            for place, what in enumerate(("wall", "processor of Redis")):
                old, new = ([pair[side][place] for pair in pairs] for side in (0, 1))
                ratio = statistics.median(b / a for a, b in zip(old, new, strict=True))
                least = min(new) / min(old)
                told = f"{ratio:.3f} x (median of pairs), {least:.3f} x (best)"
                print(f"claim + settle, {name}, {what}: {told}; {_noted(others, is_quiet)}", flush=True)
        for slice, what in (("late", "tasks"), ("fired", "occurrences of schedules")):
            is_quiet, others = quiet.wait(), machine.Others()
            late: list[list[float]] = [[], []]
            for n in range(given.late):
                for side in (0, 1)[:: 1 if n % 2 else -1]:
                    late[side] += sides[side].slice(slice)
            for name, found in zip(("other", "this tree"), late, strict=True):
                print(f"late, {what}, {name}: {lateness(found)}; {_noted(others, is_quiet)}", flush=True)


def _noted(others: machine.Others, is_quiet: bool) -> str:
    return f"others {others.share():.0%}{'' if is_quiet else ', busy'}"


if __name__ == "__main__":
    main()
