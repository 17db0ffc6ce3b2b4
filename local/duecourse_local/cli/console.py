"""Output of the commands: results on the standard output, everything else on the standard error."""

from collections.abc import Iterator
from contextlib import contextmanager

import typer
from rich.console import Console
from rich.markup import escape
from rich.progress import Progress, ProgressColumn

from ..stack.problems import HarnessError

out = Console(highlight=False)
err = Console(stderr=True, highlight=False)


def say(service: str, address: str) -> None:
    """One line for a service that is ready."""
    out.print(f"[bold]{service:<10}[/] [green]ready[/]  {escape(address)}", soft_wrap=True)


def say_aside(service: str, address: str) -> None:
    """The same where the standard output is for something else."""
    err.print(f"{service:<10} ready  {escape(address)}", soft_wrap=True)


def progress(text: str) -> None:
    """Something that takes seconds has begun."""
    err.print(f"[dim]{escape(text)}[/]", soft_wrap=True)


def notice(text: str) -> None:
    """Something went wrong while running."""
    err.print(f"[bold red]{escape(text)}[/]", soft_wrap=True)


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
