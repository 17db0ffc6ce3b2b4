"""`export`: write a ledger as JSON lines."""

import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from duecourse.domain.spoken import counted

from ...stack import state
from .. import client, console

if TYPE_CHECKING:
    from ...backup.export import Export

Queues = Annotated[
    list[str] | None, typer.Option("--queue", help="A queue to export; may be given again.", show_default="all")
]
Output = Annotated[Path | None, typer.Option("--output", "-o", help="File to write.", show_default="standard output")]


def export(
    queue: Queues = None,
    output: Output = None,
    store: client.StoreUsed = None,
    namespace: client.NamespaceUsed = None,
    folder: client.StateUsed = state.DEFAULT,
) -> None:
    """Write tasks, settings of queues and wrapped seal keys as JSON lines, for `duecourse import`.

    The queues stay open: each task is as it was at some moment of the export. A task that is running is written as due.
    Sealed values stay sealed; what is not sealed is in clear, so keep the file as safe as the Redis.

    Examples:

        duecourse export > ledger.jsonl

        duecourse export --queue reports --output reports.jsonl --store rediss://10.0.0.1:6379
    """
    with console.problems_shown():
        settings = client.ledger(store, folder, namespace=namespace)
        with client.redis_of(settings, "has no export: stop its process and copy its folder") as redis:
            from ...backup.export import Export  # pydantic's models come along

            made = Export(redis, settings.namespace, queue or (), console.notice)
            _write(made, output)
    console.err.print(counted(made.tasks, "task"), f", {made.unreadable} left out" if made.unreadable else "", sep="")
    if made.unreadable:
        raise typer.Exit(1)


def _write(made: "Export", output: Path | None) -> None:
    if not output:
        sys.stdout.writelines(f"{console.json_visible(line)}\n" for line in made.lines())
        return
    part = output.with_name(f"{output.name}.part")
    with open(part, "w", opener=_private) as file:
        file.writelines(f"{line}\n" for line in made.lines())
    part.replace(output)


def _private(path: str, flags: int) -> int:
    return os.open(path, flags, 0o600)
