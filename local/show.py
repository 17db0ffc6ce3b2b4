"""`show`: print one task as the ledger keeps it, its packed record decoded."""

from typing import Annotated

import typer
from rich.markup import escape
from rich.table import Table

from duecourse import ledgers
from duecourse.domain.task import DEFAULT_QUEUE, DEFAULT_TENANT, Task
from duecourse.domain.timeline import timeline
from duecourse.domain.times import format_instant
from duecourse.errors import DuecourseError
from duecourse.settings import Settings
from local import client, console, state
from local.problems import HarnessError


def show(
    id: Annotated[str, typer.Argument(help="The task's id.")],
    queue: Annotated[str, typer.Option(help="Its queue; a reminder's tasks are in reminders.")] = DEFAULT_QUEUE,
    tenant: Annotated[str, typer.Option(help="Whose it is.")] = DEFAULT_TENANT,
    store: client.StoreUsed = None,
    folder: client.StateUsed = state.DEFAULT,
) -> None:
    """Print one task as the ledger keeps it, with its history; exit code 1 where there is none.

    Examples:

        python -m local show report-42

        python -m local show standup:300:0 --queue reminders --store redis://127.0.0.1:6379/0
    """
    with console.problems_told():
        task = _read(queue, id, tenant, client.ledger(store, folder))
    if task is None:
        console.err.print(f"no task {escape(id)} in queue {escape(queue)}")
        raise typer.Exit(1)
    console.out.print(_record(task))
    console.out.print(_history(task))


def _read(queue: str, id: str, tenant: str, settings: Settings) -> Task | None:
    try:
        return ledgers.open_store(settings).get(queue, id, tenant)
    except DuecourseError as error:
        raise HarnessError(str(error)) from error


def _record(task: Task) -> Table:
    table = Table("field", "value", show_header=False)
    for name, value in task._asdict().items():
        if name != "log":
            table.add_row(name, escape(_shown(name, value)))
    return table


def _history(task: Task) -> Table:
    table = Table("at", "what", title="what happened, oldest first", title_justify="left")
    for one in timeline(task):
        table.add_row(format_instant(one.at), escape(one.text))
    return table


def _shown(name: str, value: object) -> str:
    """Instants as they can be read; none as nothing."""
    if name.endswith("_at"):
        return format_instant(value) if isinstance(value, int) and value else ""
    return str(value)
