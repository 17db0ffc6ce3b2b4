"""`queues`, `tasks` and `why`: look at what there is."""

from typing import Annotated, Literal

import typer
from rich.text import Text

from .. import console
from ..table import Table
from . import fields, words
from .command import Screen, on_ledger
from .place import Document, Ledger

Status = Literal["scheduled", "leased", "done", "cancelled", "dead"]
PAGE = 100
OVER = {"done", "dead"}


@on_ledger
def queues(ledger: Ledger, screen: Screen) -> None:
    """List the queues: tasks in each state, the oldest overdue task, lateness of the last hour.

    Examples:

        duecourse queues

        duecourse queues --store redis://10.0.0.1:6379 --json
    """
    screen.answer({"queues": every_queue(ledger)}, show_queues)


def every_queue(ledger: Ledger) -> list[Document]:
    """All queues, page by page."""
    page = ledger.ask("GET", "/queues")
    found: list[Document] = page["queues"]
    while "next_after" in page:
        page = ledger.ask("GET", "/queues", {"after": page["next_after"]})
        found += page["queues"]
    return found


def show_queues(document: Document) -> None:
    """Print the queues as a table."""
    found = document["queues"]
    console.show(queue_table(found) if found else "no queue yet: a first task makes one")


def queue_table(queues: list[Document]) -> Table:
    """The queues as a table."""
    table = Table("queue", ">scheduled", ">running", ">done", ">dead", "overdue", "late p99", "schedules")
    for one in queues:
        tasks = one["tasks"]
        dead = Text(str(tasks["dead"]), "red" if tasks["dead"] else "")
        name = Text.assemble(console.visible(one["queue"]), *([(" (paused)", "yellow")] if one["paused"] else []))
        overdue = words.brief(one["oldest_overdue"]) if one["oldest_overdue"] != "PT0S" else ""
        table.add_row(
            name,
            *(str(tasks[state]) for state in ("scheduled", "leased", "done")),
            dead,
            overdue,
            words.brief(one["lateness"]["p99"]),
            _schedules(one.get("schedules")),
        )
    return table


def _schedules(found: Document | None) -> str:
    """Number of a queue's schedules, and when the next one fires; "" for none."""
    if not found or not found["count"]:
        return ""
    return f"{found['count']}, {words.near(found['next_at'])}" if found["next_at"] else str(found["count"])


@on_ledger
def tasks(  # noqa: PLR0913, PLR0917 - one for each option
    ledger: Ledger,
    screen: Screen,
    queue: fields.Queue = fields.DEFAULT,
    state: Annotated[Status | None, typer.Option(help="Filter: tasks in this state.")] = None,
    kind: fields.Kind = None,
    group: fields.Group = None,
    error: fields.Error = None,
    since: fields.Since = None,
    limit: Annotated[int, typer.Option(help="Maximum number of tasks.", min=1)] = 20,
    cursor: Annotated[str | None, typer.Option(help="Cursor: the next_cursor of the answer before.")] = None,
) -> None:
    """List the tasks of a queue, by state and time.

    Examples:

        duecourse tasks --state dead --kind report --since PT1H

        duecourse tasks --queue reminders --limit 200 --json
    """
    found: list[Document] = []
    while True:
        page = ledger.ask(
            "GET",
            "/tasks",
            {
                "queue": queue,
                "state": state,
                "kind": kind,
                "group": group,
                "error": error,
                "since": since,
                "cursor": cursor,
                "limit": str(min(PAGE, limit - len(found))),
            },
        )
        found, cursor = found + page["tasks"], page["next_cursor"]
        if cursor is None or len(found) >= limit:
            break
    screen.answer({"tasks": found, "next_cursor": cursor}, _show_tasks)


def _show_tasks(document: Document) -> None:
    table = Table("!id", "state", "kind", "due or over", ">run", "error")
    for one in document["tasks"]:
        error = one.get("error", "")
        table.add_row(
            one["id"],
            words.state(one["state"]),
            one["kind"],
            _when(one),
            str(one["run"]),
            fields.cut(error),
        )
    console.show(table if document["tasks"] else "no such task")
    if document["next_cursor"]:
        console.err.print(f"more tasks follow: --limit, or --cursor {document['next_cursor']}", soft_wrap=True)


def _when(task: Document) -> str:
    """Due time of a task; the end of one that ran and is done or dead."""
    is_over = task["state"] in OVER and task["history"]
    return words.near(task["history"][-1]["ended_at"] if is_over else task["due_at"])


@on_ledger
def why(ledger: Ledger, screen: Screen, id: fields.Id, queue: fields.Queue = fields.DEFAULT) -> None:
    """Print what happened to a task, and what it waits for.

    Examples:

        duecourse why report-42
    """
    screen.answer(ledger.ask("GET", fields.task_path(id, "/why"), {"queue": queue}), show_why)


def show_why(document: Document) -> None:
    """Print a timeline."""
    table = Table("at", "what happened, oldest first")
    for one in document["timeline"]:
        table.add_row(words.local(one["at"]), words.text_of(one["text"]))
    table.add_row("now", words.text_of(document["waits"]["text"]))
    console.show(table)
