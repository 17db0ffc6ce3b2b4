"""`import`: take in the tasks of an export."""

from pathlib import Path
from typing import Annotated

import typer
from rich.progress import SpinnerColumn, TextColumn

from duecourse.domain.spoken import counted
from duecourse.settings import Settings

from ...stack import state
from .. import client, console

File = Annotated[Path, typer.Argument(help="File that `duecourse export` wrote.", exists=True, dir_okay=False)]


def restore(
    file: File,
    store: client.StoreUsed = None,
    namespace: client.NamespaceUsed = None,
    folder: client.StateUsed = state.DEFAULT,
) -> None:
    """Add the tasks, queues and seal keys of an export that the ledger lacks; what is there stays as it is.

    Queues may be in use meanwhile. A task that was running runs again. After an interruption, run the same command
    again.

    Examples:

        duecourse import ledger.jsonl --store redis://10.0.0.1:6379
    """
    with console.problems_shown():
        added, kept = _restore(file, client.ledger(store, folder, namespace=namespace))
    console.out.print(f"{counted(added, 'task')} added, {kept} were there already")


def _restore(file: Path, settings: Settings) -> tuple[int, int]:
    with (
        client.redis_of(settings, "takes no import: only a ledger on Redis does") as redis,
        file.open() as lines,
        console.bar(SpinnerColumn(), TextColumn("{task.completed:.0f} tasks")) as bar,
    ):
        from ...backup.restore import Restore  # pydantic's models come along

        shown = bar.add_task("", total=None)
        return Restore(redis, settings.namespace, settings.wait, lambda seen: bar.update(shown, completed=seen)).run(
            lines
        )
