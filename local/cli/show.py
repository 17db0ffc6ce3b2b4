"""`show`: print one task as the ledger keeps it, and what it waits for; or a queue in numbers."""

import json
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Annotated

import typer
from rich.markup import escape
from rich.table import Table

from duecourse import ledgers
from duecourse.domain.address import shown
from duecourse.domain.masking import masked, masked_error
from duecourse.domain.queues import QueueStatus
from duecourse.domain.task import DEFAULT_QUEUE, DEFAULT_TENANT, RetryPolicy, Status, Task, dump_json
from duecourse.domain.timeline import Waiting, timeline, waiting
from duecourse.domain.times import format_duration, format_instant
from duecourse.engine.queues import Queues
from duecourse.errors import DuecourseError
from duecourse.ports.store import Store
from duecourse.settings import Settings
from duecourse.wire.http.queues import show_queue
from duecourse.wire.http.tasks import show_task

from ..stack import state
from ..stack.problems import HarnessError
from . import client, console


def show(
    id: Annotated[str | None, typer.Argument(help="Id of the task; without an id, show the queue.")] = None,
    queue: Annotated[
        str, typer.Option(help="Queue of the task; tasks of reminders are in the queue reminders.")
    ] = DEFAULT_QUEUE,
    tenant: Annotated[str, typer.Option(help="Tenant of the task.")] = DEFAULT_TENANT,
    store: client.StoreUsed = None,
    folder: client.StateUsed = state.DEFAULT,
) -> None:
    """Print a task, what happened to it and what it waits for; or a queue with its limits and numbers of tasks.

    Exit code 1 if the task does not exist.

    Examples:

        python -m local show report-42

        python -m local show standup:300:0 --queue reminders --store redis://127.0.0.1:6379/0

        python -m local show --queue reminders
    """
    with console.problems_shown():
        settings = client.ledger(store, folder)
        with _opened(settings) as ledger:
            seen = None if id else Queues(ledger).get(queue)
            task = ledger.get(queue, id, tenant) if id else None
            waits = task and waiting(task, ledger.throttle(ledger.shard_of(queue, task.id, task.group), tenant))
    if seen:
        console.out.print(_queue(seen))
        return
    if not (task and waits):
        console.notice(
            f"no task {id} in queue {queue}, tenant {tenant}, in the ledger at {shown(settings.store)} "
            f"(namespace {settings.namespace}). For another ledger, give --store, or --state of a running stack"
        )
        raise typer.Exit(1)
    console.out.print(_record(task))
    console.out.print(_history(task, waits))


@contextmanager
def _opened(settings: Settings) -> Iterator[Store]:
    try:
        yield ledgers.open_store(settings)
    except DuecourseError as error:
        raise HarnessError(f"{error} (the ledger at {shown(settings.store)})") from error


def _queue(seen: QueueStatus) -> Table:
    table = Table("field", "value", show_header=False)
    view = show_queue(seen)
    for name, value in view.items():
        if name != "split":
            table.add_row(name, _shown(value))
    for part in view["split"] if len(view["split"]) > 1 else ():
        of_shard = {name: value for name, value in part.items() if name != "shard"}
        table.add_row(f"shard {part['shard']}", _shown(of_shard))
    return table


def _shown(value: object) -> str:
    if isinstance(value, dict):
        return ", ".join(f"{key} {_shown(part)}" for key, part in value.items() if part is not None)
    return "" if value is None else escape(str(value))


def _record(task: Task) -> Table:
    """A task as GET /tasks/{id} shows it, with the fields that only the ledger has."""
    view = dict(show_task(task))
    del view["history"]
    kept = {
        "tenant": task.tenant,
        "group": task.group,
        "deadline_at": format_instant(task.deadline_at) if task.deadline_at else "",
        "retry": _retry(task.retry),
        "saved_state": dump_json(masked(task.state)) if task.state_json else "",
        "lease": _lease(task),
        "added_by": task.by,
        "generation": task.generation,
    }
    if task.status is Status.DONE and "result" not in view:
        kept["result"] = "none in the ledger; if a results table has it, GET /tasks/{id} shows it"
    table = Table("field", "value", show_header=False)
    for name, value in {**view, **kept}.items():
        if value not in (None, ""):
            table.add_row(name, escape(_text(value)))
    return table


def _retry(retry: RetryPolicy) -> str:
    waits = f"waits from {format_duration(retry.backoff_ms)}, times {retry.factor:g} each, up to"
    return f"{waits} {format_duration(retry.max_backoff_ms)}{', randomised' if retry.jitter else ''}"


def _lease(task: Task) -> str:
    if task.status is not Status.LEASED:
        return ""
    return f"since {format_instant(task.claimed_at)}, until {format_instant(task.lease_expires_at)}"


def _text(value: object) -> str:
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)


def _history(task: Task, waits: Waiting) -> Table:
    table = Table("at", "what", title="what happened, oldest first", title_justify="left")
    for one in timeline(task):
        table.add_row(format_instant(one.at), escape(masked_error(one.text)))
    table.add_row("now", escape(waits.text))
    return table
