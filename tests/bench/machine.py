"""The machine that measures: its description, and the wait until other programs leave it alone."""

import ctypes
import platform
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path

import psutil

from duecourse_local.doctor.python_build import FIX, is_optimised
from tests.bench.figures import Figure
from tests.support.project import ROOT

QUIET = 0.08
"""Share of all processors that other programs may take."""
PATIENCE_S = 120.0
"""Time that a command waits for that, over all of its rows."""
LOOK_S = 0.5
PR_SET_CHILD_SUBREAPER = 36
SAID_EACH = 20
"""Looks from one line about a wait to the next."""
SLOW_BUILD = f"WARNING: this Python was built without optimisation by profiles, and takes twice as long: {FIX}"


def described(redis_version: str) -> Mapping[str, str]:
    """What a reader must know to compare figures."""
    name = next((line.partition(":")[2].strip() for line in _cpuinfo() if line.startswith("model name")), "")
    model = next((f", model {line.partition(':')[2].strip()}" for line in _cpuinfo() if line.startswith("model\t")), "")
    return {
        "date": f"{datetime.now(UTC):%Y-%m-%d %H:%M} UTC",
        "commit": _commit(),
        "processors": f"{psutil.cpu_count()} x {name or platform.processor() or platform.machine()}{model}",
        "system": f"{platform.system()} {platform.release()}",
        "Python": f"{platform.python_version()}, {build()}",
        "Redis": f"{redis_version}, nothing on disk",
    }


def build() -> str:
    """The build of this Python."""
    return "optimised by profiles" if is_optimised() else "built WITHOUT optimisation: about half as fast"


def _cpuinfo() -> list[str]:
    file = Path("/proc/cpuinfo")
    return file.read_text().splitlines() if file.exists() else []


def _commit() -> str:
    command = ["git", "describe", "--always", "--dirty", "--abbrev=10"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    return done.stdout.strip() or "not a clone"


def adopt() -> None:
    """Be the parent of orphans below this process, so that the time of a killed worker's children counts as its own."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)


class Others:
    """Share of all processors that programs besides this one and its children took, since it was made."""

    def __init__(self) -> None:
        self._began = _times()

    def share(self) -> float:
        """From 0 to 1."""
        (wall, busy, own), (since, before, had) = _times(), self._began
        return min(1.0, max(0.0, (busy - before - (own - had)) / max(wall - since, 1e-3) / (psutil.cpu_count() or 1)))


def _times() -> tuple[float, float, float]:
    """The clock, the processors' busy time, and that of this process with all below it (s).

    Interrupts are left out: those of our own bytes would count as another's.
    """
    all_of_them = psutil.cpu_times()
    busy = all_of_them.user + all_of_them.nice + all_of_them.system + getattr(all_of_them, "steal", 0.0)
    return time.monotonic(), busy, _own_s()


def _own_s() -> float:
    """Time of this process and its children; that of one that has ended is its parent's."""
    this = psutil.Process()
    used = 0.0
    for one in (this, *this.children(recursive=True)):
        try:
            times = one.cpu_times()
        except psutil.NoSuchProcess:
            continue
        used += times.user + times.system + times.children_user + times.children_system
    return used


class Quiet:
    """Waits for other programs before each row, within a time for all rows, and notes what they take meanwhile."""

    def __init__(
        self,
        patience_s: float,
        say: Callable[[str], object],
        look: Callable[[], float] | None = None,
    ) -> None:
        self.left_s = patience_s
        self._say = say
        self._look = look or _look

    def wait(self) -> bool:
        """Wait until other programs are quiet; False where the time was up before."""
        share, looks = self._look(), 0
        while share >= QUIET and self.left_s > 0:
            if not looks % SAID_EACH:
                self._say(f"other programs take {share:.0%} of the processors: waiting, {self.left_s:.0f} s at most")
            share, looks, self.left_s = self._look(), looks + 1, self.left_s - LOOK_S
        if looks and share >= QUIET:
            self._say("waited long enough: rows are marked where other programs take more")
        return share < QUIET

    def rows(self, measured: Iterator[Sequence[Figure]]) -> Iterator[Figure]:
        """The figures, each piece of work begun after a wait, with the others' share while it ran."""
        while True:
            is_quiet, others = self.wait(), Others()
            if not (found := next(measured, ())):
                return
            share = others.share()
            is_marked = not is_quiet or share >= QUIET
            yield from (one._replace(others=share, is_marked=is_marked) for one in found)


def _look() -> float:
    others = Others()
    time.sleep(LOOK_S)
    return others.share()
