"""`replay`: schedule dead tasks again, and wait until they are over."""

from collections import Counter
from typing import Annotated

import typer

from duecourse.domain.replay import MAX_REPLAY
from duecourse.domain.times import format_duration, parse_rate

from ...stack.problems import HarnessError
from .. import console
from ..table import Table
from . import fields, words
from .changes import tell
from .command import FAILED, Screen, on_ledger
from .dead import groups_of
from .place import Document, Ledger
from .waiting import Waiting, wait_for_all


@on_ledger
def replay(  # noqa: PLR0913, PLR0917 - one for each option
    ledger: Ledger,
    screen: Screen,
    id: Annotated[str | None, typer.Argument(help="Id of a dead task.")] = None,
    dead: Annotated[bool, typer.Option("--dead", help="Replay the dead tasks of the queue, oldest first.")] = False,
    queue: fields.Queue = fields.DEFAULT,
    kind: fields.Kind = None,
    error: fields.Error = None,
    rate: Annotated[str | None, typer.Option(help="Rate for --dead, spread evenly, such as 10/s or 10/PT1S.")] = None,
    limit: Annotated[
        int | None, typer.Option(help="Maximum number of tasks for --dead.", min=1, show_default="all")
    ] = None,
    wait: Annotated[
        bool, typer.Option("--wait", help="Wait until the tasks are over; code 1 if one died again.")
    ] = False,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Count the tasks for --dead, and replay none.")] = False,
    verbose: Annotated[bool, typer.Option("--verbose", "-v", help="Print a row for each task.")] = False,
) -> None:
    """Schedule a dead task again, or the dead tasks of a queue.

    The command dead shows them by their errors. Saved events of functions are sent by duecourse events.

    Examples:

        duecourse replay report-42

        duecourse replay --dead --kind report --error 'no use' --dry-run

        duecourse replay --dead --rate 10/s
    """
    if (id is None) != dead:
        raise HarnessError("give the id of one task, or --dead for those of a queue")
    if wait and dry_run:
        raise HarnessError("--dry-run replays nothing to wait for: leave out --wait")
    if id is not None:
        answer = ledger.ask("POST", fields.task_path(id, "/replay"), {"queue": queue})
        tasks, text = [answer["task"]], ""
    else:
        asked = DeadReplay(ledger, queue, fields.given(kind=kind, error=error), rate, limit, dry_run)
        answer = asked.answer(with_tasks=screen.as_json or verbose or not dry_run)
        tasks, text = answer["tasks"], asked.text(answer["replayed"])
        if verbose and tasks and not screen.as_json:
            _show_rows(tasks)
    if not (wait and tasks):
        screen.answer(answer, lambda found: console.say_line(text) if text else tell(found["task"], "replayed"))
        return
    waiting = Waiting(ledger, queue, tasks)
    wait_for_all(waiting, text or f"{id} replayed")
    _show_ends(waiting, screen, answer)


class DeadReplay:
    """A replay of a queue's dead tasks, in requests of a bounded size that keep one rate together."""

    def __init__(
        self, ledger: Ledger, queue: str, wanted: Document, rate: str | None, limit: int | None, dry_run: bool
    ) -> None:
        self._ledger = ledger
        self._queue = queue
        self._wanted = wanted
        self._rate = rate
        self._count, self._per_ms = _read_rate(rate) if rate else (1, 0)
        self._dry_run = dry_run
        found = groups_of(ledger, queue, wanted)
        self._all = found["tasks"]
        # Tasks that die again meanwhile come later in the order: they are not replayed twice.
        self._total = min(limit or self._all, self._all)
        self._kinds = Counter[str]()
        for one in found["errors"]:
            self._kinds[one["kind"]] += one["count"]

    def answer(self, *, with_tasks: bool) -> Document:
        """Answer to all requests as to one."""
        tasks: list[Document] = []
        cursor: str | None = None
        path = fields.queue_path(self._queue, "/dead/replay")
        with console.bar(disable=self._dry_run) as bar:
            shown = bar.add_task("replayed", total=self._total)
            while with_tasks and len(tasks) < self._total:
                answer = self._ledger.ask("POST", path, body=self._body(len(tasks), cursor))
                tasks, cursor = tasks + answer["tasks"], answer["next_cursor"]
                bar.update(shown, completed=len(tasks))
                if cursor is None:
                    break
        replayed = len(tasks) if with_tasks else self._total
        more = replayed < self._all
        return {"replayed": replayed, "dry_run": self._dry_run, "more": more, "tasks": tasks, "next_cursor": cursor}

    def _body(self, done: int, cursor: str | None) -> Document:
        delay = format_duration(self._spread_ms(done)) if self._rate and done else None
        body = fields.given(rate=self._rate, cursor=cursor, delay=delay)
        return {**self._wanted, **body, "limit": min(MAX_REPLAY, self._total - done), "dry_run": self._dry_run}

    def _spread_ms(self, count: int) -> int:
        return count * self._per_ms // self._count

    def text(self, replayed: int) -> str:
        """The replay in one line."""
        if not replayed:
            return words.nothing("replay", self._queue, {"state": "dead", **self._wanted})
        done = "would be replayed" if self._dry_run else "replayed"
        kinds = ", ".join(f"{count:,} {kind}" for kind, count in self._kinds.most_common())
        text = f"{words.number_of(replayed, 'dead task')} of queue {self._queue} {done}"
        text += f": {kinds}" if replayed == self._all else f", of {self._all:,}"
        spread_ms = self._spread_ms(replayed)
        return f"{text}; drained in about {words.short(spread_ms)}" if spread_ms >= 1_000 else text


def _read_rate(text: str) -> tuple[int, int]:
    """Count and milliseconds of `--rate`. Raises HarnessError."""
    try:
        count, per_ms = parse_rate(text)
    except ValueError as error:
        raise HarnessError(f"--rate: {error}") from error
    if not count:
        raise HarnessError("--rate: must be at least 1 task in a time")
    return count, per_ms


def _show_ends(waiting: Waiting, screen: Screen, answer: Document) -> None:
    screen.answer(
        {**answer, "ends": waiting.ends}, lambda _: console.say_line(f"{waiting.total:,} over: {waiting.text}")
    )
    if waiting.ends["dead"]:
        raise typer.Exit(FAILED)


def _show_rows(tasks: list[Document]) -> None:
    table = Table("!id", "due")
    for one in tasks:
        table.add_row(one["id"], words.local(one["due_at"]))
    console.show(table)
