"""Output of the commands: results and tables on the standard output, everything else on the standard error.

Text of others (tasks, servers, logs) goes through `shown`, `visible` or `json_text`. Such text may hold what moves the
cursor of a terminal, turns its direction, or looks like another line.
"""

import json
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import typer
from rich.cells import cell_len
from rich.console import Console, ConsoleOptions, RenderableType, RenderResult
from rich.markup import escape
from rich.progress import Progress, ProgressColumn
from rich.segment import Segment
from rich.table import Column
from rich.table import Table as RichTable
from rich.text import Text

from ..errors import HarnessError

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


def print_line(text: str) -> None:
    """Print a text of others as one line, which no terminal's width cuts into several."""
    out.print(shown(text), soft_wrap=True)


def print_table(table: RenderableType, console: Console | None = None) -> None:
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


def print_ready(service: str, address: str) -> None:
    """One line for a service that is ready."""
    out.print(f"[bold]{service:<10}[/] [green]ready[/]  {shown(address)}", soft_wrap=True)


def print_ready_to_stderr(service: str, address: str) -> None:
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
    except UnicodeEncodeError as error:
        notice(no_text(error))
        raise typer.Exit(2) from None


def no_text(error: UnicodeEncodeError) -> str:
    """The problem of an argument whose bytes the shell gave as they are, such as those of Latin-1."""
    return f"an argument is no UTF-8: {error.object!r}"


GAP = 2
LEAST = 8
"""Width that a text is folded to before a name is folded."""
NAMES = {"kind", "queue"}
EMPTY = "-"
"""Mark of an empty cell in a pipe: each row has as many columns as the others."""


class Table(RichTable):
    """Table of texts; a column `>name` has numbers, `!name` has ids."""

    def __init__(self, *columns: str, show_header: bool = True) -> None:
        super().__init__(box=None, pad_edge=False, header_style="bold", show_header=show_header)
        for name in columns:
            self.add_column(
                name.lstrip(">!"),
                justify="right" if name[0] == ">" else "left",
                overflow="fold",
                no_wrap=name[0] in ">!",
            )
        self._ids = {name.lstrip("!") for name in columns if name[0] == "!"}

    def add_row(self, *cells: RenderableType | None, **options: Any) -> None:
        """Add a row; a cell that is a string is a text of others, whatever it looks like."""
        super().add_row(*(Text(visible(cell)) if isinstance(cell, str) else cell for cell in cells), **options)

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        """See rich: its own table, without empty columns, where that keeps the ids whole."""
        if not console.is_terminal:
            yield from self._lines(EMPTY)
            return
        if self.rows:
            self.columns = [column for column in self.columns if any(map(str, column.cells))]
        is_tight = self._width(NAMES | self._ids) > options.max_width
        if is_tight and self._width(self._ids) > options.max_width:
            yield from self._lines("")  # the terminal breaks the lines, and an id that is selected is one word
            return
        for column in self.columns:
            column.no_wrap = column.no_wrap or (column.header in NAMES and not is_tight)
        yield from super().__rich_console__(console, options)

    def _width(self, whole: set[str]) -> int:
        """Least width of the table where the columns of these names, and numbers, stay whole."""
        widths = (_width(column, whole=column.no_wrap or str(column.header) in whole) for column in self.columns)
        return sum(widths) + GAP * (len(self.columns) - 1)

    def _lines(self, empty: str) -> RenderResult:
        columns = [_cells(column)[0 if self.show_header else 1 :] for column in self.columns]
        widths = [max(map(cell_len, cells), default=0) for cells in columns]
        for row in zip(*columns, strict=True):
            cells = (
                _padded(cell or empty, width, column)
                for cell, width, column in zip(row, widths, self.columns, strict=True)
            )
            yield Segment((" " * GAP).join(cells).rstrip() + "\n")


def _cells(column: Column) -> list[str]:
    return [str(cell) for cell in (column.header, *column.cells)]


def _width(column: Column, *, whole: bool) -> int:
    if whole:
        return max(map(cell_len, _cells(column)))
    return max(min(LEAST, cell_len(word)) for cell in _cells(column) for word in cell.split() or [""])


def _padded(cell: str, width: int, column: Column) -> str:
    room = " " * (width - cell_len(cell))
    return room + cell if column.justify == "right" else cell + room
