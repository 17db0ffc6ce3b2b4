"""Commands of dead tasks: `dead` groups them by error, `replay` schedules them again and waits for their ends."""

import shlex
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Annotated

import typer
from rich.progress import BarColumn, TextColumn
from rich.text import Text

from duecourse.base.times import format_duration, parse_instant, parse_rate
from duecourse.ledger.many_tasks import ANY, MAX_BULK, MAX_REPLAY
from duecourse.ledger.task import DETAIL_LENGTH

from ..errors import HarnessError
from . import console, formatting, options
from .api import ApiClient, Document, RequestRejected, given_fields, queue_path, task_path
from .command import FAILED, Screen, on_ledger
from .console import Table
from .queues import every_queue
from .tasks import print_task

LONGEST_FILTER = 100
"""Maximum length of an error in a line to copy; of a longer one, the line has both ends."""
NO_REASON = "(no error)"
SPECIAL = set('"$`\\!')
"""Characters with a meaning within double quotes of a shell."""


@on_ledger
def dead(
    api: ApiClient,
    screen: Screen,
    queue: Annotated[str | None, typer.Option(help="Queue of the tasks.", show_default="every queue")] = None,
    kind: options.Kind = None,
    group: options.Group = None,
    error: options.Error = None,
    since: options.Since = None,
) -> None:
    """Show the dead tasks by their errors: how many, where in your code, since when, and the line to replay them.

    Numbers and ids in an error count as equal: they are shown as #.

    Examples:

        duecourse dead

        duecourse dead --queue default --kind report --since PT1H
    """
    wanted = given_fields(kind=kind, group=group, error=error, since=since)
    found = [{"queue": one, **groups_of(api, one, wanted)} for one in _queues(api, queue)]
    screen.answer(
        {"queues": [one for one in found if one["errors"]]},
        lambda seen: _show_groups(seen["queues"], screen.target_options),
    )


def groups_of(api: ApiClient, queue: str, wanted: Document) -> Document:
    """Number of a queue's dead tasks, and their groups, the largest first."""
    groups: dict[tuple[str, str], Document] = {}
    for one in _each_group(api, queue, wanted):
        known = groups.setdefault((one["error"], one["kind"]), {**one, "count": 0})
        newest = max(known, one, key=lambda seen: str(seen["latest"]))
        count, since = known["count"] + one["count"], min(known["since"], one["since"])
        known |= {"count": count, "since": since, "latest": newest["latest"], "example": newest["example"]}
    every = sorted(groups.values(), key=lambda one: (-one["count"], one["error"]))
    return {"tasks": sum(one["count"] for one in every), "errors": every}


def _each_group(api: ApiClient, queue: str, wanted: Document) -> Iterator[Document]:
    """Groups of all requests."""
    cursor: str | None = None
    while True:
        query = {**wanted, **given_fields(cursor=cursor), "limit": str(MAX_BULK)}
        answer = api.request("GET", queue_path(queue, "/dead"), query)
        yield from answer["errors"]
        cursor = answer["next_cursor"]
        if cursor is None:
            return


def _queues(api: ApiClient, queue: str | None) -> list[str]:
    if queue is not None:
        return [queue]
    return [one["queue"] for one in every_queue(api) if one["tasks"]["dead"]]


def _show_groups(found: list[Document], target_options: str) -> None:
    if not found:
        console.print_line("no dead task")
    for number, queue in enumerate(found):
        if number:
            console.out.print()
        console.print_line(f"queue {queue['queue']}: {formatting.number_of(queue['tasks'], 'dead task')}")
        width = len(f"{queue['errors'][0]['count']:,}")
        for one in queue["errors"]:
            _show_group(queue["queue"], one, width, target_options)


def _show_group(queue: str, one: Document, width: int, target_options: str) -> None:
    count, indent = f"{one['count']:>{width},} × ", " " * (width + 3)  # noqa: RUF001
    error = console.visible(one["error"] or NO_REASON)
    console.out.print(Text.assemble("\n", (count, "bold"), (error, "red")), soft_wrap=True)
    times = f"latest {formatting.near(one['latest'])}"
    if one["count"] > 1:
        times = f"since {formatting.near(one['since'])}, {times}"
    console.print_line(f"{indent}kind {one['kind']}, {times}, such as {one['example']}")
    console.out.print(Text(f"{indent}{replay_line(queue, one, target_options)}", "cyan"), soft_wrap=True)


def replay_line(queue: str, one: Document, target_options: str) -> str:
    """The command that replays a group, for a shell."""
    error = f" --error {_quoted(_filter(one['error']))}" if one["error"] else ""
    return f"duecourse replay --dead --queue {queue} --kind {one['kind']}{error}{target_options}"


