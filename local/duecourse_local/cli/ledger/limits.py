"""`pause`, `resume` and `limits`: settings of a queue."""

from typing import Annotated, Any

import typer

from duecourse.domain.near import near_name
from duecourse.domain.queues import SETTINGS

from ...stack.problems import HarnessError
from .. import console
from . import fields
from .command import Screen, on_ledger
from .place import Document, Ledger
from .show import show_queue

NAMES = {one.name for one in SETTINGS}
USUAL = "default"
"""Word for the value that a setting has where nobody set it."""
FLAGS = {"true": True, "false": False}


@on_ledger
def pause(ledger: Ledger, screen: Screen, queue: fields.QueueName) -> None:
    """Pause a queue: no further task is claimed, and running ones run on.

    Examples:

        duecourse pause imports
    """
    _set(ledger, screen, queue, {"paused": True}, "paused")


@on_ledger
def resume(ledger: Ledger, screen: Screen, queue: fields.QueueName) -> None:
    """Resume a queue that is paused.

    Examples:

        duecourse resume imports
    """
    _set(ledger, screen, queue, {"paused": False}, "resumed")


@on_ledger
def limits(
    ledger: Ledger,
    screen: Screen,
    queue: fields.QueueName,
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
        screen.answer(ledger.ask("GET", fields.queue_path(queue)), lambda found: show_queue(found["queue"]))
        return
    body = {**dict(map(_change, changes)), **({"create": True} if create else {})}
    answer = ledger.ask("PATCH", fields.queue_path(queue), body=body)
    screen.answer(answer, lambda found: show_queue(found["queue"]))


def _set(ledger: Ledger, screen: Screen, queue: str, body: Document, what: str) -> None:
    answer = ledger.ask("PATCH", fields.queue_path(queue), body=body)
    screen.answer(answer, lambda _: console.say_line(f"{queue} {what}"))


def _change(text: str) -> tuple[str, Any]:
    name, is_there, value = text.partition("=")
    if not is_there or name not in NAMES:
        names = ", ".join(sorted(NAMES))
        raise HarnessError(f"{text!r} sets nothing: give NAME=VALUE, of the names {names}{near_name(name, NAMES)}")
    if value == USUAL:
        return name, None
    return name, FLAGS[value] if value in FLAGS else int(value) if value.isdigit() else value
