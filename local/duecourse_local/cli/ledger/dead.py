"""`dead`: the dead tasks by their errors, and the line that replays each group."""

import shlex
from collections.abc import Iterator
from typing import Annotated

import typer
from rich.text import Text

from duecourse.domain.bulk import MAX_BULK
from duecourse.domain.dead import ANY
from duecourse.domain.history import DETAIL_LENGTH

from .. import console
from . import fields, words
from .command import Screen, on_ledger
from .listing import every_queue
from .place import Document, Ledger

LONGEST_FILTER = 100
"""Maximum length of an error in a line to copy; of a longer one, the line has both ends."""
NO_REASON = "(no error)"
SPECIAL = set('"$`\\!')
"""Characters with a meaning within double quotes of a shell."""


@on_ledger
def dead(
    ledger: Ledger,
    screen: Screen,
    queue: Annotated[str | None, typer.Option(help="Queue of the tasks.", show_default="every queue")] = None,
    kind: fields.Kind = None,
    group: fields.Group = None,
    error: fields.Error = None,
    since: fields.Since = None,
) -> None:
    """Show the dead tasks by their errors: how many, where in your code, since when, and the line to replay them.

    Numbers and ids in an error count as equal: they are shown as #.

    Examples:

        duecourse dead

        duecourse dead --queue default --kind report --since PT1H
    """
    wanted = fields.given(kind=kind, group=group, error=error, since=since)
    found = [{"queue": one, **groups_of(ledger, one, wanted)} for one in _queues(ledger, queue)]
    screen.answer({"queues": [one for one in found if one["errors"]]}, lambda seen: _show(seen["queues"], screen.place))


def groups_of(ledger: Ledger, queue: str, wanted: Document) -> Document:
    """Number of a queue's dead tasks, and their groups, the largest first."""
    groups: dict[tuple[str, str], Document] = {}
    for one in _each(ledger, queue, wanted):
        known = groups.setdefault((one["error"], one["kind"]), {**one, "count": 0})
        newest = max(known, one, key=lambda seen: str(seen["latest"]))
        count, since = known["count"] + one["count"], min(known["since"], one["since"])
        known |= {"count": count, "since": since, "latest": newest["latest"], "example": newest["example"]}
    every = sorted(groups.values(), key=lambda one: (-one["count"], one["error"]))
    return {"tasks": sum(one["count"] for one in every), "errors": every}


def _each(ledger: Ledger, queue: str, wanted: Document) -> Iterator[Document]:
    """Groups of all requests."""
    cursor: str | None = None
    while True:
        query = {**wanted, **fields.given(cursor=cursor), "limit": str(MAX_BULK)}
        answer = ledger.ask("GET", fields.queue_path(queue, "/dead"), query)
        yield from answer["errors"]
        cursor = answer["next_cursor"]
        if cursor is None:
            return


def _queues(ledger: Ledger, queue: str | None) -> list[str]:
    if queue is not None:
        return [queue]
    return [one["queue"] for one in every_queue(ledger) if one["tasks"]["dead"]]


def _show(found: list[Document], place: str) -> None:
    if not found:
        console.say_line("no dead task")
    for number, queue in enumerate(found):
        if number:
            console.out.print()
        console.say_line(f"queue {queue['queue']}: {words.number_of(queue['tasks'], 'dead task')}")
        width = len(f"{queue['errors'][0]['count']:,}")
        for one in queue["errors"]:
            _show_group(queue["queue"], one, width, place)


def _show_group(queue: str, one: Document, width: int, place: str) -> None:
    count, indent = f"{one['count']:>{width},} × ", " " * (width + 3)  # noqa: RUF001
    error = console.visible(one["error"] or NO_REASON)
    console.out.print(Text.assemble("\n", (count, "bold"), (error, "red")), soft_wrap=True)
    times = f"latest {words.near(one['latest'])}"
    if one["count"] > 1:
        times = f"since {words.near(one['since'])}, {times}"
    console.say_line(f"{indent}kind {one['kind']}, {times}, such as {one['example']}")
    console.out.print(Text(f"{indent}{replay_line(queue, one, place)}", "cyan"), soft_wrap=True)


def replay_line(queue: str, one: Document, place: str) -> str:
    """The command that replays a group, for a shell."""
    error = f" --error {_quoted(_filter(one['error']))}" if one["error"] else ""
    return f"duecourse replay --dead --queue {queue} --kind {one['kind']}{error}{place}"


def _filter(error: str) -> str:
    """An error as a filter that a line can hold: `#` for what cannot be printed, and for the middle of a long one."""
    text = "".join(one if one.isprintable() else ANY for one in error)[:DETAIL_LENGTH]
    half = LONGEST_FILTER // 2
    return text if len(text) <= LONGEST_FILTER else f"{text[:half]}{ANY}{text[-half:]}"


def _quoted(text: str) -> str:
    return shlex.quote(text) if SPECIAL & set(text) else f'"{text}"'
