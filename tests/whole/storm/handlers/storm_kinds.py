"""The handlers of a storm's workers: the kinds that begin with `w.`."""

from storm_work import work

from duecourse import Again, Done, Retry, Task, task_handler
from duecourse.task_handlers import TaskHandler


def _handler_of(kind: str) -> TaskHandler:
    @task_handler(kind=kind)
    def handler(task: Task) -> Done | Again | Retry:
        return work(task)

    return handler


quick, slow, flaky, loop, tick, killer = map(
    _handler_of, ("w.quick", "w.slow", "w.flaky", "w.loop", "w.tick", "w.killer")
)