def _filter(error: str) -> str:
    """An error as a filter that a line can hold: `#` for what cannot be printed, and for the middle of a long one."""
    text = "".join(one if one.isprintable() else ANY for one in error)[:DETAIL_LENGTH]
    half = LONGEST_FILTER // 2
    return text if len(text) <= LONGEST_FILTER else f"{text[:half]}{ANY}{text[-half:]}"


def _quoted(text: str) -> str:
    return shlex.quote(text) if SPECIAL & set(text) else f'"{text}"'


ENDS = ("done", "cancelled", "dead")
GONE = "gone"
PAGE = 100
LOOK_S = 0.5
"""Seconds between two looks."""
LINE_S = 10.0
"""Seconds between two lines of progress where there is no terminal."""
EACH = 20
"""Number of tasks that one look asks for by id."""
MISSING, INTERRUPTED = 404, 130


class ReplayWait:
    """Replayed tasks of a queue: those that are not over, and the number of each end.

    Each look reads on in the lists of ended tasks. Only when these show no new end, it asks for tasks by their ids.
    """

    def __init__(self, api: ApiClient, queue: str, tasks: Sequence[Document]) -> None:
        self._api = api
        self._queue = queue
        self._since = min((one["due_at"] for one in tasks), default="")
        self._cursors: dict[str, str] = {}
        self.pending = {one["id"]: parse_instant(one["due_at"]) for one in tasks}
        self.ends = dict.fromkeys((*ENDS, GONE), 0)
        self.total = len(self.pending)

    def look(self) -> None:
        """Read what has ended since the last look."""
        before = len(self.pending)
        for state in ENDS:
            self._read(state)
        if self.pending and len(self.pending) == before:
            self._request_each()

    def _read(self, state: str) -> None:
        while self.pending:
            query = {"queue": self._queue, "state": state, "since": self._since, "limit": str(PAGE)}
            page = self._api.request("GET", "/tasks", query | given_fields(cursor=self._cursors.get(state)))
            for one in page["tasks"]:
                self._end(one["id"], state)
            if page["next_cursor"] is None:  # what ends later is behind this page, which is read again
                return
            self._cursors[state] = page["next_cursor"]

    def _request_each(self) -> None:
        """Look at the tasks that are due longest: a short retention, or a purge, takes ended ones from the lists."""
        for id in list(self.pending)[:EACH]:
            try:
                task = self._api.request("GET", task_path(id), {"queue": self._queue})["task"]
            except RequestRejected as error:
                if error.status != MISSING:
                    raise
                self._end(id, GONE)
            else:
                if task["state"] in ENDS:
                    self._end(id, task["state"])
                else:
                    self.pending[id] = self.pending.pop(id)  # others are asked for before it again

    def _end(self, id: str, state: str) -> None:
        if self.pending.pop(id, None) is not None:
            self.ends[state] += 1

    @property
    def text(self) -> str:
        """The ends in words."""
        said = {"dead": "dead again", GONE: "deleted meanwhile"}
        ended = [f"{count:,} {said.get(state, state)}" for state, count in self.ends.items() if count]
        return ", ".join(ended) or "none over yet"

    def left(self, elapsed_s: float, now_ms: int) -> str:
        """Estimate of the time until the last one is over, by the rate so far and the last due time; "" for none."""
        over = self.total - len(self.pending)
        by_rate = elapsed_s * 1_000 * len(self.pending) / over if over else 0
        left_ms = max(by_rate, *(due_at - now_ms for due_at in self.pending.values()), 0)
        return f"about {formatting.short(round(left_ms / 1_000) * 1_000)} left" if left_ms >= 1_000 else ""


def wait_for_all(waiting: ReplayWait, text: str) -> None:
    """Print `text`, and wait with a bar, or with lines where there is no terminal. Ctrl-C ends with exit code 130."""
    began = said = time.monotonic()
    try:
        console.progress(text)
        with console.bar(TextColumn("{task.description}"), BarColumn(), TextColumn("{task.fields[left]}")) as bar:
            task = bar.add_task("", total=waiting.total, left="")
            waiting.look()
            while waiting.pending:
                now = time.monotonic()
                left = waiting.left(now - began, round(time.time() * 1_000))
                bar.update(task, completed=waiting.total - len(waiting.pending), description=waiting.text, left=left)
                if bar.disable and now - said >= LINE_S:
                    said = now
                    console.progress(f"{len(waiting.pending):,} of {waiting.total:,} wait: {waiting.text}; {left}")
                time.sleep(LOOK_S)
                waiting.look()
    except KeyboardInterrupt:
        left = formatting.number_of(len(waiting.pending), "task")
        console.progress(f"stopped waiting: {left} not over yet; they go on without this command")
        raise typer.Exit(INTERRUPTED) from None


