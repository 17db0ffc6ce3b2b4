"""The kind `reminder`: sends one message to one recipient a task."""

from duecourse import Task
from duecourse.domain.outcomes import Outcome
from duecourse.handler import app_task_handler
from duecourse.wiring import App


@app_task_handler
def handler(app: App, task: Task) -> Outcome | None:
    """Send one reminder."""
    return app.reminder_kind(task)
