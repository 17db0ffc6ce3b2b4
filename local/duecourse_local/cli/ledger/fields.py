"""Options that several commands of operators have."""

from pathlib import Path
from typing import Annotated, Any

import typer

from duecourse.domain.task import DEFAULT_QUEUE

from .. import console
from ..client import duration
from .place import Document, quoted

Id = Annotated[str, typer.Argument(help="Id of the task.")]
Queue = Annotated[str, typer.Option(help="Queue of the task; tasks of reminders are in the queue reminders.")]
QueueName = Annotated[str, typer.Argument(help="Name of the queue.")]
Kind = Annotated[str | None, typer.Option(help="Filter: tasks of this kind.")]
Group = Annotated[str | None, typer.Option(help="Filter: tasks of this group, such as one reminder's.")]
Error = Annotated[
    str | None,
    typer.Option(
        help="Filter: tasks whose error has this text, in which # matches any text; duecourse dead shows errors so."
    ),
]
Since = Annotated[
    str | None,
    typer.Option(
        help="Filter: tasks since an instant, or a duration before now, such as PT1H; of ended ones, the end."
    ),
]
DryRun = Annotated[bool, typer.Option("--dry-run", help="Count the tasks and change nothing.")]
Yes = Annotated[bool, typer.Option("--yes", "-y", help="Do not ask before.")]
Force = Annotated[bool, typer.Option("--force", help="Take running tasks from their workers.")]
DEFAULT = DEFAULT_QUEUE
LONGEST_ERROR = 40
"""Number of characters of an error that a table shows."""


def _spans(text: str | None) -> str | None:
    return None if text is None else duration(text)


Delay = Annotated[
    str | None, typer.Option(help="Delay from now to the due time: 5m, PT5M or seconds.", callback=_spans)
]
DueAt = Annotated[str | None, typer.Option(help="Due time: RFC 3339, such as 2026-11-23T09:00:00+01:00.")]
OlderThan = Annotated[
    str | None,
    typer.Option(
        help="Filter: minimum age, such as P7D; since the add of a scheduled task, since the end of others.",
        callback=_spans,
    ),
]


def task_path(id: str, verb: str = "") -> str:
    """Path of a task, or of a verb on it."""
    return f"/tasks/{quoted(id)}{verb}"


def queue_path(queue: str, verb: str = "") -> str:
    """Path of a queue, or of a verb on it."""
    return f"/queues/{quoted(queue)}{verb}"


def given(**fields: Any) -> Document:
    """Fields of a request without those that are left out."""
    return {name: value for name, value in fields.items() if value is not None}


def text_from(source: str) -> str:
    """The text of an option: itself, or of a file that is named behind an @."""
    return Path(source[1:]).read_text() if source.startswith("@") else source


def cut(error: str) -> str:
    """An error as a table on a terminal shows it; a pipe gets all of it."""
    return error if not console.out.is_terminal or len(error) <= LONGEST_ERROR else f"{error[:LONGEST_ERROR]}…"
