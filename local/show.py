"""`show`: print one task as the ledger keeps it, its packed record decoded."""

from typing import Annotated

import typer
from rich.markup import escape
from rich.table import Table

from duecourse import ledgers
from duecourse.domain.task import DEFAULT_QUEUE, DEFAULT_TENANT, Run, Task
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
    if task.history:
        console.out.print(_history(task.history))


def _read(queue: str, id: str, tenant: str, settings: Settings) -> Task | None:
    try:
        return ledgers.open_store(settings).get(queue, id, tenant)
    except DuecourseError as error:
        raise HarnessError(str(error)) from error


def _record(task: Task) -> Table:
    table = Table("field", "value", show_header=False)
    for name, value in task._asdict().items():
        if name != "history":
            table.add_row(name, escape(_shown(name, value)))
    return table


def _history(history: tuple[Run, ...]) -> Table:
    table = Table(title="history, oldest first", title_justify="left")
    for name in Run._fields:
        table.add_column(name, overflow="fold")
    for run in history:
        table.add_row(*(escape(_shown(name, value)) for name, value in run._asdict().items()))
    return table


def _shown(name: str, value: object) -> str:
    """Instants as they can be read; none as nothing."""
    if name.endswith("_at"):
        return format_instant(value) if isinstance(value, int) and value else ""
    return str(value)
