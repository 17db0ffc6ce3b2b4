"""The command line of a set of sections: measure each, say what is being done, and print ratios first."""

import argparse
import time
from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

from rich import box
from rich.console import Console
from rich.table import Table

from duecourse_local.doctor.python_build import is_optimised
from tests.bench import machine
from tests.bench.away import capacity, round_trip_ms
from tests.bench.figures import AWAY, LOOPBACK, ROUNDS, Figure
from tests.bench.stage import Say, Section, Stage, staged

MARK = "busy"
"""Word beside a figure that was measured while other programs worked."""


class Cells(NamedTuple):
    """A table: its heads, and its rows."""

    heads: Sequence[str]
    rows: Sequence[Sequence[str]]


class Found(NamedTuple):
    """What a section measured: its figures, what they were measured on, and the stage with what it kept."""

    figures: Sequence[Figure]
    machine: Mapping[str, str]
    stage: Stage


def ratios(figures: Sequence[Figure]) -> Cells:
    """Each figure's ratio on loopback and farther away, beside the aim."""
    rows: dict[str, dict[str, Figure]] = {}
    for one in figures:
        if one.ratio:
            rows.setdefault(one.name, {})[one.place] = one
    places = [place for place in (LOOPBACK, AWAY) if any(place in row for row in rows.values())]
    cells = [
        [name, *(row[place].ratio if place in row else "" for place in places), _aims(list(row.values()))]
        for name, row in rows.items()
    ]
    return Cells(("duecourse beside", *places, "aim"), cells)


def _aims(row: Sequence[Figure]) -> str:
    return " · ".join(dict.fromkeys(one.aim for one in row if one.aim))


def absolutes(figures: Sequence[Figure]) -> Cells:
    """Each figure with what it is beside, where it was measured, and what other programs took meanwhile."""
    cells = [
        [
            one.name,
            one.place,
            one.measured,
            "" if one.ratio else one.aim,
            one.beside,
            f"{one.others:.0%}{f', {MARK}' if one.is_marked else ''}",
        ]
        for one in figures
    ]
    return Cells(("figure", "server", "median (least to most)", "aim", "beside", "others"), cells)


def parser(name: str, about: str | None, sections: Mapping[str, Section]) -> argparse.ArgumentParser:
    """The options that all have."""
    made = argparse.ArgumentParser(name, description=about, formatter_class=argparse.RawDescriptionHelpFormatter)
    add = made.add_argument
    add("--only", nargs="*", choices=[*sections], metavar="PART", help=f"these parts: {', '.join(sections)}")
    add("--pending", type=int, default=100_000, help="tasks that wait beside those measured (default 100,000)")
    add("--rounds", type=int, default=ROUNDS, help=f"turns of each side (default {ROUNDS}, as many at least)")
    add("--seconds", type=float, default=0.8, help="time of a worker's turn, about (default 0.8)")
    patience = f"seconds to wait for other programs, over all rows (default {machine.PATIENCE_S:.0f})"
    add("--patience", type=float, default=machine.PATIENCE_S, help=patience)
    return made


def measured(
    console: Console, sections: Mapping[str, Section], options: argparse.Namespace
) -> Iterator[tuple[str, Found]]:
    """What each section measured, printed as it is there."""
    began = time.monotonic()

    def say(text: str) -> None:
        console.print(f"{time.monotonic() - began:5.0f} s  {text}", style="dim", highlight=False, markup=False)

    if not is_optimised():
        console.print(machine.SLOW_BUILD, style="bold red")
    if options.rounds < ROUNDS:
        say(f"{options.rounds} rounds are a trial: figures to be compared take {ROUNDS} at least")
    machine.adopt()
    quiet, failed = machine.Quiet(options.patience, say), []
    for name, section in sections.items():
        if options.only is None or name in options.only:
            try:
                found = _found(name, section, quiet, say, options)
            except (AssertionError, SystemExit) as problem:  # what a side did not do in time, or why it ended
                say(f"{name}: {problem}")
                failed.append(name)
                continue
            _print(console, name, section, found)
            yield name, found
    if failed:
        raise SystemExit(f"not measured: {', '.join(failed)}")


def _found(name: str, section: Section, quiet: machine.Quiet, say: Say, options: argparse.Namespace) -> Found:
    with staged(say, pending=options.pending, rounds=options.rounds, seconds=options.seconds) as stage:
        say(f"{name}: begins")
        began, figures, busiest = time.monotonic(), [], 0.0
        work = quiet.rows(section.measure(stage))
        used_s, at = stage.proxy.used_s(), time.monotonic()
        for one in work:
            figures.append(one)
            say(" ".join(part for part in (one.name, one.place, one.ratio or one.measured) if part))
            busiest = max(busiest, (stage.proxy.used_s() - used_s) / max(time.monotonic() - at, 1.0))
            used_s, at = stage.proxy.used_s(), time.monotonic()
        notes = {**machine.described(stage.server.version), "took": f"{time.monotonic() - began:.0f} s"}
        if any(one.place == AWAY for one in figures):
            notes |= _distance(stage, busiest)
        return Found(figures, notes, stage)


def _distance(stage: Stage, busiest: float) -> Mapping[str, str]:
    near, far = (round_trip_ms(place.url) for place in stage.places.values())
    pace = f"at most {busiest:.0%} of a processor; alone it passes on {capacity(stage.proxy):,.0f} MB/s"
    return {"a PING": f"{near:.2f} ms on loopback, {far:.2f} ms behind the proxy", "the proxy took": pace}


def _print(console: Console, name: str, section: Section, found: Found) -> None:
    console.rule(f"{name}: {section.title}", align="left")
    for cells in (ratios(found.figures), absolutes(found.figures)):
        if cells.rows:
            table = Table(*cells.heads, box=box.SIMPLE)
            for row in cells.rows:
                table.add_row(*row)
            console.print(table, markup=False)
    for what, said in found.machine.items():
        console.print(f"{what:>14}  {said}", highlight=False, markup=False)
