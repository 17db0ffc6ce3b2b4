"""`add` and `move`: give tasks a due time."""

import json
from typing import Annotated

import typer

from ...stack.problems import HarnessError
from .. import console
from . import fields, words
from .command import Screen, on_ledger
from .place import Document, Ledger

USUAL: Document = {"payload": {}, "queue": fields.DEFAULT}
"""Fields of a task that its command gives even where no option does."""


def object_of(option: str, text: str) -> Document:
    """The JSON object of an option, or of a file that is named behind an @. Raises HarnessError, naming the option."""
    try:
        found = json.loads(fields.text_from(text))
    except (ValueError, OSError) as error:
        raise HarnessError(f"{option}: must be JSON, or @FILE with JSON in it: {error}") from None
    if not isinstance(found, dict):
        raise HarnessError(f"{option}: must be a JSON object, or @FILE with one")
    return found


def body_of(options: Document, more: str, usual: Document) -> Document:
    """Fields of a command's options, and those of `--more` beside them, before which a `usual` value gives way.

    Raises HarnessError, naming the fields that both give.
    """
    further = object_of("--more", more)
    twice = [name for name in further if name in options and options[name] != usual.get(name)]
    if twice:
        raise HarnessError(f"--more: {', '.join(twice)} must not be given by an option too")
    return options | further


@on_ledger
def add(  # noqa: PLR0913, PLR0917 - one for each option
    ledger: Ledger,
    screen: Screen,
    kind: Annotated[str, typer.Argument(help="Kind of the task.")],
    payload: Annotated[str, typer.Option(help="Payload: a JSON object, or @FILE with one.")] = "{}",
    id: Annotated[str | None, typer.Option("--id", help="Id of the task.", show_default="a random one")] = None,
    queue: fields.Queue = fields.DEFAULT,
    delay: fields.Delay = None,
    due_at: fields.DueAt = None,
    more: Annotated[str, typer.Option(help="Further fields of POST /tasks: a JSON object, or @FILE with one.")] = "{}",
) -> None:
    """Add a task.

    Examples:

        duecourse add webhook --payload '{"url": "https://hooks.example.com/orders"}' --delay PT10M --id order-7

        duecourse add report --payload @report.json --more '{"deadline": "PT1H"}'
    """
    given = {"kind": kind, "payload": object_of("--payload", payload), "queue": queue}
    options = given | fields.given(id=id, delay=delay, due_at=due_at)
    answer = ledger.ask("POST", "/tasks", body=body_of(options, more, USUAL))
    screen.answer(answer, lambda found: tell(found["task"], "added" if found["created"] else "existed already"))


@on_ledger
def move(
    ledger: Ledger,
    screen: Screen,
    id: fields.Id,
    queue: fields.Queue = fields.DEFAULT,
    delay: fields.Delay = None,
    due_at: fields.DueAt = None,
    force: fields.Force = False,
) -> None:
    """Move a task to a new due time: an instant, or a delay from now.

    Examples:

        duecourse move order-7 --delay PT1H

        duecourse move order-7 --due-at 2026-11-23T09:00:00+01:00
    """
    body = fields.given(delay=delay, due_at=due_at, force=force or None)
    answer = ledger.ask("PATCH", fields.task_path(id), {"queue": queue}, body)
    screen.answer(answer, lambda found: tell(found["task"], "moved"))


def tell(task: Document, what: str) -> None:
    """Print what became of one task."""
    due = f"due {words.local(task['due_at'])}, {words.near(task['due_at'])}"
    console.say_line(f"{task['id']} {what}: {task['state']}, {due}")
