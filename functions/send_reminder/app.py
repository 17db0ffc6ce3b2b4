"""The kind `reminder`: sends one message to one recipient a task."""

from duecourse import Task, task_handler, wiring
from duecourse.domain.outcomes import Outcome


@task_handler
def handler(task: Task) -> Outcome | None:
    """Send one reminder."""
    return wiring.reminder_kind()(task)
