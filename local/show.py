"""`show`: print one task as the ledger keeps it, and what it waits for; or a queue in numbers."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Annotated

import typer
from rich.markup import escape
from rich.table import Table

from duecourse import ledgers
from duecourse.domain.queues import QueueStanding
from duecourse.domain.task import DEFAULT_QUEUE, DEFAULT_TENANT, Task
from duecourse.domain.timeline import Waiting, timeline, waiting
from duecourse.domain.times import format_instant
from duecourse.engine.queues import Queues
from duecourse.errors import DuecourseError
from duecourse.ports.store import Store
from duecourse.settings import Settings
from duecourse.wire.queues import show_queue
from local import client, console, state
from local.problems import HarnessError


def show(
    id: Annotated[str | None, typer.Argument(help="The task's id; without one the queue is shown.")] = None,
    queue: Annotated[str, typer.Option(help="Its queue; a reminder's tasks are in reminders.")] = DEFAULT_QUEUE,
    tenant: Annotated[str, typer.Option(help="Whose it is.")] = DEFAULT_TENANT,
    store: client.StoreUsed = None,
    folder: client.StateUsed = state.DEFAULT,
) -> None:
    """Print one task as the ledger keeps it, what happened to it and what it waits for, or a queue in numbers.

    Exit code 1 where there is none.

    Examples:

        python -m local show report-42

        python -m local show standup:300:0 --queue reminders --store redis://127.0.0.1:6379/0

        python -m local show --queue reminders
    """
    with console.problems_told(), _opened(client.ledger(store, folder)) as ledger:
        seen = None if id else Queues(ledger).get(queue)
        task = ledger.get(queue, id, tenant) if id else None
        waits = task and waiting(task, ledger.held_back(ledger.shard_of(queue, task.id, task.group), tenant))
    if seen:
        console.out.print(_queue(seen))
        return
    if not (task and waits):
        console.err.print(f"no task {escape(str(id))} in queue {escape(queue)}")
        raise typer.Exit(1)
    console.out.print(_record(task))
    console.out.print(_history(task, waits))


@contextmanager
def _opened(settings: Settings) -> Iterator[Store]:
    try:
        yield ledgers.open_store(settings)
    except DuecourseError as error:
        raise HarnessError(str(error)) from error


def _queue(seen: QueueStanding) -> Table:
    table = Table("field", "value", show_header=False)
    view = show_queue(seen)
    for name, value in view.items():
        if name != "split":
            table.add_row(name, _told(value))
    for part in view["split"] if len(view["split"]) > 1 else ():
        table.add_row(f"shard {part['shard']}", f"running {part['running']}, at most {part['max_running']}")
    return table


def _told(value: object) -> str:
    if isinstance(value, dict):
        return ", ".join(f"{key} {part}" for key, part in value.items() if part is not None)
    return "" if value is None else escape(str(value))


def _record(task: Task) -> Table:
    table = Table("field", "value", show_header=False)
    for name, value in task._asdict().items():
        if name != "log":
            table.add_row(name, escape(_shown(name, value)))
    return table


def _history(task: Task, waits: Waiting) -> Table:
    table = Table("at", "what", title="what happened, oldest first", title_justify="left")
    for one in timeline(task):
        table.add_row(format_instant(one.at), escape(one.text))
    table.add_row("now", escape(waits.text))
    return table


def _shown(name: str, value: object) -> str:
    """Instants as they can be read; none as nothing."""
    if name.endswith("_at"):
        return format_instant(value) if isinstance(value, int) and value else ""
    return str(value)