@on_ledger
def replay(  # noqa: PLR0913, PLR0917 - one for each option
    api: ApiClient,
    screen: Screen,
    id: Annotated[str | None, typer.Argument(help="Id of a dead task.")] = None,
    dead: Annotated[bool, typer.Option("--dead", help="Replay the dead tasks of the queue, oldest first.")] = False,
    queue: options.Queue = options.DEFAULT,
    kind: options.Kind = None,
    error: options.Error = None,
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
        answer = api.request("POST", task_path(id, "/replay"), {"queue": queue})
        tasks, text = [answer["task"]], ""
    else:
        replay = DeadReplay(api, queue, given_fields(kind=kind, error=error), rate, limit, dry_run)
        answer = replay.answer(with_tasks=screen.as_json or verbose or not dry_run)
        tasks, text = answer["tasks"], replay.text(answer["replayed"])
        if verbose and tasks and not screen.as_json:
            _show_rows(tasks)
    if not (wait and tasks):
        screen.answer(answer, lambda found: console.print_line(text) if text else print_task(found["task"], "replayed"))
        return
    waiting = ReplayWait(api, queue, tasks)
    wait_for_all(waiting, text or f"{id} replayed")
    _show_ends(waiting, screen, answer)


class DeadReplay:
    """A replay of a queue's dead tasks, in requests of a bounded size that keep one rate together."""

    def __init__(
        self, api: ApiClient, queue: str, wanted: Document, rate: str | None, limit: int | None, dry_run: bool
    ) -> None:
        self._api = api
        self._queue = queue
        self._wanted = wanted
        self._rate = rate
        self._count, self._per_ms = _read_rate(rate) if rate else (1, 0)
        self._dry_run = dry_run
        found = groups_of(api, queue, wanted)
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
        path = queue_path(self._queue, "/dead/replay")
        with console.bar(disable=self._dry_run) as bar:
            shown = bar.add_task("replayed", total=self._total)
            while with_tasks and len(tasks) < self._total:
                answer = self._api.request("POST", path, body=self._body(len(tasks), cursor))
                tasks, cursor = tasks + answer["tasks"], answer["next_cursor"]
                bar.update(shown, completed=len(tasks))
                if cursor is None:
                    break
        replayed = len(tasks) if with_tasks else self._total
        more = replayed < self._all
        return {"replayed": replayed, "dry_run": self._dry_run, "more": more, "tasks": tasks, "next_cursor": cursor}

    def _body(self, done: int, cursor: str | None) -> Document:
        delay = format_duration(self._spread_ms(done)) if self._rate and done else None
        body = given_fields(rate=self._rate, cursor=cursor, delay=delay)
        return {**self._wanted, **body, "limit": min(MAX_REPLAY, self._total - done), "dry_run": self._dry_run}

    def _spread_ms(self, count: int) -> int:
        return count * self._per_ms // self._count

    def text(self, replayed: int) -> str:
        """The replay in one line."""
        if not replayed:
            return formatting.nothing("replay", self._queue, {"state": "dead", **self._wanted})
        done = "would be replayed" if self._dry_run else "replayed"
        kinds = ", ".join(f"{count:,} {kind}" for kind, count in self._kinds.most_common())
        text = f"{formatting.number_of(replayed, 'dead task')} of queue {self._queue} {done}"
        text += f": {kinds}" if replayed == self._all else f", of {self._all:,}"
        spread_ms = self._spread_ms(replayed)
        return f"{text}; drained in about {formatting.short(spread_ms)}" if spread_ms >= 1_000 else text


def _read_rate(text: str) -> tuple[int, int]:
    """Count and milliseconds of `--rate`. Raises HarnessError."""
    try:
        count, per_ms = parse_rate(text)
    except ValueError as error:
        raise HarnessError(f"--rate: {error}") from error
    if not count:
        raise HarnessError("--rate: must be at least 1 task in a time")
    return count, per_ms


def _show_ends(waiting: ReplayWait, screen: Screen, answer: Document) -> None:
    screen.answer(
        {**answer, "ends": waiting.ends}, lambda _: console.print_line(f"{waiting.total:,} over: {waiting.text}")
    )
    if waiting.ends["dead"]:
        raise typer.Exit(FAILED)


def _show_rows(tasks: list[Document]) -> None:
    table = Table("!id", "due")
    for one in tasks:
        table.add_row(one["id"], formatting.local(one["due_at"]))
    console.print_table(table)
