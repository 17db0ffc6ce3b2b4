"""Content of a completion notification: the ended task, in place of the reference that it carries."""

from collections.abc import Callable

from duecourse.domain.masking import masked_error
from duecourse.domain.notification import DEAD, ON_REQUEST, Ended, Notify, ended_of
from duecourse.domain.task import Json, Task, dump_json
from duecourse.domain.times import format_instant
from duecourse.domain.values import replaced
from duecourse.engine.tasks import Tasks
from duecourse.errors import TaskDamaged, TaskNotFound

MAX_BYTES = 200_000
"""Maximum size of a notification: an asynchronous invocation takes 256 KiB."""
LONG = (*ON_REQUEST, "history")
"""Fields that a longer notification omits, in turn."""

Show = Callable[[Task], dict[str, Json]]
"""Puts a task in the words of the HTTP API."""


def with_content(task: Task, tasks: Tasks, show: Show) -> Task:
    """The task as its worker gets it: a completion notification with its content, any other task unchanged.

    The payload becomes {type: task.done or task.dead, timestamp, data: the ended task as it is shown}. For a URL
    that is the body of a webhook's payload. Raises StoreUnavailable, ResultsUnavailable and TaskDamaged.
    """
    ended = ended_of(task.payload)
    if ended is None:
        return task
    data = {
        **_known(task, ended, tasks, show),
        "state": ended.state,
        "tenant": task.tenant,
        "generation": ended.generation,
    }
    if ended.error:
        data["error"] = masked_error(ended.error)
    body = {"type": f"task.{ended.state}", "timestamp": format_instant(ended.at), "data": _cut(data)}
    call = {"url": ended.url, "body": body, **({"auth": ended.auth} if ended.auth else {})}
    return replaced(task, payload_json=dump_json(call if ended.url else body))


def _known(task: Task, ended: Ended, tasks: Tasks, show: Show) -> dict[str, Json]:
    """The ended task; only its reference, if the task is gone or has a new generation."""
    reference = {"id": ended.id, "queue": task.queue, "run": ended.run}
    try:
        ended_task = tasks.get(task.queue, ended.id, task.tenant)
    except (TaskNotFound, TaskDamaged):
        return reference
    if ended_task.generation != ended.generation:
        return reference
    shown = show(ended_task)
    # Notifications of every death go to the operator's own target; others may go to anybody.
    if task.kind != DEAD:
        include = Notify.of(ended_task.notify).include
        for part in ON_REQUEST:
            if part not in include:
                shown.pop(part, None)
    return shown


def _cut(data: dict[str, Json]) -> dict[str, Json]:
    left_out: list[str] = []
    for field in LONG:
        if len(dump_json(data).encode()) <= MAX_BYTES:
            break
        if data.pop(field, None) is not None:
            left_out.append(field)
    return {**data, "left_out": left_out} if left_out else data
