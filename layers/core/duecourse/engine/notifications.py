"""Content of a completion notification: the ended task, in place of the reference that it carries."""

from collections.abc import Callable, Mapping

from duecourse.domain.masking import masked_error
from duecourse.domain.notification import DEAD, Ended, Notify, ended_of
from duecourse.domain.task import Json, Task, dump_json
from duecourse.domain.times import format_instant
from duecourse.engine.tasks import Tasks
from duecourse.errors import TaskNotFound

MAX_BYTES = 200_000
"""Maximum size of a notification: an asynchronous invocation takes 256 KiB."""
PAYLOAD = "payload"
LONG = (PAYLOAD, "result", "history")
"""Fields that a longer notification omits, in turn."""


class Notifications:
    """Reads ended tasks; `show` puts one in the words of the HTTP API."""

    def __init__(self, tasks: Tasks, show: Callable[[Task], Mapping[str, Json]]) -> None:
        self._tasks = tasks
        self._show = show

    def filled(self, task: Task) -> Task:
        """The task as its worker gets it: a completion notification with its content, any other task unchanged.

        The payload becomes {type: task.done or task.dead, timestamp, data: the ended task as it is shown}. For a URL
        that is the body of a webhook's payload. Raises StoreUnavailable and ResultsUnavailable.
        """
        ended = ended_of(task.payload)
        if ended is None:
            return task
        body = {"type": f"task.{ended.state}", "timestamp": format_instant(ended.at), "data": self._data(task, ended)}
        return task._replace(payload_json=dump_json({"url": ended.url, "body": body} if ended.url else body))

    def _data(self, task: Task, ended: Ended) -> dict[str, Json]:
        data = {**self._known(task, ended), "state": ended.state, "tenant": task.tenant, "generation": ended.generation}
        if ended.error:
            data["error"] = masked_error(ended.error)
        return _cut(data)

    def _known(self, task: Task, ended: Ended) -> Mapping[str, Json]:
        """The ended task; only its reference, if the task is gone or has a new generation."""
        try:
            standing = self._tasks.get(task.queue, ended.id, task.tenant)
        except TaskNotFound:
            standing = None
        if standing and standing.generation == ended.generation:
            shown = dict(self._show(standing))
            # Who is told of every death is the operator's own; who else is told may be anybody.
            if task.kind != DEAD and PAYLOAD not in Notify.of(standing.notify).include:
                del shown[PAYLOAD]
            return shown
        return {"id": ended.id, "queue": task.queue, "run": ended.run}


def _cut(data: dict[str, Json]) -> dict[str, Json]:
    left_out: list[str] = []
    for field in LONG:
        if len(dump_json(data).encode()) <= MAX_BYTES:
            break
        if data.pop(field, None) is not None:
            left_out.append(field)
    return {**data, "left_out": left_out} if left_out else data
