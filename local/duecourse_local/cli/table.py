"""Tables: plain columns in a pipe; on a terminal other columns are folded before names, and ids never."""

from typing import Any

from rich.cells import cell_len
from rich.console import Console, ConsoleOptions, RenderableType, RenderResult
from rich.segment import Segment
from rich.table import Column
from rich.table import Table as RichTable
from rich.text import Text

from .console import visible

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
