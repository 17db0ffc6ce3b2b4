"""One measured figure, and how rates are taken."""

import statistics
import time
from collections.abc import Callable, Sequence
from typing import NamedTuple


class Figure(NamedTuple):
    """A row of the table: what was measured, what is aimed at, and the machine's own limit in the same run."""

    name: str
    measured: str
    aim: str = ""
    beside: str = ""


def rate(work: Callable[[], int]) -> float:
    """How many things a second `work` does; it returns how many it did."""
    start = time.perf_counter()
    count = work()
    return count / (time.perf_counter() - start)


def in_turn(rounds: int, *works: Callable[[], int]) -> list[float]:
    """The median rate of each, measured in turn round by round: what slows the machine slows all of them."""
    rates = [[rate(work) for work in works] for _ in range(rounds)]
    return [statistics.median(column) for column in zip(*rates, strict=True)]


def per_second(value: float) -> str:
    """A rate for people: `12,300/s`."""
    return f"{value:,.0f}/s"


def lateness(late_ms: Sequence[float]) -> str:
    """Median, 99th percentile and worst of milliseconds."""
    ordered = sorted(late_ms)
    p50, p99 = (ordered[int(len(ordered) * share)] for share in (0.5, 0.99))
    return f"p50 {p50:.4g} · p99 {p99:.4g} · max {ordered[-1]:.4g} ms ({len(ordered):,})"
