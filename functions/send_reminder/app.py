"""The kind `reminder`: sends one message to one recipient a task."""

from duecourse.base.cold_imports import lasting

with lasting():
    from duecourse import Task
    from duecourse.app import App
    from duecourse.ledger.task import Outcome
    from duecourse.task_handlers import app_task_handler


@app_task_handler
def handler(app: App, task: Task) -> Outcome | None:
    """Send one reminder."""
    return app.reminder_kind(task)
