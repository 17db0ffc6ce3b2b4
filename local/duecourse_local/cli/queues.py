"""Commands of queues: `queues`, `pause`, `resume`, `limits` and `top`."""

import time
from collections.abc import Iterator
from contextlib import suppress
from typing import Annotated, Any

import typer
from rich.console import Group, RenderableType
from rich.live import Live
from rich.text import Text

from duecourse.base.hints import near_name
from duecourse.ledger.queue import SETTINGS

from ..errors import HarnessError
from . import console, formatting, options
from .api import ApiClient, Document, queue_path
from .command import Screen, on_ledger
from .console import Table
from .options import seconds


@on_ledger
def queues(api: ApiClient, screen: Screen) -> None:
    """List the queues: tasks in each state, runs without a settle, the oldest overdue task, lateness of the last hour.

    Examples:

        duecourse queues

        duecourse queues --store redis://10.0.0.1:6379 --json
    """
    screen.answer({"queues": every_queue(api)}, show_queues)


def every_queue(api: ApiClient) -> list[Document]:
    """All queues, page by page."""
    page = api.request("GET", "/queues")
    found: list[Document] = page["queues"]
    while "next_after" in page:
        page = api.request("GET", "/queues", {"after": page["next_after"]})
        found += page["queues"]
    return found


def show_queues(document: Document) -> None:
    """Print the queues as a table."""
    found = document["queues"]
    console.print_table(queue_table(found) if found else "no queue yet: a first task makes one")


def queue_table(queues: list[Document]) -> Table:
    """The queues as a table."""
    table = Table("queue", ">scheduled", ">running", ">done", ">dead", ">lapsed", "overdue", "late p99", "schedules")
    for one in queues:
        tasks = one["tasks"]
        dead = Text(str(tasks["dead"]), "red" if tasks["dead"] else "")
        name = Text.assemble(console.visible(one["queue"]), *([(" (paused)", "yellow")] if one["paused"] else []))
        overdue = formatting.brief(one["oldest_overdue"]) if one["oldest_overdue"] != "PT0S" else ""
        table.add_row(
            name,
            *(str(tasks[state]) for state in ("scheduled", "leased", "done")),
            dead,
            _lapsed(one.get("lapsed")),
            overdue,
            formatting.brief(one["lateness"]["p99"]),
            _schedules(one.get("schedules")),
        )
    return table


def _lapsed(found: Document | None) -> Text:
    """Number of runs of the last hour that ended without a settle; "" for none."""
    return Text(str(found["runs"]) if found and found["runs"] else "", "yellow")


def _schedules(found: Document | None) -> str:
    """Number of a queue's schedules, and when the next one fires; "" for none."""
    if not found or not found["count"]:
        return ""
    return f"{found['count']}, {formatting.near(found['next_at'])}" if found["next_at"] else str(found["count"])


def show_queue(view: Document) -> None:
    """Print a queue with its settings and numbers."""
    table = Table("field", "value", show_header=False)
    for name, value in view.items():
        if name != "split":
            table.add_row(name, formatting.parts_of(value))
    for part in view["split"] if len(view["split"]) > 1 else ():
        of_shard = {name: value for name, value in part.items() if name != "shard"}
        table.add_row(f"shard {part['shard']!s}", formatting.parts_of(of_shard))
    console.print_table(table)


NAMES = {one.name for one in SETTINGS}
DEFAULT = "default"
"""Word for the value that a setting has where nobody set it."""
FLAGS = {"true": True, "false": False}


@on_ledger
def pause(api: ApiClient, screen: Screen, queue: options.QueueName) -> None:
    """Pause a queue: no further task is claimed, and running ones run on.

    Examples:

        duecourse pause imports
    """
    _set(api, screen, queue, {"paused": True}, "paused")


@on_ledger
def resume(api: ApiClient, screen: Screen, queue: options.QueueName) -> None:
    """Resume a queue that is paused.

    Examples:

        duecourse resume imports
    """
    _set(api, screen, queue, {"paused": False}, "resumed")


@on_ledger
def limits(
    api: ApiClient,
    screen: Screen,
    queue: options.QueueName,
    changes: Annotated[
        list[str] | None,
        typer.Argument(help="Settings to change, such as max_running=20, rate=10/s, retention=default."),
    ] = None,
    create: Annotated[bool, typer.Option("--create", help="Make the queue if it does not exist.")] = False,
) -> None:
    """Print the settings of a queue, or change some of them; the value default restores a default.

    Settings are those of PATCH /queues/{queue}.

    Examples:

        duecourse limits imports

        duecourse limits imports max_running=20 rate=10/s priority=2 --create

        duecourse limits imports rate=default
    """
    if not changes:
        screen.answer(api.request("GET", queue_path(queue)), lambda found: show_queue(found["queue"]))
        return
    body = {**dict(map(_change, changes)), **({"create": True} if create else {})}
    answer = api.request("PATCH", queue_path(queue), body=body)
    screen.answer(answer, lambda found: show_queue(found["queue"]))


def _set(api: ApiClient, screen: Screen, queue: str, body: Document, what: str) -> None:
    answer = api.request("PATCH", queue_path(queue), body=body)
    screen.answer(answer, lambda _: console.print_line(f"{queue} {what}"))


def _change(text: str) -> tuple[str, Any]:
    name, is_there, value = text.partition("=")
    if not is_there or name not in NAMES:
        names = ", ".join(sorted(NAMES))
        raise HarnessError(f"{text!r} sets nothing: give NAME=VALUE, of the names {names}{near_name(name, NAMES)}")
    if value == DEFAULT:
        return name, None
    return name, FLAGS[value] if value in FLAGS else int(value) if value.isdigit() else value


STATES_IN_TOP = ("leased", "dead")
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
    api: ApiClient,
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
        screen.answer(look(api), lambda seen: console.print_table(_view_of_top(seen)))
        return
    with suppress(KeyboardInterrupt), Live(console=console.out, screen=True, auto_refresh=False) as live:
        while True:
            live.update(_view_of_top(look(api)), refresh=True)
            time.sleep(every)


def look(api: ApiClient) -> Document:
    """Queues, and the tasks in them that run or are dead: the newest of the dead come last."""
    queues = every_queue(api)
    return {"queues": queues, **{state: list(_tasks_in(api, queues, state)) for state in STATES_IN_TOP}}


def _tasks_in(api: ApiClient, queues: list[Document], state: str) -> Iterator[Document]:
    for queue in [one for one in queues if one["tasks"][state]][:MOST_QUEUES]:
        query = {"queue": queue["queue"], "state": state, "limit": str(MOST_TASKS)}
        yield from api.request("GET", "/tasks", query)["tasks"]


def _view_of_top(seen: Document) -> RenderableType:
    parts: list[RenderableType] = [queue_table(seen["queues"])]
    for state, title in (("leased", "running"), ("dead", "dead")):
        if seen[state]:
            parts += [Text(), Text(title, style="bold"), _table_of_top(seen[state])]
    return Group(*parts)


def _table_of_top(tasks: list[Document]) -> Table:
    table = Table("queue", "!id", "kind", "due", ">run", "error")
    for one in tasks[:MOST_TASKS]:
        error = options.cut(one.get("error", ""))
        table.add_row(
            one["queue"], one["id"], one["kind"], formatting.near(one["due_at"]), str(one["run"]),
            error,
        )  # fmt: skip
    return table
