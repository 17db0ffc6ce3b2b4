"""Working the tasks that a broker delivered, in the function that reads its queue: no lease, nothing to settle."""

import logging
from collections.abc import Callable, Mapping
from functools import partial
from queue import SimpleQueue

from duecourse.domain.outcomes import Ending, Settlement
from duecourse.domain.task import NewTask, Task
from duecourse.engine.run import Runner
from duecourse.engine.tasks import require
from duecourse.engine.threads import Threads
from duecourse.errors import DuecourseError
from duecourse.ports.tasks import TaskStore

log = logging.getLogger("duecourse.engine")


class Receiver:
    """Runs tasks that a broker owns; `store` is asked for only by a task that is to run again."""

    def __init__(self, runner: Runner, threads: Threads, store: Callable[[], TaskStore]) -> None:
        self._runner = runner
        self._threads = threads
        self._store = store

    def work(self, tasks: Mapping[str, Task]) -> dict[str, str]:
        """Run the tasks at the same time; returns those to be delivered again, by their keys, with the reasons.

        Done and Drop end a message, and so does Again once the ledger has the task back. After Retry or an exception
        the broker delivers it again, when it sees fit.
        """
        outbox: SimpleQueue[tuple[str, str]] = SimpleQueue()
        for name, task in tasks.items():
            self._threads.do(partial(self._run, name, task, outbox))
        ended = [outbox.get() for _ in tasks]
        return {name: problem for name, problem in ended if problem}

    def _run(self, name: str, task: Task, outbox: SimpleQueue[tuple[str, str]]) -> None:
        outbox.put((name, self._end(task, self._runner.run(task))))

    def _end(self, task: Task, settlement: Settlement) -> str:
        """Reason why the message must be delivered again, or ""."""
        match settlement.ending:
            case Ending.DONE:
                return ""
            case Ending.DROP:
                log.error("task %s, delivered by a broker, is dropped: %s", task.id, settlement.detail)
                return ""
            case Ending.AGAIN:
                return self._give_back(task, settlement)
        return settlement.detail or "the result could not be stored"

    def _give_back(self, task: Task, settlement: Settlement) -> str:
        """Have the ledger keep the task until it is due again; a task that was added meanwhile under its id stays."""
        try:
            [added] = self._store().add([_anew(task, settlement)])
            require(added.reply, task.queue, task.id, task.tenant)
        except DuecourseError as error:
            return f"the ledger did not accept it back: {error}"
        return ""


def _anew(task: Task, settlement: Settlement) -> NewTask:
    return NewTask(
        id=task.id,
        kind=task.kind,
        payload=task.payload_json,
        queue=task.queue,
        tenant=task.tenant,
        group=task.group,
        state=task.state_json if settlement.state is None else settlement.state,
        due_at=settlement.due_at,
        delay_ms=settlement.delay_ms,
        deadline_at=task.deadline_at or None,
        retry=task.retry,
        by="broker",
    )
