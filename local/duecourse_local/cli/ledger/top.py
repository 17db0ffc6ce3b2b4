"""`top`: the queues, what runs and what died, again and again in the terminal."""

import time
from collections.abc import Iterator
from contextlib import suppress
from typing import Annotated

import typer
from rich.console import Group, RenderableType
from rich.live import Live
from rich.text import Text

from .. import console
from ..client import seconds
from ..table import Table
from . import fields, words
from .command import Screen, on_ledger
from .listing import every_queue, queue_table
from .place import Document, Ledger

SHOWN = ("leased", "dead")
LEAST_S = 0.5
"""Shortest time between two looks."""
MOST_QUEUES = 20
"""Number of queues whose tasks are asked for: each look costs two requests a queue."""
MOST_TASKS = 10
"""Number of tasks of each state that one look shows."""


def _check_interval(every: float) -> float:
    if every < LEAST_S:
        raise typer.BadParameter(f"must be at least {LEAST_S:g} seconds")
    return every


@on_ledger
def top(
    ledger: Ledger,
    screen: Screen,
    every: Annotated[
        float,
        typer.Option(
            help="Time between two looks, such as 2s or seconds; at least half a second.",
            metavar="DURATION",
            parser=seconds,
            callback=_check_interval,
        ),
    ] = 2.0,
    once: Annotated[bool, typer.Option("--once", help="Look once, and end.")] = False,
) -> None:
    """Show the queues, their lateness, the tasks that run and those that died, until Ctrl-C.

    Option --json looks once.

    Examples:

        duecourse top --once
    """
    if once or screen.as_json:
        screen.answer(look(ledger), lambda seen: console.show(_view(seen)))
        return
    with suppress(KeyboardInterrupt), Live(console=console.out, screen=True, auto_refresh=False) as live:
        while True:
            live.update(_view(look(ledger)), refresh=True)
            time.sleep(every)


def look(ledger: Ledger) -> Document:
    """Queues, and the tasks in them that run or are dead: the newest of the dead come last."""
    queues = every_queue(ledger)
    return {"queues": queues, **{state: list(_tasks(ledger, queues, state)) for state in SHOWN}}


def _tasks(ledger: Ledger, queues: list[Document], state: str) -> Iterator[Document]:
    for queue in [one for one in queues if one["tasks"][state]][:MOST_QUEUES]:
        query = {"queue": queue["queue"], "state": state, "limit": str(MOST_TASKS)}
        yield from ledger.ask("GET", "/tasks", query)["tasks"]


def _view(seen: Document) -> RenderableType:
    parts: list[RenderableType] = [queue_table(seen["queues"])]
    for state, title in (("leased", "running"), ("dead", "dead")):
        if seen[state]:
            parts += [Text(), Text(title, style="bold"), _table(seen[state])]
    return Group(*parts)


def _table(tasks: list[Document]) -> Table:
    table = Table("queue", "!id", "kind", "due", ">run", "error")
    for one in tasks[:MOST_TASKS]:
        error = fields.cut(one.get("error", ""))
        table.add_row(
            one["queue"], one["id"], one["kind"], words.near(one["due_at"]), str(one["run"]),
            error,
        )  # fmt: skip
    return table
