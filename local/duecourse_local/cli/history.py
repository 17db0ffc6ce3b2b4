"""The command `history`: a queue's numbers over time, plotted in the terminal."""

from collections.abc import Sequence
from datetime import datetime
from typing import Annotated, Any

import typer
from rich.text import Text

from duecourse.base.times import parse_duration
from duecourse.ledger.queue_history import COUNTS, SPANS
from duecourse.queues.http import DEFAULT_SPAN

from ..errors import HarnessError
from . import console, formatting, options
from .api import ApiClient, Document, queue_path
from .command import Screen, on_ledger
from .console import Table

BARS = "▁▂▃▄▅▆▇█"
NOTHING, DOT = -1, "·"
"""Value of a column in which nothing happened, and how it looks."""
MOST_COLUMNS = 60
"""Widest plot; of more lines, neighbours share a column."""
COLOURS = {"retried": "yellow", "dead": "red"}
DURATIONS = {"lateness": "late", "run_time": "run", "wait": "wait"}
QUANTILES = ("p50", "p99")


@on_ledger
def history(
    api: ApiClient,
    screen: Screen,
    queue: options.QueueName,
    span: Annotated[str, typer.Option(help=f"Span up to now: {', '.join(SPANS)}.", metavar="SPAN")] = DEFAULT_SPAN,
) -> None:
    """Plot what a queue did in the last hour, day, 7 or 90 days, and how late and how long its runs were.

    Each column is a minute, an hour or a day, in UTC; the last one is not over yet. A bar counts tasks, or shows the
    longest time of its column. The wait is from the claim to the handler.

    Examples:

        duecourse history imports

        duecourse history imports --span 7d --json
    """
    if span not in SPANS:
        raise HarnessError(f"{span!r} is no span: give one of {', '.join(SPANS)}")
    screen.answer(api.request("GET", queue_path(queue, "/history"), {"span": span}), show_history)


def show_history(seen: Document) -> None:
    """Print the plots, a row for each number."""
    console.print_table(history_table(seen))


def history_table(seen: Document) -> Table:
    """The plots as a table."""
    lines, total = seen["lines"], seen["total"]
    table = Table("number", _title(seen), ">sum", ">most")
    for name in COUNTS:
        counts = [line[name] for line in lines]
        columns = [sum(some) or NOTHING for some in _columns(counts)]
        style = COLOURS.get(name, "") if total[name] else "dim"
        table.add_row(name, Text(plot(columns), style), f"{total[name]:,}", f"{max(counts):,}")
    for name, word in DURATIONS.items():
        for share in QUANTILES:
            times = [_ms(line[name][share]) for line in lines]
            columns = [max(some) for some in _columns(times)]
            most = "" if max(times) == NOTHING else formatting.short(max(times))
            table.add_row(f"{word} {share}", plot(columns), formatting.brief(total[name][share]), most)
    return table


def _title(seen: Document) -> str:
    first, last = (datetime.fromisoformat(seen["lines"][n]["at"]) for n in (0, -1))
    pattern = "%d %b" if seen["step"] == "P1D" else "%d %b %H:%M" if seen["span"] != "1h" else "%H:%M"
    return f"{first:{pattern}} to {last:{pattern}} UTC"


def _ms(duration: str | None) -> int:
    """A duration in ms; NOTHING for none."""
    return NOTHING if duration is None else parse_duration(duration)


def _columns(values: Sequence[int]) -> list[Sequence[int]]:
    """The values of each column, the last of which ends with the last value."""
    each = -(-len(values) // MOST_COLUMNS)
    first = len(values) % each
    return [values[:first]] * bool(first) + [values[at : at + each] for at in range(first, len(values), each)]


def plot(values: Sequence[Any]) -> str:
    """A bar for each value, the highest for the greatest; a dot where nothing happened, for NOTHING."""
    top = max(values)
    return "".join(_bar(value, top) for value in values)


def _bar(value: int, top: int) -> str:
    if value == NOTHING:
        return DOT
    return BARS[-(-value * len(BARS) // top) - 1] if value else BARS[0]
