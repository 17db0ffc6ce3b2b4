"""Backup of a ledger: `export`, `import` and `repair`."""

import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.progress import SpinnerColumn, TextColumn

from duecourse.base.times import counted
from duecourse.errors import InvalidInput
from duecourse.settings import Settings

from ..errors import HarnessError
from ..harness import state
from . import console, options, target

if TYPE_CHECKING:
    from ..backup.export import Export
    from ..backup.restore import Restored

ExportedQueues = Annotated[
    list[str] | None, typer.Option("--queue", help="A queue to export; may be given again.", show_default="all")
]
ExportFile = Annotated[
    Path | None, typer.Option("--output", "-o", help="File to write.", show_default="standard output")
]


def export(
    queue: ExportedQueues = None,
    output: ExportFile = None,
    store: options.StoreUsed = None,
    namespace: options.NamespaceUsed = None,
    folder: options.StateUsed = state.DEFAULT,
) -> None:
    """Write tasks, settings of queues and wrapped seal keys as JSON lines, for `duecourse import`.

    The queues stay open: each task is as it was at some moment of the export. A task that is running is written as due.
    Sealed values stay sealed; what is not sealed is in clear, so keep the file as safe as the Redis. A folder of
    leveldb:// is open in one process at a time: stop that process first.

    Examples:

        duecourse export > ledger.jsonl

        duecourse export --queue reports --output reports.jsonl --store rediss://10.0.0.1:6379
    """
    with console.problems_shown():
        settings = target.ledger_settings(store, folder, namespace=namespace)
        with target.open_ledger(settings) as ledger:
            from ..backup.export import Export  # pydantic's models come along

            made = Export(ledger.client, ledger.namespace, queue or (), console.notice, ledger.clock)
            _write(made, output)
    console.err.print(counted(made.tasks, "task"), f", {made.unreadable} left out" if made.unreadable else "", sep="")
    if made.unreadable:
        raise typer.Exit(1)


def _write(made: "Export", output: Path | None) -> None:
    if not output:
        sys.stdout.writelines(f"{console.json_visible(line)}\n" for line in made.lines())
        return
    # A whole file takes the place of the former one. A pipe or a device, such as /dev/null, stays what it is.
    is_file = output.is_file() or not output.exists()
    written = output.with_name(f"{output.name}.part") if is_file else output
    with open(written, "w", opener=_private) as file:
        file.writelines(f"{line}\n" for line in made.lines())
    if is_file:
        written.replace(output)


def _private(path: str, flags: int) -> int:
    return os.open(path, flags, 0o600)


ImportFile = Annotated[Path, typer.Argument(help="File that `duecourse export` wrote.", exists=True, dir_okay=False)]


def restore(
    file: ImportFile,
    store: options.StoreUsed = None,
    namespace: options.NamespaceUsed = None,
    skip_bad: Annotated[
        bool, typer.Option("--skip-bad", help="Restore the good lines of a file with bad ones.")
    ] = False,
    folder: options.StateUsed = state.DEFAULT,
) -> None:
    """Add the tasks, queues and seal keys of an export that the ledger lacks; what is there stays as it is.

    The command checks the whole file first: a bad line is named, and nothing is written. With --skip-bad the good
    lines are restored, each bad one is named, and the exit code is 1.

    Queues may be in use meanwhile. A task that was running runs again. After an interruption, run the same command
    again.

    Examples:

        duecourse import ledger.jsonl --store redis://10.0.0.1:6379

        duecourse import ledger.jsonl --skip-bad
    """
    with console.problems_shown():
        done = _restore(file, target.ledger_settings(store, folder, namespace=namespace), skip_bad)
    bad = f", {counted(done.bad, 'line')} left out" if done.bad else ""
    console.out.print(f"{counted(done.added, 'task')} added, {done.existing} were there already{bad}")
    if done.bad:
        raise typer.Exit(1)


def _restore(file: Path, settings: Settings, skip_bad: bool) -> "Restored":
    with (
        target.open_ledger(settings) as ledger,
        file.open("rb") as given,
        console.bar(SpinnerColumn(), TextColumn("{task.completed:.0f} tasks")) as bar,
    ):
        from ..backup.restore import Lines, Restore  # pydantic's models come along

        shown = bar.add_task("", total=None)
        made = Restore(
            ledger.client,
            ledger.namespace,
            0 if ledger.clock else settings.wait,
            lambda seen: bar.update(shown, completed=seen),
            console.notice if skip_bad else None,
            ledger.clock,
            settings.seal_key,
        )
        try:
            return made.run(Lines(given))
        except InvalidInput as error:
            problems = "\n".join(f"{one.field}: {one.problem}" for one in error.problems)
            raise HarnessError(f"{problems}\nNothing was written: --skip-bad restores the other lines") from error


DamagedFolder = Annotated[
    Path, typer.Argument(help="Folder of a leveldb:// ledger, which stays as it is.", exists=True, file_okay=False)
]
RepairedFolder = Annotated[
    Path | None,
    typer.Option("--output", "-o", help="Folder to make, for the repaired copy.", show_default="FOLDER.repaired"),
]


def repair(folder: DamagedFolder, output: RepairedFolder = None) -> None:
    """Repair a copy of a damaged leveldb:// folder: a copy that broke off, or files that are missing or damaged.

    The command reads what is left of every file, removes entries that cannot be read, and puts tasks back into their
    places.

    A task whose record was in a missing file is lost. A task of which only an earlier state is left may run again.

    Examples:

        duecourse repair /var/lib/duecourse

        duecourse repair /var/lib/duecourse --output /var/lib/duecourse-2
    """
    folder = folder.resolve()
    copy = (output or Path(f"{folder}.repaired")).resolve()
    with console.problems_shown():
        from ..backup.leveldb_repair import repair as repaired  # LevelDB comes along

        done = repaired(folder, copy)
    left_out = f", {done.left_out} of its entries left out" if done.left_out else ""
    unreadable = f", {counted(done.unreadable, 'record')} cannot be read" if done.unreadable else ""
    console.print_line(f"{counted(done.tasks, 'task')} found{left_out}{unreadable}: {copy}")
    console.print_line(f"To use it: --store leveldb://{copy}, or put it in the place of {folder}")
