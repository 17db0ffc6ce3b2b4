"""Output of the commands: results on the standard output, everything else on the standard error.

Text of others (tasks, servers, logs) goes through `shown`, `visible` or `json_text`. Such text may hold what moves the
cursor of a terminal, turns its direction, or looks like another line.
"""

import json
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import typer
from rich.console import Console, RenderableType
from rich.markup import escape
from rich.progress import Progress, ProgressColumn

from ..stack.problems import HarnessError

out = Console(highlight=False)
err = Console(stderr=True, highlight=False)
SHORT = {"\n": r"\n", "\r": r"\r", "\t": r"\t"}


def visible(text: str) -> str:
    """A text with what cannot be printed shown by its number: `\\x1b`, `\\u202e`."""
    return text if text.isprintable() else "".join(one if one.isprintable() else _number(one) for one in text)


def shown(text: str) -> str:
    """A text of others as the consoles here print it: visible, and no markup."""
    return escape(visible(text))


def json_text(document: Any) -> str:
    """A document as JSON in one line, as `json_visible`."""
    return json_visible(json.dumps(document, ensure_ascii=False))


def json_visible(text: str) -> str:
    """The same JSON; what cannot be printed is escaped, as JSON allows within its texts."""
    return text if text.isprintable() else "".join(one if one.isprintable() else json.dumps(one)[1:-1] for one in text)


def say_line(text: str) -> None:
    """Print a text of others as one line, which no terminal's width cuts into several."""
    out.print(shown(text), soft_wrap=True)


def show(table: RenderableType, console: Console | None = None) -> None:
    """Print a table, whose lines may be longer than the terminal."""
    (console or out).print(table, crop=False)


def _lines(text: str) -> str:
    """A message, which may have several lines."""
    return "\n".join(map(shown, text.split("\n")))


def _number(one: str) -> str:
    number = ord(one)
    return SHORT.get(one) or (
        f"\\x{number:02x}" if number < 256 else f"\\u{number:04x}" if number < 65_536 else f"\\U{number:08x}"
    )


def say(service: str, address: str) -> None:
    """One line for a service that is ready."""
    out.print(f"[bold]{service:<10}[/] [green]ready[/]  {shown(address)}", soft_wrap=True)


def say_aside(service: str, address: str) -> None:
    """The same where the standard output is for something else."""
    err.print(f"{service:<10} ready  {shown(address)}", soft_wrap=True)


def progress(text: str) -> None:
    """Something that takes seconds has begun."""
    err.print(f"[dim]{_lines(text)}[/]", soft_wrap=True)


def notice(text: str) -> None:
    """Something went wrong while running."""
    err.print(f"[bold red]{_lines(text)}[/]", soft_wrap=True)


def bar(*columns: str | ProgressColumn, disable: bool = False) -> Progress:
    """A bar of progress for a terminal; for anything else nothing, of which rich would leave a blank line."""
    return Progress(*columns, console=err, transient=True, disable=disable or not err.is_terminal)


@contextmanager
def problems_shown() -> Iterator[None]:
    """Turn an error of the harness or the system into one line and exit code 2."""
    try:
        yield
    except (HarnessError, OSError) as error:
        notice(str(error))
        raise typer.Exit(2) from None
