"""Waiting for replayed tasks, until each is done, cancelled, dead again or gone."""

import time
from collections.abc import Sequence

import typer
from rich.progress import BarColumn, TextColumn

from duecourse.domain.times import parse_instant

from .. import console
from . import fields, words
from .place import Document, Ledger, Rejected

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


class Waiting:
    """Replayed tasks of a queue: those that are not over, and the number of each end.

    Each look reads on in the lists of ended tasks. Only when these show no new end, it asks for tasks by their ids.
    """

    def __init__(self, ledger: Ledger, queue: str, tasks: Sequence[Document]) -> None:
        self._ledger = ledger
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
            self._ask_each()

    def _read(self, state: str) -> None:
        while self.pending:
            query = {"queue": self._queue, "state": state, "since": self._since, "limit": str(PAGE)}
            page = self._ledger.ask("GET", "/tasks", query | fields.given(cursor=self._cursors.get(state)))
            for one in page["tasks"]:
                self._end(one["id"], state)
            if page["next_cursor"] is None:  # what ends later is behind this page, which is read again
                return
            self._cursors[state] = page["next_cursor"]

    def _ask_each(self) -> None:
        """Look at the tasks that are due longest: a short retention, or a purge, takes ended ones from the lists."""
        for id in list(self.pending)[:EACH]:
            try:
                task = self._ledger.ask("GET", fields.task_path(id), {"queue": self._queue})["task"]
            except Rejected as error:
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
        return f"about {words.short(round(left_ms / 1_000) * 1_000)} left" if left_ms >= 1_000 else ""


def wait_for_all(waiting: Waiting, text: str) -> None:
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
        left = words.number_of(len(waiting.pending), "task")
        console.progress(f"stopped waiting: {left} not over yet; they go on without this command")
        raise typer.Exit(INTERRUPTED) from None
