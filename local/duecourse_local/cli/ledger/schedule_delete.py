"""`schedules delete`: one schedule; or many, which the command counts and asks for before."""

from typing import Annotated

import typer

from ...stack.problems import HarnessError
from .. import console
from . import fields, words
from .command import Screen, agreed, on_ledger
from .place import Document, Ledger, quoted

STEP = 1_000
"""Number of schedules of one request."""


@on_ledger
def delete(  # noqa: PLR0913, PLR0917 - one for each option
    ledger: Ledger,
    screen: Screen,
    id: Annotated[str | None, typer.Argument(help="Id of one schedule.")] = None,
    queue: Annotated[str, typer.Option(help="Queue of the schedules.")] = fields.DEFAULT,
    kind: Annotated[str | None, typer.Option(help="Filter: schedules of this kind.")] = None,
    prefix: Annotated[str | None, typer.Option(help="Filter: schedules whose id begins so.")] = None,
    every: Annotated[bool, typer.Option("--all", help="All schedules of the queue, without a filter.")] = False,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Count the schedules and change nothing.")] = False,
    yes: fields.Yes = False,
) -> None:
    """Delete a schedule, or many: no further occurrence comes, and a running one finishes.

    Examples:

        duecourse schedules delete daily-report --yes

        duecourse schedules delete --prefix import- --dry-run

        duecourse schedules delete --queue imports --kind report --yes
    """
    filtered = fields.given(kind=kind, prefix=prefix, all=every or None)
    if (id is None) is not bool(filtered) or (id is not None and dry_run):
        raise HarnessError("give the id of one schedule, or --kind, --prefix or --all for many")
    if id is None:
        _delete_many(ledger, screen, queue, filtered, dry_run=dry_run, yes=yes)
    elif agreed(f"Delete the schedule {id} of queue {queue}?", yes=yes, screen=screen):
        ledger.ask("DELETE", f"/schedules/{quoted(id)}", {"queue": queue})
        screen.answer({"id": id}, lambda _: console.say_line(f"{id} deleted"))


def _delete_many(ledger: Ledger, screen: Screen, queue: str, body: Document, *, dry_run: bool, yes: bool) -> None:
    count = _each(ledger, queue, {**body, "dry_run": True})
    if count and not dry_run:
        question = f"{words.number_of(count, 'schedule')} of queue {queue} will be deleted. Go on?"
        if not agreed(question, yes=yes, screen=screen, instead=", or --dry-run to count only"):
            raise typer.Exit(1)
        count = _each(ledger, queue, body)
    text = f"{words.number_of(count, 'schedule')} of queue {queue} {'would be ' if dry_run else ''}deleted"
    screen.answer({"purged": count, "dry_run": dry_run}, lambda _: console.say_line(text))


def _each(ledger: Ledger, queue: str, body: Document) -> int:
    """Number of schedules of all requests."""
    count: int = 0
    after: str | None = None
    while True:
        asked = {**body, "limit": STEP, **fields.given(after=after)}
        answer = ledger.ask("POST", "/schedules/purge", {"queue": queue}, asked)
        count, after = count + answer["purged"], answer["next_after"]
        if after is None:
            return count
