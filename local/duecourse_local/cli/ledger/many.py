"""`purge` and `cancel`: many tasks at once, counted before and asked for; or one task."""

from typing import Annotated, Literal, NamedTuple

import typer

from ...stack.problems import HarnessError
from .. import console
from . import fields, words
from .command import Screen, agreed, on_ledger
from .place import Document, Ledger, Rejected

STEP = 1_000
"""Number of tasks of one request: some milliseconds of the store's time in each of its steps."""

Ended = Literal["dead", "done", "cancelled", "scheduled"]
Live = Literal["scheduled", "leased"]


@on_ledger
def purge(  # noqa: PLR0913, PLR0917 - one for each option
    ledger: Ledger,
    screen: Screen,
    queue: fields.QueueName,
    state: Annotated[Ended, typer.Option(help="State of the tasks. A running task is never purged.")],
    kind: fields.Kind = None,
    group: fields.Group = None,
    error: fields.Error = None,
    older_than: fields.OlderThan = None,
    dry_run: fields.DryRun = False,
    yes: fields.Yes = False,
) -> None:
    """Delete the tasks of one state of a queue, with their history.

    The command counts them, says how many there are, and asks.

    Examples:

        duecourse purge default --state dead --older-than P7D

        duecourse purge default --state done --kind report --dry-run

        duecourse purge imports --state scheduled --yes
    """
    body = fields.given(state=state, kind=kind, group=group, error=error, older_than=older_than)
    _act(ledger, screen, _Many("purge", "purged", queue, body), dry_run=dry_run, yes=yes)


@on_ledger
def cancel(  # noqa: PLR0913, PLR0917 - one for each option
    ledger: Ledger,
    screen: Screen,
    id: Annotated[str | None, typer.Argument(help="Id of one task; a dead one is deleted.")] = None,
    queue: fields.Queue = fields.DEFAULT,
    group: fields.Group = None,
    kind: fields.Kind = None,
    error: fields.Error = None,
    state: Annotated[Live | None, typer.Option(help="Filter: tasks in this state; leased needs --force.")] = None,
    force: fields.Force = False,
    dry_run: fields.DryRun = False,
    yes: fields.Yes = False,
) -> None:
    """Cancel a task; or tasks of a queue by group, kind or state, which the command counts and asks for before.

    Examples:

        duecourse cancel order-7

        duecourse cancel --queue imports --kind report --dry-run

        duecourse cancel --group standup --queue reminders --force --yes
    """
    if id is not None:
        if group or kind or error or state or dry_run:
            raise HarnessError("give the id of one task, or a filter for many")
        ledger.ask("DELETE", fields.task_path(id), {"queue": queue, "force": "true" if force else None})
        screen.answer(
            {"cancelled": 1, "dry_run": False},
            lambda _: console.say_line(f"{id} cancelled"),
        )
        return
    body = fields.given(group=group, kind=kind, error=error, state=state, force=force or None)
    _act(ledger, screen, _Many("cancel", "cancelled", queue, body), dry_run=dry_run, yes=yes)


class _Many(NamedTuple):
    """A request about many tasks: its verb, the field of its answer, the queue and the filter."""

    verb: str
    done: str
    queue: str
    body: Document

    @property
    def path(self) -> str:
        return fields.queue_path(self.queue, f"/{self.verb}")

    @property
    def nothing(self) -> str:
        """Text where no task is found: no question is asked then."""
        return words.nothing(self.verb, self.queue, self.body)


def _act(ledger: Ledger, screen: Screen, what: _Many, *, dry_run: bool, yes: bool) -> None:
    """Count the tasks, ask, then act on them request by request."""
    done, path, body = what.done, what.path, what.body
    count = _each(ledger, done, path, {**body, "dry_run": True}, None)
    if not count:
        screen.answer({done: 0, "dry_run": dry_run}, lambda _: _show_nothing(ledger, what))
        return
    question, instead = (
        f"{words.number_of(count, 'task')} of queue {what.queue} will be {done}. Go on?",
        ", or --dry-run to count only",
    )
    if not dry_run and agreed(question, yes=yes, screen=screen, instead=instead):
        count = _each(ledger, done, path, body, count)
    elif not dry_run:
        raise typer.Exit(1)
    text = f"{words.number_of(count, 'task')} of queue {what.queue} {'would be ' if dry_run else ''}{done}"
    screen.answer({done: count, "dry_run": dry_run}, lambda _: console.say_line(text))


def _show_nothing(ledger: Ledger, what: _Many) -> None:
    console.say_line(what.nothing)
    try:
        ledger.ask("GET", fields.queue_path(what.queue))
    except Rejected as error:  # a queue without tasks may be forgotten: that is no failure, and may be a slip
        console.notice(str(error))


def _each(ledger: Ledger, done: str, path: str, body: Document, total: int | None) -> int:
    """Number of tasks of all requests; with a total, a bar shows their progress."""
    count: int = 0
    cursor: str | None = None
    with console.bar(disable=total is None) as bar:
        task = bar.add_task(done, total=total)
        while True:
            answer = ledger.ask("POST", path, body={**body, "limit": STEP, **fields.given(cursor=cursor)})
            count, cursor = count + answer[done], answer["next_cursor"]
            bar.update(task, completed=count)
            if cursor is None:
                return count
