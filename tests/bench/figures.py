"""One measured figure, how rates are taken in turn, and how both are written: ratios first."""

import statistics
import time
from collections.abc import Callable, Iterable, Sequence
from typing import NamedTuple

ROUNDS = 5
"""Turns of each side, at least."""
PAYLOAD = '{"user":"' + "x" * 109 + '"}'
"""120 bytes."""
HOUR_MS = 3_600_000
LOOPBACK, AWAY = "loopback", "0.5 ms away"
"""Where the server is."""


class Figure(NamedTuple):
    """A row: its ratio to `beside`, which was measured in turn with it, the aim, and the absolute figures of both.

    `others` is the share of the processors that other programs took meanwhile; `is_marked` where the wait for them
    to be quiet was given up.
    """

    name: str
    ratio: str = ""
    aim: str = ""
    measured: str = ""
    beside: str = ""
    place: str = LOOPBACK
    others: float = 0.0
    is_marked: bool = False


class Rounds(tuple[float, ...]):
    """What each round measured."""

    __slots__ = ()

    @property
    def median(self) -> float:
        """The median round."""
        return statistics.median(self)

    def beside(self, other: "Rounds") -> "Rounds":
        """The ratio of each round to the other side's turn in it."""
        return Rounds(own / its for own, its in zip(self, other, strict=True))

    def shown(self, form: str) -> str:
        """Median, and least and most in brackets: `{:,.0f}/s` gives 17,000/s (16,200 to 17,400)."""
        unit = form.partition("}")[2]
        least, most = (form.removesuffix(unit).format(value) for value in (min(self), max(self)))
        return f"{form.format(self.median)} ({least} to {most})"

    def per_second(self) -> str:
        """As a rate."""
        return self.shown("{:,.0f}/s")

    def times(self, what: str = "") -> str:
        """As a ratio to something."""
        return self.shown("{:.2f} x") + (f" {what}" if what else "")


def rate(work: Callable[[], int]) -> float:
    """How many things a second `work` does; it returns how many it did."""
    start = time.perf_counter()
    count = work()
    return count / (time.perf_counter() - start)


def in_turn(rounds: int, *works: Callable[[], int]) -> list[Rounds]:
    """The rates of each, measured in turn round by round: what slows the machine slows all of them."""
    rates = [[rate(work) for work in works] for _ in range(rounds)]
    return [Rounds(column) for column in zip(*rates, strict=True)]


def quantile(values: Iterable[float], share: float) -> float:
    """The value below which such a share of them is."""
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, int(len(ordered) * share))]


def lateness(late_ms: Sequence[float]) -> str:
    """Median, 99th percentile and worst of milliseconds."""
    p50, p99 = quantile(late_ms, 0.5), quantile(late_ms, 0.99)
    return f"p50 {p50:.4g} · p99 {p99:.4g} · max {max(late_ms):.4g} ms ({len(late_ms):,})"


def lateness_of(rounds: Sequence[Sequence[float]]) -> str:
    """The same of several rounds: the median round's, with the least and the most of them."""
    parts = (
        f"{name} {Rounds(quantile(late, share) for late in rounds).shown('{:.3g}')}"
        for name, share in (("p50", 0.5), ("p99", 0.99), ("max", 1.0))
    )
    return f"{' · '.join(parts)} ms"


def in_rounds(late_ms: Sequence[float]) -> str:
    """The same of one run, in as many pieces as there are rounds, one after another."""
    each = max(1, len(late_ms) // ROUNDS)
    return lateness_of([late_ms[first : first + each] for first in range(0, each * ROUNDS, each)])
