"""`import`: take in the tasks of an export."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.progress import SpinnerColumn, TextColumn

from duecourse.domain.spoken import counted
from duecourse.errors import InvalidInput
from duecourse.settings import Settings

from ...stack import state
from ...stack.problems import HarnessError
from .. import client, console

if TYPE_CHECKING:
    from ...backup.restore import Restored

File = Annotated[Path, typer.Argument(help="File that `duecourse export` wrote.", exists=True, dir_okay=False)]


def restore(
    file: File,
    store: client.StoreUsed = None,
    namespace: client.NamespaceUsed = None,
    skip_bad: Annotated[
        bool, typer.Option("--skip-bad", help="Restore the good lines of a file with bad ones.")
    ] = False,
    folder: client.StateUsed = state.DEFAULT,
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
        done = _restore(file, client.ledger(store, folder, namespace=namespace), skip_bad)
    bad = f", {counted(done.bad, 'line')} left out" if done.bad else ""
    console.out.print(f"{counted(done.added, 'task')} added, {done.kept} were there already{bad}")
    if done.bad:
        raise typer.Exit(1)


def _restore(file: Path, settings: Settings, skip_bad: bool) -> "Restored":
    with (
        client.redis_of(settings, "takes no import: only a ledger on Redis does") as redis,
        file.open("rb") as given,
        console.bar(SpinnerColumn(), TextColumn("{task.completed:.0f} tasks")) as bar,
    ):
        from ...backup.restore import Lines, Restore  # pydantic's models come along

        shown = bar.add_task("", total=None)
        made = Restore(
            redis,
            settings.namespace,
            settings.wait,
            lambda seen: bar.update(shown, completed=seen),
            console.notice if skip_bad else None,
        )
        try:
            return made.run(Lines(given))
        except InvalidInput as error:
            problems = "\n".join(f"{one.field}: {one.problem}" for one in error.problems)
            raise HarnessError(f"{problems}\nNothing was written: --skip-bad restores the other lines") from error
