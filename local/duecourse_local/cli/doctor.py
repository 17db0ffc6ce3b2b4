"""`doctor`: examine a ledger, its servers and its functions."""

import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.progress import BarColumn, MofNCompleteColumn, TextColumn
from rich.text import Text

from duecourse.settings import Settings

from ..doctor.finding import Finding, Level
from ..harness import state
from ..harness.addresses import ledger_name
from . import console, lambda_invoke, options, target
from .console import Table

if TYPE_CHECKING:
    from ..doctor.targets import Timeout


def timeouts(folder: Path) -> "Timeout":
    """The timeout of each function by its name."""
    return _of_template if state.running(folder) else _of_account()


def _of_template(name: str) -> float | None:
    function = lambda_invoke.functions_by_name().get(name)
    return function.timeout if function else None


def _of_account() -> "Timeout":
    import boto3

    service: Any = boto3.client("lambda")

    def timeout_of(name: str) -> float | None:
        try:
            return float(service.get_function_configuration(FunctionName=name)["Timeout"])
        except service.exceptions.ResourceNotFoundException:
            return None

    return timeout_of


SILENCE_S = 2.0
"""Time after which a log, where no bar is drawn, gets a line of progress."""
COLOURS = {Level.FINE: "green", Level.NOTE: "cyan", Level.WARNING: "yellow", Level.FAULT: "bold red"}


def doctor(
    store: options.StoreUsed = None,
    namespace: options.NamespaceUsed = None,
    with_targets: Annotated[
        bool, typer.Option("--targets/--no-targets", help="Check that Lambda has the functions of DUECOURSE_TARGETS.")
    ] = True,
    as_json: Annotated[bool, typer.Option("--json", help="Print the findings as JSON.")] = False,
    folder: options.StateUsed = state.DEFAULT,
) -> None:
    """Find what loses tasks, stops them or makes them late, and say how to mend it. Nothing is changed.

    The command examines servers, every task and index, bells, leases, ticks and functions. This machine's time zones
    and Python are looked at, too.

    The exit code is 1 if there is a fault or a warning.

    Examples:

        duecourse doctor

        duecourse doctor --store rediss://10.0.0.1:6379 --json
    """
    with console.problems_shown():
        settings = target.ledger_settings(store, folder, namespace=namespace)
        place = f"the ledger at {ledger_name(settings)}, namespace {settings.namespace}"
        console.err.print(console.shown(place), soft_wrap=True)
        found = list(_findings(settings, folder, with_targets=with_targets))
    if as_json:
        typer.echo(console.json_text([finding._asdict() for finding in found]))
    else:
        console.print_table(_table(found))
    if any(finding.level in {Level.WARNING, Level.FAULT} for finding in found):
        raise typer.Exit(1)


def _findings(settings: Settings, folder: Path, *, with_targets: bool) -> Iterator[Finding]:
    from ..doctor import python_build, targets, zones
    from ..doctor.examination import Examination

    with (
        target.open_redis(settings, "is not examined: only a ledger on Redis is") as redis,
        console.bar(TextColumn("shards"), BarColumn(), MofNCompleteColumn(), TextColumn("{task.description}")) as bar,
    ):
        exam = Examination(redis, settings.namespace, events=settings.events == "on")
        shown = bar.add_task("", total=exam.steps)
        reported_at = time.monotonic()
        for done, findings in exam.run():
            text = f"{exam.looked:,} tasks and entries of indexes"
            bar.update(shown, completed=done, description=text)
            if bar.disable and time.monotonic() - reported_at > SILENCE_S:
                console.progress(f"{text} examined")
                reported_at = time.monotonic()
            yield from findings
    yield from zones.examine()
    yield from python_build.examine()
    if with_targets and settings.targets:
        yield from targets.examine(settings.targets, settings.lease_ms, timeouts(folder))


def _table(found: Sequence[Finding]) -> Table:
    table = Table("level", "check", "seen", "to mend it")
    for level in reversed(Level):
        for one in (finding for finding in found if finding.level is level):
            seen = f"{one.place}: {one.text}" if one.place else one.text
            table.add_row(Text(level, COLOURS[level]), one.check, seen, one.fix)
    return table
