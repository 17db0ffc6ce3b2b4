"""`show`: print one task, what happened to it and what it waits for; or a queue in numbers."""

from typing import Annotated

import typer

from .. import console
from ..table import Table
from . import fields, words
from .command import Screen, on_ledger
from .listing import show_why
from .place import Document, Ledger, Rejected

ABSENT = 404


@on_ledger
def show(
    ledger: Ledger,
    screen: Screen,
    id: Annotated[str | None, typer.Argument(help="Id of the task; without an id, show the queue.")] = None,
    queue: fields.Queue = fields.DEFAULT,
) -> None:
    """Print a task, what happened to it and what it waits for; or a queue with its limits and numbers of tasks.

    Exit code 1 if the task does not exist. With --store there are also the fields that only the ledger has.

    Examples:

        duecourse show report-42

        duecourse show standup:300:0 --queue reminders --store redis://127.0.0.1:6379/0

        duecourse show --queue reminders
    """
    if id is None:
        screen.answer(ledger.ask("GET", fields.queue_path(queue)), lambda found: show_queue(found["queue"]))
        return
    try:
        task = ledger.ask("GET", fields.task_path(id), {"queue": queue})["task"]
        why = ledger.ask("GET", fields.task_path(id, "/why"), {"queue": queue})
    except Rejected as error:
        if error.status != ABSENT:
            raise
        console.notice(
            f"no task {id} in queue {queue}, in the {ledger.name}. "
            "For another ledger, give --store or --url, or --stack of a stack that is up"
        )
        raise typer.Exit(1) from None
    kept = ledger.kept(queue, id)
    screen.answer({"task": task, "why": why}, lambda _: _print(task, why, dict(kept)))


def _print(task: Document, why: Document, kept: dict[str, str]) -> None:
    table = Table("field", "value", show_header=False)
    for name, value in {**task, "history": None, **kept}.items():
        if value not in {None, ""} if isinstance(value, str | None) else True:
            table.add_row(name, words.text_of(value))
    console.show(table)
    console.out.print()
    show_why(why)


def show_queue(view: Document) -> None:
    """Print a queue with its settings and numbers."""
    table = Table("field", "value", show_header=False)
    for name, value in view.items():
        if name != "split":
            table.add_row(name, words.parts_of(value))
    for part in view["split"] if len(view["split"]) > 1 else ():
        of_shard = {name: value for name, value in part.items() if name != "shard"}
        table.add_row(f"shard {part['shard']!s}", words.parts_of(of_shard))
    console.show(table)
