"""Start of a deadline that was given as a duration."""

from duecourse.domain.history import ORIGINS, Action, Change, Run
from duecourse.domain.task import Task

SETS_DUE = frozenset({Action.DEBOUNCED, Action.MOVED, Action.REPLAYED})
"""The actions by which a caller gives a task another due time."""


def counted_from(task: Task) -> int:
    """The due time that a caller gave last, else the first run's (epoch ms), as far as the task's log tells.

    A task that has run for so long that it has forgotten that counts from the oldest run that it remembers.
    """
    due_at = 0
    for entry in task.log:
        if isinstance(entry, Change):
            due_at = 0 if entry.action in ORIGINS else entry.due_at if entry.action in SETS_DUE else due_at
        elif not due_at:
            due_at = _due(entry)
    return due_at or task.due_at


def _due(run: Run) -> int:
    return run.claimed_at and run.claimed_at - run.late_ms
