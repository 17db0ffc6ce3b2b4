"""`repair`: bring back the tasks of a damaged `leveldb://` folder, in a copy."""

from pathlib import Path
from typing import Annotated

import typer

from duecourse.domain.spoken import counted

from .. import console

Folder = Annotated[
    Path, typer.Argument(help="Folder of a leveldb:// ledger, which stays as it is.", exists=True, file_okay=False)
]
Output = Annotated[
    Path | None,
    typer.Option("--output", "-o", help="Folder to make, for the repaired copy.", show_default="FOLDER.repaired"),
]


def repair(folder: Folder, output: Output = None) -> None:
    """Repair a copy of a damaged leveldb:// folder: a copy that broke off, or files that are missing or damaged.

    The command reads what is left of every file, removes entries that cannot be read, and puts tasks back into their
    places.

    A task whose record was in a missing file is lost. A task of which only an earlier state is left may run again.

    Examples:

        duecourse repair /var/lib/duecourse

        duecourse repair /var/lib/duecourse --output /var/lib/duecourse-2
    """
    folder = folder.resolve()
    copy = (output or folder.with_name(f"{folder.name}.repaired")).resolve()
    with console.problems_shown():
        from ...backup.repair import repair as repaired  # LevelDB comes along

        done = repaired(folder, copy)
    left_out = f", {done.left_out} of its entries left out" if done.left_out else ""
    unreadable = f", {counted(done.unreadable, 'record')} cannot be read" if done.unreadable else ""
    console.say_line(f"{counted(done.tasks, 'task')} found{left_out}{unreadable}: {copy}")
    console.say_line(f"To use it: --store leveldb://{copy}, or put it in the place of {folder}")
