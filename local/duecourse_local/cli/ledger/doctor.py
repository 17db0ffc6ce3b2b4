"""`doctor`: examine a ledger, its servers and its functions."""

import json
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Annotated

import typer
from rich.markup import escape
from rich.progress import BarColumn, MofNCompleteColumn, TextColumn
from rich.table import Table

from duecourse.settings import Settings

from ...doctor import targets
from ...doctor.finding import Finding, Level
from ...doctor.ledger import Examination
from ...doctor.timeouts import timeouts
from ...stack import state
from ...stack.addresses import named
from .. import client, console

SILENCE_S = 2.0
"""Time after which a log, where no bar is drawn, gets a line of progress."""
COLOURS = {Level.FINE: "green", Level.NOTE: "cyan", Level.WARNING: "yellow", Level.FAULT: "bold red"}


def doctor(
    store: client.StoreUsed = None,
    namespace: client.NamespaceUsed = None,
    with_targets: Annotated[
        bool, typer.Option("--targets/--no-targets", help="Look for the functions in DUECOURSE_TARGETS, at Lambda.")
    ] = True,
    as_json: Annotated[bool, typer.Option("--json", help="Print the findings as JSON.")] = False,
    folder: client.StateUsed = state.DEFAULT,
) -> None:
    """Look for what loses tasks, stops them or makes them late, and name what mends it. Nothing is changed.

    The command looks at servers, every task and index, bells, leases, ticks and functions.

    Exit code 1 for a fault or a warning.

    Examples:

        duecourse doctor

        duecourse doctor --store rediss://10.0.0.1:6379 --json
    """
    with console.problems_shown():
        settings = client.ledger(store, folder, namespace=namespace)
        console.err.print(f"the ledger at {named(settings)}, namespace {settings.namespace}", soft_wrap=True)
        found = list(_findings(settings, folder, with_targets=with_targets))
    if as_json:
        typer.echo(json.dumps([finding._asdict() for finding in found], ensure_ascii=False))
    else:
        console.out.print(_table(found))
    if any(finding.level in {Level.WARNING, Level.FAULT} for finding in found):
        raise typer.Exit(1)


def _findings(settings: Settings, folder: Path, *, with_targets: bool) -> Iterator[Finding]:
    with (
        client.redis_of(settings, "is not examined: only a ledger on Redis is") as redis,
        console.bar(TextColumn("shards"), BarColumn(), MofNCompleteColumn(), TextColumn("{task.description}")) as bar,
    ):
        exam = Examination(redis, settings.namespace, events=settings.events == "on")
        shown = bar.add_task("", total=exam.steps)
        told = time.monotonic()
        for done, findings in exam.run():
            text = f"{exam.looked:,} tasks and entries of indexes"
            bar.update(shown, completed=done, description=text)
            if bar.disable and time.monotonic() - told > SILENCE_S:
                console.progress(f"{text} examined")
                told = time.monotonic()
            yield from findings
    if with_targets and settings.targets:
        yield from targets.examine(settings.targets, settings.lease_ms, timeouts(folder))


def _table(found: Sequence[Finding]) -> Table:
    table = Table(box=None, pad_edge=False)
    for name in ("", "check", "seen", "to mend it"):
        table.add_column(name, overflow="fold")
    for level in reversed(Level):
        for one in (finding for finding in found if finding.level is level):
            seen = f"{one.place}: {one.text}" if one.place else one.text
            table.add_row(f"[{COLOURS[level]}]{level}[/]", one.check, escape(seen), escape(one.fix))
    return table
