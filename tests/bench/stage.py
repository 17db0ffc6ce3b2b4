"""The stage of a measurement: a Redis of its own, how far away it is, and what is kept for pictures."""

import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

from tests.bench.away import Away, away
from tests.bench.figures import AWAY, LOOPBACK, ROUNDS, Figure
from tests.bench.server import BenchServer, bench_server

Say = Callable[[str], object]
Measured = Iterator[Sequence[Figure]]
"""Figures, those together that one piece of work gives."""


@dataclass(frozen=True, slots=True)
class Stage:
    """Where and how much a section measures: `server` is the direct way, `proxy` the one that holds each byte."""

    server: BenchServer
    proxy: Away
    folder: Path
    say: Say
    pending: int = 100_000
    rounds: int = ROUNDS
    seconds: float = 0.8
    """Time that a turn of a worker takes, about."""
    curves: dict[str, Sequence[float]] = field(default_factory=dict)
    """Lateness of each (ms), for the picture."""
    bars: dict[str, dict[str, float]] = field(default_factory=dict)
    """Rates of each, by what it did, for the picture."""

    @property
    def places(self) -> Mapping[str, BenchServer]:
        """Both ways to the server, by their names."""
        return {LOOPBACK: self.server, AWAY: self.server._replace(url=self.proxy.url)}


class Section(NamedTuple):
    """A part of the page: its heading, how to read it, and its work."""

    title: str
    text: str
    measure: Callable[..., Measured]
    """Its work on a stage."""


def at_both(measure: Callable[[BenchServer, int], Measured]) -> Callable[[Stage], Measured]:
    """The work of a section on loopback, and again with the server farther away."""

    def measured(stage: Stage) -> Measured:
        for place, server in stage.places.items():
            for figures in measure(server, stage.pending):
                yield [one._replace(place=place) for one in figures]

    return measured


def at_one(measure: Callable[[BenchServer, int], Measured]) -> Callable[[Stage], Measured]:
    """The work of a section whose figures are the processor's alone, or need no server."""
    return lambda stage: measure(stage.server, stage.pending)


@contextmanager
def staged(say: Say, *, pending: int, rounds: int, seconds: float) -> Iterator[Stage]:
    """A stage with an empty server."""
    with (
        tempfile.TemporaryDirectory(prefix="duecourse-bench-") as folder,
        bench_server() as server,
        away(server.url) as proxy,
    ):
        yield Stage(server, proxy, Path(folder), say, pending, rounds, seconds)
