"""Options that several commands have, and the types of options that are durations."""

from pathlib import Path
from typing import Annotated

import typer

from duecourse.base.times import parse_duration
from duecourse.ledger.task import DEFAULT_QUEUE

from . import console

StateUsed = Annotated[
    Path, typer.Option("--state", help="State folder of the stack to use.", show_default=".duecourse")
]

NamespaceUsed = Annotated[
    str | None,
    typer.Option(
        "--namespace", help="Prefix of every key in Redis.", show_default="DUECOURSE_NAMESPACE, else duecourse"
    ),
]

StoreUsed = Annotated[
    str | None,
    typer.Option("--store", help="URL of the store.", show_default="that of the running stack, else DUECOURSE_STORE"),
]


def duration(text: str) -> str:
    """The option's text, if it is a duration. Raises typer.BadParameter."""
    try:
        parse_duration(text)
    except ValueError as error:
        raise typer.BadParameter(str(error)) from None
    return text


def seconds(value: str | float) -> float:
    """Seconds of a duration, given as an option or as its default. Raises typer.BadParameter."""
    try:
        return parse_duration(value) / 1000
    except ValueError as error:
        raise typer.BadParameter(str(error)) from None


PANEL = "Where"

Store = Annotated[
    str | None,
    typer.Option(
        "--store",
        help="The store's URL: the command acts on it directly.",
        show_default="the stack that is up here, or DUECOURSE_STORE",
        rich_help_panel=PANEL,
    ),
]

Url = Annotated[
    str | None,
    typer.Option(
        "--url",
        help="URL of a deployed HTTP API; requests are signed with the AWS credentials of this environment.",
        rich_help_panel=PANEL,
    ),
]

Token = Annotated[
    str | None,
    typer.Option(
        "--token",
        help="Token for the HTTP API, in place of a signature.",
        envvar="DUECOURSE_TOKEN",
        show_envvar=True,
        rich_help_panel=PANEL,
    ),
]

Namespace = Annotated[
    str | None,
    typer.Option("--namespace", help="Prefix of every key in the store.", rich_help_panel=PANEL),
]

Tenant = Annotated[
    str | None,
    typer.Option("--tenant", help="Tenant of the tasks; for operators of several.", rich_help_panel=PANEL),
]

Folder = Annotated[
    Path,
    typer.Option(
        "--stack", help="State folder of the stack that is up.", show_default=".duecourse", rich_help_panel=PANEL
    ),
]

AsJson = Annotated[
    bool,
    typer.Option("--json", help="Print the answer of the HTTP API as one JSON document.", rich_help_panel=PANEL),
]


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


def text_from(source: str) -> str:
    """The text of an option: itself, or of a file that is named behind an @."""
    return Path(source[1:]).read_text() if source.startswith("@") else source


def cut(error: str) -> str:
    """An error as a table on a terminal shows it; a pipe gets all of it."""
    return error if not console.out.is_terminal or len(error) <= LONGEST_ERROR else f"{error[:LONGEST_ERROR]}…"
