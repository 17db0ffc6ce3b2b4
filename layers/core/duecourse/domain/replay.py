"""Replaying a queue's dead: how many, of which kind, and how fast."""

from typing import NamedTuple

from duecourse.domain.history import Action, Change
from duecourse.domain.pages import Place
from duecourse.domain.query import DEADLINE_MS, QUEUE_PREFIX
from duecourse.domain.task import DEADLINES_MS, DueTask, Task
from duecourse.domain.values import brief, value

MAX_REPLAY = 1_000
"""The most tasks of one replay."""
MAX_LOOKS = 100
"""Maximum number of pages that are searched."""


class Replay(NamedTuple):
    """Request: the oldest `limit` after a place, of one kind and error ("": all), `at_a_time` in each `per_ms`.

    `per_ms` 0 replays all at once. The first task is due `start_ms` from now. In `error`, `#` matches any text.
    """

    limit: int
    kind: str = ""
    at_a_time: int = 1
    per_ms: int = 0
    dry_run: bool = False
    error: str = ""
    start_ms: int = 0
    after: Place | None = None

    def delay_ms(self, index: int) -> int:
        """Delay of the task of that number, evenly spread."""
        return self.start_ms + index * self.per_ms // self.at_a_time


@value(frozen=True, slots=True, repr=False)
class Replayed:
    """Result: the tasks, `more` if others may remain, and then the cursor of the next request."""

    tasks: list[DueTask]
    more: bool
    next_cursor: str | None = None

    def __repr__(self) -> str:
        return brief(self, "tasks", "more")


def deadline_ms(task: Task) -> int:
    """Time from the new due time to the deadline of a dead task: as long as before, 0 for none.

    The time before counts from the newest replay in the task's log, else from the add. A query always has the same
    time. A task without a deadline, or with one in the past, gets its kind's default.
    """
    if task.queue.startswith(QUEUE_PREFIX):
        return DEADLINE_MS
    replays = [entry.due_at for entry in task.log if isinstance(entry, Change) and entry.action is Action.REPLAYED]
    had_ms = task.deadline_at - (replays[-1] if replays else task.created_at)
    return had_ms if had_ms > 0 else DEADLINES_MS.get(task.kind, 0)
